"""A plan of a kernel's ops, as variants of it are compared."""

from __future__ import annotations

from dataclasses import dataclass

from torch_spyre._inductor.kernel_ir import Buffer, KernelOp
from torch_spyre._inductor.planning.footprints import OpShape
from torch_spyre._inductor.planning.prices import OpPrices


@dataclass
class Variant:
    ops: list[KernelOp]
    lx: dict[Buffer, int]  # offsets of what is in the scratchpads
    no_room: set[Buffer]  # what could be there, but does not fit

    @property
    def effort(self) -> float:
        """Of all ops."""
        total = 0.0
        for op in self.ops:
            prices = OpPrices(OpShape(op))
            in_lx = {i for i, a in enumerate(prices.shape.accesses) if a.buffer in self.lx}
            total += prices.effort(op.splits, in_lx) * op.times
        return total
