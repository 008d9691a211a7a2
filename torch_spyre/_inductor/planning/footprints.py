"""Which sticks each core touches. Ops agree on a buffer if they have equal footprints there.

Where an op touches sticks that another core wrote, the cores have to wait for each other, and the
buffer cannot be in their scratchpads.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Mapping
from typing import NamedTuple

import torch

from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp
from torch_spyre._inductor.planning.accesses import MATMUL, RESTICKIFY, device_bytes, stick_symbol
from torch_spyre._inductor.views import LinearIndex
from torch_spyre.partition.demand import Touch
from torch_spyre.partition.dims import Cut, Dim, chunk_of, slices_of_cores, units
from torch_spyre.partition.steps import Step, merged

# Over how many cores each loop of an op is split. The order says which cores are neighbours: those
# with the next part of the first loop that is split.
Splits = Mapping[str, int]


class Footprint(NamedTuple):
    """Which sticks of a buffer each core touches. If two are equal, every core touches the same.

    Planning compares and hashes very many of them: a tuple does so by value, and fast.
    """

    cores: int
    begin: int  # of the first core, in sticks
    moves: tuple[tuple[int, int, int], ...]  # (cores to the next part, parts, sticks between them)
    shape: tuple[Step, ...]  # of a core; uneven ones say how many all cores have
    # The product, if cohorts share its parts: their cores touch the same sticks. So the footprint
    # is equal to none of another op.
    cohort: KernelOp | None = None

    @property
    def span(self) -> int:
        """Sticks from the first to the last one that a core touches."""
        return sum(stride * (count - 1) for stride, count, _ in self.shape) + 1

    @property
    def sticks_of_core(self) -> int:
        """Sticks of the core that has most."""
        return math.prod(count for _, count, _ in self.shape)

    def within(self, other: Footprint) -> bool:
        """Whether every core touches only sticks that it has in the other, from the same first one
        on."""
        if self == other:
            return True
        mine, theirs = ((each.cores, each.begin, each.moves) for each in (self, other))
        if mine != theirs or self.cohort or other.cohort:
            return False
        if any(step.uneven for step in (*self.shape, *other.shape)):
            return False
        reached = dict.fromkeys((stride for stride, _, _ in other.shape), 1)
        for stride, count, _ in self.shape:
            base = max((s for s in reached if stride % s == 0), default=0)
            if not base:
                return False
            reached[base] += stride // base * (count - 1)
        return all(reached[stride] <= count for stride, count, _ in other.shape)


class OpShape:
    """An op's loops, counted in units that are never cut: sticks, where a tensor has its sticks."""

    def __init__(self, op: KernelOp) -> None:
        self.op = op
        self.reduced = op.reduced
        # K of a matrix product, which several cores may share.
        self.contracted = list(op.space)[-1] if op.op == MATMUL else None
        self.accesses = [*op.inputs, op.output]
        self.sticks = [stick_symbol(access, op.space) for access in self.accesses]
        self.unit = dict.fromkeys(op.space, 1)
        for access, stick in zip(self.accesses, self.sticks, strict=True):
            if stick is not None:
                elems = access.buffer.format.elems_per_stick()
                self.unit[stick] = max(self.unit[stick], elems)
        self.units = {s: math.ceil(size / self.unit[s]) for s, size in op.space.items()}
        self._walks: dict[int, _Walk] = {}
        # Planning asks the same again and again, and to hash symbols takes long. So answers about
        # splits are found by the identity of these, which are kept beside them.
        self._splits: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
        self._cuts: dict[int, tuple[Splits, Cut]] = {}
        self._footprints: dict[int, tuple[Splits, list[Footprint]]] = {}
        self._like: dict[tuple[int, Footprint], dict[str, int] | None] = {}

    def of(self, op: KernelOp) -> OpShape:
        """The shape of an op that differs in its buffers only. Both share what is known of them."""
        shape = copy.copy(self)
        shape.op, shape.accesses = op, [*op.inputs, op.output]
        return shape

    @functools.cached_property
    def largest_buffer(self) -> int:
        """Bytes of the largest buffer that the op touches."""
        return max(device_bytes(access.buffer) for access in self.accesses)

    def parts(self, symbol: str, cores: int) -> int:
        """How many of the cores a loop can use: parts as equal as possible, none empty."""
        units = self.units[symbol]
        return math.ceil(units / math.ceil(units / cores))

    def chunk(self, symbol: str, parts: int) -> int:
        """How many iterations of a loop all cores but the last have."""
        return chunk_of(self.op.space[symbol], parts, self.unit[symbol])

    def largest_part(self, splits: Splits) -> int:
        """Iterations of the core that has most."""
        return math.prod(dim.chunk for dim in self.cut(splits).dims)

    def cut(self, splits: Splits) -> Cut:
        """The loops, cut, and what each core has of them."""
        known = self._cuts.get(id(splits))
        if known is None:
            dims, whole = [], []
            for symbol, size in self.op.space.items():
                parts = splits.get(symbol, 1)
                dims.append(Dim(symbol, size, size, self.chunk(symbol, parts), parts))
                if parts == 1:
                    whole.append((symbol, 1))
            cut = Cut(dims, slices_of_cores((*self.cores_in_order(splits), *whole)))
            known = self._cuts[id(splits)] = splits, cut
        return known[1]

    @functools.cached_property
    def touches(self) -> list[Touch]:
        """What the op touches of the inputs and of the output."""
        found = []
        for position, (access, stick) in enumerate(zip(self.accesses, self.sticks, strict=True)):
            elems = access.buffer.format.elems_per_stick()
            symbols = self.walk(position).strides
            found.append(Touch(elems, {s: elems if s == stick else 1 for s in symbols}))
        return found

    def footprints(self, splits: Splits) -> list[Footprint]:
        """The footprints on the inputs and on the output."""
        known = self._footprints.get(id(splits))
        if known is None:
            found = [self.footprint(i, splits) for i in range(len(self.accesses))]
            if self.op.held:
                found[0] = self.footprint(0, self.op.held)
            known = self._footprints[id(splits)] = splits, found
        return known[1]

    def unique(self, splits: dict[str, int]) -> dict[str, int]:
        """One object for all splits that are equal."""
        return self._splits.setdefault(tuple(splits.items()), splits)

    def cores_in_order(self, splits: Splits) -> list[tuple[str, int]]:
        """The loops that are split, and into how many parts: the first moves from core to core."""
        order = [(symbol, parts) for symbol, parts in splits.items() if parts > 1]
        if any(symbol == self.contracted for symbol, _ in order):
            order = [order[-1], *order[:-1]]  # cores of a cohort are neighbours
        return order

    def walk(self, position: int) -> _Walk:
        if position not in self._walks:
            self._walks[position] = _Walk(self.accesses[position])
        return self._walks[position]

    def footprint(self, position: int, splits: Splits) -> Footprint:
        walk = self.walk(position)
        order = [symbol for symbol, _ in self.cores_in_order(splits)]
        dims = {dim.label: dim for dim in self.cut(splits).dims}
        moves, cores = [], 1
        for symbol in order:
            if symbol in walk.strides:
                move = walk.sticks(symbol, dims[symbol].chunk)
                moves.append((cores, splits[symbol], move))
            cores *= splits[symbol]
        shape = []
        for symbol, unit in self.touches[position].units.items():
            dim = dims[symbol]
            of_all = units(dim.size, unit)
            if of_all > 1:
                count = units(dim.chunk, unit)
                uneven = of_all if count * dim.splits != of_all else None
                shape.append(Step(walk.sticks(symbol, unit), count, uneven))
        cohort = self.op if self.contracted in order else None
        return Footprint(cores, walk.begin, _merged_moves(moves), merged(shape), cohort)

    def each_core_has_its_own(self, position: int, splits: Splits) -> bool:
        """Whether the cores together touch all of a buffer, each a part of its own."""
        return self._whole[position] and not self.footprints(splits)[position].cohort

    @functools.cached_property
    def _whole(self) -> list[bool]:
        """The buffers of which it touches all."""
        layouts = [access.buffer.layout for access in self.accesses]
        dims = self.cut({}).dims
        return [
            layout is not None and touch.counts(dims).sticks == math.prod(layout.device_size[:-1])
            for touch, layout in zip(self.touches, layouts, strict=True)
        ]

    def may_split(self, symbol: str) -> bool:
        """Whether a loop can be split over cores. For K of a product, others decide."""
        if symbol in self.reduced:
            return False
        # The back end leaves a loop with an unfinished stick to one core when it turns sticks.
        return self.op.op != RESTICKIFY or self.op.space[symbol] % self.unit[symbol] == 0

    def splits_like(self, position: int, footprint: Footprint) -> dict[str, int] | None:
        """Splits with which an input has a footprint, as far as single loops can tell."""
        key = position, footprint
        if key not in self._like:
            self._like[key] = self._splits_like(position, footprint)
        return self._like[key]

    def _splits_like(self, position: int, footprint: Footprint) -> dict[str, int] | None:
        walk = self.walk(position)
        found: dict[str, int] = {}
        for _, parts, move in footprint.moves:
            for symbol in walk.strides:
                if symbol in found or not self.may_split(symbol) or self.units[symbol] < parts:
                    continue
                if walk.sticks(symbol, self.chunk(symbol, parts)) == move:
                    found[symbol] = parts
                    break
            else:
                return None
        return self.in_order(found)

    def in_order(self, splits: Splits) -> dict[str, int]:
        """All loops with their splits; those that are split in the order that is given.

        Loops of a matrix product keep their order.
        """
        if self.contracted is not None:
            return self.unique({symbol: splits.get(symbol, 1) for symbol in self.op.space})
        order = iter(splits)
        places = [next(order) if symbol in splits else symbol for symbol in self.op.space]
        return self.unique({symbol: splits.get(symbol, 1) for symbol in places})


