"""Reductions in parts: what each has of the whole, and how that is put together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor.dtype_ops import DtypeOpTable
from torch_spyre._inductor.kernel_ir import (
    Access,
    Buffer,
    KernelOp,
    contiguous_strides,
    number_key,
)
from torch_spyre._inductor.planning.accesses import MATMUL, neutral_element, stick_symbol
from torch_spyre._inductor.views import LinearIndex
from torch_spyre.ops.table import OPS

# How the results of two parts become one.
COMBINES = {
    "sum": "add",
    MATMUL: "add",
    "prod": "mul",
    "max": "maximum",
    "min": "minimum",
    "any": "logicalor",
}


class Numbers:
    """Constants, each once."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[Any, torch.dtype], Buffer] = {}

    def neutral(self, op: str, dtype: torch.dtype) -> Access:
        """What a reduction begins with."""
        return self.number(neutral_element(op, dtype), dtype)

    def number(self, value: float, dtype: torch.dtype) -> Access:
        key = (number_key(float(value)), dtype)
        if key not in self.numbers:
            name = f"number{len(self.numbers)}"
            layout = SpyreTensorLayout([], dtype)
            self.numbers[key] = Buffer(name, dtype, [], [], layout, constant=float(value))
        return Access(self.numbers[key], LinearIndex(0, {}))


def accumulate(op: KernelOp, numbers: Numbers) -> tuple[KernelOp, KernelOp, list[KernelOp]]:
    """Let a reduction give what it has of a part; returns what makes the whole of it.

    The first op goes before all parts, the second after each of them, the last ones to the end.
    What is rounded to 16 bits at the end is so once, as without parts.
    """
    target = op.output
    dtype = target.buffer.dtype
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    kept = {s: n for s, n in op.space.items() if s not in op.reduced}
    name = target.buffer.name
    total = target if wide == dtype else tensor_like(f"{name}_total", op, wide)
    partial = tensor_like(f"{name}_part", op, wide)
    op.output = partial
    base = replace(op, space=kept, inputs=[], output=total, constants={}, exact=False)
    first = replace(base, op="identity", inputs=[numbers.neutral(op.op, wide)])
    so_far = Access(total.buffer, total.index)
    combine = replace(base, op=COMBINES[op.op], inputs=[so_far, partial])
    combine.exact = op.exact and OPS[combine.op].int64
    last = []
    if total is not target:
        narrow = DtypeOpTable.get_operator(wide, dtype)
        assert narrow is not None
        last = [replace(base, op=narrow, inputs=[total], output=target)]
    return first, combine, last


def tensor_like(name: str, op: KernelOp, dtype: torch.dtype) -> Access:
    """A local for the result of an op, with the sticks of the one it has."""
    own = [s for s in op.space if s not in op.reduced]
    size = [op.space[s] for s in own]
    stick = stick_symbol(op.output, op.space)
    dim = own.index(stick) if stick in own else -1
    order = [other for other in range(len(size)) if other != dim]
    buffer = Buffer(name, dtype, size, contiguous_strides(size), local=True)
    buffer.layout = SpyreTensorLayout(size, buffer.stride, dtype, [*order, dim] if size else [])
    buffer.tile_of = frozenset(op.loops)
    return Access(buffer, LinearIndex(0, dict(zip(own, buffer.stride, strict=True))))
