"""Every change this package makes to PyTorch's own objects, with the hook that would replace it.

Each patch acts on spyre tensors only and hands everything else to the original.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torch_spyre import _C, checkpoints
from torch_spyre.constants import DEVICE_NAME
from torch_spyre.imports import when_imported
from torch_spyre.model_utils import convert_module, move_module, on_spyre
from torch_spyre.streams import resolve_device


def apply() -> None:
    """Install all patches, once."""
    if getattr(torch.Tensor, "_spyre_tensor_patched", False):
        return
    _tensor_layouts()
    _tensor_printing()
    _storage_bytes()
    _module_moves()
    _gradient_scaler()
    _compile()
    _custom_ops()
    when_imported("torch._inductor.compile_fx", _compile_fx)
    when_imported("torch._inductor.fx_passes.joint_graph", _patterns)
    when_imported("safetensors", checkpoints.open_for_cards)
    torch.Tensor._spyre_tensor_patched = True  # type: ignore[attr-defined]


def _tensor_layouts() -> None:
    """``device_layout=`` of ``Tensor.to`` and ``torch.empty``, ``Tensor.device_tensor_layout``.

    Missing upstream: a keyword of tensor factories that a backend may define.
    """

    def device_tensor_layout(self: torch.Tensor) -> "_C.SpyreTensorLayout | None":
        """The layout of a spyre tensor in device memory; None for other tensors."""
        if self.device.type != DEVICE_NAME or _is_fake(self):
            return None
        return _C.get_spyre_tensor_layout(self)

    torch.Tensor.device_tensor_layout = device_tensor_layout  # type: ignore[attr-defined]

    original_to = torch.Tensor.to

    @functools.wraps(original_to)
    def to(
        self: torch.Tensor, *args: Any, device_layout: Any = None, **kwargs: Any
    ) -> torch.Tensor:
        if device_layout is None:
            return original_to(self, *args, **kwargs)
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
        if same and not copy and _C.get_spyre_tensor_layout(self) == device_layout:
            return self
        target = _C.empty_with_layout(list(self.shape), device_layout, dtype, device)
        return target.copy_(self, non_blocking=non_blocking)

    torch.Tensor.to = to  # type: ignore[method-assign,assignment]
    # Parameters without a shape yet allow methods by identity.
    from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

    UninitializedTensorMixin._allowed_methods.append(to)

    # `with torch.device(...)` recognises factories by identity and remembers them on first use.
    from torch.utils._device import _device_constructors

    _device_constructors()
    original_empty = torch.empty

    @functools.wraps(original_empty)
    def empty(*size: Any, device_layout: Any = None, **kwargs: Any) -> torch.Tensor:
        if device_layout is None:
            return original_empty(*size, **kwargs)
        shape = kwargs.pop("size", size[0] if len(size) == 1 and not _is_int(size[0]) else size)
        default = torch.get_default_device()
        fallback = default if default.type == DEVICE_NAME else DEVICE_NAME
        device = torch.device(kwargs.pop("device", None) or fallback)
        dtype = kwargs.pop("dtype", None) or torch.get_default_dtype()
        requires_grad = kwargs.pop("requires_grad", False)
        pin_memory = kwargs.pop("pin_memory", False)
        if kwargs:
            raise TypeError(f"empty(): {', '.join(kwargs)} cannot be combined with device_layout")
        tensor = _C.empty_with_layout(list(shape), device_layout, dtype, device, pin_memory)
        return tensor.requires_grad_(requires_grad)

    torch.empty = empty


def _is_int(value: Any) -> bool:
    return isinstance(value, int | torch.SymInt)


def _is_fake(tensor: torch.Tensor) -> bool:
    return type(tensor) is not torch.Tensor and hasattr(tensor, "fake_mode")


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


def _storage_bytes() -> None:
    """``UntypedStorage.byteswap`` refuses device memory.

    Missing upstream: the check; PyTorch dereferences the data pointer, whatever the device.
    """
    original = torch.UntypedStorage.byteswap

    @functools.wraps(original)
    def byteswap(self: torch.UntypedStorage, dtype: torch.dtype) -> None:
        if self.device.type == DEVICE_NAME:
            raise RuntimeError("byteswap() works on host memory: use storage.cpu() first")
        original(self, dtype)

    torch.UntypedStorage.byteswap = byteswap  # type: ignore[method-assign,assignment]


def _module_moves() -> None:
    """``Module.to``, ``.spyre``, ``.cpu`` and ``.to_empty`` keep Parameter objects, and so ties.

    Missing upstream: CPU and PrivateUse1 tensors as compatible types for ``param.data = moved``.
    """
    module = torch.nn.Module
    original_to, original_cpu, original_to_empty = module.to, module.cpu, module.to_empty

    @functools.wraps(original_to)
    def to(self: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
        device, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **kwargs)
        to_spyre = device is not None and device.type == DEVICE_NAME
        if memory_format is not None or not (to_spyre or on_spyre(self)):
            return original_to(self, *args, **kwargs)
        return move_module(self, device, dtype, non_blocking)

    def spyre(self: torch.nn.Module, device: Any = None) -> torch.nn.Module:
        """Move the module to a spyre device, the current one if none is given."""
        return move_module(self, resolve_device(device) or torch.device(DEVICE_NAME))

    @functools.wraps(original_cpu)
    def cpu(self: torch.nn.Module) -> torch.nn.Module:
        return move_module(self, torch.device("cpu")) if on_spyre(self) else original_cpu(self)

    @functools.wraps(original_to_empty)
    def to_empty(self: torch.nn.Module, *, device: Any, recurse: bool = True) -> torch.nn.Module:
        if torch.device(device or "cpu").type != DEVICE_NAME and not on_spyre(self):
            return original_to_empty(self, device=device, recurse=recurse)
        return convert_module(self, lambda t: torch.empty_like(t, device=device), recurse)

    module.to = to  # type: ignore[method-assign,assignment]
    module.spyre = spyre  # type: ignore[attr-defined]
    module.cpu = cpu  # type: ignore[method-assign,assignment]
    module.to_empty = to_empty  # type: ignore[method-assign,assignment]


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


def _compile() -> None:
    """``torch.compile`` loads our backend of Inductor before Dynamo sees the first graph.

    Missing upstream: a hook of a device that runs before something is compiled.
    """
    original = torch.compile

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        from torch_spyre import _inductor

        _inductor.load()
        return original(*args, **kwargs)

    torch.compile = compile


def _compile_fx(inductor: Any) -> None:
    """Inductor's entry point: graphs with spyre tensors are compiled by ``_inductor/compile.py``.

    Missing upstream: a hook of a device around ``compile_fx``. Inductor asks the device's module
    for its backend (``torch.spyre.Scheduling``) only after it has chosen decompositions.
    """
    original = inductor.compile_fx

    @functools.wraps(original)
    def compile_fx(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        from torch_spyre import _inductor
        from torch_spyre._inductor.compile import compile_fx as ours

        _inductor.load()  # who did not come by torch.compile
        names = ("inner_compile", "config_patches", "decompositions", "ignore_shape_env")
        return ours(original, model, inputs, **dict(zip(names, args, strict=False)), **kwargs)

    inductor.compile_fx = compile_fx


def _patterns(joint_graph: Any) -> None:
    """Inductor's patterns of attention and products for spyre graphs are those made on the CPU.

    Patterns have no device; to make them, Inductor fills scalars on the device of the first graph,
    some dozen programs that are not the user's. Missing upstream: fake scalars.
    """
    original = joint_graph.lazy_init

    @functools.wraps(original)
    def lazy_init(input_device: torch.device | None = None) -> Any:
        ours = input_device is not None and input_device.type == DEVICE_NAME
        return original(torch.device("cpu") if ours else input_device)

    joint_graph.lazy_init = lazy_init


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

    GraphLowering._update_scheduler = _update_scheduler  # type: ignore[method-assign]
    try:
        yield
    finally:
        GraphLowering._update_scheduler = original  # type: ignore[method-assign]


@contextlib.contextmanager
def loops_as_lowered() -> Iterator[None]:
    """While a spyre graph is compiled: Inductor leaves the loops of the card's buffers as they are.

    Missing upstream: a device's word in the order of loops and of dimensions in memory. Planning
    decides both itself, from what lowering left, and to no use Inductor would trace every loop
    twice more.
    """
    from unittest import mock

    from torch._inductor.ir import ComputedBuffer

    fill_order, reorder = ComputedBuffer.get_fill_order, ComputedBuffer.simplify_and_reorder

    def on_card(buffer: ComputedBuffer) -> bool:
        return buffer.get_device_or_error().type == DEVICE_NAME

    @functools.wraps(fill_order)
    def get_fill_order(self: ComputedBuffer) -> Any:
        return None if on_card(self) else fill_order(self)

    @functools.wraps(reorder)
    def simplify_and_reorder(self: ComputedBuffer, *args: Any, **kwargs: Any) -> Any:
        if not on_card(self):
            return reorder(self, *args, **kwargs)
        sizes, body, _ = self.get_default_sizes_body()
        return sizes, body

    with (
        mock.patch.object(ComputedBuffer, "get_fill_order", get_fill_order),
        mock.patch.object(ComputedBuffer, "simplify_and_reorder", simplify_and_reorder),
    ):
        yield


def tensor_guards() -> None:
    """Dynamo's guards of tensors compare device layouts and names of dimensions: with others it is
    another graph.

    Missing upstream: a way for a device to add to ``TENSOR_MATCH``. Called by ``_inductor.load()``.
    """
    from torch._dynamo.guards import (
        GuardBuilder,
        convert_to_concrete_values,
        get_verbose_code_parts,
        match_on_id_for_tensor,
    )

    from torch_spyre._inductor.hints import hints_were_given
    from torch_spyre._inductor.propagate_named_dims import dims_of_tensor

    original = GuardBuilder.TENSOR_MATCH

    @functools.wraps(original)
    def TENSOR_MATCH(self: Any, guard: Any, value: Any = None) -> None:
        original(self, guard, value)
        graph = self.check_fn_manager.output_graph
        if graph.export or match_on_id_for_tensor(guard):
            return
        seen = self.get(guard)
        layout, dims = seen.device_tensor_layout(), dims_of_tensor(seen)
        sizes = convert_to_concrete_values(
            graph.input_source_to_sizes_strides[guard.originating_source]["size"]
        )
        if layout is None or None in sizes:  # where sizes vary, layouts do
            return

        lies_so = _C._layout_guard(layout)

        def lies_so_and_is_named_so(tensor: torch.Tensor) -> bool:
            return lies_so(tensor) and dims_of_tensor(tensor) == dims

        code = f"{self.arg_ref(guard)}.device_tensor_layout() == {layout!r}"
        check = lies_so
        if dims is not None or hints_were_given():  # others do not look at names
            code += f", and its dimensions are called {dims}"
            check = lies_so_and_is_named_so
        self.get_guard_manager(guard).add_lambda_guard(
            check, get_verbose_code_parts(code, guard), guard.user_stack
        )

    GuardBuilder.TENSOR_MATCH = TENSOR_MATCH  # type: ignore[method-assign]
