"""Nests over tensors: how the steps of a program go through them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from torch_spyre._C import DataFormats
from torch_spyre.backend.program import Loop, Nest
from torch_spyre.backend.sdsc import PRESENT, Tensor
from torch_spyre.partition.dims import Dim


def _loops(dim: Dim, size: int, tensors: list[Tensor]) -> list[Loop]:
    """Loops over ``size`` indices of a dimension: whole sticks of every tensor, or part of one."""
    sticks = sorted({t.elems_per_stick for t in tensors if t.along_stick(dim.label)})
    loops = []
    inner = 1
    for eps in [*sticks, None]:
        outer = size if eps is None else min(size, eps)
        if outer > inner:
            loops.append(Loop(outer // inner, [_stride(t, dim, inner) for t in tensors]))
            inner = outer
    return loops


def _stride(tensor: Tensor, dim: Dim, step: int) -> int:
    """The distance of ``step`` indices of a dimension, a multiple or a divisor of a stick."""
    if not tensor.has(dim.label):
        return 0
    if tensor.stick != dim.label:
        return step * tensor.stride[dim.label]
    eps = tensor.elems_per_stick
    return step if step < eps else step // eps * tensor.stride[dim.label]


def _offset(tensor: Tensor, dim: Dim, index: int) -> int:
    """The distance of an index of a dimension from index 0."""
    if not tensor.has(dim.label):
        return 0
    whole, lane = divmod(index, tensor.unit(dim.label))
    return whole * tensor.stride[dim.label] + lane


def _pieces(dim: Dim, size: int, tensors: list[Tensor]) -> list[tuple[int, int]]:
    """(start, length) of parts of a dimension that loops can walk.

    Whole sticks of the tensor with the longest ones, then of the next, then the rest.
    """
    parts, start = [], 0
    for eps in sorted({t.elems_per_stick for t in tensors if t.along_stick(dim.label)})[::-1]:
        whole = (size - start) // eps * eps
        if whole:
            parts.append((start, whole))
            start += whole
    return parts + ([(start, size - start)] if size > start else [])


def nests(size: dict[str, int], tensors: list[Tensor], dims: Sequence[Dim]) -> list[Nest]:
    """Loops over ``dims`` that walk all the tensors at once, each from its start on this core."""
    result = []
    for pieces in itertools.product(*(_pieces(dim, size[dim.label], tensors) for dim in dims)):
        loops: list[Loop] = []
        offset = [tensor.lane for tensor in tensors]
        for dim, (start, length) in zip(dims, pieces, strict=True):
            if start:
                for i, tensor in enumerate(tensors):
                    offset[i] += _offset(tensor, dim, start)
            loops += _loops(dim, length, tensors)
        # The stick's lanes innermost, then whatever is nearest in the last tensor, then in others.
        loops.sort(key=lambda loop: [abs(stride) or math.inf for stride in reversed(loop.stride)])
        result.append(Nest(_merged(loops), offset))
    return result


def _merged(loops: list[Loop]) -> list[Loop]:
    """One loop for two where the outer one goes on as the inner one would."""
    merged: list[Loop] = []
    for loop in loops:
        if merged:
            inner = merged[-1]
            if all(o == i * inner.size for o, i in zip(loop.stride, inner.stride, strict=True)):
                merged[-1] = Loop(inner.size * loop.size, inner.stride)
                continue
        merged.append(loop)
    return merged


def counter(dims: Sequence[Dim], size: dict[str, int]) -> Tensor:
    """A nest that counts instead of going through memory: the line of an iteration, or its position
    in the line."""
    stride, count = {}, 1
    for dim in reversed(dims):
        stride[dim.label] = count
        count *= size[dim.label]
    scale = dict.fromkeys(stride, PRESENT)
    return Tensor(-1, DataFormats.IEEE_INT32, 1, "", list(stride), "", scale, stride, [], False)
