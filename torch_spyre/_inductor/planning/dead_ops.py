"""Dropping what nobody reads."""

from __future__ import annotations

from torch_spyre._inductor.kernel_ir import Buffer, KernelOp


def drop_dead_ops(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops without those that write a local which no later op reads."""
    read: set[Buffer] = set()
    kept = []
    for op in reversed(ops):
        if op.output.buffer.local and op.output.buffer not in read:
            continue
        kept.append(op)
        read |= {access.buffer for access in op.inputs}
    return kept[::-1]
