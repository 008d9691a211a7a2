"""Ops on tensors beyond what cores reach, in several parts."""

from __future__ import annotations

import math
from dataclasses import replace

from sympy import Symbol

from torch_spyre._inductor import config
from torch_spyre._inductor.kernel_ir import KernelOp
from torch_spyre._inductor.planning.accumulate import COMBINES, Numbers, accumulate
from torch_spyre._inductor.planning.divide_work import SPAN_BYTES, smallest_span
from torch_spyre._inductor.planning.footprints import OpShape


def chunk_large_tensors(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops, those that no split over the cores brings within a core's reach in chunks.

    Every op can be cut, but argmax and argmin along what they look through: those are left to be
    refused. Needs final layouts. Off unless the knob says otherwise: one tensor of that size is
    mostly a mistake.
    """
    if not config.chunk_large_tensors:
        return ops
    numbers = Numbers()
    return [part for op in ops for part in _chunks(op, numbers)]


def _chunks(op: KernelOp, numbers: Numbers) -> list[KernelOp]:
    symbol = _to_cut(op)
    if symbol is None:
        return [op]
    if symbol not in op.reduced:
        parts = _halves(op, symbol)
    else:
        op = replace(op)
        first, combine, last = accumulate(op, numbers)
        sums = [each for part in _parts_of_sum(op) for each in (part, replace(combine))]
        parts = [first, *sums, *last]
    return [smaller for part in parts for smaller in _chunks(part, numbers)]


def _parts_of_sum(op: KernelOp) -> list[KernelOp]:
    """Cut as often as it is what they reduce that leads too far."""
    symbol = _to_cut(op)
    if symbol not in op.reduced:
        return [op]
    return [smaller for part in _halves(op, symbol) for smaller in _parts_of_sum(part)]


def _halves(op: KernelOp, symbol: Symbol) -> list[KernelOp]:
    shape = OpShape(op)
    half = math.ceil(shape.units[symbol] / 2) * shape.unit[symbol]
    return [op.part(symbol, 0, half), op.part(symbol, half, op.space[symbol] - half)]


def _to_cut(op: KernelOp) -> Symbol | None:
    """A loop that leads too far; None if all are within reach, or none can be cut."""
    shape = OpShape(op)
    return _farthest(shape) if smallest_span(shape) > SPAN_BYTES else None


def _farthest(shape: OpShape) -> Symbol | None:
    """Of the loops that can be cut, sticks staying whole, the one that leads farthest.

    Loops around move on by what their symbols count: these stay as they are.
    """
    op = shape.op
    around = {loop.symbol for loop in op.loops}
    free = [
        s
        for s in op.space
        if shape.units[s] > 1 and s not in around and (s not in op.reduced or op.op in COMBINES)
    ]
    walks = [shape.walk(position) for position in range(len(shape.accesses))]

    def steps(symbol: Symbol) -> int:
        return max(abs(walk.sticks(symbol, op.space[symbol] - 1)) for walk in walks)

    return max(free, key=steps, default=None)
