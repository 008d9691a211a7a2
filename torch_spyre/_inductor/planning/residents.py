"""Where the intermediates of a kernel live, and why: for people, nothing is decided by it."""

from __future__ import annotations

from collections.abc import Mapping

from torch_spyre._inductor import config
from torch_spyre._inductor.kernel_ir import Buffer, KernelOp, Resident
from torch_spyre._inductor.planning.lives import Life, lives
from torch_spyre._inductor.planning.prices import lx_available
from torch_spyre.backend.program import LxBytes

OFF = "LX planning is off"


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
    lived = {life.buffer: life for life in lives(ops)}
    result = []
    for buffer in dict.fromkeys([*lived, *found, *left]):
        life = lived.get(buffer)
        first, last = (life.first, life.last) if life else (0, 0)
        first = 0 if buffer in found else first
        last = len(ops) - 1 if buffer in left else last
        kinds = (("found", found), ("left", left))
        across = " and ".join(kind for kind, buffers in kinds if buffer in buffers)
        if across:
            begin, end, _ = found.get(buffer) or left[buffer]
            where, address, size, why = "lx", begin, end - begin, ""
        else:
            assert life is not None
            where, address, size, why = "lx", lx.get(buffer, 0), life.bytes_of_core, ""
            if buffer not in lx:
                where, address, size, why = "pool", pool[buffer], life.bytes, _why_not(life)
        fields = (where, address, first, last, why, across)
        result.append(Resident(buffer.name, size, *fields))
    return result


def _why_not(life: Life) -> str:
    """What keeps an intermediate out of LX."""
    if not config.lx_planning:
        return OFF
    if life.why_not:
        return life.why_not
    if life.bytes_of_core > lx_available():
        return "a core's part is larger than its LX"
    return "no room beside what saves more time"
