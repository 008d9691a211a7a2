"""The data file of what the card refuses, `opinfo_refused.toml`, and that it is exact."""

import dataclasses
import functools
import re
import tomllib
from pathlib import Path

import pytest
from proof import Verdict

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
    """The groups of one of the databases, "ops" or "modules"."""
    found = tomllib.loads(FILE.read_text())["refused"]
    return tuple(
        Group(name, group["error"], group["reason"], frozenset(group.get(database, ())))
        for name, group in found.items()
    )


@functools.cache
def differences(database: str) -> dict[str, str]:
    """Entries, as "name dtype", whose results are not the CPU's, and why."""
    found = tomllib.loads(FILE.read_text()).get("differs", {})
    return {name: group["reason"] for group in found.values() for name in group.get(database, ())}


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
