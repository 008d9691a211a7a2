"""The cost model of the card: how long an op takes, and why (``docs/cost-model.md``).

The arithmetic is C++ that the card's own clock uses (``card/include/spyre/cost.h``), so that plans
are judged by what a launch will count. Nothing here starts the runtime.

>>> from torch_spyre.cost import OpCost, price
>>> copy = OpCost(cores=32, points=16384, read_bytes=1 << 20, written_bytes=1 << 20)
>>> price(copy).total, price(copy).bound
(5220, 'memory')
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch  # noqa: F401  (_C needs its libraries)

from torch_spyre._C import (
    OpCost,
    Price,
    RingLoad,
    multicast_bytes,
    price,
    ring_all_gather,
    ring_load,
    transfer_ns,
)
from torch_spyre.machine import load as load_machine
from torch_spyre.ops.table import OPS

__all__ = [
    "Account",
    "OpCost",
    "Price",
    "RingLoad",
    "SharedRead",
    "launch_ns",
    "multicast_bytes",
    "peak_points_per_ns",
    "price",
    "ring_all_gather",
    "ring_load",
    "sfp_passes",
    "shared_read",
    "transfer_ns",
]


@dataclass(frozen=True)
class Account:
    """One op of a kernel: what it costs, and how often it runs in a launch."""

    name: str
    cost: OpCost
    count: int = 1  # iterations of the loops around it
    source: str = ""  # the user's line, where it is known
    layer: str = ""  # and module

    @functools.cached_property
    def price(self) -> Price:
        """Of one iteration."""
        return price(self.cost)

    @property
    def ns(self) -> int:
        """Of all iterations."""
        return self.count * self.price.total

    @property
    def utilisation(self) -> float:
        """Of the unit's peak on the whole card, over the op's time."""
        if not self.cost.all_points:
            return 0.0
        return self.cost.all_points / (self.price.total * peak_points_per_ns(self.cost))


class SharedRead(NamedTuple):
    """How bytes of device memory get to cores of which several want the same."""

    read_bytes: int  # sent by device memory
    ring: RingLoad


@functools.lru_cache(maxsize=1 << 14)
def shared_read(size: int, groups: tuple[int, ...]) -> SharedRead:
    """Of a tensor of ``size`` bytes; cores with the same number in ``groups`` read the same of it.

    Device memory sends to 8 cores at once. What more of them want it sends again; or else once,
    each of them a part, and they pass these on over the ring: whatever takes less time.
    """
    sharers = len(groups) // len(set(groups))
    again = SharedRead(multicast_bytes(size, sharers), ring_load([]))
    if again.read_bytes == size:
        return again
    once = SharedRead(size, ring_all_gather(groups, -(-size // len(groups))))
    ways = [(price(_read(way)).total, way) for way in (again, once)]
    return min(ways, key=lambda priced: priced[0])[1]


def _read(way: SharedRead) -> OpCost:
    ring = way.ring
    return OpCost(read_bytes=way.read_bytes, ring_link_bytes=ring.link_bytes, ring_hops=ring.hops)


@functools.cache
def sfp_passes(op: str) -> float:
    """How often the SFP passes over each element for an op of the table."""
    cost = OPS[op].cost
    return 1.0 if cost == "matmul" else float(load_machine().value(f"sfp.passes_{cost}"))


def launch_ns(accounts: Iterable[Account]) -> int:
    """How long a launch takes once its program is on the card."""
    return int(load_machine().value("overhead.launch_ns")) + sum(a.ns for a in accounts)


def peak_points_per_ns(cost: OpCost) -> float:
    """What the op's unit can do at best, on the whole card."""
    machine = load_machine()
    per_cycle = machine.value("card.cores") * machine.value("card.corelets_per_core")
    if cost.unit == "pt":
        for name in ("pt_rows", "pt_columns", "pt_simd_width"):
            per_cycle *= machine.value(f"card.{name}")
    else:
        per_cycle *= machine.value("card.sfp_lanes") * 2 / max(2, cost.element_bytes)
        per_cycle /= cost.passes
    return float(per_cycle * machine.value("card.clock_hz") / 1e9)
