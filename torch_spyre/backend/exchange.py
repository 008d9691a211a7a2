"""Ops by which cores take parts of a tensor from the scratchpads of others.

Each core copies what it wants, piece by piece: its first piece, then its second, wherever these
are. Cores whose pieces have the same size share a step, each with addresses of its own.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from torch_spyre.backend.nests import nests
from torch_spyre.backend.places import Place
from torch_spyre.backend.program import ALL_SCRATCHPADS, SCRATCHPAD, CoreStep, Move, Operand
from torch_spyre.backend.sdsc import DeviceOp, Tensor, touch_of
from torch_spyre.backend.work import Work
from torch_spyre.machine import load as load_machine
from torch_spyre.partition.demand import ring_parts
from torch_spyre.partition.ring import Piece, pieces

LX_BYTES = int(load_machine().value("memory.lx_bytes_per_core"))


def exchange(work: Work, operands: dict[Place, int]) -> list[CoreStep]:
    """The steps of all cores; they wait for nobody, so all is there before."""
    op = work.op
    source, target = op.tensors
    by_core: list[list[Piece]] = [[] for _ in range(op.cores)]
    for piece in pieces(*ring_parts(touch_of(op, source), op.cut(source), op.cut(target))):
        by_core[piece.target].append(piece)
    steps = []
    for turn in itertools.zip_longest(*by_core):
        places = [
            Place(ALL_SCRATCHPADS, tuple(_begin(op, source, p, p and p.source) for p in turn)),
            Place(SCRATCHPAD, tuple(_begin(op, target, p, p and p.target) for p in turn)),
        ]
        numbers = [operands.setdefault(place, len(operands)) for place in places]
        tensors = [replace(t, index=n) for t, n in zip(op.tensors, numbers, strict=True)]
        sizes = [tuple(_size(op, piece).values()) if piece else () for piece in turn]
        for size, group in itertools.groupby(range(op.cores), key=sizes.__getitem__):
            cores = list(group)
            piece = turn[cores[0]]
            if piece is not None and 0 not in size:
                walk = nests(_size(op, piece), tensors, op.cut(source).dims)
                here, there = (Operand(tensor.index, tensor.format) for tensor in tensors)
                steps.append(CoreStep(Move(here, there, walk), cores[0], cores[-1] + 1))
    return steps


def _size(op: DeviceOp, piece: Piece) -> dict[str, int]:
    """How many indices of every dimension a piece has, without padding."""
    source = op.tensors[0]
    found = {}
    for dim, (begin, end) in zip(op.cut(source).dims, piece.ranges, strict=True):
        unit = source.unit(dim.label)
        found[dim.label] = min(end * unit, dim.size) - begin * unit
    return found


def _begin(op: DeviceOp, tensor: Tensor, piece: Piece | None, core: int | None) -> int:
    """Where a piece begins on one of the cores that it goes from and to, in bytes."""
    if piece is None or core is None:
        return 0
    cut = op.cut(tensor)
    by_label = {dim.label: dim for dim in cut.dims}
    place = tensor.start[core] + (core * LX_BYTES if tensor.held else 0)
    for dim, (begin, _) in zip(op.cut(op.tensors[0]).dims, piece.ranges, strict=True):
        label = dim.label
        before = cut.slices[core][label] * (by_label[label].chunk // tensor.unit(label))
        place += (begin - before) * tensor.stride[label] * tensor.element_bytes
    return place
