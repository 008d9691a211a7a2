"""Cuts ops on tensors beyond the span of a core into chunks."""

from __future__ import annotations

import math
from dataclasses import replace

from torch_spyre._inductor import config
from torch_spyre._inductor.kernel_ir import KernelOp
from torch_spyre._inductor.planning.accesses import MATMUL, PLACES, begins_inside, stick_symbol
from torch_spyre._inductor.planning.accumulate import Numbers, accumulate
from torch_spyre._inductor.planning.divide_work import SPAN_BYTES, smallest_span
from torch_spyre._inductor.planning.extremes import Extreme, extreme_of, extreme_of_two
from torch_spyre._inductor.planning.footprints import OpShape
from torch_spyre._inductor.planning.restickify import copied


def chunk_large_tensors(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops; those that no split over cores brings within the span of a core, in chunks.

    An op can be cut along each of its loops, but not along those around it. Needs final layouts.
    Off unless the knob says otherwise: one tensor of that size is mostly a mistake.
    """
    if not config.chunk_large_tensors:
        return ops
    numbers = Numbers()
    return [part for op in ops for part in _chunks(op, numbers)]


def _chunks(op: KernelOp, numbers: Numbers) -> list[KernelOp]:
    symbol = _to_cut(op)
    if symbol is None:
        copies = [part for copy in _copies(op) for part in _chunks(copy, numbers)]
        return [*copies, op]
    if symbol not in op.reduced:
        parts = _halves(op, symbol)
    elif op.op in PLACES:
        parts = _extreme(op, numbers).ops
        parts[-1].output = op.output
    else:
        op = replace(op)
        first, combine, last = accumulate(op, numbers)
        sums = [each for part in _parts_of_sum(op) for each in (part, replace(combine))]
        parts = [first, *sums, *last]
    return [smaller for part in parts for smaller in _chunks(part, numbers)]


def _parts_of_sum(op: KernelOp) -> list[KernelOp]:
    """The chunks of a reduction, cut as long as a reduced loop leads too far."""
    symbol = _to_cut(op)
    if symbol not in op.reduced:
        return [op]
    return [smaller for part in _halves(op, symbol) for smaller in _parts_of_sum(part)]


def _extreme(op: KernelOp, numbers: Numbers) -> Extreme:
    """The extreme of an op and its index, from chunks, cut as long as a reduced loop leads too
    far."""
    symbol = _to_cut(op)
    if symbol not in op.reduced:
        return extreme_of(op)
    halves = _halves(op, symbol)
    found = [_extreme(half, numbers) for half in halves]
    return extreme_of_two(op, symbol, halves, found, numbers)


def _halves(op: KernelOp, symbol: str) -> list[KernelOp]:
    shape = OpShape(op)
    step = _step(shape, symbol)
    half = math.ceil(op.space[symbol] / step / 2) * step
    return [op.part(symbol, 0, half), op.part(symbol, half, op.space[symbol] - half)]


def _copies(op: KernelOp) -> list[KernelOp]:
    """Copies of the factors that a product cannot read in place: because they begin inside of a
    stick, or because the loop along their sticks has only one iteration now."""
    copies: list[KernelOp] = []
    if op.op == MATMUL:
        n, k = list(op.space)[-2:]
        for i, stick in enumerate((k, n)):
            access = op.inputs[i]
            lost = op.space[stick] > 1 and stick_symbol(access, op.space) is None
            if lost or begins_inside(access, op.space):
                op.inputs[i] = copied(access, stick, op, copies)
    for copy in copies:
        copy.node, copy.loops = op.node, op.loops
        copy.output.buffer.tile_of = frozenset(op.loops)
    return copies


def _to_cut(op: KernelOp) -> str | None:
    """The loop to cut; None if the op is within the span of a core, or none can be cut."""
    shape = OpShape(op)
    return _farthest(shape) if smallest_span(shape) > SPAN_BYTES else None


def _farthest(shape: OpShape) -> str | None:
    """Of the loops that can be cut, the one that goes over the most sticks.

    Symbols of the loops around are not cut: these loops advance by what the symbols count.
    """
    op = shape.op
    around = {loop.symbol for loop in op.loops}
    free = [s for s in op.space if op.space[s] > _step(shape, s) and s not in around]
    walks = [shape.walk(position) for position in range(len(shape.accesses))]

    def steps(symbol: str) -> int:
        return max(abs(walk.sticks(symbol, op.space[symbol] - 1)) for walk in walks)

    return max(free, key=steps, default=None)


def _step(shape: OpShape, symbol: str) -> int:
    """Parts of a loop are multiples of so many iterations, so that sticks stay whole. A loop within
    a single stick may be cut where a stick of the widest elements ends: it may hold several of
    those, far apart."""
    if shape.units[symbol] > 1:
        return shape.unit[symbol]
    along = [
        access.buffer.format.elems_per_stick()
        for access, stick in zip(shape.accesses, shape.sticks, strict=True)
        if stick == symbol
    ]
    return min(along, default=1)
