"""``device_layout=`` of ``Tensor.to`` and ``torch.empty``, and ``Tensor.device_tensor_layout``."""

from typing import Any

import torch

from torch_spyre import _C
from torch_spyre.constants import DEVICE_NAME


def layout_keywords() -> None:
    """Calls without the keyword go their usual way. PyTorch refuses the keyword: calls with it come
    here, and torch function modes see them.

    Missing upstream: a keyword of tensor factories that a backend may define.
    """
    torch.Tensor.device_tensor_layout = device_tensor_layout  # type: ignore[attr-defined]
    _C._open_layout_doors(
        torch._C._VariableFunctions.empty,
        torch._C.TensorBase.to,
        empty,
        to,
    )


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


def _is_int(value: Any) -> bool:
    return isinstance(value, int | torch.SymInt)
