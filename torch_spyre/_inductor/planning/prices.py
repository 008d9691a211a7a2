"""What an op costs, by how its loops are split and by which of its buffers are in LX.

:mod:`torch_spyre.partition` counts, :mod:`torch_spyre.cost` gives prices. Planners ask here.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable, Set

from torch_spyre._inductor import config
from torch_spyre._inductor.kernel_ir import KernelOp
from torch_spyre._inductor.planning.footprints import OpShape, Splits
from torch_spyre._inductor.scratchpad import lx_limit
from torch_spyre.cost import OpCost, price
from torch_spyre.ops.table import OPS
from torch_spyre.partition.demand import demand
from torch_spyre.partition.dims import STICK_BYTES

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


def in_lx(op: KernelOp) -> frozenset[int]:
    """The positions of the accesses, the output last, that touch LX."""
    accesses = enumerate((*op.inputs, op.output))
    return frozenset(position for position, a in accesses if a.buffer.lx is not None)


def effort_of(ops: Iterable[KernelOp]) -> float:
    """What plans are compared by, for ops with splits and homes."""
    return sum(OpPrices(OpShape(op)).effort(op.splits, in_lx(op)) * op.times for op in ops)


class OpPrices:
    """The prices of one op. They are kept: planners ask for the same again and again."""

    def __init__(self, shape: OpShape) -> None:
        self.shape = shape
        # By the identity of splits, as in OpShape; these are kept beside.
        self._known: dict[tuple[int, frozenset[int]], tuple[Splits, tuple[float, float]]] = {}

    def of(self, shape: OpShape) -> OpPrices:
        """The prices of an op that differs in its buffers only. Both share what is known."""
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
            known = self._known[key] = splits, (price(op).total / 1e3, traffic)
        return known[1]

    def cost(self, splits: Splits, in_lx: Set[int] = frozenset()) -> OpCost:
        shape = self.shape
        held = shape.cut(shape.op.held) if shape.op.held and 0 in in_lx else None
        return demand(OPS[shape.op.op], shape.cut(splits), shape.touches, in_lx, held)

    @functools.cached_property
    def written_microseconds(self) -> float:
        """The time to write the result to device memory, if the op did nothing else."""
        count = self.shape.touches[-1].counts(self.shape.cut({}).dims)
        return price(OpCost(written_bytes=STICK_BYTES * count.sticks)).write / 1e3