class _Touch(NamedTuple):
    """All that the shape of an op depends on in one of its accesses."""

    offset: int
    strides: tuple[tuple[str, int], ...]
    dtype: torch.dtype
    layout: SpyreTensorLayout | None

    @staticmethod
    def of(access: Access) -> _Touch:
        buffer, index = access.buffer, access.index
        return _Touch(index.offset, tuple(index.strides.items()), buffer.dtype, buffer.layout)

    def access(self) -> Access:
        buffer = Buffer("", self.dtype, [], [], self.layout)
        return Access(buffer, LinearIndex(self.offset, dict(self.strides)))


class Structure(NamedTuple):
    """All that the shape of an op depends on. To keep something about ops by their structure, work
    it out from :meth:`op`, which is made of nothing else."""

    name: str
    space: tuple[tuple[str, int], ...]
    alike: frozenset[str]
    held: tuple[tuple[str, int], ...]
    touches: tuple[_Touch, ...]

    @staticmethod
    def of(op: KernelOp) -> Structure:
        space, held = tuple(op.space.items()), tuple(op.held.items())
        return Structure(
            op.op, space, op.alike, held, tuple(map(_Touch.of, (*op.inputs, op.output)))
        )

    def op(self) -> KernelOp:
        *inputs, output = (touch.access() for touch in self.touches)
        held = dict(self.held)
        return KernelOp(self.name, dict(self.space), inputs, output, held=held, alike=self.alike)


