"""The front-end compiler: PyTorch's Inductor, with a backend for the spyre device.

Nothing here is imported before a graph with tensors of the card is compiled: ``compile.py`` is the
door, by which Inductor's ``compile_fx`` comes. ``config`` is read with it, or when somebody asks.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch_spyre._inductor.hints import get_op_hints, spyre_hint

__all__ = ["compile_graph", "config", "get_op_hints", "load", "spyre_hint"]

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from torch_spyre._inductor import config


def __getattr__(name: str) -> Any:
    if name == "config":
        return importlib.import_module(f"{__name__}.config")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@functools.cache
def load() -> None:
    """Register the backend with Inductor."""
    from torch._inductor.codegen.common import (
        register_backend_for_device,
        register_device_op_overrides,
    )

    from torch_spyre._inductor import config
    from torch_spyre._inductor.cache_key import SpyreCacheKey
    from torch_spyre._inductor.scheduling import SuperDSCScheduling
    from torch_spyre._inductor.wrapper import SpyreDeviceOpOverrides, SpyrePythonWrapperCodegen
    from torch_spyre.constants import DEVICE_NAME

    register_device_op_overrides(DEVICE_NAME, SpyreDeviceOpOverrides())
    register_backend_for_device(
        DEVICE_NAME,
        SuperDSCScheduling,
        SpyrePythonWrapperCodegen,
        device_custom_pass=SpyreCacheKey(),
        device_custom_config=config,  # type: ignore[arg-type]  # becomes a ConfigModule
    )


def compile_graph(
    model: GraphModule,
    inputs: list[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """``torch.compile(f, backend="spyre")``: what ``backend="inductor"`` does, by our name."""
    import torch

    from torch_spyre import patches

    patches.in_use()
    return torch._TorchCompileInductorWrapper(mode, options, None)(model, inputs)
