"""Tensors made of pieces (cat, padding, replaced slices): memory, and a loop for each piece.

Inductor would write one loop with a mask, which reads every piece for every element.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch._inductor import ir, lowering
from torch._inductor.virtualized import V

from torch_spyre._C import get_device_dtype

aten = torch.ops.aten


def cat(tensors: Sequence[Any], dim: int = 0) -> Any | None:
    """The lowering of ``aten.cat``; None if the pieces would have to be moved inside of sticks."""
    tensors = [t for t in tensors if not _is_legacy_empty(t)]
    if not tensors:
        return None
    dtype = tensors[0].get_dtype()
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.get_dtype())
    dim = dim % len(tensors[0].get_size())
    along_sticks = dim == len(tensors[0].get_size()) - 1
    if along_sticks and not all(_keeps_sticks(*part, dtype) for part in _bounds(tensors, dim)):
        return None
    return side_by_side(tensors, dim, dtype)


def side_by_side(
    tensors: Sequence[Any], dim: int, dtype: torch.dtype, order: Sequence[int] | None = None
) -> Any:
    """Memory, and a loop for each of the tensors. In the order of strides 0 is the innermost."""
    bounds = _bounds(tensors, dim)
    size = list(tensors[0].get_size())
    size[dim] = bounds[-1][1]
    dims = list(range(len(size)))
    outermost_first = dims if order is None else sorted(dims, key=lambda d: -order[d])
    memory = _memory([size[d] for d in outermost_first], dtype, tensors[0].get_device())
    result = lowering.permute(memory, [outermost_first.index(d) for d in dims])
    for tensor, (start, end) in zip(tensors, bounds, strict=True):
        _write(lowering.slice_(result, dim, start, end), tensor)
    return result


def _bounds(tensors: Sequence[Any], dim: int) -> list[tuple[Any, Any]]:
    starts = [0]
    for tensor in tensors:
        starts.append(starts[-1] + tensor.get_size()[dim])
    return list(itertools.pairwise(starts))


def pad(x: Any, padding: Sequence[Any], value: float = 0) -> Any | None:
    """The lowering of ``aten.constant_pad_nd``; None as for :func:`cat`."""
    sizes = list(x.get_size())
    last = len(sizes) - 1
    inside = []  # (dim, where x begins in the result, where it ends)
    for i in range(0, len(padding), 2):
        dim, before, after = last - i // 2, padding[i], padding[i + 1]
        if not all(isinstance(p, int) for p in (before, after)):
            return None
        if before < 0 or after < 0:
            x = lowering.slice_(x, dim, max(-before, 0), sizes[dim] - max(-after, 0))
        before, after = max(before, 0), max(after, 0)
        kept = x.get_size()[dim]
        if dim == last and not _keeps_sticks(before, before + kept, x.get_dtype()):
            return None
        if before or after:
            inside.append((dim, before, before + kept))
        sizes[dim] = before + kept + after
    if not inside:
        return lowering.clone(x)
    result = _filled(sizes, value, x.get_dtype(), x.get_device())
    target = result
    for dim, start, end in inside:
        target = lowering.slice_(target, dim, start, end)
    _write(target, x)
    return result


def slice_scatter(
    x: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    result = _copy(x)
    _write(lowering.slice_(result, dim, 0 if start is None else start, _end(end), step), source)
    return result


def select_scatter(x: Any, source: Any, dim: int, index: int) -> Any:
    result = _copy(x)
    _write(lowering.select(result, dim, index), source)
    return result


def _end(end: Any) -> Any:
    return 2**63 - 1 if end is None else end


def _is_legacy_empty(tensor: Any) -> bool:
    """``cat`` skips tensors of shape (0,), whatever the shape of the others."""
    return len(tensor.get_size()) == 1 and tensor.get_size()[0] == 0


def _keeps_sticks(start: Any, end: Any, dtype: torch.dtype) -> bool:
    """Whether a loop can write [start, end) along the sticks: it begins where a stick does, or
    stays inside of one."""
    elems = get_device_dtype(dtype).elems_per_stick()
    known = V.graph.sizevars
    if known.statically_known_multiple_of(start, elems):
        return True
    return known.statically_known_leq(end - start, elems - start % elems)


def _memory(size: Sequence[Any], dtype: torch.dtype, device: Any) -> Any:
    empty = lowering.lowerings[aten.empty.memory_format]
    return empty(list(size), dtype=dtype, device=device)


def _filled(size: Sequence[Any], value: float, dtype: torch.dtype, device: Any) -> Any:
    result = lowering.lowerings[aten.full.default](list(size), value, dtype=dtype, device=device)
    return _placed(result)


def _copy(x: Any) -> Any:
    return _placed(lowering.clone(x))


def _placed(result: Any) -> Any:
    """A buffer whose pieces are written later."""
    result.realize()
    result.freeze_layout()
    return result


def _write(target: Any, source: Any) -> None:
    """A loop that computes the source and writes it to the target."""
    size = target.get_size()
    source = lowering.to_dtype(source, target.get_dtype())
    source = lowering.expand(source, size)
    V.graph.mark_buffer_mutated(target.get_name())
    loop: Any = ir.Pointwise.create(
        device=target.get_device(),
        dtype=target.get_dtype(),
        inner_fn=source.make_loader(),
        ranges=list(size),
    )
    loop.realize()
    loop.data.data.layout = ir.MutationLayoutSHOULDREMOVE(target)
