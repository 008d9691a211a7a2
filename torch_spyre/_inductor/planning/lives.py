"""From when to when a kernel needs its intermediates, and how its ops touch them.

What a loop touches lives as long as the loop, unless it holds a tile, made anew in each iteration.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch_spyre._inductor.kernel_ir import Buffer, KernelOp, Loop
from torch_spyre._inductor.planning.accesses import device_bytes, walks_dimensions
from torch_spyre._inductor.planning.footprints import Footprint, OpShape
from torch_spyre._inductor.planning.prices import writes_lx
from torch_spyre.ops.table import OPS
from torch_spyre.partition.dims import STICK_BYTES

# For so many ops memory is not used again, if there is enough: the back end can then change the
# order of ops, to bring those together that work on the same, and compute more ops in one pass.
REST = 8


@dataclass(eq=False)
class Life:
    """Of an intermediate, from its first op to its last."""

    buffer: Buffer
    footprint: Footprint  # in its first op
    toucher: str  # that op
    uses: list[int]  # numbers of ops, rising
    parents: list[Life] = field(default_factory=list)  # whose elements its own replace
    alike: bool = True  # all ops touch it so
    why_not: str = ""  # in LX; nothing if it can be there

    @property
    def first(self) -> int:
        return self.uses[0]

    @property
    def last(self) -> int:
        return self.uses[-1]

    @property
    def bytes(self) -> int:
        """In device memory."""
        return device_bytes(self.buffer)

    @property
    def bytes_of_core(self) -> int:
        """In the LX of the core that has most."""
        return STICK_BYTES * self.footprint.sticks_of_core

    def touch(self, shape: OpShape, position: int) -> None:
        """One more op does, by the access of this number."""
        op = shape.op
        own = shape.footprints(op.splits)[position]
        same = own == self.footprint
        self.alike &= same
        if self.why_not:
            return
        whole = shape.each_core_has_its_own(position, op.splits)
        if shape.accesses[position] is op.output and not writes_lx(op):
            self.why_not = f"results of {op.op} may not (allow_all_ops_in_lx_planning)"
        elif not (whole if same else self._has_part(shape, position, own)):
            if whole:
                self.why_not = f"{self.toucher} and {op.op} split it differently"
            else:
                self.why_not = f"cores of {op.op} need each other's parts, or not all of it"

    def _has_part(self, shape: OpShape, position: int, own: Footprint) -> bool:
        """Whether each core finds what an op reads in its part, always the same for all tiles."""
        op, access = shape.op, shape.accesses[position]
        moves = any(access.index.strides.get(loop.symbol) for loop in op.loops)
        part = access is not op.output and not moves and walks_dimensions(access)
        return part and own.within(self.footprint)


def lives(ops: list[KernelOp], but_in_lx: bool = False) -> list[Life]:
    """Of all intermediates, in the order of their first ops; those that are in LX may be left out.

    Needs splits.
    """
    found: dict[Buffer, Life] = {}
    uses = uses_of(ops)
    if but_in_lx:
        uses = {buffer: times for buffer, times in uses.items() if buffer.lx is None}
    for time, op in enumerate(ops):
        touched = [access.buffer for access in (*op.inputs, op.output)]
        if uses.keys().isdisjoint(touched):
            continue
        shape = OpShape(op)
        for position, footprint in enumerate(shape.footprints(op.splits)):
            buffer = touched[position]
            if buffer in uses:
                if buffer not in found:
                    found[buffer] = Life(buffer, footprint, op.op, sorted(uses[buffer]))
                found[buffer].touch(shape, position)
        target = found.get(op.output.buffer)
        if target is not None and target.first == time:
            target.parents = [found[buffer] for buffer in _same_elements(op) if buffer in found]
    return sorted(found.values(), key=lambda life: life.first)


def uses_of(ops: list[KernelOp]) -> dict[Buffer, set[int]]:
    """The numbers of the ops that touch each intermediate.

    Also of the first and the last op of a loop, if it is needed for all of that.
    """
    uses: dict[Buffer, set[int]] = {}
    loops = _loop_times(ops)
    for time, op in enumerate(ops):
        for access in (*op.inputs, op.output):
            buffer = access.buffer
            if buffer.local:
                uses.setdefault(buffer, set()).update((time, *_needed(buffer, op, time, loops)))
    return uses


def _loop_times(ops: list[KernelOp]) -> dict[Loop, tuple[int, int]]:
    """The first and the last op of every loop."""
    times: dict[Loop, tuple[int, int]] = {}
    for time, op in enumerate(ops):
        for loop in op.loops:
            times[loop] = times.get(loop, (time, time))[0], time
    return times


def _needed(
    buffer: Buffer, op: KernelOp, time: int, loops: dict[Loop, tuple[int, int]]
) -> tuple[int, int]:
    """For how long an op needs a buffer: what is not of one tile, as long as tiles follow."""
    around = next((loop for loop in op.loops if loop not in buffer.tile_of), None)
    return loops[around] if around else (time, time)


def _same_elements(op: KernelOp) -> list[Buffer]:
    """Inputs of a pointwise op whose elements lie as those of its result, on the same core."""
    if OPS[op.op].kind != "pointwise" or op.held:
        return []
    layout, index = op.output.buffer.layout, op.output.index
    other = {a.buffer for a in op.inputs if (a.buffer.layout, a.index) != (layout, index)}
    return [buffer for buffer in dict.fromkeys(a.buffer for a in op.inputs) if buffer not in other]
