"""Which addresses of a scratchpad are taken, and when: what all solvers fill.

Buffers are numbers here, fixed ones after those that are to be planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_spyre._inductor.scratchpad.plan_solver import LifetimeBoundBuffer


class Layout:
    """Addresses of buffers. No two share memory at the same time, except in-place pairs."""

    def __init__(
        self,
        buffers: Sequence[LifetimeBoundBuffer],
        fixed: Sequence[LifetimeBoundBuffer],
        limit: int,
        alignment: int,
    ) -> None:
        self.limit = limit
        self.alignment = alignment
        self.buffers = [*buffers, *fixed]
        self.count = len(buffers)  # those to be planned
        self.size = [buffer.size for buffer in self.buffers]
        self.address = [buffer.address for buffer in self.buffers]
        self.neighbours = _alive_together(self.buffers)
        number = {buffer: i for i, buffer in enumerate(self.buffers)}
        self.parents = [[number[parent] for parent in b.in_place_parents] for b in self.buffers]
        # Pairs of parent and child: at one address, they may share memory at the moment both live.
        self.relatives: list[list[int]] = [[] for _ in self.buffers]
        for child, parents in enumerate(self.parents):
            for parent in parents:
                self.relatives[child].append(parent)
                self.relatives[parent].append(child)

    def span(self, i: int) -> int:
        """Moments that a buffer lives."""
        return self.buffers[i].end_time - self.buffers[i].start_time

    def last_start(self, block: Sequence[int]) -> int:
        """The highest address at which a block ends within the limit; negative if none does."""
        return self.limit - max(self.size[i] for i in block)

    def free_starts(self, block: Sequence[int]) -> list[tuple[int, int]]:
        """The addresses at which all of a block fits: ranges (first, last), by rising address.

        The members of the block are not placed yet; they may share the address.
        """
        size, address, alignment = self.size, self.address, self.alignment
        taken = []  # (last start below, first start above)
        for i in block:
            own = size[i]
            for j in self.neighbours[i]:
                place = address[j]
                if place is not None:
                    taken.append((place - own, place + size[j]))
        taken.sort()
        last = self.last_start(block)
        free: list[tuple[int, int]] = []
        start = 0
        for below, above in taken:
            if start > last:
                return free
            if below >= start:
                free.append((start, min(below, last)))
            if above > start:
                start = -(-above // alignment) * alignment  # the next multiple
        if start <= last:
            free.append((start, last))
        return free

    def start_with_relatives(self, block: Sequence[int]) -> int | None:
        """The address of a placed parent or child of a member, if the block fits there."""
        for i in block:
            for relative in self.relatives[i]:
                place = self.address[relative]
                if place is None or place > self.last_start(block):
                    continue
                if not self.in_the_way(block, place):
                    return place
        return None

    def in_the_way(self, block: Sequence[int], start: int) -> list[int]:
        """The other buffers that a block would overlap at an address."""
        size, address = self.size, self.address
        hit: dict[int, None] = {}
        for i in block:
            for j in self.neighbours[i]:
                place = address[j]
                if place is None or place >= start + size[i] or start >= place + size[j]:
                    continue
                if place != start or j not in self.relatives[i]:
                    hit[j] = None
        return list(hit)


def _alive_together(buffers: Sequence[LifetimeBoundBuffer]) -> list[list[int]]:
    """For each buffer the others that are alive at some time of its life."""
    neighbours: list[list[int]] = [[] for _ in buffers]
    alive: list[int] = []
    for i in sorted(range(len(buffers)), key=lambda i: buffers[i].start_time):
        alive = [j for j in alive if buffers[j].end_time > buffers[i].start_time]
        for j in alive:
            neighbours[i].append(j)
            neighbours[j].append(i)
        alive.append(i)
    return neighbours
