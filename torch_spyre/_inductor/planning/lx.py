"""Which buffers live in the scratchpads (LX) of the cores, and where.

An intermediate can if every op that touches it gives each core the same part of it: then a core
needs nothing of another. What comes from outside and is read several times can be copied to LX
first. Which of them stay, if not all fit, is for the solvers of ``torch_spyre._inductor.scratchpad``
to say, by what it would cost to have them in device memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from torch_spyre._inductor import config
from torch_spyre._inductor.constants import IDENTITY_OP
from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp
from torch_spyre._inductor.planning.accesses import STICK_BYTES
from torch_spyre._inductor.planning.footprints import Footprint, OpShape
from torch_spyre._inductor.planning.pool import loop_times, needed, same_elements
from torch_spyre._inductor.planning.prices import OpPrices, lx_available
from torch_spyre._inductor.scratchpad import LifetimeBoundBuffer, solver


@dataclass(eq=False)
class _Candidate:
    buffer: Buffer
    footprint: Footprint
    uses: list[int] = field(default_factory=list)
    parents: list[Buffer] = field(default_factory=list)  # whose place it can take
    fits: bool = True


@dataclass(eq=False)
class _Clone:
    """A copy of what comes from outside, for those that read it."""

    buffer: Buffer
    copy: KernelOp
    reads: list[tuple[int, int]]  # by which ops, and which of their inputs


def plan_lx(ops: list[KernelOp]) -> tuple[list[KernelOp], dict[Buffer, int]]:
    """The ops, with copies to LX that pay, and the offsets of all that lives there. Needs splits."""
    if not config.lx_planning:
        return ops, {}
    clones = _clones(ops) if config.lx_boundary_clones else []
    places = _placed(_with_clones(ops, clones))
    kept = [clone for clone in clones if clone.buffer in places]
    return _with_clones(ops, kept), places


def _placed(ops: list[KernelOp]) -> dict[Buffer, int]:
    planned: dict[Buffer, LifetimeBoundBuffer] = {}
    candidates = _candidates(ops)
    values = _values(ops, {candidate.buffer for candidate in candidates})
    for candidate in candidates:
        buffer = candidate.buffer
        planned[buffer] = LifetimeBoundBuffer(
            buffer.name,
            STICK_BYTES * candidate.footprint.sticks_of_core,
            candidate.uses,
            value=values[buffer],
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
            known.fits &= footprint == known.footprint
            known.fits &= shape.each_core_has_its_own(position, op.splits)
            begin, end = needed(access.buffer, op, time, loops)
            known.uses = sorted({*known.uses, begin, time, end})
        if config.lx_in_place:
            _find_parents(op, time, found)
    return [candidate for candidate in found.values() if candidate.fits]


def _find_parents(op: KernelOp, time: int, found: dict[Buffer, _Candidate]) -> None:
    """Inputs of the op whose place its result can take, if they are not used any more."""
    target = found.get(op.output.buffer)
    if target is not None and target.uses == [time]:
        target.parents = [buffer for buffer in same_elements(op) if buffer in found]


def _values(ops: list[KernelOp], candidates: set[Buffer]) -> dict[Buffer, float]:
    """Nanoseconds that each buffer saves in LX, if all others are there.

    Where memory is not what an op waits for, a little, so that what costs bandwidth is kept away.
    """
    values = dict.fromkeys(candidates, 0.0)
    for op in ops:
        prices = OpPrices(OpShape(op))
        times = math.prod(loop.count for loop in op.loops)
        touched = [access.buffer for access in prices.shape.accesses]
        in_lx = {i for i, buffer in enumerate(touched) if buffer in candidates}
        best = prices.microseconds(op.splits, in_lx)
        for buffer in {touched[i] for i in in_lx}:
            outside = {i for i in in_lx if touched[i] is buffer}
            saved = prices.microseconds(op.splits, in_lx - outside) - best
            traffic = sum(prices.bytes[i] for i in outside)
            values[buffer] += times * (1e3 * saved + traffic / 1e3)
    return values


# -------------------------------------------------------------------------------------------- clones


def _clones(ops: list[KernelOp]) -> list[_Clone]:
    """Of what comes from outside and is read several times: copies that pay."""
    written = {op.output.buffer for op in ops}
    reads: dict[tuple[Buffer, Footprint], list[tuple[int, int]]] = {}
    for time, op in enumerate(ops):
        shape = OpShape(op)
        for position, access in enumerate(op.inputs):
            if access.buffer.local or access.buffer in written:
                continue
            if shape.each_core_has_its_own(position, op.splits):
                footprint = shape.footprints(op.splits)[position]
                reads.setdefault((access.buffer, footprint), []).append((time, position))
    clones = [
        _clone(ops, buffer, footprint, found)
        for (buffer, footprint), found in reads.items()
        if len({time for time, _ in found}) > 1
    ]
    return [clone for clone in clones if clone is not None and _pays(ops, clone)]


def _clone(
    ops: list[KernelOp], buffer: Buffer, footprint: Footprint, reads: list[tuple[int, int]]
) -> _Clone | None:
    time, position = reads[0]
    first = ops[time]
    access = first.inputs[position]
    local = replace(buffer, name=f"{buffer.name}_lx", local=True, constant=None, view=None)
    space = {s: size for s, size in first.space.items() if access.index.strides.get(s)}
    copy = KernelOp(
        IDENTITY_OP,
        space,
        [access],
        Access(local, access.index),
        origin=first.origin,
        node=first.node,
        splits={symbol: first.splits[symbol] for symbol in space},
    )
    # Cores that read the same part cannot be given it by one op, and some read parts of sticks.
    whole = math.prod(space.values()) == math.prod(buffer.size)
    if not whole or OpShape(copy).footprints(copy.splits)[0] != footprint:
        return None
    return _Clone(local, copy, reads)


def _pays(ops: list[KernelOp], clone: _Clone) -> bool:
    change = OpPrices(OpShape(clone.copy)).microseconds(clone.copy.splits, {1})
    for time in {time for time, _ in clone.reads}:
        prices, splits = OpPrices(OpShape(ops[time])), ops[time].splits
        others = {i for i, access in enumerate(prices.shape.accesses) if access.buffer.local}
        copies = {position for reader, position in clone.reads if reader == time}
        change += prices.microseconds(splits, others | copies)
        change -= prices.microseconds(splits, others)
    return change < 0


def _with_clones(ops: list[KernelOp], clones: list[_Clone]) -> list[KernelOp]:
    result = list(ops)
    for clone in clones:
        for time, position in clone.reads:
            inputs = list(result[time].inputs)
            inputs[position] = Access(clone.buffer, inputs[position].index)
            result[time] = replace(result[time], inputs=inputs)
    for clone in sorted(clones, key=lambda clone: -clone.reads[0][0]):
        result.insert(clone.reads[0][0], clone.copy)
    return result
