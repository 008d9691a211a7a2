"""How the benchmarks time calls that return before the card is done."""

import time
from collections.abc import Callable

import torch


def seconds(call: Callable[[], object], calls: int) -> float:
    """Of one call, on either side."""
    call()  # not timed: the threads of the other side may still be waiting busily for more work
    torch.spyre.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    torch.spyre.synchronize()
    return (time.perf_counter() - start) / calls
