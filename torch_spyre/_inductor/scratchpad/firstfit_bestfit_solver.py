"""The public solvers that place short and busy buffers first."""

from __future__ import annotations

import heapq
from abc import abstractmethod

from torch_spyre._inductor.scratchpad.layout import Layout
from torch_spyre._inductor.scratchpad.plan_solver import MemoryPlanSolver


class _SortedSolver(MemoryPlanSolver):
    """Puts a buffer where an in-place parent is, or else into a gap that the subclass chooses."""

    def fill(self, layout: Layout) -> None:
        for i in _by_time_per_use(layout):
            start = layout.start_with_relatives([i])
            free = layout.free_starts([i])
            if start is None and free:
                start = self.choose(free)
            layout.address[i] = start

    @abstractmethod
    def choose(self, free: list[tuple[int, int]]) -> int:
        """One of the free starts (first, last)."""


class FirstFitLayoutSolver(_SortedSolver):
    """Chooses the lowest gap."""

    def choose(self, free: list[tuple[int, int]]) -> int:
        return free[0][0]


class BestFitLayoutSolver(_SortedSolver):
    """Chooses the tightest gap, and the lowest of several."""

    def choose(self, free: list[tuple[int, int]]) -> int:
        return min(free, key=lambda gap: (gap[1] - gap[0], gap[0]))[0]


def _by_time_per_use(layout: Layout) -> list[int]:
    """The buffers that live shortest for their number of uses come first, but parents before
    children."""
    children: list[list[int]] = [[] for _ in layout.buffers]
    waits_for = [0] * layout.count
    for child in range(layout.count):
        for parent in layout.parents[child]:
            if parent < layout.count:
                children[parent].append(child)
                waits_for[child] += 1

    def key(i: int) -> tuple[float, int, int]:
        buffer = layout.buffers[i]
        span = layout.span(i)
        time = span - 0.25 * bool(layout.parents[i]) - 0.25 * bool(children[i])
        return time / (len(buffer.uses) + 0.5 * (not buffer.first_use_is_read)), span, i

    ready = [key(i) for i in range(layout.count) if not waits_for[i]]
    heapq.heapify(ready)
    order = []
    while ready:
        *_, i = heapq.heappop(ready)
        order.append(i)
        for child in children[i]:
            waits_for[child] -= 1
            if not waits_for[child]:
                heapq.heappush(ready, key(child))
    return order
