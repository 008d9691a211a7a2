"""Kernels whose sizes a launch brings: ops with gaps for numbers, filled and planned for each.

The wrapper of a graph with dynamic shapes holds the ops, and how the numbers that are missing in
them follow from the sizes::

    async_compile.sdsc_template('sdsc_add_0', lambda s77: [s77, 130*s77], b'...', kept=128)

With the numbers there is everything that planning needs except where the arguments lie, so an
instance costs no symbolic arithmetic. Nothing here looks at Inductor.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import sympy
import torch
from sympy import Expr

from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp, Ramp, copied
from torch_spyre._inductor.planning import Kernel, MustSplit, plan_kernel
from torch_spyre._inductor.planning.accesses import MATMUL, NEUTRAL, PLACES
from torch_spyre._inductor.views import LinearIndex

# Layout and storage offset of a tensor.
Placement = tuple[SpyreTensorLayout, int]

# Reductions of which a single element is the result, or its place.
OF_ONE = {*NEUTRAL, *PLACES} - {MATMUL}


# ----------------------------------------------------------------------------------------- writing


@dataclass
class Template:
    """A kernel of sizes that are not known: equal kernels have equal data and numbers."""

    data: bytes  # ops, arguments, other buffers that lie somewhere; for numbers there are gaps
    numbers: list[Expr]  # what belongs into the gaps, of sizes
    tensors: list[str]  # what the arguments are, as the graph calls it
    origins: list[str]  # the user's line of each node

    @property
    def sizes(self) -> list[str]:
        """What a launch brings after the tensors."""
        return sorted({symbol.name for each in self.numbers for symbol in each.free_symbols})


def template_of(ops: Sequence[KernelOp], graph_buffers: Collection[str]) -> Template:
    """The ops, whose numbers may be expressions of sizes. Where locals lie that the graph does not
    have either is for planning to choose."""
    lines = {op.node: op.origin for op in reversed(ops)}
    ops = copied(ops)
    buffers = list(dict.fromkeys(access.buffer for op in ops for access in op.accesses))
    arguments = [each for each in buffers if not each.local and each.constant is None]
    chosen = [each for each in buffers if each.local and each.name not in graph_buffers]
    others = [each for each in buffers if each not in arguments and each not in chosen]
    tensors = [argument.name for argument in arguments]
    _rename(ops, buffers)
    for number, argument in enumerate(arguments):
        argument.name = f"arg{number}"
    for buffer in chosen:
        buffer.size, buffer.stride = [], []
    written = io.BytesIO()
    writer = _Writer(written, protocol=5)
    writer.dump((ops, arguments, others))
    origins = [lines.get(node, "") for node in range(max(lines) + 1)]
    return Template(written.getvalue(), list(writer.numbers), tensors, origins)


def _rename(ops: Sequence[KernelOp], buffers: Sequence[Buffer]) -> None:
    """Let equal kernels be equal: by numbers for names of buffers and hints, and no word of where
    ops come from. Where a buffer begins in its storage is for the launch to say."""
    scopes: dict[str, str] = {}
    for op in ops:
        op.inputs = [_moved(access, -access.buffer.offset) for access in op.inputs]
        op.output = _moved(op.output, -op.output.buffer.offset)
        op.origin = ""
        op.hints = tuple(
            replace(hint, scope=scopes.setdefault(hint.scope, str(len(scopes))))
            for hint in op.hints
            if hint.tiles or hint.work_div
        )
        op.dims = op.dims if op.hints else {}
    for number, buffer in enumerate(buffers):
        buffer.name, buffer.layout, buffer.offset = f"b{number}", None, 0


def _moved(access: Access, distance: int) -> Access:
    index = access.index
    return Access(access.buffer, LinearIndex(index.offset + distance, index.strides))


class _Writer(pickle.Pickler):
    """Leaves gaps for expressions."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.numbers: dict[Expr, int] = {}

    def persistent_id(self, value: Any) -> int | None:
        if isinstance(value, sympy.Basic):
            return self.numbers.setdefault(value, len(self.numbers))
        return None


# ----------------------------------------------------------------------------------------- filling


def filled(
    data: bytes, numbers: Sequence[int]
) -> tuple[list[KernelOp], list[Buffer], list[Buffer]]:
    """The ops of a template, the arguments, and other buffers that lie somewhere: new ones."""
    reader = _Reader(io.BytesIO(data))
    reader.numbers = numbers
    found: tuple[list[KernelOp], list[Buffer], list[Buffer]] = reader.load()
    return found


class _Reader(pickle.Unpickler):
    numbers: Sequence[int]

    def persistent_load(self, number: Any) -> int:
        return self.numbers[number]


