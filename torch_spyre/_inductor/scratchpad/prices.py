"""What a byte of the scratchpad is worth at each moment, if not all buffers fit.

If addresses did not matter, to keep the most value would be a linear programme with one constraint
a moment: all that is kept fits. Its prices say which buffers keep out others, and bound every plan.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

ROUNDS = 60
STEPS = 100_000  # of demands in all rounds together, at most


@dataclass(frozen=True)
class Demand:
    """Bytes that would be kept from a start to an end (exclusive), and their value."""

    start: int
    end: int
    size: int
    worth: float


@dataclass(frozen=True)
class Prices:
    rents: list[float]  # of one byte, by demand
    bound: float  # no plan keeps more value


def prices(demands: Sequence[Demand], capacity: int, kept: float) -> Prices:
    """By subgradient steps, as long as some plan is known to keep ``kept``."""
    moments = sorted({demand.start for demand in demands})  # at others there is never more
    lives = [
        (bisect_left(moments, demand.start), bisect_left(moments, demand.end)) for demand in demands
    ]
    price = [0.0] * len(moments)
    best = Prices([0.0] * len(demands), sum(demand.worth for demand in demands))
    patience, step = 0, 1.0
    for _ in range(min(ROUNDS, STEPS // len(demands))):
        until = [0.0, *accumulate(price)]
        rents = [until[end] - until[start] for start, end in lives]
        change = [0] * (len(moments) + 1)
        bound = capacity * until[-1]
        for demand, rent, (start, end) in zip(demands, rents, lives, strict=True):
            gain = demand.worth - demand.size * rent
            if gain > 0:
                bound += gain
                change[start] += demand.size
                change[end] -= demand.size
        if bound < best.bound:
            best = Prices(rents, bound)
            patience = 0
        else:
            patience += 1
            if patience == 4:
                patience, step = 0, step / 2
        # A moment with too many bytes becomes dearer, one with too few cheaper; none below zero.
        slope = [
            load - capacity if price[t] > 0 or load > capacity else 0
            for t, load in enumerate(accumulate(change[:-1]))
        ]
        length = sum(s * s for s in slope)
        if not length or best.bound <= kept:
            break
        scale = step * (bound - kept) / length
        price = [max(0.0, p + scale * s) for p, s in zip(price, slope, strict=True)]
    return best
