"""Cutting loops where one of them walks through several dimensions of a device layout."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable

import sympy
from sympy import Expr, Symbol

from torch_spyre._inductor.kernel_ir import (
    Access,
    DimPart,
    DimParts,
    KernelOp,
    contiguous_strides,
)
from torch_spyre._inductor.planning.accesses import MATMUL
from torch_spyre._inductor.views import LinearIndex, device_coordinates

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


def _needed_cut(node: list[KernelOp]) -> tuple[Symbol, int] | None:
    """A loop, and of how many iterations the inner part of it is to be."""
    space = node[0].space
    if len(space) >= (MAX_PRODUCT_LOOPS if any(op.op == MATMUL for op in node) else MAX_LOOPS):
        return None
    whole = {symbol for op in node if op.op == MATMUL for symbol in op.reduced}
    for access in _accesses(node):
        if access.buffer.layout is None:
            continue
        coordinates, _ = device_coordinates(access.buffer.layout, access.index, space)
        sticks = _divisions(tuple(coordinates[-1:]))  # what loops along sticks are divided by
        for symbol, period in _divisions(tuple(coordinates)):
            extent = space.get(symbol, 0)
            fits = 1 < period < extent and extent % period == 0
            if fits and symbol not in whole and not _is_stick(symbol, period, access, sticks):
                return symbol, period
    return None


def _is_stick(symbol: Expr, period: int, access: Access, sticks: list[tuple[Expr, int]]) -> bool:
    return period == access.buffer.format.elems_per_stick() and (symbol, period) in sticks


def _accesses(node: Iterable[KernelOp]) -> Iterable[Access]:
    for op in node:
        yield from (*op.inputs, op.output)


@functools.lru_cache(maxsize=1 << 14)
def _divisions(coordinates: tuple[Expr, ...]) -> list[tuple[Expr, int]]:
    """What floors and Mods divide, and by what; in an order that does not change."""
    found = []
    for atom in sympy.Tuple(*coordinates).atoms(sympy.floor, sympy.Mod):
        if isinstance(atom, sympy.Mod):
            divided, period = atom.args
        else:
            divided, period = atom.args[0].as_numer_denom()
        if period.is_Integer:
            found.append((divided, int(period)))
    return sorted(found, key=lambda division: (division[1], str(division[0])))


def cut(node: list[KernelOp], symbol: Symbol, period: int) -> None:
    """Makes two loops of one, the inner of ``period`` iterations."""
    space = node[0].space
    outer, inner = (
        Symbol(f"{symbol.name}{part}", integer=True, nonnegative=True) for part in ("o", "i")
    )
    renewed: dict[Symbol, int] = {}
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
    dims: dict[Symbol, DimParts], symbol: Symbol, outer: Symbol, inner: Symbol, period: int
) -> dict[Symbol, DimParts]:
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


def _with_cut(access: Access, symbol: Symbol, outer: Symbol, inner: Symbol, period: int) -> Access:
    strides: dict[Symbol, int] = {}
    for other, stride in access.index.strides.items():
        if other == symbol:
            strides[outer] = stride * period
            strides[inner] = stride
        else:
            strides[other] = stride
    return Access(access.buffer, LinearIndex(access.index.offset, strides))
