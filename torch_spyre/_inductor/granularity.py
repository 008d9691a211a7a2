"""How many sizes of a dynamic dimension a kernel has room for."""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch_spyre._inductor import config

MAX_KEPT = 4096  # instances of one template, whatever its dimensions say


def granularity(minimum: int, maximum: int, max_buckets: int, smallest: int) -> int:
    """By how much a dimension of ``mark_dynamic(min=, max=)`` grows from bucket to bucket.

    The user's minimum, if whole steps of it reach the maximum and are not too many (2 is what
    PyTorch says if the user did not); else the least divisor of the maximum that makes few enough.
    """
    fits = minimum > 2 and maximum % minimum == 0
    if fits and maximum // minimum <= max_buckets:
        return minimum
    least = max(smallest, math.ceil(maximum / max_buckets))
    return next((d for d in range(least, maximum) if maximum % d == 0), maximum)


def kept_instances(ranges: Iterable[tuple[int, int | None]]) -> int:
    """Of how many combinations of sizes a template keeps the kernels: ``max_buckets`` buckets of a
    dimension, and all sizes in them. A dimension without a maximum has the smallest buckets."""
    kept = 1
    for minimum, maximum in ranges:
        step = config.min_default_granularity
        if maximum is not None:
            step = granularity(minimum, maximum, config.max_buckets, step)
        kept *= config.max_buckets * step
    return min(max(kept, 1), MAX_KEPT)
