"""Attention as ops of a kernel: two products around a softmax in float32."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch._inductor import ir, lowering
from torch._inductor.virtualized import V, ops

from torch_spyre._inductor.kernel_ir import has_symbols, number
from torch_spyre._inductor.pieces import side_by_side
from torch_spyre._inductor.products import product

aten = torch.ops.aten

# With more bytes of scores, attention is the eager kernel, which makes them in blocks of rows. A
# compiled kernel has its scores in the scratchpads, in tiles if need be, or else in the pool.
MAX_SCORE_BYTES = 1 << 30
MIN_BLOCK_ROWS = 256  # of causal attention: for fewer, more ops take longer than what they save
BLOCK_UNIT = 64  # rows: scores of the keys that a block sees are whole sticks


def _fits(query: Any, key: Any, value: Any) -> bool:
    """Whether the scores are few enough to exist all at once."""
    *lead, heads, rows, _ = query.get_size()
    keys = key.get_size()[-2]
    sizes = V.graph.sizevars
    scores = [sizes.optimization_hint(extent) for extent in [*lead, heads, rows, keys]]
    width = sizes.optimization_hint(value.get_size()[-1])
    # With a single key, or with empty tensors, there is no product to compile.
    return min(*scores, width) > 0 and scores[-1] > 1 and 4 * math.prod(scores) <= MAX_SCORE_BYTES


def attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    dropout: float = 0.0,
    causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...] | None:
    """The lowering of ``_scaled_dot_product_fused_attention_overrideable``; None leaves it eager.

    Query heads that share keys and values (grouped-query attention) are a loop that keys and values
    do not have: so these are not copied.
    """
    if dropout != 0 or not _fits(query, key, value):
        return None
    *lead, heads, rows, size = query.get_size()
    key_heads, keys = key.get_size()[-3], key.get_size()[-2]
    # These numbers belong to the model, not to its input: they are known even if sizes are symbols.
    heads, key_heads, size = V.graph.sizevars.guard_int_seq([heads, key_heads, size])
    if scale is None:
        scale = 1 / math.sqrt(size)
    if scale <= 0:  # the largest product is not the largest score
        return None

    grouped = [*lead, key_heads, heads // key_heads]
    query = lowering.view(query, [*grouped, rows, size])
    if bias is not None:
        bias = lowering.view(
            lowering.expand(bias, [*lead, heads, rows, keys]), [*grouped, rows, keys]
        )
    results = []
    for start, end in _row_blocks(rows) if causal else [(0, rows)]:
        seen = _smaller(end, keys) if causal else keys
        part = _attended(
            _sliced(query, -2, start, end),
            _sliced(key, -2, 0, seen),
            _sliced(value, -2, 0, seen),
            None if bias is None else _sliced(_sliced(bias, -2, start, end), -1, 0, seen),
            start if causal else None,
            scale,
        )
        size_of_part = [*lead, heads, end - start, value.get_size()[-1]]
        results.append(lowering.view(part, size_of_part))
    return (_in_order_of_meta(results), *_unused_results(query, rows, keys))


def _row_blocks(rows: Any) -> list[tuple[Any, Any]]:
    """The rows of causal attention, where row i sees the keys up to i: in two halves, if there are
    many. The products of the first half leave out the keys that none of its rows sees. More blocks
    would leave out more, but read keys and values more often."""
    rows = number(rows)
    if has_symbols([rows]) or rows < 2 * MIN_BLOCK_ROWS:
        return [(0, rows)]
    half = -(-rows // (2 * BLOCK_UNIT)) * BLOCK_UNIT
    return [(0, half), (half, rows)]


def _smaller(one: Any, other: Any) -> Any:
    return one if V.graph.sizevars.statically_known_lt(one, other) else other


def _sliced(x: Any, dim: int, start: Any, end: Any) -> Any:
    if start == 0 and end == x.get_size()[dim]:
        return x
    return lowering.slice_(x, dim, start, end)


def _attended(query: Any, key: Any, value: Any, bias: Any, first_row: Any, scale: float) -> Any:
    """Attention of rows; dimensions are (..., head of keys, query head of its group, row). If the
    first row has a number, attention is causal: each row sees the keys up to its own number."""
    *grouped, rows, size = query.get_size()
    keys = key.get_size()[-2]
    products = product(
        query,
        key,
        [*grouped, rows, keys],
        size,
        torch.float32,
        lambda i, k: ([*i[:-1], k], [*i[:-3], i[-1], k]),
    )
    scores = _scores(products, bias, first_row, scale)
    largest = _call(aten.amax.default, scores, [-1], True)
    if bias is not None:  # only a mask can hide every key of a row; such rows are zero
        largest = _replaced(largest, -math.inf, 0.0)
    # Without a bias the scores are not scaled: the weights are, where they are computed anyway.
    weights = _weights(scores, largest, scale if bias is None else 1.0)
    total = _call(aten.sum.dim_IntList, weights, [-1], True)
    if bias is not None:
        total = _replaced(total, 0.0, 1.0)
    # The division comes last: there are fewer results than weights.
    sums = product(
        weights,
        value,
        [*grouped, rows, value.get_size()[-1]],
        keys,
        torch.float32,
        lambda i, k: ([*i[:-1], k], [*i[:-3], k, i[-1]]),
    )
    return lowering.to_dtype(lowering.div(sums, total), query.get_dtype())


def _scores(products: Any, bias: Any, first_row: Any, scale: float) -> Any:
    """The scores, of which the softmax is taken."""
    scores = products
    if bias is not None:
        scores = _lowered(aten.mul.Tensor, scores, scale)
        scores = _lowered(aten.add.Tensor, scores, lowering.to_dtype(bias, torch.float32))
    if first_row is not None:
        scores = lowering.where(_seen(products, first_row), scores, -math.inf)
    scores.realize()
    return scores


def _seen(scores: Any, first_row: Any) -> Any:
    """Which keys a row sees: those up to its number."""

    def inner_fn(index: Any) -> Any:
        row, key = index[-2] + first_row, index[-1]
        return ops.ge(ops.index_expr(row, torch.float32), ops.index_expr(key, torch.float32))

    return ir.Pointwise.create(
        device=scores.get_device(),
        dtype=torch.bool,
        inner_fn=inner_fn,
        ranges=list(scores.get_size()),
    )


def _replaced(values: Any, number: float, by: float) -> Any:
    result = lowering.where(_lowered(aten.eq.Tensor, values, number), by, values)
    result.realize()
    return result


def _weights(scores: Any, largest: Any, scale: float) -> Any:
    distances = _lowered(aten.sub.Tensor, scores, largest)
    if scale != 1:
        distances = _lowered(aten.mul.Tensor, distances, scale)
    return _call(aten.exp.default, distances)


def _lowered(op: Any, *args: Any) -> Any:
    return lowering.lowerings[op](*args)


def _call(op: Any, *args: Any) -> Any:
    """The result of an op as a buffer."""
    result = _lowered(op, *args)
    result.realize()
    return result


def _in_order_of_meta(results: list[Any]) -> Any:
    """The result, with its dimensions in memory in the order that PyTorch's shape function says: so
    views of it need no copy."""
    strides = V.graph.current_node.meta["val"][0].stride()
    order = ir.get_stride_order(strides, V.graph.sizevars.shape_env)
    if len(results) > 1:
        return side_by_side(results, -2, results[0].get_dtype(), order)
    results[0].realize()
    return ir.ExternKernel.require_stride_order(results[0], order)


def _unused_results(query: Any, rows: Any, keys: Any) -> list[Any]:
    """The results beside the output that the shape function promises. The backward kernel uses none
    of them."""
    results: list[Any] = []
    for fake in V.graph.current_node.meta["val"][1:]:
        if isinstance(fake, torch.Tensor):
            full = lowering.lowerings[aten.full.default]
            device = query.get_device()
            size = ir.convert_shape_to_inductor(fake.shape)
            results.append(full(size, 0, dtype=fake.dtype, device=device))
        else:
            results.append(rows if len(results) == 3 else keys)
    return results
