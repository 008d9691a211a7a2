"""Conversions between 16 and 32 bits that another op does on its way.

Ops compute in 32 bits whatever their tensors hold. So an op reads 16-bit numbers as well as their
32-bit copies, and its result, rounded as it is written, is the one a conversion would have rounded.
"""

from __future__ import annotations

from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp
from torch_spyre.ops.table import OPS

WIDEN, NARROW = "dl16tofp32", "fp32todl16"


def fold_casts(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops, without conversions that neighbours do. The numbers are the same, bit by bit."""
    return _folded_into_producers(_read_unwidened(ops))


def _read_unwidened(ops: list[KernelOp]) -> list[KernelOp]:
    """Reads of widened numbers become reads of what was widened. Conversions may be dead then."""
    source: dict[Buffer, Buffer] = {}
    for op in ops:
        if _computes_on_the_way(op):
            op.inputs = [
                Access(source[a.buffer], a.index) if a.buffer in source else a for a in op.inputs
            ]
        written = op.output.buffer
        source = {wide: short for wide, short in source.items() if written not in (wide, short)}
        if op.op == WIDEN and written.local and _in_place(op):
            source[written] = op.inputs[0].buffer
    return ops


def _folded_into_producers(ops: list[KernelOp]) -> list[KernelOp]:
    """Ops write short what is only narrowed afterwards."""
    readers: dict[Buffer, int] = {}
    writers: dict[Buffer, int] = {}
    for op in ops:
        for access in op.inputs:
            readers[access.buffer] = readers.get(access.buffer, 0) + 1
        writers[op.output.buffer] = writers.get(op.output.buffer, 0) + 1
    producer: dict[Buffer, KernelOp] = {}
    touched: dict[Buffer, int] = {}  # when last
    born: dict[Buffer, int] = {}
    kept: list[KernelOp] = []
    for time, op in enumerate(ops):
        wide, short = op.inputs[0].buffer, op.output.buffer
        if (
            op.op == NARROW
            and wide in producer
            and (readers[wide], writers[wide]) == (1, 1)
            and _in_place(op)
            and touched.get(short, -1) < born[wide]
        ):
            maker = producer.pop(wide)
            maker.output = Access(short, maker.output.index)
            continue
        for access in (*op.inputs, op.output):
            touched[access.buffer] = time
        if short.local and _computes_on_the_way(op):
            producer[short], born[short] = op, time
        kept.append(op)
    return kept


def _computes_on_the_way(op: KernelOp) -> bool:
    """Whether an op takes and gives numbers of any length. Constants are as long as its input."""
    return OPS[op.op].kind in ("pointwise", "reduce") and not op.constants and not op.exact


def _in_place(op: KernelOp) -> bool:
    """Whether a conversion leaves every number at its offset."""
    return bool(op.inputs[0].index == op.output.index)
