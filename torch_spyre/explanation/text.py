"""A report for the terminal."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torch_spyre.explanation.figures import Figures, Row
from torch_spyre.explanation.report import Report
from torch_spyre.tools.tables import Table, duration, size

MOST_ROWS = 16
NOTHING = "nothing ran on a card: are the model and its inputs on the device 'spyre'?"

HEADINGS = ("times", "time", "share", "read", "written", "LX", "ring", "MACs", "cores", "use")


_LINE_HEADINGS = ("times", "time", "share", "read", "written", "use")  # the lines need room


def text(report: Report) -> str:
    if not report.ran:
        return "\n".join([f"{report.title}: {NOTHING}", *_notes(report)])
    tables = [
        _totals(report),
        figures_table("By op", "op", report.ops, report.total),
        figures_table("By layer", "layer", report.layers, report.total),
        figures_table("By source line", "line", report.lines, report.total, _LINE_HEADINGS),
        *_lx(report),
    ]
    return "\n\n".join([*(table.text() for table in tables), "\n".join(_notes(report))]).strip()


def totals(report: Report) -> list[tuple[str, str]]:
    """The whole run in a few lines."""
    total, computed = report.total, report.computed
    found = [
        ("modelled time", duration(report.modelled_ns)),
        ("wall time", duration(report.wall_seconds * 1e9)),
        ("launches", str(report.launches)),
    ]
    if total.ns != report.modelled_ns:
        found.insert(1, ("time of all engines", duration(total.ns)))
    for where, count, nbytes in (
        ("to the card", report.transfers_to_card, report.bytes_to_card),
        ("to the host", report.transfers_to_host, report.bytes_to_host),
    ):
        if count:
            found.append((f"transfers {where}", f"{count}, {size(nbytes)}"))
    if report.program_bytes:
        found.append(("programs sent", size(report.program_bytes)))
    found.append(("device memory traffic", traffic_text(report)))
    found.append(("cores busy", f"{computed.cores:.1f} of {report.peaks.cores}, while ops ran"))
    found.append(("use of the units' peak", percent(computed.utilisation)))
    if report.compilation.frames:
        took = duration(report.compilation.seconds * 1e9)
        found.append(("graphs compiled", f"{report.compilation.frames}, in {took}"))
    return found


def traffic_text(report: Report) -> str:
    moved = report.total.device_bytes
    if not report.least_bytes:
        return size(moved)
    factor = moved / report.least_bytes
    return f"{size(moved)}, {factor:.2f}x the least possible ({size(report.least_bytes)})"


def _totals(report: Report) -> Table:
    table = Table(["", ""], title=report.title)
    for row in totals(report):
        table.add(*row)
    return table


def figures_table(
    title: str,
    what: str,
    rows: Sequence[Row],
    total: Figures,
    headings: Sequence[str] = HEADINGS,
) -> Table:
    """The longest first, the rest in one row; no columns in which nothing is."""
    table = Table(
        [what, *headings, "bound"], title=title, numbers=frozenset(range(1, len(headings) + 1))
    )
    chosen = [HEADINGS.index(heading) for heading in headings]

    def add(name: str, row: Figures) -> None:
        *texts, bound = cells(row, total)
        table.add(name, *(texts[i] for i in chosen), bound)

    shown, rest = rows[:MOST_ROWS], rows[MOST_ROWS:]
    if len(rest) == 1:
        shown, rest = rows, []
    for row in shown:
        add(short_line(row.name), row)
    if rest:
        others = Row()
        for row in rest:
            others.add(row)
        add(f"{len(rest)} more", others)
    return table.without_empty_columns()


def cells(row: Figures, total: Figures) -> list[str]:
    """Of a row under :data:`HEADINGS` and ``bound``."""
    moved = (row.read_bytes, row.written_bytes, row.lx_bytes, row.ring_bytes)
    return [
        str(row.count),
        duration(row.ns),
        percent(row.ns / total.ns if total.ns else 0),
        *(size(nbytes) if nbytes else "" for nbytes in moved),
        count_text(row.macs) if row.macs else "",
        f"{row.cores:.0f}" if row.core_ns else "",
        percent(row.utilisation) if row.core_ns else "",
        row.bound,
    ]


def _lx(report: Report) -> Iterator[Table]:
    if not report.kernels:
        return
    title = f"Intermediates of kernels (a core's LX has {size(report.peaks.lx_bytes)})"
    table = Table(
        ["kernel", "launches", "time", "in LX", "across", "LX of a core", "in memory", "memory"],
        title=title,
        numbers=frozenset(range(1, 8)),
    )
    for kernel in report.kernels[:MOST_ROWS]:
        table.add(
            kernel.name,
            str(kernel.launches),
            duration(kernel.ns),
            str(len(kernel.in_lx)),
            str(len(kernel.across)),
            size(kernel.lx_peak),
            str(len(kernel.evicted)),
            size(kernel.pool_bytes),
        )
    yield table
    reasons = evictions(report)
    if reasons:
        table = Table(
            ["why not in LX", "intermediates", "bytes"],
            title="Intermediates in device memory",
            numbers=frozenset({1, 2}),
        )
        for reason, (count, nbytes) in reasons.items():
            table.add(reason, str(count), size(nbytes))
        yield table


def evictions(report: Report) -> dict[str, tuple[int, int]]:
    """How many intermediates are not in LX for a reason, and their bytes; most bytes first."""
    found: dict[str, tuple[int, int]] = {}
    for kernel in report.kernels:
        for each in kernel.evicted:
            count, nbytes = found.get(each.reason, (0, 0))
            found[each.reason] = count + 1, nbytes + each.bytes
    return dict(sorted(found.items(), key=lambda entry: -entry[1][1]))


def notes(report: Report) -> dict[str, list[str]]:
    """What deserves a look, by kind: empty lists where there is nothing to say."""
    compiled, padding, moved = report.compilation, report.padding, report.restickifies
    found: dict[str, list[str]] = {
        "CPU fallbacks": _counted(report.fallbacks),
        "graph breaks": _counted(compiled.graph_breaks),
        "recompilations": _counted(compiled.recompilations),
        "graphs that ran op by op": _counted(compiled.op_by_op),
        "restickifies": [],
        "copied arguments": [],
        "padding": [],
    }
    if report.kernels and not compiled.frames:
        found["graph breaks"].append(
            "it was compiled before: call torch._dynamo.reset() first to see graph breaks"
        )
    if moved.count:
        text = f"{moved.count} in kernels, {size(moved.device_bytes)}, {duration(moved.ns)}"
        found["restickifies"].append(text)
    if report.copied_arguments:
        text = f"{report.copied_arguments} arguments of kernels did not lie as compiled for"
        found["copied arguments"].append(text)
    if padding.stored_padding:
        share = percent(padding.stored_padding / padding.stored_bytes)
        found["padding"].append(
            f"{size(padding.stored_padding)} of the {size(padding.stored_bytes)} of all tensors, "
            f"{share}, are padding"
        )
    if padding.extra_elements:
        share = percent(padding.extra_elements / (padding.elements + padding.extra_elements))
        found["padding"].append(
            f"{share} of the elements that compiled ops work on only fill sticks and cores"
        )
    return found


def _notes(report: Report) -> Iterator[str]:
    for kind, texts in notes(report).items():
        if not texts and kind in ("CPU fallbacks", "graph breaks"):
            yield f"{kind}: none"
        elif len(texts) == 1 and "\n" not in texts[0]:
            yield f"{kind}: {texts[0]}"
        elif texts:
            yield f"{kind}:"
            yield from (f"  {line}" for text in texts for line in _first_lines(text))


def _counted(counts: Mapping[str, int]) -> list[str]:
    """With short names for the user's lines that they begin with."""
    found = []
    for text, count in counts.items():
        first, newline, rest = text.strip().partition("\n")
        found.append(f"{count}x {short_line(first)}{newline}{rest}")
    return found


def _first_lines(text: str) -> list[str]:
    """Without the advice that PyTorch repeats."""
    return list(itertools.takewhile(lambda line: "Hint:" not in line, text.splitlines()))


def short_line(name: str) -> str:
    """``File "dir/x.py", line 7, in f: y = x`` -> ``x.py:7 y = x``"""
    found = re.fullmatch(r'File "(.*)", line (\d+), in .*?: (.*)', name, re.DOTALL)
    if found is None:
        return name
    code = found[3] if len(found[3]) <= 32 else f"{found[3][:31]}…"
    return f"{Path(found[1]).name}:{found[2]} {code}"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def count_text(number: float) -> str:
    """1536000 -> '1.536 M'."""
    for unit in ("", " k", " M", " G"):
        if number < 1000:
            return f"{number:.4g}{unit}"
        number /= 1000
    return f"{number:.4g} T"
