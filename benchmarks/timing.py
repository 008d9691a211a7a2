"""How the benchmarks time calls that return before the card is done."""

import time
from collections.abc import Callable

import torch

WARM_SECONDS = 0.01


def seconds(call: Callable[[], object], calls: int) -> float:
    """Of one call, on either side."""
    # The OpenMP threads of the other side wait busily for more work for about 15 milliseconds, on
    # the processors that this side is to use. Then the first calls wake this side's own, and
    # bring its code and data back into the caches: on either side they take up to six times as
    # long as those that follow.
    time.sleep(0.05)
    end = time.perf_counter() + WARM_SECONDS
    while True:
        call()
        torch.spyre.synchronize()
        if time.perf_counter() >= end:
            break
    start = time.perf_counter()
    for _ in range(calls):
        call()
    torch.spyre.synchronize()
    return (time.perf_counter() - start) / calls
