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
    """The steps of all cores. They do not wait, so what they take must have been written before."""
    op = work.op
    source, target = op.tensors
    taken, put = _origins(op, source), _origins(op, target)
    by_core: list[list[Piece]] = [[] for _ in range(op.cores)]
    for piece in pieces(*ring_parts(touch_of(op, source), op.cut(source), op.cut(target))):
        by_core[piece.target].append(piece)
    steps = []
    for turn in itertools.zip_longest(*by_core):
        begins = [
            (taken[p.source] + _inside(op, source, p), put[p.target] + _inside(op, target, p))
            if p
            else (0, 0)
            for p in turn
        ]
        sources, targets = zip(*begins, strict=True)
        places = [Place(ALL_SCRATCHPADS, sources), Place(SCRATCHPAD, targets)]
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


def _origins(op: DeviceOp, tensor: Tensor) -> list[int]:
    """For each core, the byte at which the whole tensor would begin, seen from the core's part."""
    cut = op.cut(tensor)
    begins = cut.begins(touch_of(op, tensor).units, tensor.stride)
    apart = LX_BYTES if tensor.held else 0
    return [
        start + core * apart - begin * tensor.element_bytes
        for core, (start, begin) in enumerate(zip(tensor.start, begins, strict=True))
    ]


def _inside(op: DeviceOp, tensor: Tensor, piece: Piece) -> int:
    """How many bytes behind its origin a piece begins."""
    dims = zip(op.cut(op.tensors[0]).dims, piece.ranges, strict=True)
    place = sum(begin * tensor.stride[dim.label] for dim, (begin, _) in dims)
    return place * tensor.element_bytes
