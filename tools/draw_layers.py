"""Draws layers.toml: the picture of docs/architecture.md.

A box is a layer: a folder, or a file that is a layer of its own. An arrow leads to what it uses. No
arrow is drawn where others already lead from one to the other, by way of layers between them.

Usage: python tools/draw_layers.py [FILE.svg]
"""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "architecture.svg"

Uses = dict[str, list[str]]  # of each layer, from top to bottom

# What lies between trees, and is drawn as a bar: others may only use it as the bar says.
C_MODULE, CARD_INTERFACE = "_C.pyi", "spyre"

WIDTH, MARGIN = 1160, 10
BOX_HEIGHT, ROW_HEIGHT, BAR, TITLE_HEIGHT, GAP = 26, 50, 30, 30, 16
CHARACTER = 7.3  # width of one, at 12 pixels
STYLE = """
  text { font: 12px ui-monospace, "DejaVu Sans Mono", monospace; fill: #1b1f24; }
  .title { font: bold 14px sans-serif; }
  .tree { fill: #f6f8fa; stroke: #d0d7de; }
  .folder { fill: #ddf4ff; stroke: #54aeff; }
  .file { fill: #ffffff; stroke: #8c959f; }
  .door { fill: #fff8c5; stroke: #d4a72c; }
  .use, .pass { fill: none; stroke: #8c959f; }
  .use { marker-end: url(#arrow); }
"""


@dataclass
class Box:
    """A layer; or, without a name, where an arrow passes between the layers of a row."""

    layer: str = ""
    x: float = 0.0  # of its middle
    y: float = 0.0  # of its top
    users: list[Box] = field(default_factory=list)  # in the row above

    @property
    def width(self) -> float:
        return CHARACTER * len(self.layer) + 18 if self.layer else 4.0


@dataclass
class Drawing:
    lines: list[str] = field(default_factory=list)

    def rectangle(self, kind: str, x: float, y: float, width: float, height: float) -> None:
        self.lines.append(
            f'<rect class="{kind}" x="{x:.0f}" y="{y:.0f}" '
            f'width="{width:.0f}" height="{height:.0f}" rx="5"/>'
        )

    def text(self, x: float, y: float, text: str, style: str = 'text-anchor="middle"') -> None:
        self.lines.append(f'<text x="{x:.0f}" y="{y:.0f}" {style}>{escape(text)}</text>')

    def arrow(self, upper: Box, lower: Box) -> None:
        """From a row to the next one; it ends in a tip if it leads to a layer."""
        begin, end = upper.y + BOX_HEIGHT, lower.y - (2 if lower.layer else 0)
        bend = (end - begin) / 2
        kind = "use" if lower.layer else "pass"
        way = f"M{upper.x:.0f},{begin:.0f} C{upper.x:.0f},{begin + bend:.0f} "
        way += f"{lower.x:.0f},{end - bend:.0f} {lower.x:.0f},{end:.0f}"
        if not lower.layer:
            way += f" V{lower.y + BOX_HEIGHT:.0f}"
        self.lines.append(f'<path class="{kind}" d="{way}"/>')


def without(uses: Uses, *names: str) -> Uses:
    """The layers but for these: they are drawn as bars."""
    return {
        layer: [name for name in used if name not in names]
        for layer, used in uses.items()
        if layer not in names
    }


def reached(uses: Uses, layer: str) -> set[str]:
    """All layers that it uses, and those that these use."""
    found: set[str] = set()
    for name in uses[layer]:
        found |= {name} | reached(uses, name)
    return found


def direct(uses: Uses) -> Uses:
    """Only those uses that no others imply."""
    return {
        layer: [
            name
            for name in used
            if not any(name in reached(uses, other) for other in used if other != name)
        ]
        for layer, used in uses.items()
    }


def rows_of(uses: Uses) -> list[list[Box]]:
    """Each layer in a row below all that use it; arrows pass through the rows between."""
    level = dict.fromkeys(uses, 0)
    for layer, used in uses.items():  # from top to bottom: the level of `layer` is known
        for name in used:
            level[name] = max(level[name], level[layer] + 1)
    boxes = {layer: Box(layer) for layer in uses}
    rows: list[list[Box]] = [[] for _ in range(max(level.values()) + 1)]
    for layer, box in boxes.items():
        rows[level[layer]].append(box)
    for layer, used in direct(uses).items():
        for name in used:
            upper = boxes[layer]
            for number in range(level[layer] + 1, level[name]):
                upper = Box(users=[upper])
                rows[number].append(upper)
            boxes[name].users.append(upper)
    return rows


