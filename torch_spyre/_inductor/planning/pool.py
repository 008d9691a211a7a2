"""Where intermediates lie in the pool.

Memory is used again as soon as what it held is not needed. Inside of a step, where cores do not
wait for each other, only by what lies exactly so: else a core might write what another still reads,
and the cores would have to wait. A pointwise op may write to the place of an input that dies.

What a loop touches lives as long as the loop, unless it holds a tile, made anew in each iteration.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from torch_spyre._inductor import config
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.kernel_ir import Buffer, KernelOp, Loop
from torch_spyre._inductor.planning.accesses import device_bytes
from torch_spyre._inductor.planning.footprints import Footprint, Group, OpShape
from torch_spyre.machine import load as load_machine
from torch_spyre.ops.table import OPS

SEGMENT_BYTES = int(load_machine().value("memory.segment_bytes"))
# For so many ops memory is not used again, if there is enough: the back end can then change the
# order of ops, to bring those together that work on the same.
REST = 8


@dataclass(eq=False)
class _Local:
    buffer: Buffer
    size: int  # bytes
    born: int  # op that writes it first
    step: int  # and the step of that op
    footprint: Footprint | None  # None: not the same in all ops
    dies: int = 0  # last op that touches it
    last_step: int = 0
    same_elements: Sequence[Buffer] = ()  # inputs of its op, read where it is written
    place: int = 0

    @property
    def end(self) -> int:
        return self.place + self.size


def plan_pool(
    ops: list[KernelOp], elsewhere: Collection[Buffer] = ()
) -> tuple[dict[Buffer, int], int]:
    """Places of the locals, but for those that are elsewhere, and the bytes of the pool.

    Needs splits.
    """
    locals_ = [local for local in _locals(ops) if local.buffer not in elsewhere]
    peak = _place(locals_, keep_cores_apart=True)
    if peak > SEGMENT_BYTES:
        peak = _place(locals_, keep_cores_apart=False)
    if peak > SEGMENT_BYTES:
        raise Unsupported(
            f"the intermediates of the kernel need {peak} bytes, more than a segment",
            hint="compile smaller parts of the model, or smaller tensors",
        )
    return {local.buffer: local.place for local in locals_}, peak


def _locals(ops: list[KernelOp]) -> list[_Local]:
    known: dict[Buffer, _Local] = {}
    group, step = Group(), 0
    loops = loop_times(ops)
    for time, op in enumerate(ops):
        shape = OpShape(op)
        if not group.accepts(shape, op.splits):
            group, step = Group(), step + 1
        group = group.with_op(shape, op.splits, set())
        for access, footprint in zip(shape.accesses, shape.footprints(op.splits), strict=True):
            buffer = access.buffer
            if not buffer.local:
                continue
            begin, end = needed(buffer, op, time, loops)
            if buffer not in known:
                known[buffer] = _Local(buffer, device_bytes(buffer), begin, step, footprint)
            local = known[buffer]
            local.dies, local.last_step = max(end, local.dies), step
            if local.footprint != footprint:
                local.footprint = None
        target = known.get(op.output.buffer)
        if target is not None and target.born == time:
            target.same_elements = same_elements(op)
    return sorted(known.values(), key=lambda local: local.born)


def loop_times(ops: list[KernelOp]) -> dict[Loop, tuple[int, int]]:
    """The first and the last op of every loop."""
    times: dict[Loop, tuple[int, int]] = {}
    for time, op in enumerate(ops):
        for loop in op.loops:
            times[loop] = times.get(loop, (time, time))[0], time
    return times


def needed(
    buffer: Buffer, op: KernelOp, time: int, loops: dict[Loop, tuple[int, int]]
) -> tuple[int, int]:
    """For how long an op needs a buffer: what is not of one tile, as long as tiles follow."""
    around = next((loop for loop in op.loops if loop not in buffer.tile_of), None)
    return loops[around] if around else (time, time)


def _place(locals_: list[_Local], keep_cores_apart: bool) -> int:
    """Best fit, in the order of birth; returns the bytes needed."""
    peak = 0
    near: list[_Local] = []  # that may still be in the way
    for local in locals_:
        near = [old for old in near if _in_the_way(old, local, keep_cores_apart)]
        local.place = _best_place(local, near, peak)
        peak = max(peak, local.end)
        near.append(local)
    return peak


def _in_the_way(old: _Local, new: _Local, keep_cores_apart: bool) -> bool:
    if not config.hbm_planning or old.dies >= new.born:
        return True
    if keep_cores_apart and old.dies + REST >= new.born:
        return True
    return keep_cores_apart and old.last_step >= new.step


def _best_place(local: _Local, near: list[_Local], peak: int) -> int:
    if config.hbm_planning:
        for old in near:
            begin, end = old.place, old.end
            meets = [other for other in near if other.place < end and begin < other.end]
            if all(_takes_place_of(local, other) for other in meets):
                return begin
    gaps: list[tuple[int, int]] = []  # (waste, place)
    place = 0
    for begin, end in [*sorted((old.place, old.end) for old in near), (peak, peak)]:
        if begin - place >= local.size:
            gaps.append((begin - place - local.size, place))
        place = max(place, end)
    return min(gaps)[1] if gaps else place


def _takes_place_of(new: _Local, old: _Local) -> bool:
    """Whether what is in the way is not: every core writes what it has itself read before."""
    if old.footprint is None or (old.footprint, old.size) != (new.footprint, new.size):
        return False
    return old.dies < new.born or (old.dies == new.born and old.buffer in new.same_elements)


def same_elements(op: KernelOp) -> list[Buffer]:
    """Inputs of a pointwise op whose elements lie as those of its result, on the same core."""
    if OPS[op.op].kind != "pointwise" or op.held:
        return []
    layout, index = op.output.buffer.layout, op.output.index
    other = {a.buffer for a in op.inputs if (a.buffer.layout, a.index) != (layout, index)}
    return [buffer for buffer in dict.fromkeys(a.buffer for a in op.inputs) if buffer not in other]
