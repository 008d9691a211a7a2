"""Memory that is as large as need be: device memory, of which the pool takes what it needs."""

from __future__ import annotations

from collections.abc import Sequence

from torch_spyre._inductor.scratchpad.layout import Layout
from torch_spyre._inductor.scratchpad.plan_solver import LifetimeBoundBuffer
from torch_spyre.partition.dims import STICK_BYTES

UNLIMITED = 1 << 62  # bytes


def lowest_peak(buffers: Sequence[LifetimeBoundBuffer]) -> tuple[list[int], int]:
    """Addresses of buffers in memory of any size, and how much they need of it.

    In the order given, that of their birth: in the slot of an in-place parent, else in the tightest
    gap between others. They may have died long before their memory is free for others than parents.
    """
    layout = Layout(buffers, (), UNLIMITED, STICK_BYTES)
    peak, places = 0, []
    for i, size in enumerate(layout.size):
        start = layout.start_with_relatives([i])
        if start is None:
            free = layout.free_starts([i])
            gaps = [(min(last, peak - size) - first, first) for first, last in free]
            start = min((gap for gap in gaps if gap[0] >= 0), default=(0, free[-1][0]))[1]
        layout.address[i] = start
        peak = max(peak, start + size)
        places.append(start)
    return places, peak
