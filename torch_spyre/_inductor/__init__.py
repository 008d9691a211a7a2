"""The front-end compiler: PyTorch's Inductor, with a backend for the spyre device.

Nothing here is imported before something is compiled: ``torch.spyre.Scheduling`` is the door.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch_spyre._inductor.hints import get_op_hints, spyre_hint

__all__ = ["compile_graph", "get_op_hints", "load", "spyre_hint"]

if TYPE_CHECKING:
    from torch.fx import GraphModule


@functools.cache
def load() -> None:
    """Register the backend with Dynamo and Inductor."""
    from torch._inductor.codegen.common import register_backend_for_device

    from torch_spyre import patches
    from torch_spyre._inductor import config, device_interface
    from torch_spyre._inductor.cache_key import SpyreCacheKey
    from torch_spyre._inductor.collector import uncollected
    from torch_spyre._inductor.scheduling import SuperDSCScheduling
    from torch_spyre._inductor.wrapper import SpyrePythonWrapperCodegen
    from torch_spyre.constants import DEVICE_NAME

    device_interface.register()
    register_backend_for_device(
        DEVICE_NAME,
        SuperDSCScheduling,
        SpyrePythonWrapperCodegen,
        device_custom_pass=SpyreCacheKey(),
        device_custom_config=config,  # type: ignore[arg-type]  # becomes a ConfigModule
    )
    patches.tensor_guards()
    patches.around_tracing(uncollected)
    patches.short_module_calls()


def compile_graph(
    model: GraphModule,
    inputs: list[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """``torch.compile(f, backend="spyre")``: what ``backend="inductor"`` does, by our name."""
    import torch

    load()
    return torch._TorchCompileInductorWrapper(mode, options, None)(model, inputs)
