"""Where intermediates lie in the pool, that of device memory.

Memory is used again as soon as what it held is not needed; for a while only by what lies exactly
so, else a core might write what another still reads, and the cores would have to wait for each
other. A pointwise op may write to the place of an input that dies.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch_spyre._inductor import config
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.kernel_ir import KernelOp
from torch_spyre._inductor.planning.lives import REST, Life, lives
from torch_spyre._inductor.scratchpad import LifetimeBoundBuffer, lowest_peak
from torch_spyre.machine import load as load_machine

SEGMENT_BYTES = int(load_machine().value("memory.segment_bytes"))


def place_in_pool(ops: list[KernelOp]) -> list[KernelOp]:
    """Says of every intermediate that is not in LX where in the pool it is. Needs splits."""
    found = lives(ops, but_in_lx=True)
    places, peak = lowest_peak(_buffers(found, REST if config.hbm_planning else len(ops)))
    if peak > SEGMENT_BYTES and config.hbm_planning:
        places, peak = lowest_peak(_buffers(found, 0))
    if peak > SEGMENT_BYTES:
        raise Unsupported(
            f"the intermediates of the kernel need {peak} bytes, more than a segment",
            hint="compile smaller parts of the model, or smaller tensors",
        )
    for life, place in zip(found, places, strict=True):
        life.buffer.pool = place
    return ops


def _buffers(found: Sequence[Life], rest: int) -> list[LifetimeBoundBuffer]:
    planned: dict[Life, LifetimeBoundBuffer] = {}
    near: list[Life] = []  # that may still be in the way
    for life in found:
        near = [old for old in near if old.last + rest >= life.first]
        parents = [planned[old] for old in near if _gives_place(old, life)]
        uses = [life.first, life.last + rest]
        planned[life] = LifetimeBoundBuffer(
            life.buffer.name, life.bytes, uses, in_place_parents=parents
        )
        near.append(life)
    return [*planned.values()]


def _gives_place(old: Life, new: Life) -> bool:
    """Whether every core writes what it has itself read before."""
    if not (config.hbm_planning and old.alike and new.alike):
        return False
    if (old.footprint, old.bytes) != (new.footprint, new.bytes):
        return False
    return old.last < new.first or (old.last == new.first and old in new.parents)
