"""Copies, made around a launch, for views that no op of a kernel can touch in place."""

from __future__ import annotations

import functools

import sympy
from sympy import Expr, Symbol

from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp, View, contiguous_strides
from torch_spyre._inductor.planning.kernel import MustSplit
from torch_spyre._inductor.views import LinearIndex, device_coordinates


def expressible(access: Access, space: dict[Symbol, int]) -> bool:
    """Whether a SuperDSC can say what an op touches of a buffer that has its place."""
    assert access.buffer.layout is not None
    coordinates, separate = device_coordinates(access.buffer.layout, access.index, space)
    elems = access.buffer.format.elems_per_stick()
    *outer, stick = coordinates
    return (
        separate
        and _is_stick(stick, elems, space)
        and _counts_whole_sticks(tuple(outer), stick, elems)
    )


@functools.lru_cache(maxsize=1 << 14)
def _counts_whole_sticks(outer: tuple[Expr, ...], stick: Expr, elems: int) -> bool:
    """Whether nothing but the stick's own loop is divided, and by nothing but the stick."""
    whole_sticks = {sympy.floor(symbol / elems) for symbol in stick.free_symbols}
    return sympy.Tuple(*outer).atoms(sympy.floor, sympy.Mod) <= whole_sticks


def _is_stick(coordinate: Expr, elems: int, space: dict[Symbol, int]) -> bool:
    if isinstance(coordinate, sympy.Mod):
        return coordinate.args[0].is_Symbol and coordinate.args[1] == elems
    lane, symbol = coordinate.as_coeff_Add()  # a slice may begin inside of a stick
    if symbol == 0:
        return True
    return symbol.is_Symbol and lane + space[symbol] <= elems


def realign(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops, with views that cross sticks moved to copies made around the launch.

    Needs a layout for every buffer; afterwards every access is :func:`expressible`. What a copy
    outside would be too late or too early for ends the kernel: :class:`MustSplit`.
    """
    copies: dict[tuple[Buffer, View], Buffer] = {}
    written: set[Buffer] = set()  # by ops before
    moved: set[Buffer] = set()  # whose news are in a copy
    for op in ops:
        for i, access in enumerate([*op.inputs, op.output]):
            buffer, writes = access.buffer, i == len(op.inputs)
            in_place = expressible(access, op.space)
            if buffer in moved and (in_place or not writes):
                raise MustSplit(op.node, buffer.name, False)
            if in_place:
                continue
            if buffer.local:
                raise MustSplit(op.node, buffer.name, writes)
            if buffer in written and not writes:
                raise MustSplit(op.node, buffer.name, False)
            copy = _outside_copy(access, op, writes, copies)
            if writes:
                op.output = copy
                moved.add(buffer)
            else:
                op.inputs[i] = copy
        written.add(op.output.buffer)
    return ops


def _outside_copy(
    access: Access, op: KernelOp, written: bool, copies: dict[tuple[Buffer, View], Buffer]
) -> Access:
    symbols = [s for s in op.space if access.index.strides.get(s)]
    strides = [access.index.strides[s] for s in symbols]
    if min(strides, default=0) < 0:
        raise Unsupported(f"{op}: walks {access.buffer.name} backwards", op=op)
    # The order of memory: the copy is then as dense as the view can be.
    symbols.sort(key=lambda s: -access.index.strides[s])
    size = [op.space[s] for s in symbols]
    view = View(
        access.buffer.name,
        tuple(size),
        tuple(access.index.strides[s] for s in symbols),
        access.index.offset,
        written,
    )
    copy = copies.get((access.buffer, view))
    if copy is None:
        name = f"{access.buffer.name}_view{len(copies)}"
        copy = Buffer(name, access.buffer.dtype, size, contiguous_strides(size), view=view)
        copy.layout = SpyreTensorLayout(size, copy.dtype)
        copies[(access.buffer, view)] = copy
    strides_of_copy = dict(zip(symbols, copy.stride, strict=True))
    index = LinearIndex(0, {s: strides_of_copy.get(s, 0) for s in op.space})
    return Access(copy, index)
