"""Every change this package makes to PyTorch's own objects, with the hook that would replace it.

There are three times for it.

* When PyTorch is imported (:func:`apply`), names are added, and some built-in functions learn to do
  more: they stay the objects they are, and no program that does without the card can tell
  (``csrc/module/python_doors.cpp`` says how). Nothing is replaced.
* When a process begins to use the card (:func:`in_use`), functions are replaced that PyTorch gives
  a device no other word in. Each hands what is not about the card to the original.
* While a graph with tensors of the card is compiled, and only then: the context managers below.
"""

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch

from torch_spyre import _C, checkpoints
from torch_spyre.constants import DEVICE_NAME
from torch_spyre.imports import when_imported
from torch_spyre.model_utils import convert_module, on_spyre
from torch_spyre.streams import resolve_device

if TYPE_CHECKING:
    from torch_spyre._inductor.plain_graphs import PlainGraphs

_lock = threading.Lock()
_used = False


def apply() -> None:
    """What every program gets that imports PyTorch."""
    _layout_keywords()
    _module_methods()
    _custom_ops()
    _C._open_byteswap_door(torch._C.StorageBase._byteswap)  # type: ignore[attr-defined]
    _C._on_first_use(in_use)
    when_imported("safetensors", checkpoints.open_for_cards)
    torch.Tensor._spyre_tensor_patched = True  # type: ignore[attr-defined]


def in_use() -> None:
    """What a program gets when it begins to use the card: just before its first tensor there, or
    before the first module goes there."""
    global _used
    with _lock:
        if _used:
            return
        _tensor_printing()
        _module_moves()
        _gradient_scaler()
        _used = True
    when_imported("torch._dynamo.device_interface", _device_interface)
    when_imported("torch._dynamo.guards", _tensor_guards)
    when_imported("torch._dynamo.convert_frame", _around_tracing)
    when_imported("torch._dynamo.eval_frame", _short_module_calls)
    when_imported("torch._inductor.compile_fx", _compile_fx)


# ------------------------------------------------------------------------------ when imported


def _layout_keywords() -> None:
    """``device_layout=`` of ``Tensor.to`` and ``torch.empty``, ``Tensor.device_tensor_layout``.

    Missing upstream: a keyword of tensor factories that a backend may define. Calls without this
    keyword, which PyTorch refuses, go their way as ever. Modes see calls with it.
    """

    def device_tensor_layout(self: torch.Tensor) -> "_C.SpyreTensorLayout | None":
        """The layout of a spyre tensor in device memory; None for other tensors, and for those that
        have no memory of their own there, such as fake ones and wrappers around tensors."""
        return _C._find_layout(self)

    def empty(*size: Any, device_layout: Any, **kwargs: Any) -> torch.Tensor:
        if device_layout is not None and kwargs.get("device") is None:
            default = torch.get_default_device()
            kwargs["device"] = default if default.type == DEVICE_NAME else DEVICE_NAME
        if torch._C._is_torch_function_mode_enabled():
            public: Any = torch.empty
            return torch.overrides.handle_torch_function(
                public, (), *size, device_layout=device_layout, **kwargs
            )
        if device_layout is None:
            return torch.empty(*size, **kwargs)
        shape = kwargs.pop("size", size[0] if len(size) == 1 and not _is_int(size[0]) else size)
        device = torch.device(kwargs.pop("device"))
        dtype = kwargs.pop("dtype", None) or torch.get_default_dtype()
        requires_grad = kwargs.pop("requires_grad", False)
        pin_memory = kwargs.pop("pin_memory", False)
        memory_format = kwargs.pop("memory_format", None)
        if kwargs:
            raise TypeError(f"empty(): {', '.join(kwargs)} cannot be combined with device_layout")
        tensor = _C.empty_with_layout(
            list(shape), device_layout, dtype, device, pin_memory, memory_format
        )
        return tensor.requires_grad_(requires_grad)

    def to(self: torch.Tensor, *args: Any, device_layout: Any, **kwargs: Any) -> torch.Tensor:
        if torch.overrides.has_torch_function_unary(self):
            public: Any = torch.Tensor.to
            return torch.overrides.handle_torch_function(
                public, (self,), self, *args, device_layout=device_layout, **kwargs
            )
        if device_layout is None:
            return self.to(*args, **kwargs)
        copy = kwargs.pop("copy", False)
        device, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **kwargs)
        if memory_format is not None:
            raise ValueError("to(): a device_layout takes the place of a memory_format")
        if device is None:
            device = self.device if self.device.type == DEVICE_NAME else torch.device(DEVICE_NAME)
        if device.type != DEVICE_NAME:
            raise ValueError(f"a device layout needs device='{DEVICE_NAME}', got {device}")
        dtype = dtype or self.dtype
        same = self.dtype == dtype and self.device == torch.empty(0, device=device).device
        if same and not copy and _C._find_layout(self) == device_layout:
            return self
        target = _C.empty_with_layout(list(self.shape), device_layout, dtype, device)
        return target.copy_(self, non_blocking=non_blocking)

    torch.Tensor.device_tensor_layout = device_tensor_layout  # type: ignore[attr-defined]
    _C._open_layout_doors(
        torch._C._VariableFunctions.empty,
        torch._C.TensorBase.to,
        empty,
        to,
    )


