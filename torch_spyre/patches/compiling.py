"""How Inductor comes to graphs of the card."""

import functools
from typing import Any

from torch_spyre.constants import DEVICE_NAME


def expect_graphs() -> None:
    """Notice that Inductor compiles a graph of the card in a process that has not used the card
    yet. That happens if the compiled function makes its tensors there itself.

    Inductor asks for a device's backend after it has chosen decompositions, which is too late for
    ours. So the backend that it finds at first only has the function traced once more.
    """
    from torch._dynamo.exc import TensorifyScalarRestartAnalysis
    from torch._inductor.codegen import common

    from torch_spyre.patches import in_use

    class Restart(type):
        def __call__(cls, *_: Any) -> Any:
            in_use()
            # The only restart that a compiler may ask Dynamo for.
            raise TensorifyScalarRestartAnalysis(restart_reason="the card is in use now")

        supports_caching = property(__call__)

    backend: Any = Restart("Backend", (), {})  # what Inductor asks before it compiles
    if common.get_scheduling_for_device(DEVICE_NAME) is None:
        common.device_codegens[DEVICE_NAME] = common.DeviceCodegen(backend, backend)


def device_interface(interfaces: Any) -> None:
    """Not a patch: answers Dynamo's questions about the device."""
    from torch_spyre._inductor.device_interface import SpyreInterface

    interfaces.register_interface_for_device(DEVICE_NAME, SpyreInterface)


def entry_of_inductor(inductor: Any) -> None:
    """Graphs with spyre tensors are compiled by ``_inductor/compile.py``.

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
