"""Where the intermediates of a kernel live, and why: for people, nothing is decided by it."""

from __future__ import annotations

from collections.abc import Mapping

from torch_spyre._inductor.kernel_ir import Buffer, KernelOp, Resident
from torch_spyre._inductor.planning.lives import lives
from torch_spyre.backend.program import LxBytes


def residents(
    ops: list[KernelOp],
    found: Mapping[Buffer, LxBytes],
    left: Mapping[Buffer, LxBytes],
) -> list[Resident]:
    """Every intermediate in the order of first use. Needs homes.

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
            where, address, size, why = "pool", buffer.pool or 0, life.bytes, buffer.why_not
            if buffer.lx is not None:
                where, address, size = "lx", buffer.lx, life.bytes_of_core
        fields = (where, address, first, last, why, across)
        result.append(Resident(buffer.name, size, *fields))
    return result
