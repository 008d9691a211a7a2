"""Locals as large as the part of a loop that knows them: one tile, or what is beyond the last."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp, Loop
from torch_spyre._inductor.views import LinearIndex


def tile_step(
    access: Access, space: dict[str, int], symbol: str, tile: int, extent: int
) -> tuple[int, int] | None:
    """How far apart tiles begin in a buffer and how far all of them reach, if each stays in its
    own part of it; else None.

    With ``step, whole``, an element belongs to the tile ``offset % whole // step``.
    """
    stride = access.index.strides.get(symbol, 0)
    step, whole = stride * tile, stride * extent
    if step <= 0:
        return None
    last = access.index.offset % whole
    for other, other_stride in access.index.strides.items():
        if other == symbol:
            last += stride * (tile - 1)
        elif other_stride % whole:
            last += other_stride * (space[other] - 1)
            if other_stride < 0:
                return None
    return (step, whole) if last < step else None


def shrink(ops: list[KernelOp]) -> None:
    """Locals that only the ops in a loop know become as large as a tile."""
    touches: dict[Buffer, list[KernelOp]] = {}
    for op in ops:
        for buffer in dict.fromkeys(a.buffer for a in (*op.inputs, op.output) if a.buffer.local):
            touches.setdefault(buffer, []).append(op)
    for buffer, users in touches.items():
        for loop in _shared(users):
            if loop not in buffer.tile_of:
                _hold_one_tile(buffer, users, loop)


def _shared(ops: Sequence[KernelOp]) -> list[Loop]:
    """The loops that are around all of the ops."""
    levels = zip(*(op.loops for op in ops), strict=False)
    same = itertools.takewhile(lambda loops: len(set(loops)) == 1, levels)
    return [loops[0] for loops in same]


def _hold_one_tile(buffer: Buffer, users: Sequence[KernelOp], loop: Loop) -> None:
    steps = set()
    for op in users:
        for access in (*op.inputs, op.output):
            if access.buffer is buffer:
                tile = op.space.get(loop.symbol, 0)
                space = op.reach(buffer)
                steps.add(tile_step(access, space, loop.symbol, tile, tile * loop.count))
    found = steps.pop()
    if steps or found is None:
        return
    step, whole = found
    if not _can_end(buffer, step, whole):
        return
    _resize(buffer, whole, step)
    buffer.tile_of |= {loop}
    for op in users:
        _move(op, buffer, buffer, _resized(whole, step))


def cut_off(
    buffer: Buffer,
    ops: Sequence[KernelOp],
    rests: Sequence[KernelOp],
    place: tuple[int, int] | None,
) -> None:
    """Give what ``rests`` touch of a buffer, and ``ops`` do not, a buffer of its own.

    With the ``place`` ``begin, whole`` that is, of every ``whole`` elements, what comes after
    ``begin``; without one each time all of it is overwritten.
    """
    if place is not None and not _can_end(buffer, *place):
        return
    rest = replace(buffer, name=f"{buffer.name}_rest")
    if place is None:
        for op in rests:
            _move(op, buffer, rest, lambda offset: offset)
        return
    begin, whole = place
    _resize(rest, whole, whole - begin)
    _resize(buffer, whole, begin)
    for op in ops:
        _move(op, buffer, buffer, _resized(whole, begin))
    for op in rests:
        _move(op, buffer, rest, _resized(whole, whole - begin), begin)


def _can_end(buffer: Buffer, end: int, whole: int) -> bool:
    """Whether a dimension, of ``whole`` elements, can have ``end``; cut out of a longer one."""
    _cut_dimension(buffer, whole)
    sizes = zip(buffer.size, buffer.stride, strict=True)
    return any(n * t == whole and end % t == 0 for n, t in sizes)


def _resized(whole: int, new: int) -> Callable[[int], int]:
    """Where an element is when a dimension of ``whole`` elements has fewer."""

    def moved(offset: int) -> int:
        outer, inner = divmod(offset, whole)
        return outer * new + inner

    return moved


def _resize(buffer: Buffer, whole: int, new: int) -> None:
    buffer.size = [
        new // t if n * t == whole and new % t == 0 else n
        for n, t in zip(buffer.size, buffer.stride, strict=True)
    ]
    buffer.stride = [_resized(whole, new)(t) for t in buffer.stride]
    buffer.layout = _resized_layout(buffer, whole, new)


def _move(
    op: KernelOp, old: Buffer, new: Buffer, moved: Callable[[int], int], begin: int = 0
) -> None:
    """Let an op touch ``new`` where it touched ``old``."""

    def access_of(access: Access) -> Access:
        if access.buffer is not old:
            return access
        strides = {s: moved(t) for s, t in access.index.strides.items()}
        return Access(new, LinearIndex(moved(access.index.offset - begin), strides))

    op.inputs = [access_of(access) for access in op.inputs]
    op.output = access_of(op.output)


def _cut_dimension(buffer: Buffer, whole: int) -> None:
    """Let a dimension end where all tiles do: of one that goes on beyond, two are made.

    The layout places every element where it did.
    """

    def cut(sizes: Sequence[int], strides: Sequence[int]) -> tuple[list[int], list[int]]:
        found: list[tuple[int, int]] = []
        for size, stride in zip(sizes, strides, strict=True):
            inside = 0 < stride < whole < size * stride
            if inside and whole % stride == 0 and size * stride % whole == 0:
                found += [(size * stride // whole, whole), (whole // stride, stride)]
            else:
                found.append((size, stride))
        return [size for size, _ in found], [stride for _, stride in found]

    assert buffer.layout is not None
    layout = cut(buffer.layout.device_size, buffer.layout.stride_map)
    buffer.size, buffer.stride = cut(buffer.size, buffer.stride)
    buffer.layout = SpyreTensorLayout(*layout, buffer.format)


def _resized_layout(buffer: Buffer, whole: int, new: int) -> SpyreTensorLayout:
    """Sticks stay as they are: the last one may be padded."""
    assert buffer.layout is not None
    sizes, strides = list(buffer.layout.device_size), list(buffer.layout.stride_map)
    for dim, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        if stride > 0 and stride % whole == 0:
            strides[dim] = stride // whole * new
        elif stride * size > new and dim < len(sizes) - 1:
            sizes[dim] = math.ceil(new / stride)
    return SpyreTensorLayout(sizes, strides, buffer.format)
