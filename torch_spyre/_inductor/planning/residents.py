"""Where the intermediates of a kernel live, and why: for people, nothing is decided by it."""

from __future__ import annotations

from collections.abc import Collection

from torch_spyre._inductor.kernel_ir import Buffer, KernelOp, Resident
from torch_spyre._inductor.planning.accesses import device_bytes
from torch_spyre._inductor.planning.lives import uses_of


def residents(
    ops: list[KernelOp], found: Collection[Buffer], left: Collection[Buffer]
) -> list[Resident]:
    """Every intermediate in the order of first use. Needs homes.

    What is ``found`` lives from the first op on, what is ``left`` to the last.
    """
    uses = uses_of(ops)
    result = []
    for buffer in dict.fromkeys([*uses, *found, *left]):
        times = uses.get(buffer, [0])
        first = 0 if buffer in found else min(times)
        last = len(ops) - 1 if buffer in left else max(times)
        kinds = (("found", found), ("left", left))
        across = " and ".join(kind for kind, buffers in kinds if buffer in buffers)
        if buffer.lx is not None:
            begin, end, _ = buffer.lx
            where, address, size, why = "lx", begin, end - begin, ""
        else:
            where, address = "pool", buffer.pool or 0
            size, why = device_bytes(buffer), buffer.why_not
        fields = (where, address, first, last, why, across)
        result.append(Resident(buffer.name, size, *fields))
    return result
