"""A report as one HTML page that needs nothing else: no network, no other file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from torch_spyre.explanation import charts
from torch_spyre.explanation.figures import Figures, Row
from torch_spyre.explanation.report import Intermediate, Report
from torch_spyre.explanation.text import (
    HEADINGS,
    NOTHING,
    cells,
    evictions,
    notes,
    percent,
    short_line,
    totals,
)
from torch_spyre.tools.tables import duration, size

MOST_TIMELINES = 6
_HERE = Path(__file__).parent

Cell = tuple[str, float | None]  # its text, and its number if it has one


def page(report: Report) -> str:
    content = "".join(_sections(report) if report.ran else [_card("Nothing", _paragraph(NOTHING))])
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>{escape(report.title)} on Spyre</title>
<style>
{(_HERE / "page.css").read_text(encoding="utf-8")}</style>
</head>
<body>
<header><h1>{escape(report.title)}</h1><p>what it did on the card, in modelled time</p>
<button id="theme" type="button">light / dark</button></header>
{content}
<script>
{(_HERE / "page.js").read_text(encoding="utf-8")}</script>
</body>
</html>
"""


def _sections(report: Report) -> Iterator[str]:
    total = report.total
    yield f'<div class="tiles">{"".join(_tiles(report))}</div>'
    yield '<div class="grid2">'
    for title, rows in (("Time by op", report.ops), ("Time by layer", report.layers)):
        yield _card(title, charts.bars(rows, total) + charts.legend(rows))
    yield _card(
        "Roofline",
        _about("Each circle is an op, its area the time it took; bytes of device memory.")
        + charts.roofline(report.ops, report.peaks),
    )
    yield _card("The run", _plain_table(totals(report)) + _memory(report))
    for kernel in [kernel for kernel in report.kernels if kernel.in_lx][:MOST_TIMELINES]:
        yield _card(
            f"LX while {kernel.name} runs",
            _about("Each box is an intermediate: from its first use to its last, where it lies.")
            + charts.lx_timeline(kernel, report.peaks.lx_bytes),
        )
    yield _card("Worth a look", "".join(_notes(report)))
    yield "</div>"
    for title, what, rows in (
        ("Ops", "op", report.ops),
        ("Layers", "layer", report.layers),
        ("Source lines", "line", report.lines),
    ):
        yield _card(title, _figures(what, rows, total), wide=True)
    if report.kernels:
        yield _card("Intermediates of kernels", _intermediates(report), wide=True)


def _tiles(report: Report) -> Iterator[str]:
    breaks = sum(report.compilation.graph_breaks.values())
    fallbacks = sum(report.fallbacks.values())
    moved, least = report.total.device_bytes, report.least_bytes
    for value, name, warn in (
        (duration(report.modelled_ns), "modelled time", False),
        (size(moved), "device memory traffic", False),
        (f"{moved / least:.2f}x" if least else "-", "of the least possible traffic", False),
        (str(report.launches), "launches", False),
        (f"{report.computed.cores:.1f} / {report.peaks.cores}", "cores busy", False),
        (percent(report.computed.utilisation), "of the units' peak", False),
        (str(fallbacks), "CPU fallbacks", fallbacks > 0),
        (str(breaks), "graph breaks", breaks > 0),
    ):
        kind = "card tile warn" if warn else "card tile"
        yield f'<div class="{kind}"><b>{escape(value)}</b><span>{escape(name)}</span></div>'


def _memory(report: Report) -> str:
    total = report.total
    entries = [
        ("read from device memory", total.read_bytes),
        ("written to it", total.written_bytes),
        ("least possible, both", report.least_bytes),
        ("LX", total.lx_bytes),
        ("ring", total.ring_bytes),
        ("over PCIe", total.host_bytes),
    ]
    return charts.compared([entry for entry in entries if entry[1]])


def _notes(report: Report) -> Iterator[str]:
    found = {kind: texts for kind, texts in notes(report).items() if texts}
    reasons = [
        f"{count} intermediates, {size(nbytes)}: {reason}"
        for reason, (count, nbytes) in evictions(report).items()
    ]
    if reasons:
        found["not in LX"] = reasons
    for kind, texts in found.items():
        entries = "".join(f"<li>{escape(text)}</li>" for text in texts)
        yield f"<b>{escape(kind)}</b><ul>{entries}</ul>"
    if not found:
        yield _paragraph("No fallbacks, no graph breaks, no restickifies, no padding.")


# ------------------------------------------------------------------------------------------- parts


def _card(title: str, content: str, wide: bool = False) -> str:
    kind = "card wide" if wide else "card"
    return f'<section class="{kind}"><h2>{escape(title)}</h2>{content}</section>\n'


def _about(text: str) -> str:
    return f'<p class="about">{escape(text)}</p>'


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def _plain_table(rows: Sequence[tuple[str, str]]) -> str:
    lines = (f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>" for name, text in rows)
    return f"<table><tbody>{''.join(lines)}</tbody></table>"


def _figures(what: str, rows: Sequence[Row], total: Figures) -> str:
    lines: list[list[Cell]] = []
    for row in rows:
        moved = (row.read_bytes, row.written_bytes, row.lx_bytes, row.ring_bytes)
        numbers = (row.count, row.ns, row.ns, *moved, row.macs, row.cores, row.utilisation)
        *texts, bound = cells(row, total)
        line: list[Cell] = [(short_line(row.name), None)]
        line += zip(texts, map(float, numbers), strict=True)
        lines.append([*line, (bound, None)])
    return _table([what, *HEADINGS, "bound"], lines)


def _intermediates(report: Report) -> str:
    lines: list[list[Cell]] = []
    for kernel in report.kernels:
        for each in kernel.intermediates:
            lived = each.dies_ns - each.born_ns
            lines.append(
                [
                    (kernel.name, None),
                    (each.name, None),
                    (_where(each), None),
                    (size(each.bytes), each.bytes),
                    (str(each.address), each.address),
                    (duration(each.born_ns), each.born_ns),
                    (duration(lived), lived),
                    (each.reason, None),
                ]
            )
    headings = ["kernel", "intermediate", "where", "bytes", "address", "from", "for", "why"]
    return _table(headings, lines)


def _where(each: Intermediate) -> str:
    if each.where != "lx":
        return "device memory"
    return f"LX, {each.across} across kernels" if each.across else "LX"


def _table(headings: Sequence[str], lines: Sequence[Sequence[Cell]]) -> str:
    """One whose rows can be sorted by a click on a heading."""
    numeric = [any(line[i][1] is not None for line in lines) for i in range(len(headings))]
    head = "".join(
        f'<th class="number">{escape(name)}</th>' if number else f"<th>{escape(name)}</th>"
        for name, number in zip(headings, numeric, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, line))}</tr>\n" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(cell: Cell) -> str:
    text, number = cell
    if number is None:
        return f'<td title="{escape(text)}">{escape(text)}</td>'
    return f'<td class="number" data-value="{number:g}">{escape(text)}</td>'
