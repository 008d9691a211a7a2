"""What the tests of PyTorch's databases found: printed after them, kept in the documentation."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from torch_spyre.tools.tables import Table

PAGE = Path(__file__).parents[1] / "docs" / "supported-operations.md"
DTYPES = ("float16", "float32", "int64", "bool")
WORDS = (
    "native", "fallback", "compiled", "with eager kernels", "several graphs", "refused", "differs",
    "no sample",
)  # fmt: skip

# Entry, word by dtype, ATen ops that fell back; for compiled entries, those called between kernels.
Finding = tuple[str, dict[str, str], list[str]]


def counts(findings: Iterable[Finding]) -> Table:
    """How many entries ended how, by dtype."""
    columns = {dtype: Counter[str]() for dtype in DTYPES}
    for _, found, _ in findings:
        for dtype, word in found.items():
            columns[dtype][word] += 1
    table = Table(["", *DTYPES], numbers=frozenset(range(1, 1 + len(DTYPES))))
    for word in WORDS:
        if any(column[word] for column in columns.values()):
            table.add(word, *(str(columns[dtype][word]) for dtype in DTYPES))
    return table


def entries(findings: Iterable[Finding]) -> Table:
    """Every entry, what it does for each dtype, and what of it runs on the CPU."""
    table = Table(["operation", *DTYPES, "on the CPU"])
    for name, found, fallbacks in sorted(findings):
        on_cpu = ", ".join(f"`{entry.removeprefix('aten::')}`" for entry in fallbacks)
        table.add(f"`{name}`", *(found.get(dtype, "") for dtype in DTYPES), on_cpu)
    return table


def eager_calls(findings: Iterable[Finding]) -> Table:
    """The ATen ops that compiled entries call between kernels, by the number of entries."""
    called = Counter(call for _, _, calls in findings for call in calls)
    table = Table(["eager kernel", "entries"], numbers=frozenset([1]))
    for name, number in sorted(called.items(), key=lambda entry: (-entry[1], entry[0])):
        table.add(f"`{name.removeprefix('aten.')}`", str(number))
    return table


def write(section: str, findings: list[Finding]) -> None:
    """Replace one generated section of the page."""
    begin, end = f"<!-- begin {section} -->\n", f"<!-- end {section} -->\n"
    text = PAGE.read_text()
    head, rest = text.split(begin)
    _, tail = rest.split(end)
    details = (eager_calls if section == "compiled" else entries)(findings)
    body = f"\n{counts(findings).markdown()}\n\n{details.markdown()}\n\n"
    PAGE.write_text(head + begin + body + end + tail)
