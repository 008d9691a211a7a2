"""IBM Spyre as a PyTorch device, on a software card if there is no hardware.

PyTorch imports this package by itself (entry point ``torch.backends``); after
``import torch`` the device ``"spyre"`` and the module ``torch.spyre`` are there.
Nothing is started until a device is used.
"""

from torch_spyre.version import __version__

__all__ = [
    "__version__",
    "declare_tensor_dim",
    "explain",
    "get_op_hints",
    "name_tensor_dims",
    "profiler",
    "spyre_hint",
]

profiler = None  # no profiler bridge yet; the public package has the same answer

# What users call, and where it is; not imported before.
_ON_USE = {
    "declare_tensor_dim": "_inductor.propagate_named_dims",
    "name_tensor_dims": "_inductor.propagate_named_dims",
    "get_op_hints": "_inductor.hints",
    "spyre_hint": "_inductor.hints",
    "explain": "explanation",
}


def __getattr__(name: str) -> object:
    import importlib

    if name not in _ON_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ON_USE[name]}"), name)


def _autoload() -> None:
    """Register the device with PyTorch, once. Called at the end of ``import torch``."""
    import atexit

    import torch

    from torch_spyre.constants import DEVICE_NAME

    if hasattr(torch, DEVICE_NAME):
        return
    torch.utils.rename_privateuse1_backend(DEVICE_NAME)

    from torch_spyre import _C, device, logging_config, patches, public_names, shutdown
    from torch_spyre.backend import cache_artifact
    from torch_spyre.environment import KNOBS
    from torch_spyre.ops import experts as experts  # kernels of ops that others define
    from torch_spyre.ops import fallbacks as fallbacks  # tells Python about fallbacks

    torch._register_device_module(DEVICE_NAME, device)
    # The class methods must exist before torch.utils generates Tensor.spyre() and friends.
    torch.utils.generate_methods_for_privateuse1_backend(for_module=False)
    patches.apply()
    public_names.open_doors()
    cache_artifact.register()
    logging_config.initialize()
    atexit.register(shutdown.shut_down)
    if KNOBS["compile_worker"].read():
        _C._mark_bad_fork()  # a compile worker must not open the parent's card