@functools.cache
def moves_keep_names() -> None:
    """``Tensor.to`` and ``Tensor.cpu`` give the result the names that a tensor's dimensions have.
    Called with the first name, and so not at all in most programs.

    Missing upstream: attributes of a tensor that stay with its copies.
    """
    _C._keep_attribute(torch._C.TensorBase.cpu, "_spyre_dims")


def _is_int(value: Any) -> bool:
    return isinstance(value, int | torch.SymInt)


def _module_methods() -> None:
    """``Module.spyre``; and ``Module.to``, when it reads where to, says that the card is meant."""

    def spyre(self: torch.nn.Module, device: Any = None) -> torch.nn.Module:
        """Move the module to a spyre device, the current one if none is given."""
        return self.to(resolve_device(device) or torch.device(DEVICE_NAME))

    torch.nn.Module.spyre = spyre  # type: ignore[attr-defined]
    _C._open_module_door(torch._C._nn._parse_to, in_use)


def _custom_ops() -> None:
    """``torch.ops.spyre``: its ops are defined when the first of them is looked up.

    Missing upstream: a hook for namespaces of ops, so that nothing is defined by an import.
    """

    class Namespace(torch._ops._OpNamespace):
        __module__ = torch._ops.__name__  # ops are called by it in generated code

        def __getattr__(self, op_name: str) -> Any:
            from torch_spyre.ops import custom as custom  # defines them, once

            return super().__getattr__(op_name)

    torch.ops.spyre = Namespace("spyre")  # type: ignore[attr-defined]


def expect_graphs() -> None:
    """Let Inductor tell when it compiles a graph of the card in a process that has not used the
    card yet: a compiled function may make its tensors there.

    Inductor comes to a device's backend when it has chosen decompositions, too late for ours. So
    the one that it finds before the card is in use has the function traced once more.
    """
    from torch._dynamo.exc import TensorifyScalarRestartAnalysis
    from torch._inductor.codegen import common

    class Restart(type):
        def __call__(cls, *_: Any) -> Any:
            in_use()
            # The only restart that a compiler may ask Dynamo for.
            raise TensorifyScalarRestartAnalysis(restart_reason="the card is in use now")

        supports_caching = property(__call__)

    backend: Any = Restart("Backend", (), {})  # what Inductor asks before it compiles
    if common.get_scheduling_for_device(DEVICE_NAME) is None:
        common.device_codegens[DEVICE_NAME] = common.DeviceCodegen(backend, backend)


# -------------------------------------------------------------------- when the card is in use


def _tensor_printing() -> None:
    """Format a spyre tensor from one copy on the CPU.

    Missing upstream: ``_tensor_str`` has a fixed list of device types to move first; without it,
    printing would run dozens of small operations on the device.
    """
    import torch._tensor_str as printing

    original = printing._tensor_str

    @functools.wraps(original)
    def _tensor_str(self: torch.Tensor, indent: int) -> str:
        return original(self.cpu() if self.device.type == DEVICE_NAME else self, indent)

    printing._tensor_str = _tensor_str


def _module_moves() -> None:
    """``Module.to`` and its kin move all of a module or nothing, if the card has to do with it.

    Missing upstream: the same. They move one tensor after the other, and what has been moved when
    memory runs out stays where it is.
    """
    original = torch.nn.Module._apply

    @functools.wraps(original)
    def _apply(self: torch.nn.Module, fn: Any, recurse: bool = True) -> torch.nn.Module:
        return convert_module(original, self, fn, recurse)

    torch.nn.Module._apply = _apply  # type: ignore[method-assign]


