"""Cutting loops where neighbours see two of them.

An op that counts the rows of all heads in one loop cannot be split over cores as an op with a loop
for each. What both touch then has to go through device memory. Cut alike, they can agree.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch_spyre._inductor import config
from torch_spyre._inductor.kernel_ir import Buffer, KernelOp
from torch_spyre._inductor.planning.accesses import stick_symbol
from torch_spyre._inductor.planning.cut_loops import cut

MAX_LOOPS = 6  # an op of more is too slow to be worth it


def cut_alike(ops: list[KernelOp]) -> list[KernelOp]:
    """Loops over intermediates that begin and end where those of other ops over them do.

    Loops along sticks stay whole, those that are summed up, and those that count tiles.
    """
    if not config.co_optimizing_lx_planning:
        return ops
    touching: dict[Buffer, list[KernelOp]] = {}
    for op in ops:
        for access in (*op.inputs, op.output):
            if access.buffer.local:
                touching.setdefault(access.buffer, []).append(op)
    waiting = dict.fromkeys(ops)
    while waiting:
        op = next(iter(waiting))
        del waiting[op]
        found = next(_cuts(op, touching), None)
        if found is None or len(op.space) >= MAX_LOOPS:
            continue
        cut([op], *found)
        waiting[op] = None  # there may be more
        for access in (*op.inputs, op.output):
            waiting |= dict.fromkeys(touching.get(access.buffer, ()))
    return ops


def _cuts(op: KernelOp, touching: dict[Buffer, list[KernelOp]]) -> Iterator[tuple[str, int]]:
    """Loops, and of how many iterations their inner parts would be."""
    accesses = (*op.inputs, op.output)
    whole: set[str | None] = {loop.symbol for loop in op.loops}
    whole |= {*op.reduced, *(stick_symbol(access, op.space) for access in accesses)}
    for access in accesses:
        steps = _steps(access.buffer, touching.get(access.buffer, ()))
        for symbol, stride in access.index.strides.items():
            if not stride or symbol in whole:
                continue
            size = op.space[symbol]
            for step in steps:
                inner = step // stride
                if step % stride == 0 and 1 < inner < size and size % inner == 0:
                    yield symbol, inner


def _steps(buffer: Buffer, ops: list[KernelOp] | tuple[()]) -> list[int]:
    """How far loops of the ops move in a buffer, the largest first."""
    return sorted(
        {
            stride
            for op in ops
            for access in (*op.inputs, op.output)
            if access.buffer is buffer
            for symbol, stride in access.index.strides.items()
            if stride and op.space[symbol] > 1
        },
        reverse=True,
    )
