"""Tables for people: with rich if it is installed, in plain text otherwise, or as Markdown."""

import importlib
import importlib.util
import io
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Table:
    """Rows of text under headings. Columns of numbers are right-aligned."""

    headings: Sequence[str]
    title: str = ""
    numbers: frozenset[int] = frozenset()
    rows: list[Sequence[str]] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        self.rows.append(cells)

    def without_empty_columns(self) -> "Table":
        """Columns that say nothing in any row left out."""
        kept = [i for i in range(len(self.headings)) if any(row[i] for row in self.rows)]
        return Table(
            [self.headings[i] for i in kept],
            self.title,
            frozenset(kept.index(i) for i in self.numbers if i in kept),
            [[row[i] for i in kept] for row in self.rows],
        )

    def markdown(self) -> str:
        rule = ["---:" if i in self.numbers else "---" for i in range(len(self.headings))]
        lines = [self.headings, rule, *([c.replace("|", "\\|") for c in row] for row in self.rows)]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def plain(self) -> str:
        """Columns as wide as their longest cell."""
        lines = [self.headings, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.headings))]

        def text(line: Sequence[str]) -> str:
            cells = (
                cell.rjust(width) if i in self.numbers else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            return "  ".join(cells).rstrip()

        title = [self.title] if self.title else []
        rule = "  ".join("-" * width for width in widths)
        head = [text(self.headings), rule] if any(self.headings) else [rule]
        return "\n".join([*title, *head, *map(text, self.rows)])

    def text(self) -> str:
        """As wide as the terminal, or 120 columns if there is none."""
        if not _rich_is_there():
            return self.plain()
        table = importlib.import_module("rich.table").Table(
            title=self.title, title_justify="left", show_header=any(self.headings)
        )
        width = shutil.get_terminal_size((120, 24)).columns
        widths = [max(map(len, column)) for column in zip(self.headings, *self.rows, strict=True)]
        # Where room is short the widest column gives way: a cut number says nothing.
        widest = widths.index(max(widths))
        room = width - (sum(widths) - widths[widest]) - 3 * len(widths) - 1
        widths[widest] = min(widths[widest], max(room, 12))
        for i, heading in enumerate(self.headings):
            table.add_column(
                heading,
                justify="right" if i in self.numbers else "left",
                no_wrap=i == 0 or i in self.numbers,
                width=widths[i],
            )
        for row in self.rows:
            table.add_row(*map(importlib.import_module("rich.markup").escape, row))
        text = io.StringIO()
        importlib.import_module("rich.console").Console(file=text, width=width).print(table)
        return text.getvalue().rstrip("\n")

    def show(self) -> None:
        """Print to the terminal."""
        print(self.text())


def _rich_is_there() -> bool:
    if "rich" in sys.modules:
        return sys.modules["rich"] is not None
    return importlib.util.find_spec("rich") is not None


def size(nbytes: int) -> str:
    """1536 -> '1.5 KiB'."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} GiB"


def duration(ns: float) -> str:
    """1536 -> '1.536 us'."""
    value = float(ns)
    for unit in ("ns", "us", "ms"):
        if value < 1000:
            return f"{value:.4g} {unit}"
        value /= 1000
    return f"{value:.4g} s"
