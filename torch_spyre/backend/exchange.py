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
    origins, parts = _origins(op, source), _begins(op, target)
    by_core: list[list[Piece]] = [[] for _ in range(op.cores)]
    for piece in pieces(*ring_parts(touch_of(op, source), op.cut(source), op.cut(target))):
        by_core[piece.target].append(piece)
    # The target is one row of the table, which says where it begins: so it is known as one thing.
    target_number = operands.setdefault(Place(SCRATCHPAD, tuple(target.start)), len(operands))
    steps = []
    for turn in itertools.zip_longest(*by_core):
        begins = tuple(
            origins[p.source] + _before(op, source, p) * source.element_bytes if p else 0
            for p in turn
        )
        number = operands.setdefault(Place(ALL_SCRATCHPADS, begins), len(operands))
        shapes = [_shape(op, p, parts[p.target]) if p else None for p in turn]
        for shape, group in itertools.groupby(range(op.cores), key=shapes.__getitem__):
            cores = list(group)
            piece = turn[cores[0]]
            if piece is None or shape is None or 0 in shape.size:
                continue
            tensors = [
                replace(source, index=number),
                replace(target, index=target_number, lane=target.lane + shape.before),
            ]
            walk = nests(_size(op, piece), tensors, op.cut(source).dims)
            here, there = (Operand(tensor.index, tensor.format) for tensor in tensors)
            steps.append(CoreStep(Move(here, there, walk), cores[0], cores[-1] + 1))
    return steps


class _Shape(NamedTuple):
    """Of a piece. One step can move the pieces of all cores that have the same."""

    size: tuple[int, ...]
    before: int  # elements of the core's part of the target that come before


def _shape(op: DeviceOp, piece: Piece, begin: int) -> _Shape:
    """``begin``: where the part of its core begins, in elements of the whole target."""
    size = tuple(_size(op, piece).values())
    return _Shape(size, _before(op, op.tensors[1], piece) - begin)


def _size(op: DeviceOp, piece: Piece) -> dict[str, int]:
    """How many indices of every dimension a piece has, without padding."""
    source = op.tensors[0]
    found = {}
    for dim, (begin, end) in zip(op.cut(source).dims, piece.ranges, strict=True):
        unit = source.unit(dim.label)
        found[dim.label] = min(end * unit, dim.size) - begin * unit
    return found


def _begins(op: DeviceOp, tensor: Tensor) -> list[int]:
    """How many elements of the whole tensor come before the part of each core."""
    return op.cut(tensor).begins(touch_of(op, tensor).units, tensor.stride)


def _origins(op: DeviceOp, source: Tensor) -> list[int]:
    """For each core, the byte of all scratchpads at which the whole tensor would begin, seen from
    the core's part."""
    return [
        start + core * LX_BYTES - begin * source.element_bytes
        for core, (start, begin) in enumerate(zip(source.start, _begins(op, source), strict=True))
    ]


def _before(op: DeviceOp, tensor: Tensor, piece: Piece) -> int:
    """How many elements of the whole tensor come before a piece."""
    dims = zip(op.cut(op.tensors[0]).dims, piece.ranges, strict=True)
    return sum(begin * tensor.stride[dim.label] for dim, (begin, _) in dims)
