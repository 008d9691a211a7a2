"""What the compiler says about graphs it cannot compile."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torch_spyre.backend.errors import MalformedBundle

if TYPE_CHECKING:
    from torch._inductor.ir import ComputedBuffer
    from torch._inductor.scheduler import SchedulerNode

    from torch_spyre._inductor.kernel_ir import Buffer, KernelOp
    from torch_spyre._inductor.op_spec import KernelEntry, OpSpec

LAYER = "Module "  # begins the first line of an origin, if a module is known
WAY_OUT = (
    "compute this part outside of the compiled function (torch.compiler.disable), or leave it: "
    "unless TORCH_SPYRE_COMPILE_FALLBACK=error, the graph runs op by op"
)
OTHER_HINT = "ask for another number of tiles or parts, or leave the hint out"


class Unsupported(RuntimeError):
    """Something the compiler cannot do: what, on which op and tensors, where, and a way out.

    It is raised with what is known there; :meth:`add` fills in the rest on the way up.
    """

    def __init__(
        self,
        what: str,
        *,
        op: str | KernelOp | OpSpec = "",
        tensors: Iterable[str] = (),
        source: str = "",
        hint: str = "",
    ) -> None:
        RuntimeError.__init__(self, what)  # a subclass has a base that takes more
        self.what = what
        self.op = ""
        self.tensors: list[str] = []
        self.source = ""
        self.hint = hint
        if not isinstance(op, str):
            self.add(*_facts(op))
            op = ""
        self.add(op, tensors, source)

    def add(self, op: str = "", tensors: Iterable[str] = (), source: str = "") -> None:
        """Add facts; those that were known before stay as they are."""
        self.op = self.op or op
        self.tensors = self.tensors or list(tensors)
        self.source = self.source or user_line(source)

    def __str__(self) -> str:
        lines = [self.what]
        if self.op:
            lines.append(f"  op: {self.op}")
        lines += [f"  tensor: {tensor}" for tensor in self.tensors]
        if self.source:
            lines.append(f"  source: {self.source}")
        lines.append(f"  way out: {self.hint or WAY_OUT}")
        return "\n".join(lines)


class RefusedByBackEnd(Unsupported):
    """The front end wrote a bundle that the back end does not take."""


class CompilerFault(Unsupported):
    """The compiler failed where it should not have: ours or PyTorch's."""


class InvalidSetting(Unsupported):
    """A knob has a value without a meaning. Nothing is compiled, and nothing runs op by op."""


class InvalidHint(Unsupported):
    """A hint cannot be honoured. The graph does not run op by op instead: that would hide it."""

    def __init__(self, what: str, *, hint: str = OTHER_HINT, **about: Any) -> None:
        super().__init__(what, hint=hint, **about)


class InvalidInput(Unsupported):
    """The user's tensors do not fit together. Op by op that would only fail later."""


def user_line(stack_trace: str) -> str:
    """The innermost line of a stack trace or of an origin, on one line; other text as it is."""
    frames = re.findall(r'File "[^\n]*\n[^\n]*', stack_trace)
    if not frames:
        layer = layer_of(stack_trace)
        return stack_trace.removeprefix(f"{LAYER}{layer}\n").strip()
    where, _, code = frames[-1].partition("\n")
    return f"{where.strip()}: {code.strip()}"


def origin_of(node: Any) -> str:
    """The user's module and line that a node comes from, the first ones that are known."""
    metas = [origin.meta for origin in node.get_origins() if hasattr(origin, "meta")]
    layer = next(filter(None, map(_layer, metas)), "")
    return f"{LAYER}{layer}\n{source_of([node])}" if layer else source_of([node])


def layer_of(origin: str) -> str:
    """The module of an origin, such as ``layers.0.mlp``; empty if there is none."""
    first = origin.partition("\n")[0]
    return first.removeprefix(LAYER) if first.startswith(LAYER) else ""


def _layer(meta: Mapping[str, Any]) -> str:
    forward = meta.get("nn_module_stack")
    stack = forward or meta.get("fwd_nn_module_stack")
    if not stack:
        return ""
    path, _ = [*stack.values()][-1]
    name = re.sub(r"^[LG]\['\w+'\]\.?|\b_orig_mod\.?", "", path)
    return name if forward else f"{name} (backward)"


def describe_tensor(buffer: Buffer) -> str:
    """``arg0_1: float16[5, 70], stride [70, 1], device size [2, 5, 64]``"""
    text = f"{buffer}, stride {buffer.stride}"
    if buffer.offset:
        text += f", offset {buffer.offset}"
    if buffer.layout is not None:
        text += f", device size {list(buffer.layout.device_size)}"
        text += f", stride map {list(buffer.layout.stride_map)}"
    return text


