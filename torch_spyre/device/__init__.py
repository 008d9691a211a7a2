"""``torch.spyre``: devices, streams, random numbers and memory, as ``torch.cuda`` has them.

Nothing here starts the runtime except what needs a card: allocating, copying, using a stream,
asking a card for its properties.
"""

import logging
import sys
from dataclasses import dataclass
from typing import Any

import torch

from torch_spyre import _C as native
from torch_spyre import memory, random, streams
from torch_spyre.memory import *  # noqa: F403
from torch_spyre.random import *  # noqa: F403
from torch_spyre.streams import *  # noqa: F403
from torch_spyre.streams import Device, _sleep, device_index, set_stream

__all__ = [
    "Counters",
    "SpyreDeviceProperties",
    "_sleep",
    "counters",
    "current_device",
    "device",
    "device_count",
    "get_amp_supported_dtype",
    "get_device_name",
    "get_device_properties",
    "init",
    "is_available",
    "is_initialized",
    "memory",
    "random",
    "reset",
    "set_device",
    "set_stream",
    "streams",
]
__all__ += memory.__all__
__all__ += random.__all__
__all__ += streams.__all__

log = logging.getLogger("spyre.device")


@dataclass(frozen=True)
class SpyreDeviceProperties:
    """What a card is. ``multi_processor_count`` is the number of its cores."""

    type: str
    index: int
    multi_processor_count: int
    name: str
    total_memory: int
    lx_bytes_per_core: int


@dataclass(frozen=True)
class Counters:
    """What a card has done since it was opened or reset. Bytes count device formats.

    ``docs/cost-model.md`` says how launched programs are counted.
    """

    transfers_to_card: int
    bytes_to_card: int
    transfers_to_host: int
    bytes_to_host: int
    programs_loaded: int
    program_bytes: int  #: sent to the card, each program before its first launch
    launches: int
    device_bytes_read: int
    device_bytes_written: int
    lx_bytes: int  #: read and written in the cores' scratchpads
    ring_bytes: int  #: sent from core to core
    macs: int  #: products of the PT
    sfp_elements: int
    memory_ns: int  #: time of launches in which they waited for device memory
    compute_ns: int
    lx_ns: int
    ring_ns: int
    overhead_ns: int
    modelled_ns: int  #: time all of it would have taken on a real card


def is_available() -> bool:
    """Whether there is at least one device. Starts nothing, never raises."""
    return native._is_available()


def is_initialized() -> bool:
    """Whether the runtime has started in this process."""
    return native._is_initialized()


def init() -> None:
    """Start the runtime now instead of at the first use of a device."""
    native.start_runtime()
    log.info("the runtime runs, with %d devices", native.device_count())


_lazy_init = init


def device_count() -> int:
    """Number of devices this process sees. Raises if the environment makes no sense."""
    return native.device_count()


def current_device() -> int:
    """Index of this thread's current device."""
    return native.current_device()


def set_device(device: Device) -> None:
    """Make a device the current one of this thread."""
    native.set_device(device_index(device))
    log.debug("the current device is %d", native.current_device())


class device:
    """``with torch.spyre.device(1):`` makes a device current inside the block."""

    def __init__(self, device: Device) -> None:
        self.index = device_index(device)

    def __enter__(self) -> "device":
        self.previous = native.current_device()
        native.set_device(self.index)
        return self

    def __exit__(self, *_: object) -> None:
        native.set_device(self.previous)


def get_device_properties(device: Device = None) -> SpyreDeviceProperties:
    """Name, memory and cores of a device. Starts it."""
    index = device_index(device)
    return SpyreDeviceProperties(index=index, **native._properties(index))


def get_device_name(device: Device = None) -> str:
    """Name of a device. Starts it."""
    return get_device_properties(device).name


def counters(device: Device = None) -> Counters:
    """What a device has done so far."""
    return Counters(**native._counters(device_index(device)))


def reset(device: Device = None) -> None:
    """Wait for a device, forget errors of its past work, set counters and modelled clock to zero.

    Tensors stay as they are.
    """
    native._reset_card(device_index(device))


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Dtypes autocast may choose."""
    return [torch.float16, torch.bfloat16]


def _is_in_bad_fork() -> bool:
    return native._is_in_bad_fork()


def _is_compiled() -> bool:
    return True


# Hooks of the public module that nothing answers, and those by which Inductor asks a device's
# module for its backend. Ours is registered when a graph has to do with it.
GraphLowering = Lowering = Codegen = Compile = None
PythonWrapperCodegen = CppWrapperCodegen = WrapperFxCodegen = None

_impl = sys.modules[__name__]  # code for the public package calls torch.spyre._impl._lazy_init()


def __getattr__(name: str) -> Any:
    if name == "Scheduling":  # Inductor asks before it compiles its first graph, whatever that is
        from torch_spyre import patches

        patches.expect_graphs()
        return None
    # torch.spyre.SpyreTensorLayout and all other native names.
    if not name.startswith("__") and hasattr(native, name):
        return getattr(native, name)
    raise AttributeError(f"module 'torch.spyre' has no attribute {name!r}")
