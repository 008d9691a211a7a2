"""What an op costs, by how its loops are split and by which of its buffers are in LX.

Only counts: the model is the card's, :mod:`torch_spyre.cost`.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Set

from torch_spyre import cost, ring
from torch_spyre._inductor import config
from torch_spyre._inductor.kernel_ir import KernelOp
from torch_spyre._inductor.planning.accesses import STICK_BYTES, symbols_of
from torch_spyre._inductor.planning.footprints import OpShape, Splits
from torch_spyre._inductor.scratchpad import lx_limit
from torch_spyre.cost import OpCost
from torch_spyre.ops.table import OPS
from torch_spyre.ring import Axis, Slices

# Ops whose results the public implementation puts into LX, as the op table calls them.
PUBLIC_LX_OPS = ("max", "sum", "exp", "sub", "mul", "mean", "add", "rsqrt")


def writes_lx(op: KernelOp) -> bool:
    """Whether the result of an op may live in LX."""
    return config.allow_all_ops_in_lx_planning or op.op in PUBLIC_LX_OPS


def lx_available() -> int:
    """Bytes of a core's scratchpad that planning may use."""
    return lx_limit() if config.lx_planning else 0


# What a byte of device memory costs beyond the time an op waits for it, in microseconds: half the
# time it takes. Among plans that are about as fast, the one that moves less is better: the memory
# is free for transfers meanwhile, and it takes less power.
BYTE_MICROSECONDS = 2.5e-6


class OpPrices:
    """The prices of one op. Asked again and again for the same, by planners that compare."""

    def __init__(self, shape: OpShape) -> None:
        self.shape = shape
        op = shape.op
        self.all_points = math.prod(op.space.values())
        self.element_bytes = max(
            STICK_BYTES // access.buffer.format.elems_per_stick() for access in shape.accesses
        )
        self.moved_by = [symbols_of(access) for access in shape.accesses]
        self.bytes = [STICK_BYTES * shape.sticks_touched(i) for i in range(len(shape.accesses))]
        # By the identity of splits, as in OpShape; these are kept beside.
        self._known: dict[tuple[int, frozenset[int]], tuple[Splits, tuple[float, float]]] = {}

    def of(self, shape: OpShape) -> OpPrices:
        """Those of an op which differs in its buffers only: both share what is known of either."""
        prices = copy.copy(self)
        prices.shape = shape
        return prices

    def microseconds(self, splits: Splits, in_lx: Set[int] = frozenset()) -> float:
        """``in_lx``: positions of the accesses, the output last, that touch LX."""
        return self._priced(splits, in_lx)[0]

    def effort(self, splits: Splits, in_lx: Set[int] = frozenset()) -> float:
        """What plans are compared by: the time, and a little for every byte of device memory."""
        return sum(self._priced(splits, in_lx))

    def _priced(self, splits: Splits, in_lx: Set[int]) -> tuple[float, float]:
        key = id(splits), frozenset(in_lx)
        known = self._known.get(key)
        if known is None:
            op = self.cost(splits, in_lx)
            traffic = BYTE_MICROSECONDS * (op.read_bytes + op.written_bytes)
            known = self._known[key] = splits, (cost.price(op).total / 1e3, traffic)
        return known[1]

    def cost(self, splits: Splits, in_lx: Set[int] = frozenset()) -> cost.OpCost:
        shape = self.shape
        cores = math.prod(splits.values())
        if shape.op.held and 0 in in_lx:
            return self._exchange(splits, in_lx)
        read = written = lx = passed = link = hops = 0
        for position, moved_by in enumerate(self.moved_by):
            if position in in_lx:
                lx += STICK_BYTES * shape.sticks_of_core(position, splits)
            elif position == len(shape.accesses) - 1:
                written += self.bytes[position]
            else:
                order = shape.cores_in_order(splits)
                apart = tuple((parts, symbol in moved_by) for symbol, parts in order)
                once, load = cost.shared_read(self.bytes[position], _groups(apart))
                read += once
                passed += load.bytes
                link += load.link_bytes
                hops = max(hops, load.hops)
        rows = partial_sums = 0
        if shape.contracted is None:  # the SFP works on whole sticks
            points = max(
                shape.sticks_of_core(position, splits) * access.buffer.format.elems_per_stick()
                for position, access in enumerate(shape.accesses)
            )
        else:
            points = shape.largest_part(splits)
            rows = self.rows(splits)
            results = self.all_points // shape.op.space[shape.contracted]
            partial_sums = (splits.get(shape.contracted, 1) - 1) * results
        op = OPS[shape.op.op]
        return cost.OpCost(
            unit=op.unit,
            passes=cost.sfp_passes(op.name),
            element_bytes=self.element_bytes,
            cores=cores,
            points=points,
            all_points=self.all_points,
            rows=rows,
            read_bytes=read,
            written_bytes=written,
            lx_bytes=lx,
            all_lx_bytes=lx * cores,
            partial_sums=partial_sums,
            ring_bytes=passed,
            ring_link_bytes=link,
            ring_hops=hops,
        )

    def _exchange(self, splits: Splits, in_lx: Set[int]) -> OpCost:
        """Of a copy from the scratchpads of some cores to those of others."""
        written = 0 if 1 in in_lx else self.bytes[1]
        return exchange_cost(self.shape, self.shape.op.held, splits, written)

    def rows(self, splits: Splits) -> int:
        """M of a product, of the core that has most."""
        loops = ((s, parts) for s, parts in splits.items() if s not in self.moved_by[1])
        return math.prod(self.shape.chunk(symbol, parts) for symbol, parts in loops)

    @functools.cached_property
    def written_microseconds(self) -> float:
        """To have the result in device memory, if the op did nothing else."""
        op = cost.OpCost(written_bytes=self.bytes[-1])
        return cost.price(op).write / 1e3