def _facts(op: KernelOp | OpSpec) -> tuple[str, list[str], str]:
    """The facts about a kernel op or an OpSpec."""
    from torch_spyre._inductor.op_spec import OpSpec

    if isinstance(op, OpSpec):
        tensors = [
            f"argument {a.arg_index}: {a.device_dtype.name}, device size {list(a.device_size)}, "
            f"coordinates {_plain(a.device_coordinates)}"
            for a in op.args
        ]
        return op.op, tensors, ""
    buffers = dict.fromkeys(access.buffer for access in [*op.inputs, op.output])
    return op.op, [describe_tensor(buffer) for buffer in buffers], op.origin


def node_facts(node: torch.fx.Node) -> tuple[str, list[str], str]:
    """The facts about a node of a graph."""
    values = [(each.name, each.meta.get("val")) for each in node.all_input_nodes]
    tensors = [
        f"{name}: {str(value.dtype).removeprefix('torch.')}{_plain(value.shape)}, "
        f"stride {_plain(value.stride())}"
        for name, value in values
        if isinstance(value, torch.Tensor)
    ]
    return str(node.target), tensors, str(node.meta.get("stack_trace") or "")


@contextlib.contextmanager
def about_op(op: KernelOp | OpSpec) -> Iterator[None]:
    """Errors inside are about an op of a kernel."""
    try:
        yield
    except Unsupported as error:
        error.add(*_facts(op))
        raise


@contextlib.contextmanager
def about(node: ComputedBuffer, buffers: dict[str, Buffer]) -> Iterator[None]:
    """Errors inside say which node of the graph they are about."""
    try:
        yield
    except Unsupported as error:
        error.add(aten_names([node]), _tensors_of(node, buffers), source_of([node]))
        raise


@contextlib.contextmanager
def about_kernel(nodes: Sequence[SchedulerNode], buffers: dict[str, Buffer]) -> Iterator[None]:
    """Errors inside are about a kernel as a whole."""
    try:
        yield
    except Unsupported as error:
        seen = [describe_tensor(buffer) for buffer in buffers.values() if not buffer.local]
        loops = [node.node for node in nodes]
        error.add(aten_names(loops), seen, source_of(loops))
        raise


@contextlib.contextmanager
def about_bundle(name: str, specs: Iterable[KernelEntry], source: str = "") -> Iterator[None]:
    """If the back end refuses a kernel's bundle, its error becomes an :class:`Unsupported`.
    ``source`` is the user's line."""
    from torch_spyre._inductor.op_spec import OpSpec, walk

    try:
        yield
    except MalformedBundle as error:
        number = re.search(r"sdsc_(\d+)\.json", str(error))
        ops = [op for op in walk(specs) if isinstance(op, OpSpec)]
        about = ops[int(number[1])] if number and int(number[1]) < len(ops) else name
        raise RefusedByBackEnd(
            f"kernel {name}: the back end refuses {error}", op=about, source=source
        ) from error
    except Unsupported as error:
        error.add(name, source=source)
        raise


def aten_names(nodes: Iterable[Any]) -> str:
    """The ops of the user's graph that nodes come from."""
    names: dict[str, None] = {}
    for node in nodes:
        for origin in node.get_origins():
            if origin.op == "call_function":
                names[str(origin.meta.get("original_aten") or origin.target)] = None
    return ", ".join(names)


def source_of(nodes: Iterable[Any]) -> str:
    """The user's line that nodes come from; the first one that is known."""
    for node in nodes:
        for origin in node.get_origins():
            trace = origin.meta.get("stack_trace") if hasattr(origin, "meta") else None
            if trace:
                return user_line(str(trace))
    return ""


def _tensors_of(node: ComputedBuffer, buffers: dict[str, Buffer]) -> list[str]:
    """The tensors that a node reads and the one it writes, as far as they are known."""
    names = [*sorted(node.get_read_names()), node.get_name()]
    return [
        describe_tensor(buffers[name]) if name in buffers else _inductor_tensor(name)
        for name in names
    ]


def _inductor_tensor(name: str) -> str:
    from torch._inductor.virtualized import V

    buffer = V.graph.get_buffer(name)
    if buffer is None:
        return name
    dtype = str(buffer.get_dtype()).removeprefix("torch.")
    return f"{name}: {dtype}{_plain(buffer.get_size())}, stride {_plain(buffer.get_stride())}"


def _plain(numbers: Sequence[Any]) -> str:
    return f"[{', '.join(str(number) for number in numbers)}]"
