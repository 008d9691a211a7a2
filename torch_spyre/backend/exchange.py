"""Ops by which cores take parts of a tensor from the scratchpads of others.

Each core copies what it wants, piece by piece: its first piece, then its second, wherever these
are. Cores whose pieces have the same size, at the same place of their parts, share a step: only the
sources differ.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import NamedTuple

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
    # The target is one row of the table, which says where it begins: so it is known as one thing.
    target_number = operands.setdefault(Place(SCRATCHPAD, tuple(target.start)), len(operands))
    steps = []
    for turn in itertools.zip_longest(*by_core):
        begins = tuple(taken[p.source] + _inside(op, source, p) if p else 0 for p in turn)
        number = operands.setdefault(Place(ALL_SCRATCHPADS, begins), len(operands))
        shapes = [_shape(op, p, put[p.target]) if p else None for p in turn]
        for shape, group in itertools.groupby(range(op.cores), key=shapes.__getitem__):
            cores = list(group)
            piece = turn[cores[0]]
            if piece is None or shape is None or 0 in shape.size:
                continue
            lane = target.lane + shape.inside
            tensors = [
                replace(source, index=number),
                replace(target, index=target_number, lane=lane),
            ]
            walk = nests(_size(op, piece), tensors, op.cut(source).dims)
            here, there = (Operand(tensor.index, tensor.format) for tensor in tensors)
            steps.append(CoreStep(Move(here, there, walk), cores[0], cores[-1] + 1))
    return steps


class _Shape(NamedTuple):
    size: tuple[int, ...]
    inside: int  # elements of the core's part of the target that come before


def _shape(op: DeviceOp, piece: Piece, origin: int) -> _Shape:
    """Of a piece of a core, for which the whole target would begin at ``origin``."""
    target = op.tensors[1]
    inside = origin - target.start[piece.target] + _inside(op, target, piece)
    return _Shape(tuple(_size(op, piece).values()), inside // target.element_bytes)


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
