"""Clones: copies in LX of inputs that are read several times.

They are made before loops are split over cores. So a clone is an op like any other: it is tiled,
split and placed together with the rest. Clones that do not pay are dropped in the end.
"""

from __future__ import annotations

import math
from dataclasses import replace

from torch_spyre._inductor import config
from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp, Loop
from torch_spyre._inductor.planning.accesses import MATMUL, copy_for, walks_dimensions
from torch_spyre._inductor.planning.footprints import Footprint, OpShape
from torch_spyre._inductor.planning.lx import place_in_lx
from torch_spyre._inductor.planning.prices import OpPrices, in_lx
from torch_spyre._inductor.views import LinearIndex

Reads = list[tuple[KernelOp, int]]  # ops, and which of their inputs


def clone_inputs(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops, with a clone of every input that at least two of them read wholly and in the same
    way."""
    if not (config.lx_planning and config.lx_boundary_clones):
        return ops
    written = {op.output.buffer for op in ops}
    found: dict[tuple[object, ...], Reads] = {}
    for op in ops:
        for position, access in enumerate(op.inputs):
            buffer = access.buffer
            if buffer.local or buffer in written or buffer.constant is not None:
                continue
            # Cores share the factors of a matrix product, so no core has a part of its own.
            if op.op != MATMUL and not op.loops and _reads_all(op, access):
                found.setdefault((buffer, *_pattern(op, access)), []).append((op, position))
    result = list(ops)
    for reads in found.values():
        if len({op for op, _ in reads}) > 1:
            result.insert(result.index(reads[0][0]), _clone(reads))
    return result


def _reads_all(op: KernelOp, access: Access) -> bool:
    moving = [op.space[s] for s, stride in access.index.strides.items() if stride]
    return access.index.offset == 0 and math.prod(moving) == math.prod(access.buffer.size)


def _pattern(op: KernelOp, access: Access) -> list[tuple[int, int]]:
    """How an op goes through a buffer: equal if two ops do so in the same way."""
    strides = access.index.strides
    return sorted((stride, op.space[s]) for s, stride in strides.items() if stride)


def _clone(reads: Reads) -> KernelOp:
    """Into the LX of every core what it reads there, split as the first reader, which reads all."""
    op, position = reads[0]
    source = op.inputs[position].buffer
    name = f"{source.name}_lx"
    clone = replace(source, name=name, local=True, view=None, constant=None, offset=0, clone=True)
    copy = copy_for(op, position, clone)
    for reader, place in reads:
        reader.inputs[place] = Access(clone, reader.inputs[place].index)
    return copy


def share_reads(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops, with clones of what a loop would read again for every tile, and of inputs that
    several ops read.

    Each core has in its LX all that it reads. Several cores may have the same part: device memory
    sends it to them at once. Needs splits: a clone is split like an op that reads all of it; others
    may read less than that. Needs and gives homes.
    """
    if not (config.lx_planning and config.lx_boundary_clones):
        return ops
    written = {op.output.buffer: time for time, op in enumerate(ops)}  # the last op that writes it
    begin: dict[Loop, int] = {}
    whole: dict[tuple[Buffer, Footprint], Reads] = {}
    parts: list[tuple[Footprint, KernelOp, int]] = []
    start: dict[KernelOp, int] = {}  # before which op its clones can be made
    for time, op in enumerate(ops):
        start[op] = min([time, *(begin.setdefault(loop, time) for loop in op.loops)])
        footprints: list[Footprint] = []
        for position, access in enumerate(op.inputs):
            buffer = access.buffer
            if buffer.lx is not None or buffer.clone or written.get(buffer, -1) >= start[op]:
                continue
            if not op.loops and (buffer in written or buffer.constant is not None):
                continue
            if any(access.index.strides.get(loop.symbol) for loop in op.loops):
                continue
            footprints = footprints or OpShape(op).footprints(op.splits)
            if _reads_all(op, access):
                whole.setdefault((buffer, footprints[position]), []).append((op, position))
            elif walks_dimensions(access):
                parts.append((footprints[position], op, position))
    for footprint, op, position in parts:
        buffer = op.inputs[position].buffer
        for (other, larger), reads in whole.items():
            if other is buffer and footprint.within(larger):
                reads.append((op, position))
                break
    before: dict[int, list[KernelOp]] = {}
    for reads in whole.values():
        readers = {op for op, _ in reads}
        if len(readers) > 1 or reads[0][0].loops:
            time = min(start[op] for op in readers)
            before.setdefault(time, []).append(replace(_clone(reads), loops=()))
    if not before:
        return ops
    return place_in_lx([one for time, op in enumerate(ops) for one in (*before.get(time, ()), op)])


def drop_clones(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops without clones that got no room in LX, or that take longer than they save."""
    result = []
    for op in ops:
        if op.output.buffer.clone:
            reads = [
                (reader, i)
                for reader in ops
                for i, access in enumerate(reader.inputs)
                if access.buffer is op.output.buffer
            ]
            if not _pays(op, reads) and _read_source(op, reads):
                continue
        result.append(op)
    return result


def _pays(copy: KernelOp, reads: Reads) -> bool:
    buffer = copy.output.buffer
    if buffer.lx is None:
        return False
    change = OpPrices(OpShape(copy)).effort(copy.splits, {1}) * copy.times
    for op in dict.fromkeys(op for op, _ in reads):
        prices = OpPrices(OpShape(op))
        now = in_lx(op)
        copies = {i for i, access in enumerate(op.inputs) if access.buffer is buffer}
        change += prices.effort(op.splits, now) * op.times
        change -= prices.effort(op.splits, now - copies) * op.times
    return change < 0


def _read_source(copy: KernelOp, reads: Reads) -> bool:
    """Let the readers of a clone read its source; False if they cannot, as they go through it in
    another way."""
    (source,), target = copy.inputs, copy.output
    strides = {
        stride: source.index.strides[symbol]
        for symbol, stride in target.index.strides.items()
        if stride and copy.space.get(symbol, 1) > 1
    }
    found = []
    for op, position in reads:
        index = op.inputs[position].index
        moving = {s: t for s, t in index.strides.items() if t and op.space.get(s, 1) > 1}
        if (
            index.offset != target.index.offset
            or (strides and not moving)
            or not set(moving.values()) <= set(strides)
        ):
            return False
        found.append(LinearIndex(source.index.offset, {s: strides[t] for s, t in moving.items()}))
    for (op, position), index in zip(reads, found, strict=True):
        op.inputs[position] = Access(source.buffer, index)
    return True
