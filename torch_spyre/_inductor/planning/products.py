"""Products that the PT units do not compute: what they multiply is written down, and summed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch_spyre._inductor.dtype_ops import computes_in_integers
from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp, contiguous_strides
from torch_spyre._inductor.planning.accesses import MATMUL, symbols_of
from torch_spyre._inductor.views import LinearIndex


def write_out_products(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops; what is left of products are those of matrices, of vectors at least."""
    return [
        each
        for op in ops
        for each in ([op] if op.op != MATMUL or _is_of_matrices(op) else _written_out(op))
    ]


def _is_of_matrices(op: KernelOp) -> bool:
    """Whether it has rows or columns, and sums one loop that both factors have."""
    a, b = map(symbols_of, op.inputs)
    summed = set(op.reduced)
    return a != b and a | b == set(op.space) and len(summed) == 1 and summed <= a & b


def _written_out(op: KernelOp) -> Iterator[KernelOp]:
    size = list(op.space.values())
    name, dtype = f"{op.output.buffer.name}_product", op.inputs[0].buffer.dtype
    buffer = Buffer(name, dtype, size, contiguous_strides(size), local=True)
    each = Access(buffer, LinearIndex(0, dict(zip(op.space, buffer.stride, strict=True))))
    exact = computes_in_integers("mul", [dtype])
    yield replace(op, op="mul", output=each if op.reduced else op.output, exact=exact)
    if op.reduced:
        exact = computes_in_integers("sum", [dtype, op.output.buffer.dtype])
        yield replace(op, op="sum", inputs=[each], exact=exact)
