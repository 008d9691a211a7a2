"""Ring copies: which are possible, and what they take.

A ring copy is an ``identity`` op: every core takes the part that the next op wants from the cores
that have it. The search for splits asks here, and so does the pass that inserts the copies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from torch_spyre._inductor import config
from torch_spyre._inductor.constants import IDENTITY_OP
from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp
from torch_spyre._inductor.planning.accesses import copies_integers, copy_for, symbols_of
from torch_spyre._inductor.planning.footprints import Footprint, OpShape, Splits
from torch_spyre.cost import price
from torch_spyre.ops.table import OPS
from torch_spyre.partition.demand import demand

Reads = list[tuple[KernelOp, int]]  # ops, and which of their inputs


def movable(ops: Sequence[KernelOp]) -> dict[Buffer, tuple[KernelOp, Reads]]:
    """Intermediates that can be copied over the ring, with the op that writes each and its readers.

    They have one writer, and none of these ops is in a loop over tiles. Clones of inputs are not
    among them: each reader can have a clone of its own from the input.
    """
    if not (config.lx_planning and config.lx_ring_moves):
        return {}
    found: dict[Buffer, tuple[KernelOp, Reads]] = {}
    never: set[Buffer] = set()
    for op in ops:
        for position, access in enumerate(op.inputs):
            if access.buffer in found:
                found[access.buffer][1].append((op, position))
        written = op.output.buffer
        if not written.local or written in found or written.clone:
            never.add(written)
        else:
            found[written] = op, []
        if op.loops:
            never.update(access.buffer for access in (*op.inputs, op.output))
    return {buffer: touching for buffer, touching in found.items() if buffer not in never}


class RingCopies:
    """Of one input, for an op however it is split; cores that read the same get the same."""

    def __init__(self, reader: OpShape, position: int) -> None:
        self._reader, self._position = reader, position
        op, source = reader.op, reader.op.inputs[position]
        self._target = replace(source.buffer, name=f"{source.buffer.name}_ring")
        self._moving = symbols_of(source)
        self._shape = OpShape(
            replace(
                op,
                op=IDENTITY_OP,
                inputs=[source],
                output=Access(self._target, source.index),
                constants={},
                exact=copies_integers(source.buffer),
                alike=frozenset(op.space) - self._moving,
            )
        )
        self._held: dict[Footprint, Splits | None] = {}

    def microseconds(self, splits: Splits, have: Footprint) -> float:
        """The time that a copy takes; infinite if none is possible."""
        held = self._held_by(splits, have)
        if held is None:
            return math.inf
        shape = self._shape
        cut, both = shape.cut(splits), (0, 1)
        cost = demand(OPS[IDENTITY_OP], cut, shape.touches, both, shape.cut(held))
        return price(cost).total / 1e3

    def copy(self, have: Footprint) -> KernelOp | None:
        """For the op as it is split: it has splits, and those of the cores that have its input."""
        op = self._reader.op
        held = self._held_by(op.splits, have)
        if held is None:
            return None
        return replace(copy_for(op, self._position, self._target), held=dict(held))

    def _held_by(self, splits: Splits, have: Footprint) -> Splits | None:
        """How cores that have the input are split, by the loops of a copy; None if there is none:
        the op must read all, and no two cores may have the same."""
        if not self._reader.each_core_has_its_own(self._position, splits):
            return None
        if self._shape.footprints(splits)[1] != self._reader.footprints(splits)[self._position]:
            return None
        if have not in self._held:
            like = None
            if math.prod(parts for _, parts, _ in have.moves) == have.cores:
                like = self._shape.splits_like(0, have)
            if like is not None:
                like = {s: n for s, n in like.items() if s in self._moving}
                like = like if self._shape.footprint(0, like) == have else None
            self._held[have] = like
        return self._held[have]
