"""Ops in loops over tiles: what lies between them is then as small as a tile.

Where the tiles come from, a hint or a cost model, is not known here: a plan says which loop of
which op is cut into how many tiles.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from sympy import Symbol

from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor.dtype_ops import DtypeOpTable
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp, Loop, contiguous_strides
from torch_spyre._inductor.planning.accesses import (
    MATMUL,
    neutral_element,
    stick_symbol,
)
from torch_spyre._inductor.views import LinearIndex
from torch_spyre.ops.table import OPS

log = logging.getLogger("spyre.inductor.passes")

# How the results of two tiles become one.
COMBINES = {
    "sum": "add",
    MATMUL: "add",
    "prod": "mul",
    "max": "maximum",
    "min": "minimum",
    "any": "logicalor",
}


class NotTileable(Unsupported):
    """A plan cuts an op where it cannot be cut."""


@dataclass(eq=False)
class Tiles:
    """A loop to make: so many tiles of a symbol of each op that is named here.

    Other ops between them run before or after the loop. If an op needs what the loop only has at
    its end, it begins another loop of as many tiles.
    """

    count: int
    symbols: dict[KernelOp, Symbol]
    name: str = ""  # of the dimension, for messages
    inner: list[Tiles] = field(default_factory=list)  # in this loop

    def all(self) -> Iterator[Tiles]:
        yield self
        for tiles in self.inner:
            yield from tiles.all()

    def also(self, made: KernelOp, op: KernelOp) -> None:
        """An op made for another is tiled like that one, where it has the symbol."""
        symbol = self.symbols.get(op)
        if symbol in made.space:
            self.symbols[made] = symbol


def coarse_tile(ops: list[KernelOp], plan: Sequence[Tiles]) -> list[KernelOp]:
    """The ops, in the loops of the plan.

    Needs final layouts. Afterwards the space of an op is that of one tile; accesses say what the
    first tile touches, and move on by the extent of a loop's symbol, except in buffers that hold
    one tile only. Raises :class:`NotTileable` before anything is changed.
    """
    for tiles in plan:
        _check(tiles, {})
    made = _Made(ops)
    for tiles in plan:
        ops = _tiled(ops, tiles, made)
    _shrink(ops)
    return ops


class _Made:
    """What loops need that was not there: names, and numbers to begin with."""

    def __init__(self, ops: Sequence[KernelOp]) -> None:
        self.loops = len({loop for op in ops for loop in op.loops})
        self.numbers: dict[tuple[float, torch.dtype], Buffer] = {}

    def loop(self, count: int) -> Loop:
        self.loops += 1
        return Loop(Symbol(f"l{self.loops - 1}", integer=True, nonnegative=True), count)

    def neutral(self, op: str, dtype: torch.dtype) -> Access:
        value = neutral_element(op, dtype)
        if (value, dtype) not in self.numbers:
            name = f"neutral{len(self.numbers)}"
            layout = SpyreTensorLayout([], dtype)
            self.numbers[value, dtype] = Buffer(name, dtype, [], [], layout, constant=value)
        return Access(self.numbers[value, dtype], LinearIndex(0, {}))


# ------------------------------------------------------------------------------------------- checks


def why_not(op: KernelOp, symbol: Symbol, count: int) -> str | None:
    """Why a loop of an op cannot be cut into so many tiles; None if it can."""
    extent = op.space[symbol]
    if symbol in (loop.symbol for loop in op.loops):
        return "it is tiled already, by a loop around"
    if extent % count:
        return f"its size {extent} is not divisible by {count}"
    if symbol in op.reduced and op.op not in COMBINES:
        return f"{op.op} of tiles does not give {op.op} of all"
    return _cut_sticks(op, symbol, extent // count)


def _check(tiles: Tiles, around: dict[KernelOp, list[Symbol]]) -> None:
    what = f"dimension {tiles.name!r}" if tiles.name else "a loop"
    for op, symbol in tiles.symbols.items():
        why = why_not(op, symbol, tiles.count)
        if symbol in around.get(op, []):
            why = "it is tiled already, by a loop around"
        if why:
            raise NotTileable(f"{tiles.count} tiles of {what}: {why}", op=op)
    inside = {op: [*around.get(op, []), symbol] for op, symbol in tiles.symbols.items()}
    for inner in tiles.inner:
        _check(inner, {**around, **inside})


def _cut_sticks(op: KernelOp, symbol: Symbol, tile: int) -> str | None:
    """Why a tensor cannot be cut there: tiles begin where sticks do."""
    for access in (*op.inputs, op.output):
        elems = access.buffer.format.elems_per_stick()
        if stick_symbol(access, op.space) == symbol and tile % elems:
            return f"tiles of {tile} are no whole sticks of {elems} in {access.buffer}"
    return None


# -------------------------------------------------------------------------------------------- loops


def _tiled(ops: list[KernelOp], tiles: Tiles, made: _Made) -> list[KernelOp]:
    """The ops, those of the plan and all between them in loops or moved out of these."""
    places = [i for i, op in enumerate(ops) if op in tiles.symbols]
    if not places:
        return ops
    first, last = places[0], places[-1] + 1
    result = ops[:first]
    run = _Run(tiles)
    loops = 1
    for op in ops[first:last]:
        if not run.takes(op):
            result += run.ops(made)
            run = _Run(tiles)
            loops += 1
        run.add(op)
    if loops > 1:
        log.info("%d tiles of %s: %d loops, one after the other", tiles.count, tiles.name, loops)
    return result + run.ops(made) + ops[last:]


class _Run:
    """Ops that one loop can have, and those that go before and after it."""

    def __init__(self, tiles: Tiles) -> None:
        self.tiles = tiles
        self.before: list[KernelOp] = []
        self.body: list[KernelOp] = []
        self.after: list[KernelOp] = []
        self.touched: dict[Buffer, list[tuple[KernelOp, Access]]] = {}  # by body and after

    def takes(self, op: KernelOp) -> bool:
        if op not in self.tiles.symbols:
            return True
        return all(
            other in self.tiles.symbols and self._same_tile(op, one, other, access)
            for one, other, access in self._meetings(op)
        )

    def add(self, op: KernelOp) -> None:
        inside = op in self.tiles.symbols
        if not inside and next(self._meetings(op), None) is None:
            self.before.append(op)
            return
        (self.body if inside else self.after).append(op)
        for access in (*op.inputs, op.output):
            self.touched.setdefault(access.buffer, []).append((op, access))

    def _meetings(self, op: KernelOp) -> Iterator[tuple[Access, KernelOp, Access]]:
        """Accesses to what ops in the loop or after it touch too, if one of them writes."""
        for access in (*op.inputs, op.output):
            for other, met in self.touched.get(access.buffer, ()):
                if access is op.output or met is other.output:
                    yield access, other, met

    def _same_tile(self, op: KernelOp, one: Access, other: KernelOp, access: Access) -> bool:
        """Whether two ops touch a buffer tile by tile: the same one in every iteration."""
        steps = {self._step(op, one), self._step(other, access)}
        return len(steps) == 1 and None not in steps

    def _step(self, op: KernelOp, access: Access) -> int | None:
        symbol, count = self.tiles.symbols[op], self.tiles.count
        tile = op.space[symbol] // count
        return _tile_step(access, op.reach(access.buffer), symbol, tile, count)

    def ops(self, made: _Made) -> list[KernelOp]:
        """All of them, in the loop and around it."""
        loop = made.loop(self.tiles.count)
        begin: list[KernelOp] = []
        body: list[KernelOp] = []
        end: list[KernelOp] = []
        for op in self.body:
            own = self.tiles.symbols[op]
            reduced = own in op.reduced
            if not reduced:
                _enter(op, own, loop)
                body.append(op)
                continue
            first, combine, last = _accumulate(op, made)
            _enter(op, own, loop)
            combine.loops = op.loops
            op.output.buffer.tile_of = frozenset(op.loops)
            for inner in self.tiles.inner:
                for tiles in inner.all():
                    tiles.also(combine, op)
            begin.append(first)
            body += [op, combine]
            end += last
        parts = [self.before, begin, body, end, self.after]
        for inner in self.tiles.inner:
            parts = [_tiled(part, inner, made) for part in parts]
        return [op for part in parts for op in part]


def _tile_step(
    access: Access, space: dict[Symbol, int], symbol: Symbol, tile: int, count: int
) -> int | None:
    """How far apart tiles begin in a buffer, if each stays in its own part of it; else None.

    With ``step`` elements from one tile to the next, ``offset // step % count`` is then the tile
    that an element belongs to.
    """
    step = access.index.strides.get(symbol, 0) * tile
    if step <= 0:
        return None
    last = access.index.offset % (count * step)
    for other, stride in access.index.strides.items():
        if other == symbol:
            last += stride * (tile - 1)
        elif stride % (count * step):
            last += stride * (space[other] - 1)
            if stride < 0:
                return None
    return step if last < step else None


def _enter(op: KernelOp, symbol: Symbol, loop: Loop) -> None:
    """Make an op one of a loop's body: its symbol becomes the loop's, and counts a tile."""

    def renamed(access: Access) -> Access:
        index = access.index
        strides = {_new(s): step for s, step in index.strides.items()}
        return Access(access.buffer, LinearIndex(index.offset, strides))

    def _new(old: Symbol) -> Symbol:
        return loop.symbol if old == symbol else old

    tile = op.space[symbol] // loop.count
    op.space = {_new(s): tile if s == symbol else n for s, n in op.space.items()}
    op.dims = {_new(s): parts for s, parts in op.dims.items()}
    op.inputs = [renamed(access) for access in op.inputs]
    op.output = renamed(op.output)
    op.loops = (*op.loops, loop)


# --------------------------------------------------------------------------------------- reductions


def _accumulate(op: KernelOp, made: _Made) -> tuple[KernelOp, KernelOp, list[KernelOp]]:
    """Let a reduction give what it has of a tile; returns what makes the whole of it.

    The first op goes before the loop, the second into it, the last ones after it. What is rounded
    to 16 bits at the end is so once, as without tiles.
    """
    target = op.output
    dtype = target.buffer.dtype
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    kept = {s: n for s, n in op.space.items() if s not in op.reduced}
    name = target.buffer.name
    total = target if wide == dtype else _tensor_like(f"{name}_total", op, wide)
    partial = _tensor_like(f"{name}_tile", op, wide)
    op.output = partial
    base = replace(op, space=kept, inputs=[], output=total, constants={}, exact=False)
    first = replace(base, op="identity", inputs=[made.neutral(op.op, wide)])
    so_far = Access(total.buffer, total.index)
    combine = replace(base, op=COMBINES[op.op], inputs=[so_far, partial])
    combine.exact = op.exact and OPS[combine.op].int64
    last = []
    if total is not target:
        narrow = DtypeOpTable.get_operator(wide, dtype)
        assert narrow is not None
        last = [replace(base, op=narrow, inputs=[total], output=target)]
    return first, combine, last


def _tensor_like(name: str, op: KernelOp, dtype: torch.dtype) -> Access:
    """A local for the result of an op, with the sticks of the one it has."""
    own = [s for s in op.space if s not in op.reduced]
    size = [op.space[s] for s in own]
    stick = stick_symbol(op.output, op.space)
    dim = own.index(stick) if stick in own else -1
    order = [other for other in range(len(size)) if other != dim]
    buffer = Buffer(name, dtype, size, contiguous_strides(size), local=True)
    buffer.layout = SpyreTensorLayout(size, buffer.stride, dtype, [*order, dim] if size else [])
    buffer.tile_of = frozenset(op.loops)
    return Access(buffer, LinearIndex(0, dict(zip(own, buffer.stride, strict=True))))


# ----------------------------------------------------------------------------------- smaller locals


def _shrink(ops: list[KernelOp]) -> None:
    """Locals that only the ops in a loop know become as large as a tile."""
    touches: dict[Buffer, list[KernelOp]] = {}
    for op in ops:
        for buffer in {a.buffer for a in (*op.inputs, op.output) if a.buffer.local}:
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
                steps.add(_tile_step(access, op.reach(buffer), loop.symbol, tile, loop.count))
    step = steps.pop()
    if steps or step is None:
        return
    whole = step * loop.count
    _cut_dimension(buffer, whole)
    if all(n * t != whole or step % t for n, t in zip(buffer.size, buffer.stride, strict=True)):
        return

    def moved(offset: int) -> int:
        outer, inner = divmod(offset, whole)
        return outer * step + inner

    buffer.size = [
        step // t if n * t == whole and step % t == 0 else n
        for n, t in zip(buffer.size, buffer.stride, strict=True)
    ]
    buffer.stride = [moved(t) for t in buffer.stride]
    buffer.layout = _layout_of_tile(buffer, step, whole)
    buffer.tile_of |= {loop}
    for op in users:
        accesses = [
            Access(
                buffer,
                LinearIndex(
                    moved(a.index.offset), {s: moved(t) for s, t in a.index.strides.items()}
                ),
            )
            if a.buffer is buffer
            else a
            for a in (*op.inputs, op.output)
        ]
        *op.inputs, op.output = accesses


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


def _layout_of_tile(buffer: Buffer, step: int, whole: int) -> SpyreTensorLayout:
    assert buffer.layout is not None
    sizes, strides = [], []
    for size, stride in zip(buffer.layout.device_size, buffer.layout.stride_map, strict=True):
        if stride > 0 and stride % whole == 0:
            stride = stride // whole * step
        elif stride > 0 and stride * size > step:
            size = step // stride
        sizes.append(size)
        strides.append(stride)
    return SpyreTensorLayout(sizes, strides, buffer.format)
