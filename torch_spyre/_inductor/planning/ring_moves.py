"""Copies of intermediates from the parts that cores have to the parts that they want next.

Ops that cannot agree on the parts of a buffer would meet in device memory: written by the one, read
by the other. Where ``divide_work`` found it cheaper, the buffer stays in the scratchpads, with an
``identity`` in between by which every core takes its new part over the ring from those that have
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp
from torch_spyre._inductor.planning.footprints import Footprint, OpShape
from torch_spyre._inductor.planning.lx import place_in_lx
from torch_spyre._inductor.planning.prices import effort_of, lx_available
from torch_spyre._inductor.planning.ring_copies import Reads, RingCopies, movable
from torch_spyre.partition.dims import STICK_BYTES


@dataclass
class _Exchange:
    """A buffer, and the ring copies of it that readers read instead."""

    buffer: Buffer
    copies: list[tuple[KernelOp, Reads]]

    @property
    def is_in_lx(self) -> bool:
        """Whether the buffer and all copies are in LX: otherwise nothing would go over the ring."""
        buffers = (self.buffer, *(copy.output.buffer for copy, _ in self.copies))
        return all(buffer.lx is not None for buffer in buffers)

    def apply(self, ops: list[KernelOp]) -> None:
        for copy, reads in self.copies:
            ops.insert(min(ops.index(op) for op, _ in reads), copy)
            _redirect(reads, copy.output.buffer)

    def undo(self, ops: list[KernelOp]) -> None:
        for copy, reads in self.copies:
            ops.remove(copy)
            _redirect(reads, self.buffer)


def _redirect(reads: Reads, buffer: Buffer) -> None:
    for op, position in reads:
        op.inputs[position] = Access(buffer, op.inputs[position].index)


def exchange_parts(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops with the copies that ``divide_work`` counts on, as far as LX has room for them.

    Needs splits; needs and gives homes.
    """
    made = list(_exchanges(ops))
    if not made:
        return ops
    touched = {a.buffer for op in ops for a in (*op.inputs, op.output)}
    homes = {buffer: (buffer.lx, buffer.why_not) for buffer in touched}
    effort, with_copies = effort_of(ops), list(ops)
    for each in made:
        each.apply(with_copies)
    while made:
        place_in_lx(with_copies)
        without_room = [each for each in made if not each.is_in_lx]
        if not without_room:
            stay = all(buffer.lx is not None for buffer, (lx, _) in homes.items() if lx is not None)
            # Other buffers may have to leave LX for a copy, if it is worth that.
            if stay or effort_of(with_copies) < effort:
                return with_copies
            without_room = made
        for each in without_room:
            each.undo(with_copies)
        made = [each for each in made if each not in without_room]
    for buffer, home in homes.items():
        buffer.lx, buffer.why_not = home
    return ops


def _exchanges(ops: list[KernelOp]) -> Iterator[_Exchange]:
    shapes: dict[KernelOp, OpShape] = {}
    for buffer, (writer, reads) in movable(ops).items():
        if buffer.lx is None and any(position in op.over_ring for op, position in reads):
            touching = [writer, *(op for op, _ in reads)]
            shapes |= {op: OpShape(op) for op in touching if op not in shapes}
            copies = _copies(writer, reads, shapes)
            if copies:
                yield _Exchange(buffer, copies)


def _copies(
    writer: KernelOp, reads: Reads, shapes: dict[KernelOp, OpShape]
) -> list[tuple[KernelOp, Reads]]:
    """A copy for each footprint that readers want; none if one of them is not possible."""
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
        copy = RingCopies(shapes[op], position).copy(have)
        if copy is None:
            return []
        copy.output.buffer.name += str(number)
        copies.append((copy, of))
    return copies
