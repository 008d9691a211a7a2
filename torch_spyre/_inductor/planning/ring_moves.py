"""Copies of intermediates from the parts that cores have to the parts that they want next.

Ops that cannot agree on the parts of a buffer would meet in device memory: written by the one, read
by the other. Instead it may stay in the scratchpads, with an ``identity`` in between by which every
core takes its new part over the ring from those that have it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp
from torch_spyre._inductor.planning.footprints import Footprint, OpShape
from torch_spyre._inductor.planning.lx import place_in_lx
from torch_spyre._inductor.planning.prices import OpPrices, effort_of, lx_available
from torch_spyre._inductor.planning.ring_copies import Reads, RingCopies, movable
from torch_spyre.partition.dims import STICK_BYTES


@dataclass
class _Exchange:
    """A buffer, and the copies of it that readers have instead."""

    buffer: Buffer
    touching: list[KernelOp]  # its writer and its readers
    copies: list[tuple[KernelOp, Reads]]

    @property
    def buffers(self) -> set[Buffer]:
        """What has to be in LX for it."""
        return {self.buffer, *(copy.output.buffer for copy, _ in self.copies)}

    def pays(self, in_lx: Collection[Buffer]) -> bool:
        """Whether it takes less effort than device memory, and no longer, if these are in LX."""
        buffers = self.buffers
        effort = time = 0.0
        for op in dict.fromkeys((*self.touching, *(copy for copy, _ in self.copies))):
            prices = OpPrices(OpShape(op))
            touched = [access.buffer for access in prices.shape.accesses]
            now = {i for i, buffer in enumerate(touched) if buffer in in_lx}
            effort += prices.effort(op.splits, now)
            time += prices.microseconds(op.splits, now)
            if not op.held:
                then = {i for i in now if touched[i] not in buffers}
                effort -= prices.effort(op.splits, then)
                time -= prices.microseconds(op.splits, then)
        return effort < 0 and time <= 0

    def apply(self, ops: list[KernelOp]) -> None:
        for copy, reads in self.copies:
            ops.insert(min(ops.index(op) for op in _ops(reads)), copy)
            _redirect(reads, copy.output.buffer)

    def undo(self, ops: list[KernelOp]) -> None:
        for copy, reads in self.copies:
            ops.remove(copy)
            _redirect(reads, self.buffer)


def _ops(reads: Reads) -> Iterator[KernelOp]:
    return (op for op, _ in reads)


def _redirect(reads: Reads, buffer: Buffer) -> None:
    for op, position in reads:
        op.inputs[position] = Access(buffer, op.inputs[position].index)


def exchange_parts(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops with copies between cores where these pay. Needs splits; needs and gives homes."""
    tried = list(_exchanges(ops))
    if not tried:
        return ops
    touched = {a.buffer for op in ops for a in (*op.inputs, op.output)}
    homes = {buffer: (buffer.lx, buffer.why_not) for buffer in touched}
    at_home, effort = _at_home(ops), effort_of(ops)
    found, ops = ops, list(ops)
    for each in tried:
        each.apply(ops)
    hoped = at_home.union(*(each.buffers for each in tried))
    kept = [each for each in tried if each.pays(hoped)]
    while True:
        for each in tried:
            if each not in kept:
                each.undo(ops)
        tried = kept
        if not tried:
            break
        now = _at_home(place_in_lx(ops))
        kept = [each for each in tried if each.buffers <= now and each.pays(now)]
        if len(kept) == len(tried):
            # Either nothing had to leave LX for it, or it is worth that.
            if at_home <= now or effort_of(ops) < effort:
                return ops
            kept = []
    for buffer, home in homes.items():
        buffer.lx, buffer.why_not = home
    return found


def _at_home(ops: list[KernelOp]) -> set[Buffer]:
    """What is in LX."""
    touched = {a.buffer for op in ops for a in (*op.inputs, op.output)}
    return {buffer for buffer in touched if buffer.lx is not None}


def _exchanges(ops: list[KernelOp]) -> Iterator[_Exchange]:
    """All that could be."""
    shapes: dict[KernelOp, OpShape] = {}
    for buffer, (writer, reads) in movable(ops).items():
        if buffer.lx is not None:
            continue
        touching = [writer, *_ops(reads)]
        shapes |= {op: OpShape(op) for op in touching if op not in shapes}
        copies = _copies(writer, reads, shapes)
        if copies:
            yield _Exchange(buffer, touching, copies)


def _copies(
    writer: KernelOp, reads: Reads, shapes: dict[KernelOp, OpShape]
) -> list[tuple[KernelOp, Reads]]:
    """One for each arrangement that readers want; none if one of them is beyond a copy."""
    last = len(writer.inputs)
    have = shapes[writer].footprints(writer.splits)[last]
    if not shapes[writer].each_core_has_its_own(last, writer.splits):
        return []
    wanted: dict[Footprint, Reads] = {}
    for op, position in reads:
        wanted.setdefault(shapes[op].footprints(op.splits)[position], []).append((op, position))
    wanted.pop(have, None)
    room = lx_available() // STICK_BYTES
    if any(want.sticks_of_core + have.sticks_of_core > room for want in wanted):
        return []
    copies = []
    for number, of in enumerate(wanted.values()):
        op, position = of[0]
        copy = RingCopies(shapes[op], position).copy(op.splits, have)
        if copy is None:
            return []
        copy.output.buffer.name += str(number)
        copies.append((copy, of))
    return copies
