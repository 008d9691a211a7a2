"""Kernels whose sizes a launch brings: written as a function of the sizes, planned for each.

The wrapper of a graph with dynamic shapes holds templates as Python text::

    async_compile.sdsc_template('sdsc_add_0', '''lambda s77: Template(
        buffers=[Buffer('arg1_1', torch.float16, [s77, 130], [130, 1]), ...],
        temporaries={'t1': torch.float16},
        nests=[
            Nest({'c0': s77, 'c1': 130}, [
                Op('mul', At('t1', 0, c0=130, c1=1), [At('arg1_1', 0, c0=130, c1=1), At('k0', 0)]),
                ...

Called with numbers it gives everything that planning needs except where the arguments lie, so an
instance costs no symbolic arithmetic. Nothing here looks at Inductor.
"""

from __future__ import annotations

import math  # noqa: F401  (for the texts of templates)
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import torch

from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.hints import Hint
from torch_spyre._inductor.kernel_ir import (
    Access,
    Buffer,
    DimPart,
    DimParts,
    KernelOp,
    Ramp,
    literal,
    literals,
)
from torch_spyre._inductor.planning import Kernel, MustSplit, plan_kernel
from torch_spyre._inductor.planning.accesses import MATMUL, NEUTRAL, PLACES
from torch_spyre._inductor.views import LinearIndex

# Layout and storage offset of a tensor.
Placement = tuple[SpyreTensorLayout, int]


class At:
    """What an iteration touches of a buffer: an offset from its beginning, and strides of loops."""

    def __init__(self, name: str, offset: int, **strides: int) -> None:
        self.name = name
        self.offset = offset
        self.strides = strides


@dataclass
class Op:
    """A :class:`KernelOp` that names its buffers and loops."""

    op: str
    output: At
    inputs: list[At]
    constants: dict[str, float] = field(default_factory=dict)
    exact: bool = False


@dataclass
class Nest:
    """Ops that share loops."""

    loops: dict[str, int]
    ops: list[Op]
    hints: tuple[Hint, ...] = ()
    dims: dict[str, DimParts] = field(default_factory=dict)  # of loops, if there are hints


@dataclass
class Template:
    """A kernel of known sizes whose arguments may lie anywhere."""

    buffers: list[Buffer]  # arguments, constants, and what nobody outside sees
    temporaries: dict[str, torch.dtype]  # values of one nest; the kernel chooses where they lie
    nests: list[Nest]
    origins: Sequence[str] = ()  # the user's line of each nest, if known

    @property
    def arguments(self) -> list[Buffer]:
        return [b for b in self.buffers if not b.local and b.constant is None]

    def kernel_ops(self, placements: Mapping[str, Placement]) -> list[KernelOp]:
        """The ops, for arguments that lie as given, as a graph of fixed sizes would have them."""
        known = {name: Buffer(name, d, [], [], local=True) for name, d in self.temporaries.items()}
        for buffer in self.buffers:
            known[buffer.name] = buffer
            if buffer.name in placements:
                buffer.layout, buffer.offset = placements[buffer.name]
            else:
                buffer.layout = default_layout(buffer)
            if buffer.constant is not None and not isinstance(buffer.constant, Ramp):
                buffer.constant = float(buffer.constant)
        ops: list[KernelOp] = []
        for position, nest in enumerate(self.nests):
            made = _NestOps(nest, known)
            for op in made.ops():
                op.node, op.hints, op.dims = position, nest.hints, made.dims
                op.origin = self.origins[position] if self.origins else ""
                ops.append(op)
        return ops


class _NestOps:
    """The ops of a nest, without loops of one iteration."""

    def __init__(self, nest: Nest, buffers: Mapping[str, Buffer]) -> None:
        self.nest = nest
        self.buffers = buffers
        self.space = {name: extent for name, extent in nest.loops.items() if extent != 1}
        self.dims = {name: parts for name, parts in nest.dims.items() if name in self.space}

    def ops(self) -> Iterable[KernelOp]:
        for op in self.nest.ops:
            inputs = [self._access(at) for at in op.inputs]
            output = self._access(op.output)
            made = KernelOp(op.op, self.space, inputs, output, op.constants, op.exact)
            if 0 in self.space.values():
                yield from _of_nothing(made)
            elif op.op in SINGLE and not made.reduced:
                yield _of_one(made)
            else:
                yield made

    def _access(self, at: At) -> Access:
        buffer = self.buffers[at.name]
        strides = {name: step for name, step in at.strides.items() if name in self.space}
        return Access(buffer, LinearIndex(at.offset + buffer.offset, strides))


def default_layout(buffer: Buffer) -> SpyreTensorLayout:
    """Of a new tensor, as PyTorch's factories choose it."""
    if buffer.constant is not None:
        return SpyreTensorLayout(buffer.size, buffer.dtype)
    order = list(range(len(buffer.size)))
    return SpyreTensorLayout(buffer.size, buffer.stride, buffer.dtype, order)


# Reductions that give what they find, or its place, if that is one element.
SINGLE = ({*NEUTRAL} | {*PLACES}) - {MATMUL}


def _of_one(op: KernelOp) -> KernelOp:
    """A reduction of single elements."""
    if op.op in PLACES:
        return KernelOp("identity", op.space, [_number(0.0, op.output.buffer.dtype)], op.output)
    return KernelOp("identity", op.space, op.inputs, op.output)


def _of_nothing(op: KernelOp) -> Iterable[KernelOp]:
    """What an op with an empty loop does: nothing, unless a result is reduced from nothing."""
    kept = {s: n for s, n in op.space.items() if s not in op.reduced}
    if op.op in NEUTRAL and 0 not in kept.values():
        neutral = _number(NEUTRAL[op.op], op.output.buffer.dtype)
        yield KernelOp("identity", kept, [neutral], op.output)


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


