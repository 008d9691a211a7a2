"""Which sticks each core touches, and so which ops cores can run without waiting for each other.

The back end starts a new step, before which all cores wait, where an op touches sticks that another
core wrote (``torch_spyre.backend.schedule``). Ops agree on a buffer if they have equal footprints.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from sympy import Symbol

from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp
from torch_spyre._inductor.planning.accesses import MATMUL, stick_symbol

Splits = Mapping[Symbol, int]


@dataclass(frozen=True)
class Footprint:
    """Equal ones: every core touches the same sticks."""

    starts: tuple[int, ...]  # one a core, in sticks
    shape: tuple[tuple[int, int, int], ...]  # (stride, count, count of all cores if uneven)
    # Cores that share a tile of a product touch what is each other's: equal to none but itself.
    cohort: int = 0
    # (sticks from part to part, parts) of the loops that are split: how a neighbour does the same.
    moves: tuple[tuple[int, int], ...] = field(default=(), compare=False)

    @property
    def begin(self) -> int:
        return min(self.starts)

    @property
    def span(self) -> int:
        """From the first to the last stick of a core."""
        return sum(stride * (count - 1) for stride, count, _ in self.shape) + 1

    @property
    def end(self) -> int:
        return max(self.starts) + self.span

    def may_meet(self, other: Footprint) -> bool:
        return self.begin < other.end and other.begin < self.end


class OpShape:
    """An op's loops in units that cores can share: sticks where any tensor has its sticks."""

    def __init__(self, op: KernelOp) -> None:
        self.op = op
        self.accesses = [*op.inputs, op.output]
        self.sticks = [stick_symbol(access, op.space) for access in self.accesses]
        self.unit = dict.fromkeys(op.space, 1)
        for access, stick in zip(self.accesses, self.sticks, strict=True):
            if stick is not None:
                elems = access.buffer.format.elems_per_stick()
                self.unit[stick] = max(self.unit[stick], elems)
        self.units = {s: math.ceil(size / self.unit[s]) for s, size in op.space.items()}
        self._footprints: dict[tuple[int, ...], list[Footprint]] = {}

    @property
    def contracted(self) -> Symbol | None:
        """K of a matrix product, which several cores may share."""
        return list(self.op.space)[-1] if self.op.op == MATMUL else None

    def chunk(self, symbol: Symbol, splits: int) -> int:
        """How many iterations of a loop all cores but the last have."""
        if splits == 1:
            return self.op.space[symbol]
        return math.ceil(self.units[symbol] / splits) * self.unit[symbol]

    def largest_part(self, splits: Splits) -> int:
        """Iterations of the core that has most."""
        return math.prod(self.chunk(s, splits.get(s, 1)) for s in self.op.space)

    def footprints(self, splits: Splits) -> list[Footprint]:
        """Of the inputs and of the output."""
        key = tuple(splits.get(symbol, 1) for symbol in self.op.space)
        if key not in self._footprints:
            slices = self._slices(splits)
            self._footprints[key] = [
                self._footprint(access, stick, splits, slices)
                for access, stick in zip(self.accesses, self.sticks, strict=True)
            ]
        return self._footprints[key]

    def _slices(self, splits: Splits) -> list[dict[Symbol, int]]:
        """Which part of each loop a core has; as SuperDSCs number them."""
        order = [symbol for symbol in self.op.space if splits.get(symbol, 1) > 1]
        if self.contracted in order:  # cores that share a tile are neighbours
            order = [order[-1], *order[:-1]]
        parts = [range(splits[symbol]) for symbol in reversed(order)]
        return [
            dict(zip(reversed(order), numbers, strict=True))
            for numbers in itertools.product(*parts)
        ]

    def _footprint(
        self, access: Access, stick: Symbol | None, splits: Splits, slices: list[dict[Symbol, int]]
    ) -> Footprint:
        layout = access.buffer.layout
        assert layout is not None
        digits = _digits(layout)
        first = access.index.offset
        origin = _stick_number(digits, first)
        elems = access.buffer.format.elems_per_stick()
        moves: dict[Symbol, list[int]] = {}
        shape = []
        for symbol, step in access.index.strides.items():
            size = self.op.space.get(symbol, 1)
            if not step or size == 1:
                continue
            unit = elems if symbol == stick else 1
            count = splits.get(symbol, 1)
            chunk = self.chunk(symbol, count)
            if count > 1:
                moves[symbol] = [
                    _stick_number(digits, first + part * chunk * step) - origin
                    for part in range(count)
                ]
            steps, of_all = math.ceil(chunk / unit), math.ceil(size / unit)
            if of_all > 1:
                stride = _stick_number(digits, first + unit * step) - origin
                shape.append((stride, steps, 0 if steps * count == of_all else of_all))
        starts = tuple(
            origin + sum(parts[mine[symbol]] for symbol, parts in moves.items()) for mine in slices
        )
        shared = self.contracted is not None and splits.get(self.contracted, 1) > 1
        by_part = tuple((parts[1], len(parts)) for parts in moves.values())
        return Footprint(starts, _merged(shape), id(self.op) if shared else 0, by_part)

    def splits_like(self, position: int, footprint: Footprint) -> dict[Symbol, int] | None:
        """Splits with which an input has a footprint, as far as single loops can tell."""
        access = self.accesses[position]
        assert access.buffer.layout is not None
        digits = _digits(access.buffer.layout)
        first = access.index.offset
        origin = _stick_number(digits, first)
        splits = dict.fromkeys(self.op.space, 1)
        for move, parts in footprint.moves:
            for symbol, step in access.index.strides.items():
                if not step or symbol in self.op.reduced or self.units.get(symbol, 1) < parts:
                    continue
                offset = first + self.chunk(symbol, parts) * step
                if splits[symbol] == 1 and _stick_number(digits, offset) - origin == move:
                    splits[symbol] = parts
                    break
            else:
                return None
        return splits


def _merged(shape: list[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Without steps of one, and with dense ones put together."""
    result: list[tuple[int, int, int]] = []
    for stride, count, uneven in sorted(shape, reverse=True):
        if count == 1 and not uneven:
            continue
        if result and not uneven and not result[-1][2] and result[-1][0] == stride * count:
            result[-1] = (stride, count * result[-1][1], 0)
        else:
            result.append((stride, count, uneven))
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


def _stick_number(digits: list[tuple[int, int]], offset: int) -> int:
    number = 0
    for stride, sticks in digits:
        digit, offset = divmod(offset, stride)
        number += digit * sticks
    return number


@dataclass
class Group:
    """Ops that cores run without waiting for each other."""

    touches: dict[Buffer, dict[Footprint, bool]] = field(default_factory=dict)  # True: writes

    def accepts(self, shape: OpShape, splits: Splits) -> bool:
        for access, footprint in zip(shape.accesses, shape.footprints(splits), strict=True):
            writes = access is shape.op.output
            for other, written in self.touches.get(access.buffer, {}).items():
                if (writes or written) and footprint != other and footprint.may_meet(other):
                    return False
                if footprint.cohort and (writes or written) and footprint == other:
                    return False
        return True

    def with_op(self, shape: OpShape, splits: Splits, gone: set[Buffer]) -> Group:
        """The group and one more op; ``gone`` are buffers that no later op touches."""
        touches = {b: known for b, known in self.touches.items() if b not in gone}
        for access, footprint in zip(shape.accesses, shape.footprints(splits), strict=True):
            if access.buffer not in gone:
                known = dict(touches.get(access.buffer, {}))
                known[footprint] = known.get(footprint, False) or access is shape.op.output
                touches[access.buffer] = known
        return Group(touches)
