"""Matrix products: one reduction each, which stays one op down to the card."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import ir, lowering
from torch._inductor.virtualized import V, ops

from torch_spyre._inductor.errors import InvalidInput

aten = torch.ops.aten


def product(
    x: Any, y: Any, ranges: list[Any], inner: Any, dtype: torch.dtype, place: Callable[..., Any]
) -> Any:
    """A product. ``place(index, k)`` gives the indices of the factors of an element. The sum is in
    float32, and rounded once."""
    x.realize()
    y.realize()
    load_x, load_y = x.make_loader(), y.make_loader()
    # If each sum has one factor, or none, Inductor makes a loop without a reduction.
    sums = not V.graph.sizevars.statically_known_leq(inner, 1)

    def inner_fn(index: Any, reduced: Any) -> Any:
        at_x, at_y = place(index, reduced[0])
        return (ops.dot if sums else ops.mul)(load_x(at_x), load_y(at_y))

    result = ir.Reduction.create(
        device=x.get_device(),
        dst_dtype=dtype,
        src_dtype=x.get_dtype(),
        inner_fn=inner_fn,
        ranges=ranges,
        reduction_ranges=[inner],
        reduction_type="dot" if sums else "sum",
    )
    result.realize()
    return result


def matmul(a: Any, b: Any, dtype: torch.dtype | None = None) -> Any:
    """``a @ b`` of equal batch dimensions."""
    if a.get_dtype() != b.get_dtype():  # PyTorch's shape functions let it pass
        names = [str(x.get_dtype()).removeprefix("torch.") for x in (a, b)]
        node = V.graph.current_node
        raise InvalidInput(
            f"a product of {names[0]} and {names[1]}: both factors need the same dtype",
            op=str(node.target),
            source=node.meta.get("stack_trace") or "",
            hint=f"convert one of them, for example the input: x.to({b.get_dtype()})",
        )
    *batch, rows, inner = a.get_size()
    columns = b.get_size()[-1]
    dtype = dtype or a.get_dtype()
    if rows == 1 and columns == 1 and dtype.is_floating_point:
        # No product for the PT units, but its sum is as exact.
        a, b = lowering.to_dtype(a, torch.float32), lowering.to_dtype(b, torch.float32)
    if columns == 1:  # the sticks of the result are along the rows
        column = product(
            a, b, [*batch, rows], inner, dtype, lambda i, k: ([*i, k], [*i[:-1], k, 0])
        )
        return lowering.unsqueeze(column, -1)
    return product(
        a,
        b,
        [*batch, rows, columns],
        inner,
        dtype,
        lambda i, k: ([*i[:-1], k], [*i[:-2], k, i[-1]]),
    )


def mv(a: Any, v: Any) -> Any:
    """``a @ v``"""
    return lowering.squeeze(matmul(a, lowering.unsqueeze(v, -1)), -1)


def addmm(bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """``beta * bias + alpha * (a @ b)``, rounded once."""
    dtype = a.get_dtype()
    wide = torch.float32
    if not dtype.is_floating_point:
        wide, alpha, beta = dtype, int(alpha), int(beta)  # as eager: without their fractions
    result = matmul(a, b, wide)
    result = _scaled(result, alpha)
    if beta != 0:
        bias = _scaled(lowering.to_dtype(bias, wide), beta)
        result = lowering.lowerings[aten.add.Tensor](result, bias)
    return lowering.to_dtype(result, dtype)


def _scaled(value: Any, factor: float) -> Any:
    return value if factor == 1 else lowering.lowerings[aten.mul.Tensor](value, factor)
