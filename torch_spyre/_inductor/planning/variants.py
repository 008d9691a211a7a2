"""The ways a plan can go on when layouts are settled, of which the cost model chooses one.

First with every loop as it is. If something then finds no room in LX, also with loops over tiles;
what takes the least modelled time is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch_spyre._inductor import config
from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp
from torch_spyre._inductor.planning.accesses import device_bytes
from torch_spyre._inductor.planning.auto_tile import tilings
from torch_spyre._inductor.planning.lx import NO_ROOM, TOO_LARGE
from torch_spyre._inductor.planning.passes import AGREE, ARRANGE, PLACE, through
from torch_spyre._inductor.planning.prices import effort_of, lx_available
from torch_spyre._inductor.planning.tile import NotTileable, Tiles, coarse_tile

TILINGS_TRIED = 3


def best_variant(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops with splits, loops and homes. Needs final layouts."""
    ops = through(AGREE, ops)
    spare = copied(ops)
    plain = through([*ARRANGE, *PLACE], ops)
    names = {buffer.name for op in plain for buffer in _buffers(op) if _is_homeless(buffer)}
    if not names:
        return plain
    variants = [plain, *(_tiled(spare, plain, names) if config.auto_tiling else ())]
    return min(variants, key=effort_of)


def _buffers(op: KernelOp) -> set[Buffer]:
    """Of the intermediates, those that it touches."""
    return {a.buffer for a in (*op.inputs, op.output) if a.buffer.local}


def _is_homeless(buffer: Buffer) -> bool:
    """Whether there is no room in LX for a buffer.

    Nor is there for what no scratchpads could hold together with what is computed from it: nothing
    made the ops agree on its parts.
    """
    if buffer.lx is not None or not config.lx_planning:
        return False
    most = config.sencores * lx_available() / 2
    return buffer.why_not in (NO_ROOM, TOO_LARGE) or device_bytes(buffer) > most


def _tiled(
    spare: list[KernelOp], plain: list[KernelOp], names: set[str]
) -> Iterator[list[KernelOp]]:
    """With loops over tiles around what has no room otherwise."""
    cores = max(math.prod(op.splits.values()) for op in plain)
    for attempt in range(TILINGS_TRIED):
        ops = copied(spare)
        large = {buffer for op in ops for buffer in _buffers(op) if buffer.name in names}
        tiles = tilings(ops, large, cores, attempt)
        if not tiles:
            return

        def auto_tile(ops: list[KernelOp], tiles: Sequence[Tiles] = tiles) -> list[KernelOp]:
            return coarse_tile(ops, tiles)

        try:
            yield through([auto_tile, *ARRANGE, *PLACE], ops)
        except NotTileable:
            return


def copied(ops: list[KernelOp]) -> list[KernelOp]:
    """Ops that passes may change, with buffers of their own."""
    buffers: dict[Buffer, Buffer] = {}

    def copy(access: Access) -> Access:
        old = access.buffer
        if old not in buffers:
            buffers[old] = replace(old, size=list(old.size), stride=list(old.stride))
        return Access(buffers[old], access.index)

    spaces: dict[int, dict[str, int]] = {}
    return [
        replace(
            op,
            space=spaces.setdefault(id(op.space), dict(op.space)),
            inputs=[copy(access) for access in op.inputs],
            output=copy(op.output),
            splits=dict(op.splits),
            dims=dict(op.dims),
        )
        for op in ops
    ]