def plan_template(make: Callable[[], Template], placements: Mapping[str, Placement]) -> Instance:
    """What a template needs where its arguments lie. Raises :class:`Unsupported`."""
    ends: set[int] = set()  # nests that begin a kernel
    outside: set[str] = set()  # buffers that copies outside of kernels have to reach
    while True:
        template = make()  # planning changes the ops
        parts = _parts(template.kernel_ops(placements), ends)
        shared = [b for b in template.buffers if b.local and _is_shared(b, parts, outside)]
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
    users = [
        part for part in parts if any(a.buffer is buffer for op in part for a in _accesses(op))
    ]
    return len(users) > 1 or (buffer.name in outside and bool(users))


def _accesses(op: KernelOp) -> list[Access]:
    return [*op.inputs, op.output]


# -------------------------------------------------------------------------------------------- text


def template_function(text: str) -> Callable[..., Template]:
    """The function of sizes that a text of generated code stands for."""
    return eval(text, globals())


class TemplateText:
    """A template as Python text, and what a launch of it takes: tensors, then sizes."""

    def __init__(
        self, ops: Sequence[KernelOp], graph_buffers: Collection[str], text: Callable[[Any], str]
    ) -> None:
        """``text`` writes a number, or an expression of size symbols."""
        self._text = text
        self._symbols: dict[str, None] = {}
        self._names: dict[Buffer, str] = {}
        self._scopes: dict[str, str] = {}  # of hints, counted anew: equal kernels have equal text
        self.tensors: list[str] = []  # as the graph calls them
        self.origins: list[str] = []  # the user's line of each nest: not part of the text
        temporaries: list[Buffer] = []
        buffers: list[Buffer] = []
        for access in (access for op in ops for access in _accesses(op)):
            buffer = access.buffer
            if buffer in self._names:
                continue
            temporary = buffer.local and buffer.name not in graph_buffers
            if not buffer.local and buffer.constant is None:
                self._names[buffer] = f"arg{len(self.tensors)}"  # equal kernels have equal text
                self.tensors.append(buffer.name)
            else:
                kind = "t" if temporary else "b" if buffer.local else "k"
                self._names[buffer] = f"{kind}{len(self._names)}"
            (temporaries if temporary else buffers).append(buffer)
        lines = ["    buffers=["]
        lines += [f"        {self._buffer(buffer)}," for buffer in buffers]
        chosen = ", ".join(f"{self._names[b]!r}: {b.dtype}" for b in temporaries)
        lines += ["    ],", f"    temporaries={{{chosen}}},", "    nests=["]
        for _, grouped in groupby(ops, lambda op: (op.node, id(op.space))):
            nest = list(grouped)
            self.origins.append(nest[0].origin)
            loops = ", ".join(f"'{s}': {self._number(n)}" for s, n in nest[0].space.items())
            lines.append(f"        Nest({{{loops}}}, [")
            lines += [f"            {self._op(op)}," for op in nest]
            lines.append(f"        ]{self._hints(nest[0])}),")
        self.sizes = sorted(self._symbols)
        self.kept = 1  # instances
        head = f"lambda {', '.join(self.sizes)}: Template("
        self.function = "\n".join([head, *lines, "    ],", ")"])

    @property
    def source(self) -> str:
        """Arguments of ``async_compile.sdsc_template`` after the name."""
        return f"'''{self.function}''', kept={self.kept}"

    def _number(self, value: Any) -> str:
        symbols = getattr(value, "free_symbols", ())
        self._symbols.update(dict.fromkeys(map(str, symbols)))
        return self._text(value)

    def _numbers(self, values: Iterable[Any]) -> str:
        return f"[{', '.join(map(self._number, values))}]"

    def _buffer(self, buffer: Buffer) -> str:
        parts = [repr(self._names[buffer]), str(buffer.dtype)]
        parts += [self._numbers(buffer.size), self._numbers(buffer.stride)]
        if buffer.local:
            parts.append("local=True")
        constant = buffer.constant
        if isinstance(constant, Ramp):
            size, stride = self._numbers(constant.size), self._numbers(constant.stride)
            ramp = f"Ramp(tuple({size}), tuple({stride}), {self._number(constant.offset)})"
            parts.append(f"constant={ramp}")
        elif isinstance(constant, float):
            parts.append(f"constant={literal(constant)}")
        elif constant is not None:
            parts.append(f"constant={self._number(constant)}")
        return f"Buffer({', '.join(parts)})"

    def _hints(self, op: KernelOp) -> str:
        hints = [
            replace(hint, scope=self._scopes.setdefault(hint.scope, str(len(self._scopes))))
            for hint in op.hints
            if hint.tiles or hint.work_div
        ]
        if not hints:
            return ""
        names = (f"'{s}': ({', '.join(map(self._part, parts))},)" for s, parts in op.dims.items())
        return f", {tuple(hints)!r}, {{{', '.join(names)}}}"

    def _part(self, part: DimPart) -> str:
        return f"DimPart({part.name!r}, {self._number(part.size)}, {self._number(part.unit)})"

    def _op(self, op: KernelOp) -> str:
        inputs = ", ".join(map(self._at, op.inputs))
        more = f", constants={literals(op.constants)}" if op.constants else ""
        more += ", exact=True" if op.exact else ""
        return f"Op({op.op!r}, {self._at(op.output)}, [{inputs}]{more})"

    def _at(self, access: Access) -> str:
        steps = access.index.strides.items()
        strides = "".join(f", {s}={self._number(step)}" for s, step in steps if step != 0)
        # Where a buffer begins in its storage is for the launch to say.
        offset = self._number(access.index.offset - access.buffer.offset)
        return f"At({self._names[access.buffer]!r}, {offset}{strides})"
