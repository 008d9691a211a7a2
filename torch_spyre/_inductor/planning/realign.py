"""Copies, made around a launch, for views that no op of a kernel can touch in place."""

from __future__ import annotations

from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp, View, contiguous_strides
from torch_spyre._inductor.planning.kernel import MustSplit
from torch_spyre._inductor.views import Coordinate, LinearIndex, Term, device_coordinates


def expressible(access: Access, space: dict[str, int]) -> bool:
    """Whether a SuperDSC can say what an op touches of a buffer. Needs the buffer's layout."""
    assert access.buffer.layout is not None
    coordinates = device_coordinates(access.buffer.layout, access.index, space)
    if coordinates is None:
        return False
    elems = access.buffer.format.elems_per_stick()
    *outer, stick = coordinates
    # Nothing but the stick's own loop is divided, and by nothing but the stick.
    whole_sticks = [Term(loop, 1, elems) for loop in stick.loops]
    return _is_stick(stick, elems, space) and all(
        (term.unit == 1 and not term.periods) or term._replace(step=1) in whole_sticks
        for coordinate in outer
        for term in coordinate.terms
    )


def _is_stick(stick: Coordinate, elems: int, space: dict[str, int]) -> bool:
    if not stick.terms:
        return True
    term = stick.terms[0]
    if len(stick.terms) > 1 or (term.step, term.unit) != (1, 1):
        return False
    if term.periods:
        return term.periods == (elems,) and stick.offset == 0
    return stick.offset + space[term.loop] <= elems  # a slice may begin inside of a stick


def realign(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops, with views that cross sticks replaced by copies that are made around the launch.

    Needs a layout for every buffer; afterwards every access is :func:`expressible`. A copy before
    the launch is too early for a view of what the kernel writes, and one after it is too late for
    an op that reads what the copy holds. Then the kernel ends there: :class:`MustSplit`.
    """
    copies: dict[tuple[Buffer, View], Buffer] = {}
    written: set[Buffer] = set()  # by earlier ops
    written_in_copy: set[Buffer] = set()  # part of their content is in a copy until the launch ends
    for op in ops:
        for i, access in enumerate([*op.inputs, op.output]):
            buffer, writes = access.buffer, i == len(op.inputs)
            in_place = expressible(access, op.space)
            if buffer in written_in_copy and (in_place or not writes):
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
                written_in_copy.add(buffer)
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
        access.index.offset - access.buffer.offset,
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
