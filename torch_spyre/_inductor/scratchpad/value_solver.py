"""The default solver: as much value as it can keep.

Buffers are packed one after the other, in several orders. If not all of them fit, prices say which
buffers keep out which others. Then the best orders are changed step by step: a buffer that was left
over comes earlier, one that kept it out later. That is done for all buffers together, and then for
regions around the buffers that are left over, with all others where they are. The best of all
placements is the plan.

The search ends after a number of placements, not by a clock, and random numbers have a fixed seed:
a plan does not depend on the machine.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch_spyre._inductor.scratchpad.layout import Layout
from torch_spyre._inductor.scratchpad.plan_solver import MemoryPlanSolver
from torch_spyre._inductor.scratchpad.prices import Demand, prices

Block = tuple[int, ...]  # a part of an in-place chain, or one buffer: all of it at one address
Choose = Callable[[list[tuple[int, int]]], int]  # a start, of free ranges (first, last)

# How long to search. More finds a little more: chosen so that thousands of buffers take well under
# a second.
PLACEMENTS = 30_000  # of buffers, for all of them together
PLACEMENTS_IN_REGIONS = 10_000
FEWEST_PACKS = 4
PACKS_A_BUFFER = 24  # few buffers have few orders
REGION = 24  # buffers
PACKS_OF_REGION = 60
ORDERS_CHANGED = 2  # the best ones
WORSE = 0.1  # of what is missing, that a change may cost at first; at the end nothing
SEED = 1


class ValueLayoutSolver(MemoryPlanSolver):
    """Keeps what is worth most, as far as it finds that out in bounded time."""

    def fill(self, layout: Layout) -> None:
        _Search(layout).run()


def _lowest(free: list[tuple[int, int]]) -> int:
    return free[0][0]


def _tightest(free: list[tuple[int, int]]) -> int:
    return min(free, key=lambda gap: (gap[1] - gap[0], gap[0]))[0]


@dataclass(frozen=True)
class _Traits:
    """What the orders sort buffers by."""

    born: int
    span: int
    size: int
    area: int  # bytes times moments
    worth: float
    rent: float  # by the prices of all its moments

    @property
    def too_dear(self) -> bool:
        return self.rent > self.worth


Order = Callable[[_Traits], tuple[float, ...]]


def _by_size(block: _Traits) -> tuple[float, ...]:
    return -block.size, -block.span


def _by_birth(block: _Traits) -> tuple[float, ...]:
    return block.born, -block.span


ORDERS: list[Order] = [
    lambda block: (block.too_dear, -block.size, -block.span),
    lambda block: (block.too_dear, block.born, -block.span),
    lambda block: (block.rent / block.worth if block.worth else math.inf, block.born),
    lambda block: (block.rent - block.worth, block.born),
    _by_size,
    lambda block: (-block.worth / block.area, block.born),
    lambda block: (-block.span, -block.size),
    lambda block: (-block.worth, block.born),
    lambda block: (-block.area, block.born),
    _by_birth,
]


class _Search:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.worth = [buffer.worth for buffer in layout.buffers]
        self.rent = [0.0] * len(layout.buffers)  # of a byte
        self.planned = [
            i for i in range(layout.count) if self.worth[i] >= 0 and layout.last_start([i]) >= 0
        ]
        self.parent = _chains(layout, self.planned)
        self.chance = random.Random(SEED)
        self.placements = 0

    def run(self) -> None:
        blocks = self._blocks(self.planned)
        for order in (_by_size, _by_birth):
            self._pack(self.planned, self._sorted(blocks, order), _lowest)
            if not self._left_over():
                return
        bound = self._find_prices()
        count = len(self.planned)
        self._improve(self.planned, min(PLACEMENTS // count, PACKS_A_BUFFER * count))
        if self._kept(self.planned) < bound:
            self._improve_regions()

    def _find_prices(self) -> float:
        """Sets the rents, and returns a value that no plan exceeds."""
        # May leave their last moment to a child.
        parents = {parent for i in self.planned for parent in self.layout.parents[i]}
        demands = []
        for i in self.planned:
            buffer = self.layout.buffers[i]
            end = buffer.end_time - (i in parents)
            demands.append(Demand(buffer.start_time, end, buffer.size, self.worth[i]))
        found = prices(demands, self.layout.limit, self._kept(self.planned))
        for i, rent in zip(self.planned, found.rents, strict=True):
            self.rent[i] = rent
        return found.bound

    # ----------------------------------------------------------------------------------- regions

    def _improve_regions(self) -> None:
        tried: set[tuple[int, ...]] = set()
        limit = self.placements + PLACEMENTS_IN_REGIONS
        improved = True
        while improved:
            improved = False
            for i in sorted(self._left_over(), key=lambda i: (-self.worth[i], i)):
                region = self._region(i)
                if self.layout.address[i] is not None or region in tried:
                    continue
                if self.placements > limit:
                    return
                if self._improve(region, PACKS_OF_REGION):
                    improved = True
                    tried.clear()
                tried.add(region)

    def _region(self, center: int) -> tuple[int, ...]:
        """A buffer and those that are nearest to it in time, as far as they may be moved."""
        found = {center: None}
        queue = [center]
        buffers = self.layout.buffers
        for i in queue:
            born = buffers[i].start_time
            for j in sorted(
                self.layout.neighbours[i], key=lambda j: (abs(buffers[j].start_time - born), j)
            ):
                if len(found) >= REGION:
                    break
                if j in self.parent and j not in found:
                    found[j] = None
                    queue.append(j)
        return tuple(sorted(found))

    # ------------------------------------------------------------------------------------ orders

    def _improve(self, buffers: Sequence[int], packs: int) -> bool:
        """Pack some buffers anew, with all others where they are. Returns whether more is kept."""
        address = self.layout.address
        everything = sum(self.worth[i] for i in buffers)
        before = best = self._kept(buffers)
        best_places = [address[i] for i in buffers]

        def value_of(order: Sequence[Block], choose: Choose) -> float:
            nonlocal best, best_places
            value = self._pack(buffers, order, choose)
            if value > best:
                best, best_places = value, [address[i] for i in buffers]
            return value

        blocks = self._blocks(buffers)
        fits: list[Choose] = [_lowest, _tightest]
        ways = [(order, choose) for order in ORDERS for choose in fits]
        tried: list[tuple[float, list[Block], Choose]] = []
        for key, choose in ways[: max(FEWEST_PACKS, packs)]:
            order = self._sorted(blocks, key)
            tried.append((value_of(order, choose), order, choose))
            if best >= everything:
                return True
        tried.sort(key=lambda entry: -entry[0])
        changes = max(0, packs - len(tried)) // ORDERS_CHANGED
        for _, order, choose in tried[:ORDERS_CHANGED] if changes else ():
            value = value_of(order, choose)
            failed = self._failed(order)
            for change in range(changes):
                changed = self._changed(order, failed)
                new = value_of(changed, choose)
                if best >= everything:
                    return True
                if new >= value - WORSE * (everything - best) * (1 - change / changes):
                    value, order = new, changed
                    failed = self._failed(order)
        for i, place in zip(buffers, best_places, strict=True):
            address[i] = place
        return best > before

    def _changed(self, order: Sequence[Block], failed: Sequence[int]) -> list[Block]:
        """Another order: a block that was left over comes earlier, or in the turn of a block that
        may have kept it out, which then comes later."""
        chance = self.chance
        changed = list(order)
        turn = chance.choice(failed)
        block = changed.pop(turn)
        near = {j for i in block for j in self.layout.neighbours[i]}
        rivals = [k for k, other in enumerate(changed) if not near.isdisjoint(other)]
        if not rivals or (turn and chance.random() < 0.5):
            changed.insert(chance.randrange(turn) if turn else 0, block)
            return changed
        turn = chance.choice(rivals)
        rival, changed[turn] = changed[turn], block
        later = len(changed) if chance.random() < 0.5 else chance.randrange(turn, len(changed))
        changed.insert(later, rival)
        return changed

    def _failed(self, order: Sequence[Block]) -> list[int]:
        address = self.layout.address
        return [k for k, block in enumerate(order) if any(address[i] is None for i in block)]

    def _sorted(self, blocks: Sequence[Block], order: Order) -> list[Block]:
        return sorted(blocks, key=lambda block: (order(self._traits(block)), block))

    def _traits(self, block: Block) -> _Traits:
        layout = self.layout
        born = layout.buffers[block[0]].start_time
        return _Traits(
            born,
            layout.buffers[block[-1]].end_time - born,
            layout.size[block[0]],
            sum(layout.size[i] * layout.span(i) for i in block),
            sum(self.worth[i] for i in block),
            sum(self.rent[i] * layout.size[i] for i in block),
        )

    # ----------------------------------------------------------------------------------- packing

    def _blocks(self, buffers: Sequence[int]) -> list[Block]:
        """The buffers, those of one in-place chain together."""
        block_of: dict[int, list[int]] = {}  # by its last buffer
        for i in sorted(buffers, key=lambda i: (self.layout.buffers[i].start_time, i)):
            parent = self.parent[i]
            block_of[i] = block_of.pop(parent) if parent in block_of else []
            block_of[i].append(i)
        return [tuple(block) for block in block_of.values()]

    def _pack(self, buffers: Sequence[int], order: Sequence[Block], choose: Choose) -> float:
        """Places some buffers in an order; returns the value that is kept."""
        for i in buffers:
            self.layout.address[i] = None
        for block in order:
            self._place(block, choose)
        self.placements += len(buffers)
        return self._kept(buffers)

    def _place(self, block: Block, choose: Choose) -> None:
        start = self.layout.start_with_relatives(block)
        if start is None:
            free = self.layout.free_starts(block)
            if not free:
                if len(block) > 1:
                    half = len(block) // 2
                    self._place(block[:half], choose)
                    self._place(block[half:], choose)
                return
            start = choose(free)
        for i in block:
            self.layout.address[i] = start

    def _left_over(self) -> list[int]:
        return [i for i in self.planned if self.layout.address[i] is None]

    def _kept(self, buffers: Sequence[int]) -> float:
        return sum(self.worth[i] for i in buffers if self.layout.address[i] is not None)


def _chains(layout: Layout, planned: Sequence[int]) -> dict[int, int | None]:
    """For each buffer the parent whose place it would take; no two take the same."""
    parent_of: dict[int, int | None] = {}
    taken: set[int] = set()
    for i in sorted(planned, key=lambda i: (layout.buffers[i].start_time, i)):
        born = layout.buffers[i].start_time
        parents = [
            parent
            for parent in layout.parents[i]
            # One that is born at the same moment lies beside its own parent then.
            if parent in parent_of
            and parent not in taken
            and layout.buffers[parent].start_time < born
        ]
        parent = min(parents, key=lambda p: (layout.size[p], p), default=None)
        parent_of[i] = parent
        if parent is not None:
            taken.add(parent)
    return parent_of