def place(row: list[Box], left: float, right: float) -> None:
    """Side by side, each as near as may be to the middle of those that use it."""
    spread = (right - left) / (len(row) + 1)
    wanted = {
        id(box): sum(user.x for user in box.users) / len(box.users)
        if box.users
        else left + spread * position
        for position, box in enumerate(row, 1)
    }
    row.sort(key=lambda box: wanted[id(box)])
    room = right - left - GAP - sum(box.width + GAP for box in row)
    assert room >= 0, f"the layers {[box.layer for box in row]} do not fit into one row"
    edge = left + GAP
    for box in row:
        box.x = max(wanted[id(box)], edge + box.width / 2)
        edge = box.x + box.width / 2 + GAP
    edge = right - GAP
    for box in reversed(row):
        box.x = min(box.x, edge - box.width / 2)
        edge = box.x - box.width / 2 - GAP


def draw_tree(
    drawing: Drawing, title: str, uses: Uses, left: float, right: float, top: float
) -> float:
    """Returns where it ends."""
    rows = rows_of(uses)
    height = TITLE_HEIGHT + ROW_HEIGHT * len(rows)
    drawing.rectangle("tree", left, top, right - left, height)
    drawing.text(left + GAP, top + 20, title, 'class="title"')
    for number, row in enumerate(rows):
        place(row, left, right)
        for box in row:
            box.y = top + TITLE_HEIGHT + ROW_HEIGHT * number + 6
            for user in box.users:
                drawing.arrow(user, box)
    for box in (box for row in rows for box in row if box.layer):
        kind = "file" if "." in box.layer else "folder"
        drawing.rectangle(kind, box.x - box.width / 2, box.y, box.width, BOX_HEIGHT)
        drawing.text(box.x, box.y + 17, box.layer)
    return top + height


def draw(table: dict[str, dict[str, Uses]]) -> str:
    """Python on top; below it, side by side, the C++ that it calls and the card that this calls."""
    drawing, left, right = Drawing(), float(MARGIN), float(WIDTH - MARGIN)
    python = without(table["python"]["layers"], C_MODULE)
    y = draw_tree(drawing, "torch_spyre/ (Python)", python, left, right, MARGIN)
    legend = "blue: a folder   white: a file   arrow: uses, itself or by way of what is between"
    drawing.text(right - GAP, MARGIN + 20, legend, 'text-anchor="end"')
    bar = y + MARGIN
    drawing.rectangle("door", left, bar, right - left, BAR)
    drawing.text(
        WIDTH / 2, bar + 19, "torch_spyre._C: what Python calls in C++, with types in _C.pyi"
    )
    y = bar + BAR + MARGIN
    middle = left + (right - left) * 0.56
    glue = draw_tree(
        drawing, "torch_spyre/csrc/ (C++)", table["csrc"]["layers"], left, middle - BAR, y
    )
    card = draw_tree(
        drawing,
        "card/src/: the software card (C++)",
        without(table["card"]["layers"], CARD_INTERFACE),
        middle + BAR,
        right,
        y,
    )
    end = max(glue, card)
    drawing.rectangle("door", middle - BAR / 2, y, BAR, end - y)
    turned = f'text-anchor="middle" transform="rotate(-90 {middle + 4:.0f} {(y + end) / 2:.0f})"'
    drawing.text(
        middle + 4, (y + end) / 2, "card/include/spyre/card.h: all that is known of a card", turned
    )
    height = end + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}">\n'
        "<!-- tools/draw_layers.py draws this from layers.toml -->\n"
        f"<style>{STYLE}</style>\n"
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#8c959f"/>'
        "</marker></defs>\n"
        '<rect width="100%" height="100%" fill="#ffffff"/>\n'
    )
    return head + "\n".join(drawing.lines) + "\n</svg>\n"


def main(picture: Path = PICTURE) -> None:
    picture.write_text(draw(tomllib.loads((ROOT / "layers.toml").read_text())))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
