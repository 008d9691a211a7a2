"""Which ATen ops become loops that we compile, and which stay calls of eager kernels.

Pointwise ops, reductions, views and matrix products become ops of a kernel. Everything else is
called as it is: on spyre tensors that is an eager kernel of the card.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._inductor import ir, lowering
from torch._inductor.virtualized import V
from torch._ops import OpOverload

from torch_spyre import patches
from torch_spyre._inductor import pieces
from torch_spyre._inductor.attention import attention
from torch_spyre._inductor.card_ops import CARD_OPS, lower_add, lower_card_op
from torch_spyre._inductor.errors import node_facts
from torch_spyre._inductor.products import addmm, matmul, mv
from torch_spyre._inductor.trace import card_has, other_bits
from torch_spyre.constants import DEVICE_NAME
from torch_spyre.ops import experts

aten = torch.ops.aten

# Reductions whose loops the card has an op for.
REDUCTIONS = [
    aten.sum,
    aten.mean,
    aten.amax,
    aten.amin,
    aten.prod,
    aten.any,
    aten.all,
    aten.var,
    aten.var_mean,
    aten.argmax,
    aten.argmin,
]

# Ops that make or rearrange tensors without computing: Inductor lowers them to views and fills.
SHAPES = [
    aten.clone,
    aten.copy,
    aten.copy_,
    aten.contiguous,
    aten.full,
    aten.full_like,
    aten.empty,
    aten.empty_strided,
    aten.fill,
    aten.lift_fresh_copy,
    aten.expand,
    aten.view,
    aten.reshape,
    aten._unsafe_view,
    aten.permute,
    aten.transpose,
    aten.t,
    aten.slice,
    aten.select,
    aten.squeeze,
    aten.unsqueeze,
    aten.as_strided,
    aten.alias,
    aten.detach,
    aten.split,
    aten.split_with_sizes,
    aten.unbind,
    aten.diagonal,
    aten.scalar_tensor,
    aten.repeat,
    torch.ops.prims.iota,
    torch.ops.prims.convert_element_type,
    torch.ops.prims.broadcast_in_dim,
]

# Ops that are not decomposed: the card does them in one step, or it has an eager kernel for them,
# and compiled kernels have no op.
WHOLE = [
    aten.embedding,
    aten.embedding_dense_backward,
    aten.native_dropout,
    aten.native_dropout_backward,
    aten.im2col,
    aten.col2im,
    aten.index_select,
    aten.linspace,
    aten.logspace,
    aten.max_pool2d_with_indices,
    aten.max_pool2d_with_indices_backward,
    aten.max_pool3d_with_indices,
    aten.nll_loss_forward,
    aten.nll_loss_backward,
    aten.take,
    aten.tril_indices,
    aten.triu_indices,
]


# Ours instead of Inductor's.
LOWERINGS: dict[OpOverload, Callable[..., Any]] = {
    aten.mm.default: matmul,
    aten.bmm.default: matmul,
    aten.mv.default: mv,
    aten.addmm.default: addmm,
    aten.baddbmm.default: addmm,
    aten.slice_scatter.default: pieces.slice_scatter,
    aten.select_scatter.default: pieces.select_scatter,
    **{op: lower_card_op(op) for op in CARD_OPS},
}

# Ours where they give a result, else the eager kernel.
PARTIAL: dict[OpOverload, Callable[..., Any]] = {
    aten.cat.default: pieces.cat,
    aten.constant_pad_nd.default: pieces.pad,
    aten._scaled_dot_product_fused_attention_overrideable.default: attention,
}


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Inductor's decompositions and ours, without those of ops that are better left whole."""
    from torch._inductor.decomposition import select_decomp_table

    table = dict(select_decomp_table())
    for packet in WHOLE:
        for name in packet.overloads():
            table.pop(getattr(packet, name), None)
    for op in (*LOWERINGS, *PARTIAL):
        table.pop(op, None)
    table[aten._to_copy.default] = functools.partial(_to_copy, table[aten._to_copy.default])
    table[aten.stack.default] = _stack
    table[aten.roll.default] = _roll
    table[aten.max.dim] = functools.partial(_extreme, aten.amax, aten.argmax)
    table[aten.min.dim] = functools.partial(_extreme, aten.amin, aten.argmin)
    table[aten.max.default] = lambda x: aten.amax(x, list(range(x.dim())))
    table[aten.min.default] = lambda x: aten.amin(x, list(range(x.dim())))
    if hasattr(torch.ops.moe, "moe_mm"):  # once the Foundation Model Stack is imported
        table[torch.ops.moe.moe_mm.default] = experts.moe_mm
    return table


