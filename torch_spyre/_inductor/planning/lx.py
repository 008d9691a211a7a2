"""Which buffers live in the scratchpads (LX) of the cores, and where.

An intermediate can if every op that touches it gives each core the same part of it: then a core
needs nothing of another. Which of them stay, if not all fit, is for the solvers of
``torch_spyre._inductor.scratchpad`` to say, by what it would cost to have them in device memory.
"""

from __future__ import annotations

from torch_spyre._inductor import config
from torch_spyre._inductor.kernel_ir import Buffer, KernelOp
from torch_spyre._inductor.planning.footprints import OpShape
from torch_spyre._inductor.planning.lives import REST, Life, lives
from torch_spyre._inductor.planning.prices import OpPrices, lx_available
from torch_spyre._inductor.scratchpad import LifetimeBoundBuffer, solver
from torch_spyre.backend.program import LxBytes

# Why something is not in LX that could be there.
OFF = "LX planning is off"
TOO_LARGE = "a core's part is larger than its LX"
NO_ROOM = "no room beside what saves more time"


def place_in_lx(ops: list[KernelOp]) -> list[KernelOp]:
    """Says of every intermediate where in LX it is, or why it is not there. Needs splits."""
    lived = lives(ops)
    for life in lived:
        life.buffer.lx, life.buffer.why_not = None, life.why_not if config.lx_planning else OFF
    candidates = [life for life in lived if not life.buffer.why_not]
    places = _spacious(candidates)
    if places is None:
        places = _solved(candidates, _values(ops, {life.buffer for life in candidates}))
    for life in candidates:
        begin = places.get(life.buffer)
        if begin is not None:
            life.buffer.lx = LxBytes(begin, begin + life.bytes_of_core, life.footprint.cores)
        else:
            large = life.bytes_of_core > lx_available()
            life.buffer.why_not = TOO_LARGE if large else NO_ROOM
    return ops


def _spacious(candidates: list[Life]) -> dict[Buffer, int] | None:
    """Places that are not used again for a while, if there is room for all.

    The back end can then compute more ops in one pass.
    """
    buffers = []
    for candidate in candidates:
        uses = [*candidate.uses, candidate.uses[-1] + REST]
        buffers.append(LifetimeBoundBuffer(candidate.buffer.name, candidate.bytes_of_core, uses))
    solver(lx_available()).plan_layout(buffers)
    places = {c.buffer: b.address for c, b in zip(candidates, buffers, strict=True)}
    found = {buffer: address for buffer, address in places.items() if address is not None}
    return found if len(found) == len(candidates) else None


def _solved(candidates: list[Life], values: dict[Buffer, float]) -> dict[Buffer, int]:
    planned: dict[Life, LifetimeBoundBuffer] = {}
    for life in candidates:
        parents = life.parents if config.lx_in_place else ()
        planned[life] = LifetimeBoundBuffer(
            life.buffer.name,
            life.bytes_of_core,
            life.uses,
            value=values[life.buffer],
            in_place_parents=[
                planned[parent]
                for parent in parents
                if parent in planned and parent.last == life.first
            ],
        )
    solver(lx_available()).plan_layout(list(planned.values()))
    places = {life.buffer: plan.address for life, plan in planned.items()}
    return {buffer: address for buffer, address in places.items() if address is not None}


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
