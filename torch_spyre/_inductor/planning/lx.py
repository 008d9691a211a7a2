"""Which buffers live in the scratchpads (LX) of the cores, and where.

An intermediate can if every op that touches it gives each core the same part of it: then a core
needs nothing of another. Which of them stay, if not all fit, is for the solvers of
``torch_spyre._inductor.scratchpad`` to say, by what it would cost to have them in device memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch_spyre._inductor import config
from torch_spyre._inductor.kernel_ir import Buffer, KernelOp
from torch_spyre._inductor.planning.accesses import walks_dimensions
from torch_spyre._inductor.planning.footprints import Footprint, OpShape
from torch_spyre._inductor.planning.pool import REST, loop_times, needed, same_elements
from torch_spyre._inductor.planning.prices import OpPrices, lx_available, writes_lx
from torch_spyre._inductor.scratchpad import LifetimeBoundBuffer, solver
from torch_spyre.partition.dims import STICK_BYTES


@dataclass(eq=False)
class _Candidate:
    buffer: Buffer
    footprint: Footprint
    uses: list[int] = field(default_factory=list)
    parents: list[Buffer] = field(default_factory=list)  # whose place it can take
    fits: bool = True

    @property
    def bytes(self) -> int:
        """Of a core."""
        return STICK_BYTES * self.footprint.sticks_of_core


def plan_lx(ops: list[KernelOp]) -> tuple[dict[Buffer, int], set[Buffer]]:
    """The buffers in LX and their offsets there; and those that there is no room for.

    Needs splits.
    """
    if not config.lx_planning:
        return {}, set()
    candidates = _candidates(ops)
    places = _spacious(candidates)
    buffers = {candidate.buffer for candidate in candidates}
    if places is None:
        places = _solved(candidates, _values(ops, buffers))
    return places, buffers - set(places)


def _spacious(candidates: list[_Candidate]) -> dict[Buffer, int] | None:
    """Places that are not used again for a while, if there is room for all.

    The back end can then compute more ops in one pass.
    """
    buffers = []
    for candidate in candidates:
        uses = [*candidate.uses, candidate.uses[-1] + REST]
        buffers.append(LifetimeBoundBuffer(candidate.buffer.name, candidate.bytes, uses))
    solver(lx_available()).plan_layout(buffers)
    places = {c.buffer: b.address for c, b in zip(candidates, buffers, strict=True)}
    found = {buffer: address for buffer, address in places.items() if address is not None}
    return found if len(found) == len(candidates) else None


def _solved(candidates: list[_Candidate], values: dict[Buffer, float]) -> dict[Buffer, int]:
    planned: dict[Buffer, LifetimeBoundBuffer] = {}
    for candidate in candidates:
        planned[candidate.buffer] = LifetimeBoundBuffer(
            candidate.buffer.name,
            candidate.bytes,
            candidate.uses,
            value=values[candidate.buffer],
            in_place_parents=[
                planned[parent]
                for parent in candidate.parents
                if parent in planned and planned[parent].uses[-1] == candidate.uses[0]
            ],
        )
    solver(lx_available()).plan_layout(list(planned.values()))
    return {buffer: plan.address for buffer, plan in planned.items() if plan.address is not None}


def _candidates(ops: list[KernelOp]) -> list[_Candidate]:
    """Intermediates that every core has its own part of, in the order of their first use."""
    found: dict[Buffer, _Candidate] = {}
    loops = loop_times(ops)
    for time, op in enumerate(ops):
        shape = OpShape(op)
        for position, footprint in enumerate(shape.footprints(op.splits)):
            access = shape.accesses[position]
            if not access.buffer.local:
                continue
            known = found.get(access.buffer)
            if known is None:
                known = found[access.buffer] = _Candidate(access.buffer, footprint)
            known.fits &= access.buffer is not op.output.buffer or writes_lx(op)
            known.fits &= _agrees(shape, position, known.footprint)
            begin, end = needed(access.buffer, op, time, loops)
            known.uses = sorted({*known.uses, begin, time, end})
        if config.lx_in_place:
            _find_parents(op, time, found)
    return [candidate for candidate in found.values() if candidate.fits]


def _agrees(shape: OpShape, position: int, footprint: Footprint) -> bool:
    """Whether each core touches its part of a buffer: all of that, or reads some, always the same
    for all tiles."""
    op, access = shape.op, shape.accesses[position]
    own = shape.footprints(op.splits)[position]
    if own == footprint:
        return shape.each_core_has_its_own(position, op.splits)
    moves = any(access.index.strides.get(loop.symbol) for loop in op.loops)
    part = access is not op.output and not moves and walks_dimensions(access)
    return part and own.within(footprint)


def _find_parents(op: KernelOp, time: int, found: dict[Buffer, _Candidate]) -> None:
    """Inputs of the op whose place its result can take, if they are not used any more."""
    target = found.get(op.output.buffer)
    if target is not None and target.uses == [time]:
        target.parents = [buffer for buffer in same_elements(op) if buffer in found]


def _values(ops: list[KernelOp], candidates: set[Buffer]) -> dict[Buffer, float]:
    """What each buffer saves in LX, if all others are there."""
    values = dict.fromkeys(candidates, 0.0)
    for op in ops:
        prices = OpPrices(OpShape(op))
        touched = [access.buffer for access in prices.shape.accesses]
        in_lx = {i for i, buffer in enumerate(touched) if buffer in candidates}
        best = prices.effort(op.splits, in_lx)
        for buffer in {touched[i] for i in in_lx}:
            outside = {i for i in in_lx if touched[i] is buffer}
            saved = prices.effort(op.splits, in_lx - outside) - best
            values[buffer] += op.times * 1e3 * saved
    return values
