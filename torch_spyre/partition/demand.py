"""What an op asks of the card: the bytes that its cores touch, where these lie, and what they
compute. Planners ask before they decide, the accounts of a program are the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from torch_spyre.cost import OpCost, multicast_bytes, sfp_passes, shared_read
from torch_spyre.ops.table import Op
from torch_spyre.partition import ring
from torch_spyre.partition.dims import STICK_BYTES, Cut, Dim, units
from torch_spyre.partition.ring import Axis


class Touch(NamedTuple):
    """A tensor that an op touches."""

    elems: int  # of a stick
    # Dimensions along which it is another stick, or another element of one: how many indices have
    # the same stick.
    units: Mapping[str, int]

    def counts(self, dims: Sequence[Dim]) -> Counts:
        sticks = of_core = parts = 1
        for dim in dims:
            unit = self.units.get(dim.label)
            if unit is not None:
                sticks *= units(dim.size, unit)
                of_core *= units(dim.part(0), unit)
                parts *= dim.splits
        return Counts(sticks, of_core, parts)


class Counts(NamedTuple):
    sticks: int  # that all cores together touch
    of_core: int  # of these, the core that has most
    parts: int  # into how many the tensor is cut; several cores may touch the same


def demand(
    op: Op, cut: Cut, touches: Sequence[Touch], in_lx: Collection[int], held: Cut | None = None
) -> OpCost:
    """``touches`` are those of the inputs and of the output; the numbers ``in_lx`` are in LX.

    ``held``: which cores have the input in LX, if these are not those that want it.
    """
    cost = OpCost(
        unit=op.unit,
        passes=sfp_passes(op.name),
        element_bytes=max(STICK_BYTES // touch.elems for touch in touches),
        cores=len(cut.slices),
        all_points=math.prod(dim.size for dim in cut.dims),
    )
    counts = [touch.counts(cut.dims) for touch in touches]
    if op.unit == "pt":
        _, y, out = (touch.units for touch in touches)
        cost.points = math.prod(dim.part(0) for dim in cut.dims)
        rows = (dim.part(0) for dim in cut.dims if dim.label in out and dim.label not in y)
        cost.rows = math.prod(rows)
    else:  # the SFP works on whole sticks
        both = zip(touches, counts, strict=True)
        cost.points = max(touch.elems * count.of_core for touch, count in both)
    if op.kind != "pointwise":  # there nothing is reduced: cores make copies of the same
        cost.partial_sums = _partial_sums(cut.dims, touches[-1])
    output = len(touches) - 1
    for number, (touch, count) in enumerate(zip(touches, counts, strict=True)):
        size, sharers = STICK_BYTES * count.sticks, cost.cores // count.parts
        if held is not None and number == 0:
            load = _exchanged(touch, held, cut)
            cost.ring_bytes, cost.ring_link_bytes, cost.ring_hops = load[:3]
            cost.lx_bytes, cost.all_lx_bytes = load.lx_bytes, load.all_lx_bytes
        elif number in in_lx:
            if held is None:  # else it is among what the exchange does
                cost.lx_bytes += STICK_BYTES * count.of_core
                cost.all_lx_bytes += size * sharers
        elif number == output:
            cost.written_bytes += size
        elif multicast_bytes(size, sharers) == size:
            cost.read_bytes += size
        else:
            split = [dim.label for dim in cut.dims if dim.splits > 1 and dim.label in touch.units]
            way = shared_read(size, cut.slices.groups(*split))
            cost.read_bytes += way.read_bytes
            cost.ring_bytes += way.ring.bytes
            cost.ring_link_bytes += way.ring.link_bytes
            cost.ring_hops = max(cost.ring_hops, way.ring.hops)
    return cost


def _exchanged(touch: Touch, have: Cut, want: Cut) -> ring.Load:
    """What the cores take from each other's scratchpads."""
    split = {dim.label for dim in (*have.dims, *want.dims) if dim.splits > 1}
    moved = {label: unit for label, unit in touch.units.items() if label in split}
    whole = {label: unit for label, unit in touch.units.items() if label not in split}
    load = ring.load(*ring_parts(touch._replace(units=moved), have, want))
    return load.times(touch._replace(units=whole).counts(have.dims).sticks)


def _partial_sums(dims: Sequence[Dim], output: Touch) -> int:
    """Results that cores add to those of others: where they share a reduced dimension."""
    kept = [dim for dim in dims if dim.label in output.units]
    shared = math.prod(dim.splits for dim in dims if dim.label not in output.units)
    return (shared - 1) * math.prod(dim.size for dim in kept)


def ring_parts(
    touch: Touch, have: Cut, want: Cut
) -> tuple[tuple[Axis, ...], ring.Slices, ring.Slices]:
    """What the ring has to know of a tensor that cores have in other parts than they want.

    Its axes, who has what, who wants what.
    """
    axes, labels = [], []
    wanted = {dim.label: dim for dim in want.dims}
    for dim in have.dims:
        if dim.label in touch.units:
            sizes = dim.size, dim.chunk, wanted[dim.label].chunk
            axes.append(Axis(*(units(size, touch.units[dim.label]) for size in sizes)))
            labels.append(dim.label)
    return tuple(axes), have.slices.of(*labels), want.slices.of(*labels)