def _gradient_scaler() -> None:
    """``GradScaler.unscale_`` inverts the scale in float32, which is exactly rounded on the card.

    Missing upstream: a way for a backend without float64 to say so; only "mps:0" is asked about.
    """

    class Single(torch.Tensor):
        def double(self) -> torch.Tensor:
            return self.as_subclass(torch.Tensor)

    scaler = torch.amp.GradScaler
    original = scaler.unscale_

    @functools.wraps(original)
    def unscale_(self: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> None:
        scale = self._scale
        if scale is None or scale.device.type != DEVICE_NAME:
            return original(self, optimizer)
        self._scale = scale.as_subclass(Single)
        try:
            original(self, optimizer)
        finally:
            self._scale = scale

    scaler.unscale_ = unscale_  # type: ignore[method-assign]


def _device_interface(interfaces: Any) -> None:
    """Not a patch: Dynamo's questions about the device are answered."""
    from torch_spyre._inductor.device_interface import SpyreInterface

    interfaces.register_interface_for_device(DEVICE_NAME, SpyreInterface)


def _compile_fx(inductor: Any) -> None:
    """Inductor's entry point: graphs with spyre tensors are compiled by ``_inductor/compile.py``.

    Missing upstream: a hook of a device around ``compile_fx``. Inductor asks the device's module
    for its backend (``torch.spyre.Scheduling``) only after it has chosen decompositions.
    """
    original = inductor.compile_fx

    @functools.wraps(original)
    def compile_fx(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        from torch_spyre._inductor.compile import compile_fx as ours

        names = ("inner_compile", "config_patches", "decompositions", "ignore_shape_env")
        return ours(original, model, inputs, **dict(zip(names, args, strict=False)), **kwargs)

    inductor.compile_fx = compile_fx


def _tensor_guards(guards: Any) -> None:
    """Dynamo's guards of tensors compare device layouts and names of dimensions: with others it is
    another graph.

    Missing upstream: a way for a device to add to ``TENSOR_MATCH``.
    """
    original = guards.GuardBuilder.TENSOR_MATCH

    @functools.wraps(original)
    def TENSOR_MATCH(self: Any, guard: Any, value: Any = None) -> None:
        original(self, guard, value)
        graph = self.check_fn_manager.output_graph
        if graph.export or guards.match_on_id_for_tensor(guard):
            return
        seen = self.get(guard)
        layout = _C._find_layout(seen)
        if layout is not None:
            sizes = guards.convert_to_concrete_values(
                graph.input_source_to_sizes_strides[guard.originating_source]["size"]
            )
            add_guards(self, guard, seen, layout, sizes)

    def add_guards(self: Any, guard: Any, seen: torch.Tensor, layout: Any, sizes: Any) -> None:
        from torch_spyre._inductor.hints import hints_were_given
        from torch_spyre._inductor.propagate_named_dims import dims_of_tensor, same_names

        dims = dims_of_tensor(seen)

        def is_named_so(tensor: torch.Tensor) -> bool:
            return same_names(dims_of_tensor(tensor), dims, sizes)

        def add(check: Callable[[torch.Tensor], bool], code: str) -> None:
            parts = guards.get_verbose_code_parts(f"{self.arg_ref(guard)}{code}", guard)
            self.get_guard_manager(guard).add_lambda_guard(check, parts, guard.user_stack)

        if None not in sizes:  # where sizes vary, layouts do
            add(_C._layout_guard(layout), f".device_tensor_layout() == {layout!r}")
        if dims is not None or hints_were_given():  # others do not look at names
            add(is_named_so, f": its dimensions are called {dims}, where they are {sizes}")

    guards.GuardBuilder.TENSOR_MATCH = TENSOR_MATCH


def _around_tracing(convert_frame: Any) -> None:
    """Dynamo looks at a function that got tensors or modules of the card without Python's collector
    of cycles, from its first bytecode to its guards, and makes its calls short.

    Missing upstream: a hook of a device around Dynamo's work. Its callbacks know neither the
    arguments nor an end of their own: ``torch._dynamo.reset()`` forgets them.
    """
    original = convert_frame._compile

    def on_card(value: object) -> bool:
        if isinstance(value, torch.Tensor):
            return value.device.type == DEVICE_NAME
        return isinstance(value, torch.nn.Module) and on_spyre(value)

    @functools.wraps(original)
    def _compile(code: Any, globals: Any, locals: dict[str, Any], *args: Any, **more: Any) -> Any:
        if not any(on_card(value) for value in locals.values()):
            return original(code, globals, locals, *args, **more)
        from torch_spyre._inductor.collector import uncollected

        with uncollected(), _unnamed_lines(), _short_calls():
            return original(code, globals, locals, *args, **more)

    convert_frame._compile = _compile


def _short_module_calls(eval_frame: Any) -> None:
    """What ``torch.compile(module)`` returns calls its ``forward``, where nobody hooked into it, if
    the module was on the card when it was first called.

    Missing upstream: the same. There are five functions in between.
    """
    from torch.nn.modules import module as modules

    original = eval_frame.OptimizedModule.__call__
    mark = "_spyre_calls_are_short"

    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (
            not self.__dict__.get(mark)
            or modules._has_any_global_hook()
            or self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
            or self._compiled_call_impl is not None
            or torch._C._get_tracing_state()
        ):
            result = original(self, *args, **kwargs)
            if mark not in self.__dict__:
                self.__dict__[mark] = on_spyre(self)
            return result
        before = eval_frame._in_optimized_module
        eval_frame._in_optimized_module = True
        try:
            return self.forward(*args, **kwargs)
        finally:
            eval_frame._in_optimized_module = before

    eval_frame.skip_code(__call__.__code__)  # type: ignore[attr-defined]
    eval_frame.OptimizedModule.__call__ = __call__


# --------------------------------------------------------------- while a graph is compiled


@contextlib.contextmanager
def before_scheduling(run: Callable[[Any], None]) -> Iterator[None]:
    """While a spyre graph is compiled: ``run`` sees the graph's loops before the scheduler does.

    Missing upstream: a hook between lowering and the scheduler.
    """
    from torch._inductor.graph import GraphLowering

    original = GraphLowering._update_scheduler

    @functools.wraps(original)
    def _update_scheduler(self: Any) -> None:
        run(self)
        original(self)

    with mock.patch.object(GraphLowering, "_update_scheduler", _update_scheduler):
        yield


@contextlib.contextmanager
def loops_as_lowered() -> Iterator[None]:
    """While a spyre graph is compiled: Inductor leaves the loops of the card's buffers as they are,
    and schedules them by the names of what they read.

    Missing upstream: a device's word in the order of loops and of dimensions in memory. Planning
    decides both itself, from what lowering left, and to no use Inductor would trace every loop
    twice more, and the index of every read once again.
    """
    from torch._inductor.dependencies import Dep, ReadWrites, StarDep
    from torch._inductor.ir import ComputedBuffer, Pointwise, Reduction
    from torch._inductor.scheduler import SchedulerNode
    from torch.utils._ordered_set import OrderedSet

    fill_order, compute_attrs = ComputedBuffer.get_fill_order, SchedulerNode._compute_attrs

    def on_card(buffer: ComputedBuffer) -> bool:
        return buffer.get_device_or_error().type == DEVICE_NAME

    @functools.wraps(fill_order)
    def get_fill_order(self: ComputedBuffer) -> Any:
        return None if on_card(self) else fill_order(self)

    @functools.wraps(compute_attrs)
    def _compute_attrs(self: Any, *args: Any, **kwargs: Any) -> None:
        buffer = self.node
        if not (isinstance(buffer, ComputedBuffer) and on_card(buffer)):
            return compute_attrs(self, *args, **kwargs)
        loops = buffer.data
        if type(loops) not in (Pointwise, Reduction):  # what scatters
            return compute_attrs(self, *args, **kwargs)
        self._sizes = loops.get_pointwise_size(), loops.get_reduction_size()
        self._body = None
        device = buffer.get_device_or_error()
        self.group = (device, self.scheduler.get_backend(device).group_fn(self._sizes))
        reads = OrderedSet[Dep](StarDep(name) for name in loops.get_read_names())
        writes = OrderedSet[Dep]([StarDep(buffer.get_name())])
        self.set_read_writes(ReadWrites(reads, writes, OrderedSet()))

    with (
        mock.patch.object(ComputedBuffer, "get_fill_order", get_fill_order),
        mock.patch.object(SchedulerNode, "_compute_attrs", _compute_attrs),
    ):
        yield


@contextlib.contextmanager
def patterns_when_needed() -> Iterator[None]:
    """While a spyre graph is compiled: they are made for the first graph that could match one, and
    on the CPU. To make them, Inductor fills scalars on the device of the first graph, some dozen
    programs that are not the user's.

    Missing upstream: patterns that are made when a graph has their ops, of fake scalars. Products
    are padded on other devices only; attention has an exponential, a permutation is drawn.
    """
    from torch._inductor import compile_fx
    from torch._inductor.fx_passes import joint_graph

    original = compile_fx.joint_graph_passes
    aten = torch.ops.aten

    @functools.wraps(original)
    def joint_graph_passes(graph: torch.fx.GraphModule, input_device: torch.device | None) -> Any:
        needed = any(
            getattr(node.target, "overloadpacket", None) in (aten.exp, aten.randperm)
            for node in graph.graph.nodes
        )
        if needed:
            return original(graph, torch.device("cpu"))  # it asks for nothing but patterns of it
        with mock.patch.object(joint_graph, "lazy_init"):
            return original(graph, input_device)

    with mock.patch.object(compile_fx, "joint_graph_passes", joint_graph_passes):
        yield


@contextlib.contextmanager
def _unnamed_lines() -> Iterator[None]:
    """Dynamo does not look for the functions that lines are in, unless its log says them.

    Missing upstream: the same. It reads whole files with a tokenizer in Python for it.
    """
    from torch._dynamo import output_graph, symbolic_convert

    logs = (
        output_graph.trace_call_log,
        symbolic_convert.trace_call_log,
        symbolic_convert.trace_source_log,
    )
    if any(log.isEnabledFor(logging.DEBUG) for log in logs):
        yield
        return
    with mock.patch.object(symbolic_convert, "get_funcname", return_value=None):
        yield


@contextlib.contextmanager
def _short_calls() -> Iterator[None]:
    """While a function is traced: what Dynamo compiles does not, at each call, tell a profiler of
    itself, nor look for the current stream if its graph has no use for one; and it calls the code
    of plain graphs, not the functions around it.

    Missing upstream: the same. CUDA's graphs hide it.
    """
    from torch._dynamo import config, graph_bytecode_inputs, output_graph

    from torch_spyre._inductor.plain_graphs import shortened

    original = output_graph.OutputGraph.compile_and_call_fx_graph

    def uses_objects(root: torch.nn.Module, graph: torch.fx.Graph) -> bool:
        if len(graph_bytecode_inputs.index_to_bytecode_constructor) > 1:
            return True  # not only the current stream, which is always there
        parts = [part for part in root.modules() if isinstance(part, torch.fx.GraphModule)]
        return any(
            node.target is graph_bytecode_inputs.get_external_object_by_index
            or getattr(node.target, "namespace", None) == "streams"
            for each in (graph, *(part.graph for part in parts))
            for node in each.nodes
        )

    def compile_and_call_fx_graph(self: Any, tx: Any, rv: Any, root: Any) -> Any:
        uses = uses_objects(root, self.graph)
        install = self.install_global_unsafe
        with (
            mock.patch.object(output_graph, "has_user_objects", return_value=uses),
            mock.patch.object(
                self, "install_global_unsafe", lambda name, value: install(name, shortened(value))
            ),
        ):
            return original(self, tx, rv, root)

    with (
        config.patch(record_runtime_overhead=False),
        mock.patch.object(
            output_graph.OutputGraph, "compile_and_call_fx_graph", compile_and_call_fx_graph
        ),
    ):
        yield


@contextlib.contextmanager
def plain_graphs() -> Iterator["PlainGraphs"]:
    """While a spyre graph is compiled: the graphs that are called for nothing but their results.

    Missing upstream: a word of AOTAutograd about what it does around a graph.
    """
    from torch._functorch._aot_autograd import runtime_wrappers

    from torch_spyre._inductor.plain_graphs import PlainGraphs

    original = runtime_wrappers._create_runtime_wrapper
    found = PlainGraphs()

    @functools.wraps(original)
    def _create_runtime_wrapper(compiled_fn: Any, **options: Any) -> Any:
        wrapper = original(compiled_fn, **options)
        found.consider(wrapper, compiled_fn, options)
        return wrapper

    with mock.patch.object(runtime_wrappers, "_create_runtime_wrapper", _create_runtime_wrapper):
        yield found
