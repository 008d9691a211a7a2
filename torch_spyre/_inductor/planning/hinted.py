"""What hints ask of a kernel: which loops are cut into tiles, and how ops split over the cores."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from torch_spyre._inductor import config
from torch_spyre._inductor.errors import InvalidHint
from torch_spyre._inductor.hints import Hint
from torch_spyre._inductor.kernel_ir import Access, DimPart, KernelOp
from torch_spyre._inductor.planning.accesses import MATMUL
from torch_spyre._inductor.planning.footprints import OpShape, Splits
from torch_spyre._inductor.planning.tile import NotTileable, Tiles, coarse_tile
from torch_spyre._inductor.views import LinearIndex


def tile_as_hinted(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops, in the loops that hints ask for. Needs final layouts."""
    levels = _Level()
    for op in ops:
        level = levels
        for hint in op.hints:
            for dim, count in hint.tiles:
                level = level.inside(hint, dim)
                level.add(op, dim, count)
    plan = levels.plan()
    if not plan:
        return ops
    try:
        return coarse_tile(ops, plan)
    except NotTileable as error:
        invalid = InvalidHint(f"spyre_hint: {error.what}", tensors=error.tensors)
        invalid.add(error.op, source=error.source)
        raise invalid from error


@dataclass
class _Level:
    """A loop that hints ask for, and those in it."""

    tiles: Tiles = field(default_factory=lambda: Tiles(1, {}))
    levels: dict[tuple[str, str], _Level] = field(default_factory=dict)

    def inside(self, hint: Hint, dim: str) -> _Level:
        return self.levels.setdefault((hint.scope, dim), _Level())

    def add(self, op: KernelOp, dim: str, count: Any) -> None:
        """An op without the dimension is not one of the loop."""
        _positive(count, f"spyre_hint: tiles of dimension {dim!r}", op)
        self.tiles.count, self.tiles.name = count, dim
        symbol = loop_of(op, dim)
        if symbol is not None:
            self.tiles.symbols[op] = symbol

    def plan(self) -> list[Tiles]:
        """Loops of one iteration are none."""
        found = []
        for level in self.levels.values():
            inner = level.plan()
            if level.tiles.count > 1 and level.tiles.symbols:
                level.tiles.inner = inner
                found.append(level.tiles)
            else:
                found += inner
        return found


def _positive(value: Any, what: str, op: KernelOp) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidHint(f"{what}: {value!r} is not a positive number", op=op)


def loop_of(op: KernelOp, dim: str) -> str | None:
    """The outermost loop over a dimension; cut out of a longer one if it is inside of that."""
    found: list[tuple[int, str, int]] = []  # (unit, symbol, place of the part)
    for symbol, parts in op.dims.items():
        if symbol in op.space:
            found += [(p.unit, symbol, i) for i, p in enumerate(parts) if p.name == dim]
    if not found:
        return None
    _, symbol, place = max(found, key=lambda entry: entry[0])
    if place == 0 or (op.op == MATMUL and symbol in op.reduced):
        return symbol
    return _cut_before(op, symbol, place)


def _cut_before(op: KernelOp, symbol: str, place: int) -> str:
    """Make one loop over several dimensions two; returns the inner one."""
    parts = op.dims[symbol]
    inner_size = math.prod(part.size for part in parts[place:])
    outer = f"{symbol}h"

    def cut(access: Access) -> Access:
        strides = dict(access.index.strides)
        strides[outer] = strides.get(symbol, 0) * inner_size
        return Access(access.buffer, LinearIndex(access.index.offset, strides))

    op.space = {outer: op.space[symbol] // inner_size, **op.space, symbol: inner_size}
    op.dims = {**op.dims, outer: parts[:place], symbol: parts[place:]}
    op.inputs = [cut(access) for access in op.inputs]
    op.output = cut(op.output)
    return symbol


# --------------------------------------------------------------------------------- work division


def hinted_splits(shape: OpShape) -> Splits | None:
    """How the innermost hint about it splits an op over the cores; None without one.

    Dimensions that the op does not have are not about it.
    """
    op = shape.op
    wanted = next((hint.work_div for hint in reversed(op.hints) if hint.work_div), ())
    splits = dict.fromkeys(op.space, 1)
    about = False
    for dim, parts in wanted:
        what = f"work_division_hint: dimension {dim!r}"
        _positive(parts, what, op)
        symbol = _loop_to_split(op, dim)
        if symbol is None:
            continue
        about = True
        if symbol in shape.reduced and symbol != shape.contracted and parts > 1:
            why = f"{op.op} reduces it, and only a matrix product can share a sum between cores"
            raise InvalidHint(f"{what}: {why}", op=op)
        splits[symbol] = _parts(shape, symbol, parts, what)
    cores = math.prod(splits.values())
    if cores > config.sencores:
        text = " x ".join(f"{dim!r} {parts}" for dim, parts in wanted)
        raise InvalidHint(
            f"work_division_hint: {text} takes {cores} cores, there are {config.sencores}", op=op
        )
    return splits if about else None


def _parts(shape: OpShape, symbol: str, wanted: int, what: str) -> int:
    """As many as wanted, the last may be smaller; a smaller tile may have fewer.

    Cores that share a sum have equal parts of it.
    """
    op, units, unit = shape.op, shape.units[symbol], shape.unit[symbol]
    possible = shape.parts(symbol, wanted)
    if symbol == shape.contracted and units % possible:
        possible = 1
    if possible == wanted or op.last_tile:
        return possible
    what += f": its size {op.space[symbol]}"
    what += f", {units} sticks of {unit}," if unit > 1 else ""
    how = "equal parts" if symbol == shape.contracted else "parts, all but the last equal"
    raise InvalidHint(f"{what} cannot be {wanted} {how}", op=op)


def _loop_to_split(op: KernelOp, dim: str) -> str | None:
    """The largest loop that counts a dimension and no other."""
    loops = [s for s, parts in op.dims.items() if s in op.space and _counts(parts, dim)]
    return max(loops, key=lambda s: op.space[s], default=None)


def _counts(parts: tuple[DimPart, ...], dim: str) -> bool:
    return bool(parts) and parts[0].name == dim
