"""Which intermediates live in the scratchpads (LX) of the cores, and where.

A buffer can if every op that touches it gives each core the same part of it: then a core needs
nothing of another. Which of them stay, if not all fit, is for the solvers of
``torch_spyre._inductor.scratchpad`` to say, by what it would cost to have them in device memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch_spyre._inductor import config
from torch_spyre._inductor.kernel_ir import Buffer, KernelOp
from torch_spyre._inductor.planning.accesses import STICK_BYTES
from torch_spyre._inductor.planning.footprints import Footprint, OpShape
from torch_spyre._inductor.planning.pool import same_elements
from torch_spyre._inductor.planning.prices import lx_available
from torch_spyre._inductor.scratchpad import LifetimeBoundBuffer, solver


@dataclass(eq=False)
class _Candidate:
    buffer: Buffer
    footprint: Footprint
    uses: list[int] = field(default_factory=list)
    parents: list[Buffer] = field(default_factory=list)  # whose place it can take
    fits: bool = True


def plan_lx(ops: list[KernelOp]) -> dict[Buffer, int]:
    """The buffers in LX and their offsets there. Needs splits."""
    if not config.lx_planning:
        return {}
    planned: dict[Buffer, LifetimeBoundBuffer] = {}
    for candidate in _candidates(ops):
        planned[candidate.buffer] = LifetimeBoundBuffer(
            candidate.buffer.name,
            candidate.footprint.sticks_of_core * STICK_BYTES,
            candidate.uses,
            in_place_parents=[
                planned[parent]
                for parent in candidate.parents
                if parent in planned and planned[parent].uses[-1] == candidate.uses[0]
            ],
        )
    solver(lx_available()).plan_layout(list(planned.values()))
    return {
        buffer: plan.address for buffer, plan in planned.items() if plan.address is not None
    }


def _candidates(ops: list[KernelOp]) -> list[_Candidate]:
    """Intermediates that every core has its own part of, in the order of their first use."""
    found: dict[Buffer, _Candidate] = {}
    for time, op in enumerate(ops):
        shape = OpShape(op)
        for position, footprint in enumerate(shape.footprints(op.splits)):
            access = shape.accesses[position]
            if not access.buffer.local:
                continue
            known = found.get(access.buffer)
            if known is None:
                known = found[access.buffer] = _Candidate(access.buffer, footprint)
            known.fits &= footprint == known.footprint
            known.fits &= shape.each_core_has_its_own(position, op.splits)
            if time not in known.uses:
                known.uses.append(time)
        if config.lx_in_place:
            _find_parents(op, time, found)
    return [candidate for candidate in found.values() if candidate.fits]


def _find_parents(op: KernelOp, time: int, found: dict[Buffer, _Candidate]) -> None:
    """Inputs of the op whose place its result can take, if they are not used any more."""
    target = found.get(op.output.buffer)
    if target is None or target.uses != [time]:
        return
    target.parents = [buffer for buffer in same_elements(op) if buffer in found]