def _to_copy(theirs: Callable[..., Any], x: Any, **options: Any) -> Any:
    """The lowering of a copy. What leaves the card is converted on the host, as in eager: the host
    has more dtypes."""
    device, dtype = options.get("device"), options.get("dtype")
    leaves = device is not None and torch.device(device).type != DEVICE_NAME
    from_card = isinstance(x, torch.Tensor) and x.device.type == DEVICE_NAME
    if not (leaves and from_card and dtype not in (None, x.dtype)):
        return theirs(x, **options)
    memory_format = options.pop("memory_format", None)
    there = theirs(x, **(options | {"dtype": None}))
    return theirs(there, dtype=dtype, memory_format=memory_format)


def _extreme(value: Any, place: Any, x: Any, dim: int, keepdim: bool = False) -> Any:
    return value(x, [dim], keepdim), place(x, dim, keepdim)


def _stack(tensors: Any, dim: int = 0) -> Any:
    return aten.cat([tensor.unsqueeze(dim) for tensor in tensors], dim)


def _roll(x: Any, shifts: Any, dims: Any = ()) -> Any:
    if not dims:
        return _roll(x.flatten(), shifts, [0]).view(x.shape)
    for dim, shift in zip(dims, shifts, strict=True):
        size = x.shape[dim]
        if size > 0 and shift % size:
            start = size - shift % size
            x = aten.cat([x.narrow(dim, start, size - start), x.narrow(dim, 0, start)], dim)
    return x.clone()


def _compiled(op: Any) -> bool:
    """Whether Inductor's lowering of an op is made of ops the card has."""
    if not isinstance(op, OpOverload):
        return True
    if op.is_view or (torch.Tag.pointwise in op.tags and card_has(op.overloadpacket.__name__)):
        return True
    return op.overloadpacket in (*REDUCTIONS, *SHAPES)


def _on_spyre(args: Any, kwargs: Any) -> bool:
    for leaf in torch.utils._pytree.tree_leaves((args, kwargs)):
        device = leaf.get_device() if isinstance(leaf, ir.IRNode) else leaf
        if isinstance(device, torch.device) and device.type == DEVICE_NAME:
            return True
    return False


def spyre_lowerings() -> AbstractContextManager[None]:
    """While it lasts, Inductor's lowerings are changed for ops on spyre tensors only."""
    table = lowering.lowerings
    changed: dict[Any, Any] = {}
    for op, original in table.items():
        if not _compiled(op):
            changed[op] = _chosen(lowering.fallback_handler(op, False), original)
    for packet in WHOLE:  # by name: Inductor makes no fallback by itself of what it could decompose
        for name in packet.overloads():
            op = getattr(packet, name)
            if op not in table:
                changed[op] = lowering.fallback_handler(op, False)
    for op, ours in LOWERINGS.items():
        original = table.get(op) or lowering.fallback_handler(op, False)
        changed[op] = _chosen(ours, original)
    for op, sign in ((aten.add.Tensor, 1), (aten.sub.Tensor, -1)):
        changed[op] = _chosen(lower_add(sign, table[op]), table[op])
    changed[aten.view.dtype] = _chosen(_same_bits(table[aten.view.dtype]), table[aten.view.dtype])
    for op, ours in PARTIAL.items():
        changed[op] = _chosen(_or_eager(ours, op), table[op])
    return patches.lowered_by(changed)


def _same_bits(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """The lowering of ``view(dtype)``, refused if eager refuses it: a graph that only returns the
    view would not notice before it runs."""

    def lower(x: Any, dtype: torch.dtype) -> Any:
        try:
            torch.empty(1, dtype=x.get_dtype(), device=DEVICE_NAME).view(dtype)
        except NotImplementedError as error:
            refused = other_bits(x.get_dtype(), dtype)
            refused.add(*node_facts(V.graph.current_node))
            raise refused from error
        return theirs(x, dtype)

    return lower


def _or_eager(ours: Callable[..., Any], op: OpOverload) -> Callable[..., Any]:
    eager = lowering.fallback_handler(op, False)

    def lower(*args: Any, **kwargs: Any) -> Any:
        result = ours(*args, **kwargs)
        return eager(*args, **kwargs) if result is None else result

    return lower


def _chosen(ours: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
    def lower(*args: Any, **kwargs: Any) -> Any:
        return (ours if _on_spyre(args, kwargs) else theirs)(*args, **kwargs)

    return lower
