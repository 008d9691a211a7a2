"""Dimensions of an op, cut into parts for cores, and which part each core has.

>>> Dim.of("rows", size=100, splits=3)
Dim(label='rows', extent=100, size=100, chunk=34, splits=3)
>>> [Dim.of("columns", size=150, splits=2, unit=64).part(slice) for slice in range(2)]
[128, 22]
>>> slices_of_cores((("columns", 2), ("rows", 2)))[1]
{'columns': 1, 'rows': 0}
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch_spyre.machine import load as load_machine

STICK_BYTES = int(load_machine().value("memory.stick_bytes"))


def units(size: int, unit: int) -> int:
    """So many indices in units, the last of which may not be full."""
    return -(-size // unit)


class Dim(NamedTuple):
    """A dimension and how it is cut: all parts are ``chunk`` long but the last, which is the rest.

    Indices from ``size`` to ``extent`` are padding; no core works on them.
    """

    label: str
    extent: int
    size: int
    chunk: int
    splits: int

    @classmethod
    def of(
        cls, label: str, size: int, splits: int = 1, unit: int = 1, extent: int | None = None
    ) -> Dim:
        """Cut into at most so many parts of whole units, as equal as possible, none empty."""
        extent = size if extent is None else extent
        chunk = chunk_of(extent, splits, unit)
        splits = max(1, units(extent, max(chunk, 1)))
        return cls(label, extent, size, chunk if splits > 1 else extent, splits)

    @property
    def last_chunk(self) -> int:
        return self.extent - (self.splits - 1) * self.chunk

    def part(self, slice: int) -> int:
        """How much of a slice is not padding."""
        return max(0, min(self.chunk, self.size - slice * self.chunk))


class Slices(tuple[dict[str, int], ...]):
    """One a core: which part of every dimension it has."""

    def of(self, *labels: str) -> tuple[tuple[int, ...], ...]:
        """Of some dimensions, in this order. Planners ask again and again."""
        if labels not in self._known:
            self._known[labels] = tuple(tuple([mine[label] for label in labels]) for mine in self)
        return self._known[labels]

    @functools.cached_property
    def _known(self) -> dict[tuple[str, ...], tuple[tuple[int, ...], ...]]:
        return {}

    def groups(self, *labels: str) -> tuple[int, ...]:
        """A number for every core, the same for those with the same parts of some dimensions."""
        known: dict[tuple[int, ...], int] = {}
        return tuple(known.setdefault(part, len(known)) for part in self.of(*labels))


class Cut(NamedTuple):
    """The dimensions of an op, or of a tensor, and the parts that cores have."""

    dims: Sequence[Dim]
    slices: Slices

    def begins(self, units: Mapping[str, int], stride: Mapping[str, int]) -> list[int]:
        """Where the part of each core begins in a tensor that has the dimensions of ``units``.

        These say how many indices are one stick or row, ``stride`` how far it is to the next one.
        """
        steps = [
            (dim.label, dim.chunk // units[dim.label] * stride[dim.label])
            for dim in self.dims
            if dim.splits > 1 and dim.label in units
        ]
        return [sum(mine[label] * step for label, step in steps) for mine in self.slices]


def chunk_of(extent: int, splits: int, unit: int) -> int:
    """Of so many parts of whole units: the length of all but the last."""
    return extent if splits == 1 else units(units(extent, unit), splits) * unit


@functools.lru_cache(maxsize=1 << 10)
def slices_of_cores(cuts: tuple[tuple[str, int], ...]) -> Slices:
    """By dimensions and their parts; neighbouring cores have neighbouring parts of the first."""
    slices: list[dict[str, int]] = [{}]
    for label, parts in cuts:
        slices = [mine | {label: part} for part in range(parts) for mine in slices]
    return Slices(slices)
