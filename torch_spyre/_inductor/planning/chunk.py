"""Ops on tensors beyond what cores reach, in several parts."""

from __future__ import annotations

import math

from torch_spyre._inductor import config
from torch_spyre._inductor.kernel_ir import KernelOp
from torch_spyre._inductor.planning.divide_work import SPAN_BYTES, smallest_span
from torch_spyre._inductor.planning.footprints import OpShape


def chunk_large_tensors(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops, those that no split over the cores brings within a core's reach in chunks.

    Ops that compute every element by itself can be cut; others are left to be refused, and so are
    those in loops, which work on parts already. Needs final layouts. Off unless the knob says
    otherwise: one tensor of that size is mostly a mistake.
    """
    if not config.chunk_large_tensors:
        return ops
    return [part for op in ops for part in _chunks(op)]


def _chunks(op: KernelOp) -> list[KernelOp]:
    shape = OpShape(op)
    if op.reduced or op.loops or smallest_span(shape) <= SPAN_BYTES:
        return [op]
    # The loop that leads farthest; sticks stay whole.
    symbol = max(op.space, key=lambda s: shape.walk(-1).sticks(s, op.space[s] - 1))
    half = math.ceil(shape.units[symbol] / 2) * shape.unit[symbol]
    size = op.space[symbol]
    if half >= size:
        return [op]
    parts = [op.part(symbol, 0, half), op.part(symbol, half, size - half)]
    return [smaller for part in parts for smaller in _chunks(part)]
