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
from torch_spyre._inductor.observe import observed
from torch_spyre._inductor.planning.accesses import device_bytes
from torch_spyre._inductor.planning.agree import cut_alike
from torch_spyre._inductor.planning.auto_tile import tilings
from torch_spyre._inductor.planning.chunk import chunk_large_tensors
from torch_spyre._inductor.planning.clones import clone_inputs, drop_clones
from torch_spyre._inductor.planning.clones import share_reads as with_shared_reads
from torch_spyre._inductor.planning.divide_work import divide_work
from torch_spyre._inductor.planning.lx import plan_lx
from torch_spyre._inductor.planning.order import products_first
from torch_spyre._inductor.planning.prices import lx_available
from torch_spyre._inductor.planning.ring_moves import exchange_parts
from torch_spyre._inductor.planning.tile import NotTileable, Tiles, coarse_tile
from torch_spyre._inductor.planning.variant import Variant

TRIED = 3  # plans of tiles


def best_variant(ops: list[KernelOp]) -> Variant:
    """The ops with splits, loops and places in LX. Needs final layouts."""
    ops = observed(clone_inputs, observed(cut_alike, ops))
    spare = copied(ops)
    plain = _finished(ops, ())
    names = {buffer.name for buffer in (*plain.no_room, *_oversized(plain))}
    if not names:
        return plain
    variants = [plain, *(_tiled(spare, plain, names) if config.auto_tiling else ())]
    return min(variants, key=lambda variant: variant.effort)


def _oversized(plain: Variant) -> Iterator[Buffer]:
    """What no scratchpads could hold, together with what is computed from it. Nothing made the ops
    agree on its parts, so it may not be among what there was no room for."""
    if config.lx_planning:
        most = config.sencores * lx_available() / 2
        for op in plain.ops:
            buffer = op.output.buffer
            if buffer.local and buffer not in plain.lx and device_bytes(buffer) > most:
                yield buffer


def _tiled(spare: list[KernelOp], plain: Variant, names: set[str]) -> Iterator[Variant]:
    """With loops over tiles around what has no room otherwise."""
    cores = max(math.prod(op.splits.values()) for op in plain.ops)
    for attempt in range(TRIED):
        ops = copied(spare)
        large = {a.buffer for op in ops for a in _locals(op) if a.buffer.name in names}
        tiles = tilings(ops, large, cores, attempt)
        if not tiles:
            return
        try:
            yield _finished(ops, tiles)
        except NotTileable:
            return


def _locals(op: KernelOp) -> list[Access]:
    return [access for access in (*op.inputs, op.output) if access.buffer.local]


def _finished(ops: list[KernelOp], tiles: Sequence[Tiles]) -> Variant:
    def auto_tile(ops: list[KernelOp]) -> list[KernelOp]:
        return coarse_tile(ops, tiles)

    return placed(ordered(observed(auto_tile, ops) if tiles else ops))


def ordered(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops as they run, but for their splits."""
    return observed(chunk_large_tensors, observed(products_first, ops))


def placed(ops: list[KernelOp]) -> Variant:
    """The ops with splits and places in LX."""
    ops = observed(divide_work, ops)
    lx, no_room = plan_lx(ops)

    def share_reads(ops: list[KernelOp]) -> list[KernelOp]:
        return with_shared_reads(ops, lx)

    shared = observed(share_reads, ops)
    if len(shared) > len(ops):
        ops = shared
        lx, no_room = plan_lx(ops)
    return exchange_parts(Variant(drop_clones(ops, lx), lx, no_room))


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
