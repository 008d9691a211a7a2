"""Cutting loops where one of them walks through several dimensions of a device layout."""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch_spyre._inductor.kernel_ir import (
    Access,
    DimPart,
    DimParts,
    KernelOp,
    contiguous_strides,
)
from torch_spyre._inductor.planning.accesses import MATMUL
from torch_spyre._inductor.views import Coordinate, LinearIndex, device_coordinates

MAX_CUTS = 8  # of the loops of one node: each brings them closer to a layout's dimensions
MAX_LOOPS = 8  # of an op: a SuperDSC has no labels for more
MAX_PRODUCT_LOOPS = 7


def cut_loops(ops: list[KernelOp]) -> list[KernelOp]:
    """Loops of which each counts along one device dimension, as far as cutting can bring it about.

    Ops that share an iteration space (are of one node) share it afterwards too. Indices are linear
    before and after. K of a matrix product stays whole, and loops stay few enough for labels: a
    view that would cut more is copied.
    """
    nodes: dict[int, list[KernelOp]] = {}
    for op in ops:
        nodes.setdefault(id(op.space), []).append(op)
    for node in nodes.values():
        for _ in range(MAX_CUTS):
            needed = _needed_cut(node)
            if needed is None:
                break
            cut(node, *needed)
    return ops


def _needed_cut(node: list[KernelOp]) -> tuple[str, int] | None:
    """A loop, and of how many iterations the inner part of it is to be."""
    space = node[0].space
    if len(space) >= (MAX_PRODUCT_LOOPS if any(op.op == MATMUL for op in node) else MAX_LOOPS):
        return None
    whole = {symbol for op in node if op.op == MATMUL for symbol in op.reduced}
    for access in _accesses(node):
        if access.buffer.layout is None:
            continue
        coordinates = device_coordinates(access.buffer.layout, access.index, space)
        if coordinates is None:
            continue
        *_, stick = coordinates
        elems = access.buffer.format.elems_per_stick()
        for loop, period in sorted(_divisions(coordinates), key=lambda division: division[::-1]):
            extent = space[loop]
            fits = 1 < period < extent and extent % period == 0
            along_stick = period == elems and (loop, period) in _divisions([stick])
            if fits and loop not in whole and not along_stick:
                return loop, period
    return None


def _accesses(node: Iterable[KernelOp]) -> Iterable[Access]:
    for op in node:
        yield from (*op.inputs, op.output)


def _divisions(coordinates: Iterable[Coordinate]) -> list[tuple[str, int]]:
    """Loops that coordinates divide, and by what first."""
    terms = [term for coordinate in coordinates for term in coordinate.terms]
    divided = [(term.loop, [*term.periods, term.unit][0]) for term in terms]
    return [(loop, by) for loop, by in divided if by > 1]


def cut(node: list[KernelOp], symbol: str, period: int) -> None:
    """Makes two loops of one, the inner of ``period`` iterations."""
    space = node[0].space
    outer, inner = f"{symbol}o", f"{symbol}i"
    renewed: dict[str, int] = {}
    for other, extent in space.items():
        if other == symbol:
            renewed[outer] = extent // period
            renewed[inner] = period
        else:
            renewed[other] = extent
    dims = _cut_dims(node[0].dims, symbol, outer, inner, period)
    for op in node:
        op.space = renewed
        op.dims = dims
        op.inputs = [_with_cut(access, symbol, outer, inner, period) for access in op.inputs]
        op.output = _with_cut(op.output, symbol, outer, inner, period)
        created = op.output.buffer
        if created.layout is None:  # has one dimension for each loop
            created.size = list(renewed.values())
            created.stride = contiguous_strides(created.size)


def _cut_dims(
    dims: dict[str, DimParts], symbol: str, outer: str, inner: str, period: int
) -> dict[str, DimParts]:
    """The names of loops, one of which is cut."""
    if symbol not in dims:
        return dims
    above: list[DimPart] = []
    below: list[DimPart] = []
    for part in reversed(dims[symbol]):
        size = math.gcd(part.size, period)
        period //= size
        if size > 1:
            below.insert(0, DimPart(part.name, size, part.unit))
        if size < part.size:
            above.insert(0, DimPart(part.name, part.size // size, part.unit * size))
    others = {s: parts for s, parts in dims.items() if s != symbol}
    return others | {outer: tuple(above), inner: tuple(below)}


def _with_cut(access: Access, symbol: str, outer: str, inner: str, period: int) -> Access:
    strides: dict[str, int] = {}
    for other, stride in access.index.strides.items():
        if other == symbol:
            strides[outer] = stride * period
            strides[inner] = stride
        else:
            strides[other] = stride
    return Access(access.buffer, LinearIndex(access.index.offset, strides))
