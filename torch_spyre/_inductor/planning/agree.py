"""Cuts a loop of an op where its neighbours have two loops.

For example, one op goes over the rows of all heads in one loop; the next has a loop over heads and
one over rows. They cannot have the same splits, so what both touch has to go through device memory.
If the first op gets two loops as well, they can agree.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch_spyre._inductor import config
from torch_spyre._inductor.kernel_ir import Buffer, KernelOp
from torch_spyre._inductor.planning.accesses import stick_symbol
from torch_spyre._inductor.planning.cut_loops import cut

MAX_LOOPS = 6  # an op with more loops takes too long


def cut_alike(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops, with loops over intermediates cut as in the other ops that touch these.

    Three kinds of loops stay whole: those along sticks, those that are reduced, those over tiles.
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
        waiting[op] = None  # there may be more to cut
        for access in (*op.inputs, op.output):
            waiting |= dict.fromkeys(touching.get(access.buffer, ()))
    return ops


def _cuts(op: KernelOp, touching: dict[Buffer, list[KernelOp]]) -> Iterator[tuple[str, int]]:
    """Loops that could be cut, and how many iterations the inner loop would have."""
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
    """The strides of the loops of these ops in a buffer, the largest first."""
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
