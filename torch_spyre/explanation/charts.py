"""Charts of a report as HTML and SVG; colours and fonts are the page's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from torch_spyre.explanation.figures import WAITS, Figures, Row
from torch_spyre.explanation.report import KernelReport, Peaks
from torch_spyre.explanation.text import count_text, percent, short_line
from torch_spyre.tools.tables import duration, size

TRANSFER = "transfer"  # time in which cores wait for nothing: engines between card and host
KINDS = (*WAITS, TRANSFER)
MOST_BARS = 14

WIDTH, HEIGHT = 720, 380
LEFT, RIGHT, TOP, BOTTOM = 84, 30, 14, 44  # margins
RIGHT_EDGE, BOTTOM_EDGE = WIDTH - RIGHT, HEIGHT - BOTTOM


# -------------------------------------------------------------------------------------------- bars


def bars(rows: Sequence[Row], total: Figures) -> str:
    """The longest rows, each divided by what the cores waited for."""
    longest = max((row.ns for row in rows), default=0) or 1
    parts = []
    for row in rows[:MOST_BARS]:
        pieces = "".join(
            f'<span class="{kind}" style="width:{100 * ns / longest:.3f}%" '
            f'title="{kind}: {duration(ns)}"></span>'
            for kind, ns in _kinds(row)
        )
        parts.append(
            f'<div class="bar"><span class="name" title="{escape(row.name)}">'
            f"{escape(short_line(row.name))}</span>"
            f'<span class="track">{pieces}</span>'
            f'<span class="value">{duration(row.ns)} <small>{percent(row.ns / total.ns)}</small>'
            "</span></div>"
        )
    if len(rows) > MOST_BARS:
        parts.append(f'<p class="more">and {len(rows) - MOST_BARS} more, in the table</p>')
    return f'<div class="bars">{"".join(parts)}</div>'


def legend(rows: Sequence[Row]) -> str:
    """The kinds of time that occur."""
    seen = {kind for row in rows for kind, _ in _kinds(row)}
    keys = (f'<span><i class="{kind}"></i>{kind}</span>' for kind in KINDS if kind in seen)
    return f'<div class="legend">{"".join(keys)}</div>'


def _kinds(row: Row) -> list[tuple[str, int]]:
    waits = [(kind, row.waits.get(kind, 0)) for kind in WAITS]
    rest = row.ns - sum(row.waits.values())
    return [(kind, ns) for kind, ns in [*waits, (TRANSFER, rest)] if ns > 0]


def compared(entries: Sequence[tuple[str, int]]) -> str:
    """A few numbers of bytes beside each other."""
    most = max((nbytes for _, nbytes in entries), default=0) or 1
    return "".join(
        f'<div class="bar"><span class="name">{escape(name)}</span><span class="track">'
        f'<span class="memory" style="width:{100 * nbytes / most:.3f}%"></span></span>'
        f'<span class="value">{size(nbytes)}</span></div>'
        for name, nbytes in entries
    )


# ---------------------------------------------------------------------------------------- roofline


def roofline(rows: Sequence[Row], peaks: Peaks) -> str:
    """Each op by its FLOP a byte and what it attained, under what the card can do at best."""
    points = [row for row in rows if row.intensity and row.ns]
    roofs = [("PT", 2 * peaks.macs), ("SFP", peaks.elements)]  # FLOP/ns, which is GFLOP/s
    ridges = [peak / peaks.device_bytes for _, peak in roofs]
    xs = [row.intensity for row in points] + ridges
    ys = [row.flops / row.ns for row in points] + [peak for _, peak in roofs]
    across = _Scale(min(xs) / 2, max(xs) * 3, LEFT, RIGHT_EDGE)
    up = _Scale(min(ys) / 2, max(ys) * 2, BOTTOM_EDGE, TOP)

    parts = [*_axes(across, up, "FLOP/byte", "GFLOP/s")]
    for name, peak in roofs:
        ridge = peak / peaks.device_bytes
        start = max(across.low, up.low / peaks.device_bytes)
        slope = f"{across(start):.1f},{up(start * peaks.device_bytes):.1f}"
        corner = f"{across(ridge):.1f},{up(peak):.1f}"
        parts.append(
            f'<polyline class="roof" points="{slope} {corner} {RIGHT_EDGE},{up(peak):.1f}"/>'
        )
        parts.append(
            f'<text class="note" x="{RIGHT_EDGE}" y="{up(peak) - 6:.1f}" text-anchor="end">'
            f"{name} {count_text(peak * 1e9)}FLOP/s, ridge at {ridge:.3g} FLOP/byte</text>"
        )
    longest = max((row.ns for row in points), default=1)
    for number, row in enumerate(points):
        x, y = across(row.intensity), up(row.flops / row.ns)
        radius = 4 + 10 * math.sqrt(row.ns / longest)
        text = (
            f"{row.name}: {row.intensity:.3g} FLOP/byte, {row.flops / row.ns:.4g} GFLOP/s, "
            f"{duration(row.ns)}, {row.bound}"
        )
        parts.append(
            f'<circle class="{row.bound}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">'
            f"<title>{escape(text)}</title></circle>"
        )
        if number < 6:
            parts.append(
                f'<text class="label" x="{x + radius + 3:.1f}" y="{y + 4:.1f}">'
                f"{escape(row.name)}</text>"
            )
    return _svg("Roofline of the ops", parts)


class _Scale:
    """From numbers to places, by their logarithms."""

    def __init__(self, low: float, high: float, first: float, last: float) -> None:
        self.low, self.high = low, high
        self.first, self.last = first, last

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.first + share * (self.last - self.first)

    def ticks(self) -> list[float]:
        """Powers of ten."""
        first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
        return [10.0**exponent for exponent in range(first, last + 1)]


def _axes(across: _Scale, up: _Scale, below: str, beside: str) -> Iterator[str]:
    for value in across.ticks():
        yield _vertical(across(value), f"{value:g}")
    for value in up.ticks():
        yield _horizontal(up(value), count_text(value))
    yield from _titles(below, beside)


# ---------------------------------------------------------------------------------------------- LX


def lx_timeline(kernel: KernelReport, capacity: int) -> str:
    """What a core's LX holds while a kernel runs: time to the right, addresses upwards."""
    end = max(kernel.ns, 1)
    top = min(capacity, max(kernel.lx_peak * 5 // 4, 1))

    def x(ns: float) -> float:
        return LEFT + ns / end * (RIGHT_EDGE - LEFT)

    def y(address: float) -> float:
        return BOTTOM_EDGE - address / top * (BOTTOM_EDGE - TOP)

    parts = [_vertical(x(end * i / 4), duration(end * i / 4)) for i in range(5)]
    parts += [_horizontal(y(top * i / 4), size(top * i // 4)) for i in range(5)]
    parts += _titles("time since the launch", "LX of a core")
    for number, each in enumerate(kernel.in_lx):
        left, wide = x(each.born_ns), max(x(each.dies_ns) - x(each.born_ns), 1)
        high, tall = y(each.address + each.bytes), max(each.bytes / top * (BOTTOM_EDGE - TOP), 1)
        text = f"{each.name}: {size(each.bytes)} at {each.address}"
        parts.append(
            f'<rect class="tint{number % 4}" x="{left:.1f}" y="{high:.1f}" width="{wide:.1f}" '
            f'height="{tall:.1f}"><title>{escape(text)}</title></rect>'
        )
        if wide > 9 * len(each.name) and tall > 14:
            parts.append(
                f'<text class="label" x="{left + 4:.1f}" y="{high + tall / 2 + 4:.1f}">'
                f"{escape(each.name)}</text>"
            )
    return _svg(f"LX while {kernel.name} runs", parts)


# ------------------------------------------------------------------------------------------- parts


def _vertical(x: float, text: str) -> str:
    return (
        f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{BOTTOM_EDGE}"/>'
        f'<text class="tick" x="{x:.1f}" y="{BOTTOM_EDGE + 16}" text-anchor="middle">'
        f"{escape(text)}</text>"
    )


def _horizontal(y: float, text: str) -> str:
    return (
        f'<line class="grid" x1="{LEFT}" x2="{RIGHT_EDGE}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>'
    )


def _titles(below: str, beside: str) -> list[str]:
    middle = (TOP + BOTTOM_EDGE) / 2
    return [
        f'<text class="axis" x="{(LEFT + RIGHT_EDGE) / 2}" y="{HEIGHT - 8}" '
        f'text-anchor="middle">{escape(below)}</text>',
        f'<text class="axis" x="12" y="{middle}" text-anchor="middle" '
        f'transform="rotate(-90 12 {middle})">{escape(beside)}</text>',
    ]


def _svg(title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )
