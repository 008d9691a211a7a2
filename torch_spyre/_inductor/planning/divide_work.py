"""Chooses the splits of every op: over how many cores each of its loops is cut.

If an op has splits that agree with those of its neighbours, every core reads what it wrote itself:
the intermediate can stay in the scratchpads, and the cores need not wait for each other. So the
splits of all ops are chosen together, by the time of all of them in the card's cost model. If two
ops do not agree, the intermediate goes over the ring or through device memory, whichever takes
less. The last part of a loop may be smaller than the others. For an op with a hint about its splits
there is nothing to choose.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace

from torch_spyre._inductor import config
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.kernel_ir import Buffer, KernelOp
from torch_spyre._inductor.planning.footprints import Footprint, OpShape, Splits, Structure
from torch_spyre._inductor.planning.hinted import hinted_splits
from torch_spyre._inductor.planning.prices import OpPrices, lx_available, writes_lx
from torch_spyre._inductor.planning.ring_copies import RingCopies, movable
from torch_spyre.cost import OpCost, price
from torch_spyre.machine import load as load_machine
from torch_spyre.partition.dims import STICK_BYTES

SPAN_BYTES = int(load_machine().value("memory.core_span_bytes"))
BEAM_WIDTH = 12  # choices for the ops so far that are continued
FULLY_CONTINUED = 3  # the best of these: continued with every candidate for the next op
READER_CANDIDATES = 3  # splits of the next reader that an op takes into account
READER_DISTANCE = 8  # how many ops ahead the next reader is looked for
CANDIDATES = 16  # splits of an op that are compared: those with which it alone is fastest
WAIT_US = 0.1  # that cores take to wait for each other
OP_US = price(OpCost()).total / 1e3  # that any op takes, however small


def divide_work(ops: list[KernelOp]) -> list[KernelOp]:
    """Gives every op its splits, and says which inputs are to come over the ring.

    Also puts loops in an order: neighbouring cores have the next part of the last loop. Needs final
    layouts, and the loops of products in their order, which they keep.
    """
    last_use = {a.buffer: time for time, op in enumerate(ops) for a in (*op.inputs, op.output)}
    asked = _asked(ops)
    moving = movable(ops)
    beam = [_State(0.0, 0.0, {}, {}, frozenset())]
    for time, op in enumerate(ops):
        gone = {a.buffer for a in (*op.inputs, op.output) if last_use[a.buffer] == time}
        step = _Step(asked[time], moving, gone, _next_reader(asked, time), lx_available())
        beam = _advanced(beam, step)
    state: _State | None = beam[0]
    for op in reversed(ops):
        assert state is not None
        op.splits, op.over_ring = dict(state.splits), state.over_ring
        op.space = {symbol: op.space[symbol] for symbol in op.splits}
        state = state.before
    return ops


@dataclass
class _Asked:
    """What the search knows about an op. Ops that are planned alike share it."""

    prices: OpPrices
    cores: int
    made_of: OpShape  # an op of the same structure, and nothing else
    best_footprints: dict[int, list[Footprint]] = field(
        default_factory=dict
    )  # by positions of inputs
    candidates: list[Splits] = field(default_factory=list)
    copies: dict[int, RingCopies] = field(default_factory=dict)  # by positions of inputs
    # By position, the identity of splits (the shape keeps them) and what cores have.
    copying: dict[tuple[int, int, Footprint], float] = field(default_factory=dict)

    @property
    def shape(self) -> OpShape:
        return self.prices.shape

    def of(self, op: KernelOp) -> _Asked:
        return replace(self, prices=self.prices.of(self.shape.of(op)))

    def copy_microseconds(self, position: int, splits: Splits, have: Footprint) -> float:
        """To bring cores an input over the ring from those that have it so; infinite: cannot be."""
        key = position, id(splits), have
        known = self.copying.get(key)
        if known is None:
            if position not in self.copies:
                self.copies[position] = RingCopies(self.made_of, position)
            known = self.copying[key] = self.copies[position].microseconds(splits, have)
        return known


@functools.lru_cache(maxsize=1 << 8)  # a few layers: those of a model, and variants of them
def _asked_about(structure: Structure, cores: int) -> _Asked:
    shape = OpShape(structure.op())
    return _Asked(OpPrices(shape), cores, shape)


def _asked(ops: list[KernelOp]) -> list[_Asked]:
    return [_asked_about(Structure.of(op), config.sencores).of(op) for op in ops]


@dataclass(frozen=True)
class _Home:
    """The home of an intermediate in LX: which part of it each core has."""

    footprint: Footprint
    leaving: float  # microseconds, to have it in device memory instead
    copies: tuple[Footprint, ...] = ()  # that came over the ring

    @functools.cached_property
    def sticks_of_core(self) -> int:
        return self.footprint.sticks_of_core + sum(each.sticks_of_core for each in self.copies)

    def has(self, footprint: Footprint) -> bool:
        return footprint == self.footprint or footprint in self.copies


@dataclass
class _State:
    """A choice for the ops so far."""

    cost: float  # microseconds
    expected: float  # microseconds more, because ops to come cannot agree with all
    homes: dict[Buffer, _Home]  # of what later ops need
    splits: Splits  # of the last op
    over_ring: frozenset[int]  # inputs of it that come from core to core
    before: _State | None = None

    @property
    def value(self) -> float:
        return self.cost + self.expected

    def may_pay(self, best: _State) -> bool:
        """Whether what is at home here could make up for what another choice costs less."""
        return self.value - best.value < sum(
            home.leaving + WAIT_US
            for buffer, home in self.homes.items()
            if buffer not in best.homes or best.homes[buffer].footprint != home.footprint
        )


@dataclass
class _Step:
    """One more op."""

    asked: _Asked
    moving: Container[Buffer]  # what can go over the ring
    gone: set[Buffer]  # what no later op touches
    reader: _Reader | None
    room: int  # bytes of a core's scratchpad


@dataclass
class _Reader:
    """The next op that reads a result."""

    asked: _Asked
    position: int  # of the result among its inputs

    @property
    def shape(self) -> OpShape:
        return self.asked.shape

    def wants(self, position: int, footprint: Footprint) -> list[Footprint] | None:
        """The footprints on all that it touches, with splits that give one input this footprint."""
        splits = self.shape.splits_like(position, footprint)
        return self.shape.footprints(splits) if splits is not None else None

    @property
    def best_footprints(self) -> list[Footprint]:
        """Footprints on the result, with the splits that are best for this op alone."""
        shape, known = self.shape, self.asked.best_footprints
        if self.position not in known:
            ways = _in_turns(shape, _free(shape), self.asked.cores)
            ways.sort(key=shape.largest_part)
            known[self.position] = [
                shape.footprints(way)[self.position] for way in ways[:READER_CANDIDATES]
            ]
        return known[self.position]

    def others(self, homes: dict[Buffer, _Home]) -> Iterator[tuple[int, _Home]]:
        """Its other inputs that have their homes in LX."""
        for position, access in enumerate(self.shape.op.inputs):
            home = homes.get(access.buffer)
            if position != self.position and home is not None:
                yield position, home

    def expected(self, homes: dict[Buffer, _Home], own: _Home) -> float:
        """What it costs when this op reads a result with that home: if its inputs do not agree, one
        of them leaves LX."""
        wanted = self.wants(self.position, own.footprint)
        if wanted is None:
            return own.leaving
        return sum(
            min(own.leaving, home.leaving)
            for position, home in self.others(homes)
            if wanted[position] != home.footprint
        )


def _next_reader(asked: list[_Asked], time: int) -> _Reader | None:
    written = asked[time].shape.op.output.buffer
    for reader in asked[time + 1 : time + 1 + READER_DISTANCE]:
        for position, access in enumerate(reader.shape.op.inputs):
            if access.buffer is written:
                return _Reader(reader, position)
    return None


def _advanced(beam: list[_State], step: _Step) -> list[_State]:
    """The best choices with one more op; of several with the same homes only the best."""
    prices, reader = step.asked.prices, step.reader
    hinted = hinted_splits(prices.shape)
    own = _candidates(step.asked) if hinted is None else [hinted]
    agrees = hinted is None and config.co_optimizing_lx_planning
    if not agrees:
        own = own[:1]
    found: dict[object, _State] = {}
    best, all_in_lx = math.inf, frozenset(range(len(prices.shape.accesses)))
    for rank, state in enumerate(beam):
        inherited = _inherited(prices.shape, state) if agrees else ()
        wanted = _wanted(prices.shape, state, reader) if agrees and reader else ()
        # A candidate that agrees with nothing is best after a choice that costs little: all are
        # tried after the best choices, one after the others.
        ways = (*inherited, *(own if rank < FULLY_CONTINUED else own[:1]), *wanted)
        # A choice that costs more than all homes can save need not be looked at.
        limit = best + sum(home.leaving + WAIT_US for home in state.homes.values())
        limit += prices.written_microseconds + WAIT_US - state.cost
        for splits in {id(splits): splits for splits in ways}.values():
            if prices.microseconds(splits, all_in_lx) > limit:
                continue
            if splits is not own[0] and _span(prices.shape, splits) > SPAN_BYTES:
                continue
            after = _with_op(state, step, splits)
            home = after.homes.get(prices.shape.op.output.buffer)
            after.expected = reader.expected(after.homes, home) if reader and home else 0
            best = min(best, after.value)
            key = frozenset(
                (buffer, home.footprint, *home.copies) for buffer, home in after.homes.items()
            )
            if key not in found or after.cost < found[key].cost:
                found[key] = after
    first, *others = sorted(found.values(), key=lambda state: state.value)[:BEAM_WIDTH]
    return [first, *(other for other in others if other.may_pay(first))]


def _with_op(state: _State, step: _Step, splits: Splits) -> _State:
    prices, shape = step.asked.prices, step.asked.shape
    footprints = shape.footprints(splits)
    homes, cost = dict(state.homes), state.cost
    in_lx: set[int] = set()
    over_ring: set[int] = set()
    for position, access in enumerate(shape.op.inputs):
        home, want = homes.get(access.buffer), footprints[position]
        if home is None:
            continue
        if not home.has(want):
            copy = _copy_microseconds(step, splits, position, home, in_lx)
            if copy is None or not _fits([*homes.values(), _Home(want, 0)], step.room):
                del homes[access.buffer]
                cost += home.leaving + WAIT_US
                continue
            homes[access.buffer] = replace(home, copies=(*home.copies, want))
            cost += copy + WAIT_US
        in_lx.add(position)
        if want != home.footprint:
            over_ring.add(position)
    for buffer in step.gone:
        homes.pop(buffer, None)
    output = shape.op.output.buffer
    own = shape.each_core_has_its_own(len(footprints) - 1, splits)
    if output.local and own and writes_lx(shape.op):
        home = _Home(footprints[-1], prices.written_microseconds)
        if _fits([*homes.values(), home], step.room):
            in_lx.add(len(footprints) - 1)
            homes[output] = home
    cost += prices.microseconds(splits, in_lx) * shape.op.times
    return _State(cost, 0.0, homes, splits, frozenset(over_ring), state)


def _fits(homes: list[_Home], room: int) -> bool:
    return STICK_BYTES * sum(home.sticks_of_core for home in homes) <= room


def _copy_microseconds(
    step: _Step, splits: Splits, position: int, home: _Home, in_lx: set[int]
) -> float | None:
    """To bring cores an input over the ring; None if device memory takes less.

    An op waits for what it reads there at most as long as it takes to be written.
    """
    prices = step.asked.prices
    if prices.shape.op.inputs[position].buffer not in step.moving or 2 * home.leaving <= OP_US:
        return None
    copy = step.asked.copy_microseconds(position, splits, home.footprint)
    if home.leaving <= copy < 2 * home.leaving:
        reading = prices.microseconds(splits, in_lx)
        reading -= prices.microseconds(splits, in_lx | {position})
        return copy if copy < home.leaving + reading else None
    return copy if copy < home.leaving else None


# --------------------------------------------------------------------------------------- candidates


def _candidates(asked: _Asked) -> list[Splits]:
    """Ways to split an op that are good for itself, the best first."""
    if asked.candidates:
        return asked.candidates
    shape, prices = asked.shape, asked.prices
    candidates = _in_turns(shape, _free(shape), asked.cores)
    if shape.contracted is not None:
        candidates += _even(shape, max(map(_cores, candidates)), asked.cores)
    candidates = _within_span(shape, candidates)

    def preference(splits: Splits) -> tuple[float, int, list[int]]:
        """Of equally fast ones those that leave a result to one core, and that split outer loops:
        parts in one piece are what other ops, with other loops, most likely want."""
        of_result = 1 if shape.contracted is None else splits.get(shape.contracted, 1)
        return prices.microseconds(splits), of_result, [-parts for parts in splits.values()]

    asked.candidates[:] = sorted(candidates, key=preference)[:CANDIDATES]  # equal in all threads
    return asked.candidates


def _cores(splits: Splits) -> int:
    return math.prod(splits.values())


def _in_turns(shape: OpShape, free: list[str], cores: int) -> list[Splits]:
    """The loops take what they can of the cores, in several orders: outer loops first, or large."""
    by_size = sorted(free, key=lambda s: -shape.units[s])
    found: dict[int, Splits] = {}
    for first in ((), *((s,) for s in free), *itertools.permutations(free, 2)):
        rest = [s for s in by_size if s not in first]
        splits = dict.fromkeys(shape.op.space, 1)
        left = cores
        for symbol in (*first, *rest):
            splits[symbol] = shape.parts(symbol, left)
            left //= splits[symbol]
        splits = shape.unique(splits)
        found[id(splits)] = splits
    return list(found.values())


def _free(shape: OpShape) -> list[str]:
    """Loops that can be split."""
    return [s for s in shape.op.space if shape.units[s] > 1 and shape.may_split(s)]


def _even(shape: OpShape, least: int, most: int) -> list[Splits]:
    """Ways to split a matrix product into equal parts, for as many cores as there is work for."""
    found: list[dict[str, int]] = [{}]
    for symbol, units in shape.units.items():
        found = [
            splits | {symbol: parts}
            for splits in found
            for parts in range(1, most // _cores(splits) + 1)
            if units % parts == 0
        ]
    return [shape.unique(splits) for splits in found if _cores(splits) >= least]


def _within_span(shape: OpShape, candidates: list[Splits]) -> list[Splits]:
    """Those with which no core reaches farther than it can."""
    fits = [splits for splits in candidates if _span(shape, splits) <= SPAN_BYTES]
    if not fits:
        span = min(_span(shape, splits) for splits in candidates)
        raise Unsupported(
            f"{shape.op}: a core would span {span} bytes of a tensor, it reaches {SPAN_BYTES}",
            op=shape.op,
            hint="set CHUNK_LARGE_TENSORS=1, or work on slices",
        )
    return fits


def smallest_span(shape: OpShape) -> int:
    """Of the bytes from the first to the last that a core touches of a tensor, however split."""
    return min(_span(shape, splits) for splits in _in_turns(shape, _free(shape), config.sencores))


def _span(shape: OpShape, splits: Splits) -> int:
    """Bytes from the first to the last that a core touches; 0 if all cores reach all tensors."""
    if shape.largest_buffer <= SPAN_BYTES:
        return 0
    return STICK_BYTES * max(footprint.span for footprint in shape.footprints(splits))


def _inherited(shape: OpShape, state: _State) -> Iterator[Splits]:
    """Splits with which an input is read as it was written."""
    for position, access in enumerate(shape.op.inputs):
        home = state.homes.get(access.buffer)
        splits = shape.splits_like(position, home.footprint) if home else None
        if splits is not None:
            yield splits


def _wanted(shape: OpShape, state: _State, reader: _Reader) -> Iterator[Splits]:
    """Splits that suit the next reader: by itself, or by what else it reads."""
    if shape.contracted is not None:
        return
    found = list(reader.best_footprints)
    for position, home in reader.others(state.homes):
        footprints = reader.wants(position, home.footprint)
        found += [footprints[reader.position]] if footprints is not None else []
    for footprint in found:
        splits = shape.splits_like(len(shape.op.inputs), footprint)
        if splits is not None:
            yield splits