def exchange_cost(shape: OpShape, held: Splits, splits: Splits, written_bytes: int = 0) -> OpCost:
    """Of a copy by which cores that have the parts of some splits get those of others."""
    stick, elems = shape.sticks[0], shape.accesses[0].buffer.format.elems_per_stick()
    (cores, have), (receivers, want) = _cuts(shape, held), _cuts(shape, splits)
    axes, scale = [], 1
    for symbol in shape.walk(0).strides:
        unit = elems if symbol == stick else 1
        chunks = (shape.chunk(symbol, ways.get(symbol, 1)) for ways in (held, splits))
        sizes = [-(-size // unit) for size in (shape.op.space[symbol], *chunks)]
        # Parts of twice the size are the same messages, each twice as large.
        common = math.gcd(*sizes)
        scale *= common
        if symbol in have or symbol in want:
            axis = Axis(*(size // common for size in sizes))
            axes.append((axis, have.get(symbol, (1, 1)), want.get(symbol, (1, 1))))
    load = _load(tuple(sorted(axes)), cores, receivers)
    return OpCost(
        element_bytes=STICK_BYTES // elems,
        cores=receivers,
        points=shape.sticks_of_core(1, splits) * elems,
        all_points=math.prod(shape.op.space.values()),
        written_bytes=written_bytes,
        lx_bytes=scale * load.lx_bytes,
        all_lx_bytes=scale * load.all_lx_bytes,
        ring_bytes=scale * load.ring_bytes,
        ring_link_bytes=scale * load.link_bytes,
        ring_hops=load.hops,
    )


_Cut = tuple[int, int]  # of a loop: cores to the next part, parts


def _cuts(shape: OpShape, splits: Splits) -> tuple[int, dict[str, _Cut]]:
    """Over how many cores, and how the loops that are split."""
    cores, cuts = 1, {}
    for symbol, parts in shape.cores_in_order(splits):
        cuts[symbol] = cores, parts
        cores *= parts
    return cores, cuts


@functools.lru_cache(maxsize=1 << 12)
def _load(axes: tuple[tuple[Axis, _Cut, _Cut], ...], cores: int, receivers: int) -> ring.Load:
    def slices(cores: int, cuts: list[_Cut]) -> Slices:
        return tuple(tuple(core // step % parts for step, parts in cuts) for core in range(cores))

    source = slices(cores, [have for _, have, _ in axes])
    target = slices(receivers, [want for _, _, want in axes])
    return ring.load(tuple(axis for axis, _, _ in axes), source, target)


@functools.lru_cache(maxsize=1 << 12)
def _groups(loops: tuple[tuple[int, bool], ...]) -> tuple[int, ...]:
    """A number for every core, the same for those that read the same.

    ``loops``: into how many parts each is split, and whether these are other parts of the tensor.
    """
    groups, parts_so_far = [0], 1
    for parts, apart in loops:
        step = parts_so_far if apart else 0
        groups = [group + part * step for part in range(parts) for group in groups]
        parts_so_far *= parts if apart else 1
    return tuple(groups)