class _Walk:
    """How far the loops of an op move one of its accesses, in sticks."""

    def __init__(self, access: Access) -> None:
        assert access.buffer.layout is not None
        self.strides = {s: stride for s, stride in access.index.strides.items() if stride}
        self._digits = _digits(access.buffer.layout)
        self._offset = access.index.offset
        self.begin = self._stick(self._offset)

    def sticks(self, symbol: str, iterations: int) -> int:
        stride = self.strides.get(symbol, 0)
        return self._stick(self._offset + iterations * stride) - self.begin if stride else 0

    def _stick(self, offset: int) -> int:
        number = 0
        for stride, sticks in self._digits:
            digit, offset = divmod(offset, stride)
            number += digit * sticks
        return number


def _merged_moves(moves: list[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Joins loops that are split as one loop over both would be."""
    result: list[tuple[int, int, int]] = []
    for cores, parts, move in moves:
        if result:
            before, count, step = result[-1]
            if cores == before * count and move == step * count:
                result[-1] = (before, count * parts, step)
                continue
        result.append((cores, parts, move))
    return tuple(result)


def _digits(layout: SpyreTensorLayout) -> list[tuple[int, int]]:
    """(host stride, sticks) of the device dimensions, by falling host stride."""
    sizes, strides = list(layout.device_size), list(layout.stride_map)
    digits = []
    sticks = 1
    for dim in range(len(sizes) - 1, -1, -1):
        if dim < len(sizes) - 1:
            if strides[dim] > 0 and sizes[dim] > 1:
                digits.append((strides[dim], sticks))
            sticks *= sizes[dim]
        elif strides[dim] > 0:
            digits.append((strides[dim], 0))
    return sorted(digits, reverse=True)
