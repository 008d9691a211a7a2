"""Which parts of a tensor cores get from each other's scratchpads, and what that asks of the ring.

An op may leave each core another part of a result than the next op wants there. The parts go from
scratchpad to scratchpad: every core takes what it lacks from the nearest core that has it. Planners
price that before they decide, the back end writes the same pieces into the program.

>>> rows = Axis(size=4, source=2, target=4)  # two cores have two rows each, one core wants all
>>> pieces((rows,), ((0,), (1,)), ((0,),))
(Piece(source=0, target=0, ranges=((0, 2),)), Piece(source=1, target=0, ranges=((2, 4),)))
>>> load((rows,), ((0,), (1,)), ((0,),)).ring_bytes
256
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable
from typing import NamedTuple

from torch_spyre.cost import ring_load
from torch_spyre.machine import load as load_machine
from torch_spyre.partition.dims import STICK_BYTES, units

STOPS = int(load_machine().value("card.cores"))

# One a core: which slice of every axis it has.
Slices = tuple[tuple[int, ...], ...]
Ranges = tuple[tuple[int, int], ...]  # (begin, end), one an axis


class Axis(NamedTuple):
    """A dimension of the tensor, in sticks or in rows of them."""

    size: int
    source: int  # how much of it a slice has where the tensor is; the last may have less
    target: int  # and where it goes


class Piece(NamedTuple):
    """What one core takes from one core, maybe itself."""

    source: int
    target: int
    ranges: Ranges

    @property
    def bytes(self) -> int:
        return STICK_BYTES * math.prod(end - begin for begin, end in self.ranges)


class Load(NamedTuple):
    """What all pieces together ask of the card."""

    ring_bytes: int  # that arrive from other cores
    link_bytes: int  # over the busiest link
    hops: int  # of the longest way
    lx_bytes: int  # of the busiest core, reads and writes
    all_lx_bytes: int

    def times(self, scale: int) -> Load:
        """Of the same messages, each so many times as large."""
        return Load(*(scale * n for n in self))._replace(hops=self.hops)


@functools.lru_cache(maxsize=1 << 10)
def pieces(axes: tuple[Axis, ...], source: Slices, target: Slices) -> tuple[Piece, ...]:
    """Everything that each core wants, core by core. ``source`` has every slice at least once."""
    holders = _cores_by_slices(source)
    found = []
    for core, slices in enumerate(target):
        overlaps = [_overlaps(axis, slice) for axis, slice in zip(axes, slices, strict=True)]
        for parts in itertools.product(*overlaps):
            held = tuple(slice for slice, _, _ in parts)
            nearest = min(holders[held], key=lambda other: _distance(other, core))
            ranges = tuple((begin, end) for _, begin, end in parts)
            found.append(Piece(nearest, core, ranges))
    return tuple(found)


def _distance(one: int, other: int) -> int:
    stops = (other - one) % STOPS
    return min(stops, STOPS - stops)


def load(axes: tuple[Axis, ...], source: Slices, target: Slices) -> Load:
    """What several cores want of one goes round once each way; they take it as it passes."""
    # Parts of twice the size are the same messages, each twice as large.
    scales = [math.gcd(*axis) or 1 for axis in axes]
    smaller = (Axis(*(n // by for n in axis)) for axis, by in zip(axes, scales, strict=True))
    found, scale = _load(tuple(smaller), source, target), math.prod(scales)
    return found.times(scale)


@functools.lru_cache(maxsize=1 << 12)
def _load(axes: tuple[Axis, ...], source: Slices, target: Slices) -> Load:
    holders = _cores_by_slices(source)
    lx = [0] * STOPS
    arrived, sends = 0, []
    for slices, cores in _cores_by_slices(target).items():
        overlaps = [_overlaps(axis, slice) for axis, slice in zip(axes, slices, strict=True)]
        for held in itertools.product(*overlaps):
            size, place = STICK_BYTES, []
            for slice, begin, end in held:
                size *= end - begin
                place.append(slice)
            for core, takers in _nearest(holders[tuple(place)], cores):
                lx[core] += size
                up = down = 0
                for taker in takers:
                    lx[taker] += size
                    stops = (taker - core) % STOPS
                    if not stops:
                        continue
                    arrived += size
                    if stops > STOPS // 2:
                        down = max(down, STOPS - stops)
                    elif stops > up:
                        up = stops
                if up:
                    sends.append((core, (core + up) % STOPS, size))
                if down:
                    sends.append((core, (core - down) % STOPS, size))
    ring = ring_load(sends)
    return Load(arrived, ring.link_bytes, ring.hops, max(lx), sum(lx))


def _cores_by_slices(slices: Slices) -> dict[tuple[int, ...], list[int]]:
    found: dict[tuple[int, ...], list[int]] = {}
    for core, mine in enumerate(slices):
        found.setdefault(mine, []).append(core)
    return found


@functools.lru_cache(maxsize=1 << 12)
def _overlaps(axis: Axis, slice: int) -> list[tuple[int, int, int]]:
    """Which slices have something of one that is wanted, from where to where.

    Beyond the end none has.
    """
    begin, end = slice * axis.target, min(axis.size, (slice + 1) * axis.target)
    if begin >= end:
        return []
    return [
        (held, max(begin, held * axis.source), min(end, (held + 1) * axis.source))
        for held in range(begin // axis.source, units(end, axis.source))
    ]


def _nearest(holders: list[int], cores: list[int]) -> Iterable[tuple[int, list[int]]]:
    """From which of the cores that have the same others take it."""
    if len(holders) == 1:
        return ((holders[0], cores),)
    takers: dict[int, list[int]] = {}
    for core in cores:
        takers.setdefault(min(holders, key=lambda one: _distance(one, core)), []).append(core)
    return takers.items()