def lay_out(buffers: Iterable[Buffer], placements: Mapping[str, Placement]) -> None:
    for buffer in buffers:
        if buffer.name in placements:
            buffer.layout, buffer.offset = placements[buffer.name]
        else:
            buffer.layout = default_layout(buffer)
        if buffer.constant is not None and not isinstance(buffer.constant, Ramp):
            buffer.constant = float(buffer.constant)


def default_layout(buffer: Buffer) -> SpyreTensorLayout:
    """Of a new tensor, as PyTorch's factories choose it."""
    if buffer.constant is not None:
        return SpyreTensorLayout(buffer.size, buffer.dtype)
    order = list(range(len(buffer.size)))
    return SpyreTensorLayout(buffer.size, buffer.stride, buffer.dtype, order)


def as_if_fixed(ops: Sequence[KernelOp], origins: Sequence[str]) -> list[KernelOp]:
    """The ops that a graph of fixed sizes would have: without loops of one iteration."""
    for space in {id(op.space): op.space for op in ops}.values():
        for loop in [loop for loop, extent in space.items() if extent == 1]:
            del space[loop]
    made: list[KernelOp] = []
    for op in ops:
        op.origin = origins[op.node] if origins else ""
        op.dims = {loop: parts for loop, parts in op.dims.items() if loop in op.space}
        op.inputs = [_within(access, op.space) for access in op.inputs]
        op.output = _within(op.output, op.space)
        if 0 in op.space.values():
            made += _of_nothing(op)
        elif op.op in OF_ONE and not op.reduced:
            made.append(_of_one(op))
        else:
            made.append(op)
    return made


def _within(access: Access, space: Mapping[str, int]) -> Access:
    index = access.index
    strides = {loop: step for loop, step in index.strides.items() if loop in space}
    return Access(access.buffer, LinearIndex(index.offset + access.buffer.offset, strides))


def _of_one(op: KernelOp) -> KernelOp:
    """A reduction of single elements."""
    number = [_number(0.0, op.output.buffer.dtype)]
    inputs = number if op.op in PLACES else op.inputs
    return replace(op, op="identity", inputs=inputs, exact=False)


def _of_nothing(op: KernelOp) -> Iterable[KernelOp]:
    """What an op with an empty loop does: nothing, unless a result is reduced from nothing."""
    kept = {s: n for s, n in op.space.items() if s not in op.reduced}
    if op.op in NEUTRAL and 0 not in kept.values():
        neutral = _number(NEUTRAL[op.op], op.output.buffer.dtype)
        yield replace(op, op="identity", space=kept, inputs=[neutral], exact=False)


def _number(value: float, dtype: torch.dtype) -> Access:
    buffer = Buffer("number", dtype, [], [], constant=value)
    buffer.layout = default_layout(buffer)
    return Access(buffer, LinearIndex(0, {}))


# ---------------------------------------------------------------------------------------- planning


@dataclass
class Instance:
    """Kernels to launch one after the other, and buffers that only they know."""

    kernels: list[Kernel]
    shared: list[Buffer]


def plan_template(
    data: bytes,
    numbers: Sequence[int],
    placements: Mapping[str, Placement],
    origins: Sequence[str] = (),
) -> Instance:
    """What a template needs where its arguments lie. Raises :class:`Unsupported`."""
    ends: set[int] = set()  # nests that begin a kernel
    outside: set[str] = set()  # buffers that copies outside of kernels have to reach
    while True:
        ops, arguments, others = filled(data, numbers)  # anew: planning changes them
        lay_out([*arguments, *others], placements)
        parts = _parts(as_if_fixed(ops, origins), ends)
        shared = [b for b in others if b.local and _is_shared(b, parts, outside)]
        for buffer in shared:
            buffer.local = False
        try:
            return Instance([plan_kernel(part) for part in parts], shared)
        except MustSplit as split:
            # A buffer that is written outside may still have to end the kernel before it is read.
            if (split.buffer in outside) if split.writes else (split.node in ends):
                raise Unsupported(f"no copy makes {split.buffer} readable") from split
            if split.writes:
                outside.add(split.buffer)
            else:
                ends.add(split.node)


def _parts(ops: Sequence[KernelOp], ends: set[int]) -> list[list[KernelOp]]:
    numbered = groupby(ops, lambda op: sum(end <= op.node for end in ends))
    return [list(part) for _, part in numbered]


def _is_shared(buffer: Buffer, parts: Sequence[Sequence[KernelOp]], outside: set[str]) -> bool:
    users = [part for part in parts if any(a.buffer is buffer for op in part for a in op.accesses)]
    return len(users) > 1 or (buffer.name in outside and bool(users))
