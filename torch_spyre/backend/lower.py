"""From a device op to the steps that the cores of a card run.

All cores of an op do the same, each on another part of the tensors; but the last part of a
dimension may be smaller. So an op becomes one step for each set of cores that have parts of equal
size. Where the parts begin comes from ``places.py``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from torch_spyre.backend.errors import MalformedBundle
from torch_spyre.backend.nests import counter, nests
from torch_spyre.backend.program import (
    FP32,
    INT64,
    NARROW_BOOL,
    NARROW_NONE,
    NARROW_UINT8,
    CoreStep,
    Gather,
    Matmul,
    Move,
    Operand,
    Pointwise,
    Reduce,
    Step,
)
from torch_spyre.backend.sdsc import DeviceOp, Tensor


def lower(op: DeviceOp, operands: Sequence[int]) -> list[CoreStep]:
    """The steps of all cores; ``operands`` are the numbers of the op's tensors."""
    op = replace(
        op, tensors=[replace(t, index=n) for t, n in zip(op.tensors, operands, strict=True)]
    )
    steps: list[CoreStep] = []
    made: dict[tuple[int, ...], Step] = {}
    for parts, group in itertools.groupby(range(op.cores), key=parts_of_cores(op).__getitem__):
        cores = list(group)
        if 0 in parts:
            continue
        if parts not in made:
            sizes = {dim.label: part for dim, part in zip(op.dims, parts, strict=True)}
            made[parts] = _step(op, sizes)
        steps.append(CoreStep(made[parts], cores[0], cores[-1] + 1))
    return steps


# One a core: how much of every dimension it has.
PartsOfCores = list[tuple[int, ...]]


def parts_of_cores(op: DeviceOp) -> PartsOfCores:
    """How much of every dimension each core has, padding left out.

    A cohort shares a part of a matrix product, each core with its own part of K. All of K is left
    to its first core: so the sum is the one that a single core would have formed.
    """
    by_slice = []
    for dim in op.dims:
        if dim.label == op.contracted and dim.splits > 1:
            by_slice.append([dim.size] + [0] * (dim.splits - 1))
        else:
            by_slice.append([dim.part(slice) for slice in range(dim.splits)])
    if all(min(parts) == max(parts) for parts in by_slice):
        return [tuple(parts[0] for parts in by_slice)] * op.cores
    return [
        tuple(parts[slices[dim.label]] for dim, parts in zip(op.dims, by_slice, strict=True))
        for slices in op.slices
    ]


def _step(op: DeviceOp, size: dict[str, int]) -> Step:
    kind = op.op.kind
    if any(tensor.gathered for tensor in op.tensors):
        return _gather(op, size)
    if kind == "pointwise":
        return _pointwise(op, size)
    if kind == "move":
        return _move(op, size)
    if kind == "reduce":
        return _reduce(op, size)
    if kind == "matmul":
        return _matmul(op, size)
    raise MalformedBundle(
        op.file, "computeOp_", f"{op.op.name}: the back end has no {kind} ops in bundles"
    )


def _operand(tensor: Tensor) -> Operand:
    return Operand(tensor.index, tensor.format)


def _compute_type(op: DeviceOp) -> int:
    return INT64 if op.exact else FP32


def narrowed(op: DeviceOp) -> int:
    return {"": NARROW_NONE, "bool": NARROW_BOOL, "uint8": NARROW_UINT8}[op.narrow]


def lowered_constants(op: DeviceOp) -> list[float]:
    missing = [name for name in op.op.constants if name not in op.constants]
    if missing:
        raise MalformedBundle(op.file, "constantInfo_", f"{op.op.name} needs {missing[0]!r}")
    return [op.constants[name] for name in op.op.constants]


def _pointwise(op: DeviceOp, size: dict[str, int]) -> Pointwise:
    return Pointwise(
        op.op.name,
        [_operand(tensor) for tensor in op.tensors[:-1]],
        _operand(op.output),
        nests(size, op.tensors, op.dims),
        lowered_constants(op),
        _compute_type(op),
        narrowed(op),
    )


def _move(op: DeviceOp, size: dict[str, int]) -> Move:
    source, target = op.tensors
    loops = nests(size, op.tensors, op.dims)
    return Move(_operand(source), _operand(target), loops, narrowed(op))


def _gather(op: DeviceOp, size: dict[str, int]) -> Gather:
    index, values, out = op.tensors
    if values.format != out.format:
        raise MalformedBundle(op.file, "labeledDs_", "values do not change their format on the way")
    assert values.gathered is not None
    loops = nests(size, [index, values, out], op.dims)
    for nest in loops:  # the step names the dense tensor first
        nest.offset = nest.offset[::-1]
        for loop in nest.loops:
            loop.stride = loop.stride[::-1]
    return Gather(_operand(out), _operand(values), index.index, *values.gathered, loops)


def _reduce(op: DeviceOp, size: dict[str, int]) -> Reduce:
    source, target = op.tensors
    kept = [dim for dim in op.dims if target.has(dim.label)]
    reduced = [dim for dim in op.dims if dim not in kept]
    lines, positions = counter(kept, size), counter(reduced, size)
    return Reduce(
        op.op.name,
        _operand(source),
        _operand(target),
        math.prod(size[dim.label] for dim in kept),
        math.prod(size[dim.label] for dim in reduced),
        nests(size, [source, lines, positions], op.dims),
        nests(size, [lines, target], kept),
        constants=lowered_constants(op),
        compute=_compute_type(op),
        narrow=narrowed(op),
    )


def _matmul(op: DeviceOp, size: dict[str, int]) -> Matmul:
    x, y, out = op.tensors
    k, n = op.contracted, out.stick
    if any(tensor.lane for tensor in op.tensors):
        raise MalformedBundle(op.file, "scheduleTree_", "matrices begin with a stick (laneOffset_)")
    if k is None or x.stick != k or y.stick not in (n, k) or n not in y.dims:
        raise MalformedBundle(
            op.file,
            "primaryDsInfo_",
            "x must have its sticks along K, the result along N, y along either",
        )
    rows = sorted((label for label in out.dims if label not in y.dims), key=lambda row: -size[row])
    batches = [label for label in out.dims if label in y.dims and label != n]
    for dim in op.dims:
        if dim.label not in (k, n, *rows, *batches) and size[dim.label] != 1:
            raise MalformedBundle(op.file, f"N_.{dim.label}_", "the result has no such dimension")
    m_strides = (0, 0)
    if rows:  # the longest is M, the others are like batches that share y
        m_strides = (x.stride.get(rows[0], 0), out.stride[rows[0]])
    return Matmul(
        _operand(x),
        _operand(y),
        _operand(out),
        size[rows[0]] if rows else 1,
        size[n],
        size[k],
        (m_strides[0], x.stride[k]),
        (y.stride[k], y.stride[n]),
        (m_strides[1], out.stride[n]),
        [
            (size[label], x.stride.get(label, 0), y.stride.get(label, 0), out.stride[label])
            for label in [*rows[1:], *batches]
        ],
        op.op.name,
        sticks_along_k=y.stick == k,
    )
