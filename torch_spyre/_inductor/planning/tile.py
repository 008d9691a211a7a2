"""Puts ops into loops over tiles: the buffers between them are then as small as a tile.

A plan says which loop of which op is cut into how many tiles. It may come from a hint or from the
cost model: that makes no difference here.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp, Loop
from torch_spyre._inductor.planning.accesses import stick_symbol
from torch_spyre._inductor.planning.accumulate import COMBINES, Numbers, accumulate
from torch_spyre._inductor.planning.shrink import cut_off, shrink, tile_step
from torch_spyre._inductor.views import LinearIndex

log = logging.getLogger("spyre.inductor.passes")


class NotTileable(Unsupported):
    """A plan cuts an op where it cannot be cut."""


@dataclass(eq=False)
class Tiles:
    """A loop to make: so many tiles of a symbol of each op that is named here.

    Other ops between them run before or after the loop. If an op needs what the loop only has at
    its end, it begins another loop of as many tiles.
    """

    count: int
    symbols: dict[KernelOp, str]
    name: str = ""  # of the dimension, for messages
    inner: list[Tiles] = field(default_factory=list)  # in this loop
    share: Fraction = Fraction(1)  # of a loop that one of the first tiles is
    first: int = 0  # so many are; the others, if any, are smaller

    def tile(self, op: KernelOp) -> int:
        """How many iterations of an op are one of the first tiles, before it is in the loop."""
        return int(self.share * op.space[self.symbols[op]])

    def all(self) -> Iterator[Tiles]:
        yield self
        for tiles in self.inner:
            yield from tiles.all()

    def also(self, made: KernelOp, op: KernelOp) -> None:
        """An op made for another is tiled like that one, where it has the symbol."""
        symbol = self.symbols.get(op)
        if symbol in made.space:
            self.symbols[made] = symbol

    def refused(self, op: KernelOp, why: str) -> NotTileable:
        what = f"dimension {self.name!r}" if self.name else "a loop"
        return NotTileable(f"{self.count} tiles of {what}: {why}", op=op)


def coarse_tile(ops: list[KernelOp], plan: Sequence[Tiles]) -> list[KernelOp]:
    """The ops, in the loops of the plan.

    Needs final layouts. Afterwards the space of an op is that of one tile; accesses say what the
    first tile touches, and move on by the extent of a loop's symbol, except in buffers that hold
    one tile only. If tiles cannot be equal the last ones are smaller, and their ops come after
    the loop. Raises :class:`NotTileable` before anything is changed.
    """
    for tiles in plan:
        _check(tiles, {})
    made = _Made(ops)
    for tiles in plan:
        ops = _tiled(ops, tiles, made)
    shrink(ops)
    return ops


class _Made:
    """What is made for loops: names, numbers that they begin with, additional ops."""

    def __init__(self, ops: Sequence[KernelOp]) -> None:
        self.ops = list(ops)  # and those that were there
        self.loops = len({loop for op in ops for loop in op.loops})
        self.numbers = Numbers()

    def loop(self, count: int) -> Loop:
        self.loops += 1
        return Loop(f"l{self.loops - 1}", count)


# ------------------------------------------------------------------------------------------- checks


def can_be_cut(tiles: Tiles) -> bool:
    """Whether the ops of a plan can be cut so, apart from loops inside."""
    try:
        _check(replace(tiles, inner=[]), {})
    except NotTileable:
        return False
    return True


def _check(tiles: Tiles, around: dict[KernelOp, list[str]]) -> None:
    """Say how large tiles are, those inside, too. Raises :class:`NotTileable`."""
    for op, symbol in tiles.symbols.items():
        if symbol in around.get(op, []) or symbol in (loop.symbol for loop in op.loops):
            raise tiles.refused(op, "it is tiled already, by a loop around")
        if symbol in op.reduced and op.op not in COMBINES:
            raise tiles.refused(op, f"{op.op} of tiles does not give {op.op} of all")
    tiles.share, tiles.first = _sizes(tiles)
    inside = {op: [*around.get(op, []), symbol] for op, symbol in tiles.symbols.items()}
    for inner in tiles.inner:
        _check(inner, {**around, **inside})


def _sizes(tiles: Tiles) -> tuple[Fraction, int]:
    """The size of a tile in the dimension that the loops count, and how many tiles have it. It is
    the same for all ops, and keeps sticks whole. One or several last tiles are smaller."""
    sticks = {op: _sticks(op, symbol) for op, symbol in tiles.symbols.items()}
    steps = {op: Fraction(sticks[op][0], op.space[s]) for op, s in tiles.symbols.items()}
    step = functools.reduce(_common_multiple, steps.values())
    share = math.ceil(1 / (tiles.count * step)) * step
    if math.ceil(1 / share) == tiles.count:
        return share, int(1 / share)
    if tiles.count * step <= 1 and 1 % step == 0:
        return share, int(1 / step) % tiles.count
    op = max(steps, key=lambda op: steps[op])
    elems, buffer = sticks[op]
    why = f"its size {op.space[tiles.symbols[op]]}"
    if buffer is not None:
        why += f" in whole sticks of {elems} of {buffer}"
    raise tiles.refused(op, f"{why} cannot be so many")


def _sticks(op: KernelOp, symbol: str) -> tuple[int, Buffer | None]:
    """The number of elements in a stick along a loop, and of which buffer: tiles begin where sticks
    do."""
    found: tuple[int, Buffer | None] = (1, None)
    for access in (*op.inputs, op.output):
        elems = access.buffer.format.elems_per_stick()
        if stick_symbol(access, op.space) == symbol and elems > found[0]:
            found = elems, access.buffer
    return found


def _common_multiple(one: Fraction, other: Fraction) -> Fraction:
    scale = math.lcm(one.denominator, other.denominator)
    return Fraction(math.lcm(int(one * scale), int(other * scale)), scale)


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
        """Accesses to what ops in the loop or after it touch as well, if one of them writes."""
        for access in (*op.inputs, op.output):
            for other, met in self.touched.get(access.buffer, ()):
                if access is op.output or met is other.output:
                    yield access, other, met

    def _same_tile(self, op: KernelOp, one: Access, other: KernelOp, access: Access) -> bool:
        """Whether two ops touch a buffer tile by tile: the same one in every iteration."""
        steps = {self._step(op, one), self._step(other, access)}
        return len(steps) == 1 and None not in steps

    def _step(self, op: KernelOp, access: Access) -> tuple[int, int] | None:
        symbol = self.tiles.symbols[op]
        space = op.reach(access.buffer)
        return tile_step(access, space, symbol, self.tiles.tile(op), op.space[symbol])

    def ops(self, made: _Made) -> list[KernelOp]:
        """All ops, in the loop and around it."""
        begin: list[KernelOp] = []
        body: list[KernelOp] = []
        end: list[KernelOp] = []
        partials: list[Buffer] = []
        for op in self.body:
            body.append(op)
            if self.tiles.symbols[op] in op.reduced:
                first, combine, last = accumulate(op, made.numbers)
                self._inside(combine, op)
                partials.append(op.output.buffer)
                begin.append(first)
                body.append(combine)
                end += last
                made.ops += [first, combine, *last]
        few = self.tiles.count - self.tiles.first
        rests = self._peel(body, partials, made) if few else []
        self._enter_loop(body, made, self.tiles.first)
        self._enter_loop(rests, made, few)
        parts = [self.before, begin, body, rests, end, self.after]
        for inner in self.tiles.inner:
            parts = [_tiled(part, inner, made) for part in parts]
        return [op for part in parts for op in part]

    def _enter_loop(self, ops: Sequence[KernelOp], made: _Made, count: int) -> None:
        """Puts ops into the loop. If it has one iteration, there is no loop."""
        if count <= 1:
            return
        loop = made.loop(count)
        for op in ops:
            symbol = self.tiles.symbols.get(op)
            if symbol in op.reduced:
                op.output.buffer.tile_of |= {loop}
            _enter(op, symbol, loop)

    def _inside(self, made: KernelOp, op: KernelOp) -> None:
        for inner in self.tiles.inner:
            for tiles in inner.all():
                tiles.also(made, op)

    def _peel(
        self, body: Sequence[KernelOp], partials: Sequence[Buffer], made: _Made
    ) -> list[KernelOp]:
        """Ops for the last tiles, the smaller ones; those of the body keep the others."""
        touched = (a.buffer for op in body for a in (*op.inputs, op.output) if a.buffer.local)
        others = {a.buffer for op in made.ops if op not in body for a in (*op.inputs, op.output)}
        own = [buffer for buffer in dict.fromkeys(touched) if buffer not in others]
        places = {buffer: self._place(buffer, body) for buffer in own}
        rests = []
        for op in body:
            rest = replace(op, last_tile=True)
            symbol = self.tiles.symbols.get(op)
            if symbol is not None:
                extent = op.space[symbol]
                start = self.tiles.first * self.tiles.tile(op)
                rest = replace(op.part(symbol, start, extent - start), last_tile=True)
                op.space = op.space | {symbol: start}
                self.tiles.symbols[rest] = symbol
            self._inside(rest, op)
            rests.append(rest)
        made.ops += rests
        for buffer, place in places.items():
            if place is not None or buffer in partials:
                cut_off(buffer, body, rests, place)
        return rests

    def _place(self, buffer: Buffer, body: Sequence[KernelOp]) -> tuple[int, int] | None:
        """Where the smaller tiles begin in a buffer, and how far all of them reach."""
        steps = {
            self._step(op, access)
            for op in body
            if op in self.tiles.symbols
            for access in (*op.inputs, op.output)
            if access.buffer is buffer
        }
        step = steps.pop()
        if steps or step is None:
            return None
        return self.tiles.first * step[0], step[1]


def _enter(op: KernelOp, symbol: str | None, loop: Loop) -> None:
    """Make an op one of a loop's body: its symbol becomes the loop's, and counts a tile."""

    def renamed(access: Access) -> Access:
        index = access.index
        strides = {_new(s): step for s, step in index.strides.items()}
        return Access(access.buffer, LinearIndex(index.offset, strides))

    def _new(old: str) -> str:
        return loop.symbol if old == symbol else old

    op.space = {_new(s): n // loop.count if s == symbol else n for s, n in op.space.items()}
    op.dims = {_new(s): parts for s, parts in op.dims.items()}
    op.inputs = [renamed(access) for access in op.inputs]
    op.output = renamed(op.output)
    op.loops = (*op.loops, loop)
