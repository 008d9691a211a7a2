"""Where the intermediates of a kernel live, and why: for people, nothing is decided by it."""

from __future__ import annotations

from collections.abc import Mapping

from torch_spyre._inductor.kernel_ir import Buffer, KernelOp, Resident
from torch_spyre._inductor.planning.accesses import device_bytes

NOT_PLANNED = "nothing is planned for LX"


def residents(
    ops: list[KernelOp],
    pool: Mapping[Buffer, int],
    lx: Mapping[Buffer, tuple[int, int]] | None = None,
    reasons: Mapping[Buffer, str] | None = None,
) -> list[Resident]:
    """Every intermediate in the order of first use.

    ``pool`` has addresses; ``lx`` addresses and bytes of a core; ``reasons`` say why one is not
    in LX.
    """
    uses: dict[Buffer, tuple[int, int]] = {}
    for time, op in enumerate(ops):
        for access in [*op.inputs, op.output]:
            if access.buffer.local:
                first, _ = uses.get(access.buffer, (time, time))
                uses[access.buffer] = first, time
    found = []
    for buffer, (first, last) in uses.items():
        if lx and buffer in lx:
            address, size = lx[buffer]
            found.append(Resident(buffer.name, size, "lx", address, first, last))
        else:
            why = (reasons or {}).get(buffer, NOT_PLANNED)
            size = device_bytes(buffer)
            found.append(Resident(buffer.name, size, "pool", pool[buffer], first, last, why))
    return found
