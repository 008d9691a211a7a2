"""The data file of what the card refuses, `opinfo_refused.toml`, and that it is exact."""

import dataclasses
import functools
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import torch
from proof import Verdict, WrongResult, name_of

FILE = Path(__file__).with_name("opinfo_refused.toml")


@dataclasses.dataclass(frozen=True)
class Group:
    """Database entries that are refused for the same reason."""

    name: str
    error: str
    reason: str
    entries: frozenset[str]


@functools.cache
def groups(database: str) -> tuple[Group, ...]:
    """The groups of one of the databases, "ops" or "modules", or of "compiled" ops."""
    found = tomllib.loads(FILE.read_text())["refused"]
    return tuple(
        Group(name, group["error"], group["reason"], frozenset(group.get(database, ())))
        for name, group in found.items()
    )


@functools.cache
def differences(database: str, always: bool = False) -> dict[str, str]:
    """Entries, as "name dtype", whose results are not the CPU's, and why; or `always` are not."""
    found = tomllib.loads(FILE.read_text()).get("differs", {}).values()
    kept = [group for group in found if not (always and group.get("sometimes"))]
    return {name: group["reason"] for group in kept for name in group.get(database, ())}


def group_of(database: str, entry: str, refusal: str) -> Group | None:
    for group in groups(database):
        if entry in group.entries and re.search(group.error, refusal):
            return group
    return None


def check_listed(database: str, entry: str, verdicts: list[Verdict]) -> None:
    """Every refusal of the entry is in the file, and every group that names it is needed."""
    needed = set()
    for refusal in sorted({text for verdict in verdicts for text in verdict.refusals}):
        group = group_of(database, entry, refusal)
        if group is None:
            pytest.fail(f"{entry} is refused, and {FILE.name} does not say why: {refusal}")
        needed.add(group.name)
    listed = {group.name for group in groups(database) if entry in group.entries}
    if listed - needed:
        pytest.fail(f"{entry} is no longer refused: remove it from {listed - needed}, {FILE.name}")


def check_differences(
    database: str, name: str, wrong: dict[str, str], complete: bool = True
) -> None:
    """Every entry that is wrong, "name dtype", is in the file.

    After a complete search the file has no other, but for those that differ sometimes.
    """
    listed = differences(database)
    unexpected = [f"{entry}: {text}" for entry, text in wrong.items() if entry not in listed]
    assert not unexpected, "\n".join(unexpected)
    certain = {entry for entry in differences(database, True) if entry.split(" ", 1)[0] == name}
    gone = certain - set(wrong) if complete else None
    assert not gone, f"no longer different: remove {gone} from {FILE.name}"


@pytest.fixture(autouse=True, scope="module")
def small_and_quiet() -> Iterator[None]:
    """Samples are tiny: a second thread of the CPU's would only spin."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.spyre.set_downcast_warning(False)
    yield
    torch.spyre.set_downcast_warning(True)
    torch.set_num_threads(threads)


def prove(
    database: str,
    name: str,
    dtypes: Iterable[torch.dtype],
    run: Callable[[torch.dtype, Verdict], None],
    record: Callable[[tuple[str, dict[str, str], list[str]]], None],
) -> list[Verdict]:
    """Run an entry of a database in every dtype, record the findings, check them with the file."""
    verdicts, wrong, found = [], {}, {}
    for dtype in dtypes:
        verdict = Verdict()
        try:
            run(dtype, verdict)
        except WrongResult as error:
            wrong[f"{name} {name_of(dtype)}"] = str(error)
        verdicts.append(verdict)
        found[name_of(dtype)] = "differs" if f"{name} {name_of(dtype)}" in wrong else verdict.word
    record((name, found, sorted({entry for v in verdicts for entry in v.fallbacks})))

    check_differences(database, name, wrong)
    check_listed(database, name, verdicts)
    return verdicts
