"""Where the intermediates of a kernel live, and why: for people, nothing is decided by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch_spyre._inductor import config
from torch_spyre._inductor.kernel_ir import Buffer, KernelOp, Resident
from torch_spyre._inductor.planning.accesses import device_bytes
from torch_spyre._inductor.planning.footprints import OpShape
from torch_spyre._inductor.planning.pool import loop_times, needed
from torch_spyre._inductor.planning.prices import lx_available, writes_lx
from torch_spyre.backend.program import LxBytes
from torch_spyre.partition.dims import STICK_BYTES

OFF = "LX planning is off"


@dataclass
class _Life:
    first: int
    last: int
    uses: list[tuple[KernelOp, int]] = field(default_factory=list)  # with the number of the access


def residents(
    ops: list[KernelOp],
    pool: Mapping[Buffer, int],
    lx: Mapping[Buffer, int],
    found: Mapping[Buffer, LxBytes],
    left: Mapping[Buffer, LxBytes],
) -> list[Resident]:
    """Every intermediate in the order of first use; ``pool`` and ``lx`` have their addresses.

    What is ``found`` lives from the first op on, what is ``left`` to the last.
    """
    lives = _lives(ops)
    for buffer in found:
        lives.setdefault(buffer, _Life(0, 0)).first = 0
    for buffer in left:
        lives.setdefault(buffer, _Life(0, 0)).last = len(ops) - 1
    result = []
    for buffer, life in lives.items():
        kinds = (("found", found), ("left", left))
        across = " and ".join(kind for kind, buffers in kinds if buffer in buffers)
        if across:
            begin, end, _ = found.get(buffer) or left[buffer]
            where, address, size, why = "lx", begin, end - begin, ""
        elif buffer in lx:
            where, address, size, why = "lx", lx[buffer], _bytes_of_core(life), ""
        else:
            where, address, size, why = (
                "pool",
                pool[buffer],
                device_bytes(buffer),
                _why_not(buffer, life),
            )
        fields = (where, address, life.first, life.last, why, across)
        result.append(Resident(buffer.name, size, *fields))
    return result


def _lives(ops: list[KernelOp]) -> dict[Buffer, _Life]:
    lives: dict[Buffer, _Life] = {}
    loops = loop_times(ops)
    for time, op in enumerate(ops):
        for position, access in enumerate([*op.inputs, op.output]):
            if access.buffer.local:
                begin, end = needed(access.buffer, op, time, loops)
                life = lives.setdefault(access.buffer, _Life(begin, end))
                life.first, life.last = min(life.first, begin), max(life.last, end)
                life.uses.append((op, position))
    return lives


def _bytes_of_core(life: _Life) -> int:
    op, position = life.uses[0]
    return STICK_BYTES * OpShape(op).footprints(op.splits)[position].sticks_of_core


def _why_not(buffer: Buffer, life: _Life) -> str:
    """What keeps an intermediate out of LX, as ``lx.py`` decides."""
    if not config.lx_planning:
        return OFF
    for op, _ in life.uses:
        if op.output.buffer is buffer and not writes_lx(op):
            return f"results of {op.op} may not (allow_all_ops_in_lx_planning)"
    shapes = [(OpShape(op), op, position) for op, position in life.uses]
    for shape, op, position in shapes:
        if not shape.each_core_has_its_own(position, op.splits):
            return f"cores of {op.op} need each other's parts, or not all of it"
    seen = {shape.footprints(op.splits)[position]: op.op for shape, op, position in shapes}
    if len(seen) > 1:
        return f"{' and '.join([*seen.values()][:2])} split it differently"
    if _bytes_of_core(life) > lx_available():
        return "a core's part is larger than its LX"
    return "no room beside what saves more time"
