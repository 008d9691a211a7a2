"""How the benchmarks time calls that return before the card is done."""

import time
from collections.abc import Callable

import torch


def seconds(call: Callable[[], object], calls: int) -> float:
    """Of one call, on either side."""
    # The OpenMP threads of the other side wait busily for more work for about 15 milliseconds, on
    # the processors that this side is to use. The first call wakes this side's own.
    time.sleep(0.05)
    call()
    torch.spyre.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    torch.spyre.synchronize()
    return (time.perf_counter() - start) / calls
