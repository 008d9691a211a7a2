"""What Dynamo wants to know about the device, and Inductor through it."""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.device_interface import DeviceInterface

from torch_spyre import device as spyre


class SpyreInterface(DeviceInterface):
    """The device as Dynamo sees it."""

    Event = spyre.Event
    Stream = spyre.Stream
    device = spyre.device

    class Worker:
        """Answers for compile workers, which have no device of their own."""

        @staticmethod
        def set_device(device: int) -> None:
            spyre.set_device(device)

        @staticmethod
        def current_device() -> int:
            return spyre.current_device()

        @staticmethod
        def get_device_properties(device: torch.types.Device = None) -> Any:
            return spyre.get_device_properties(device)

    current_device = staticmethod(spyre.current_device)
    set_device = staticmethod(spyre.set_device)
    device_count = staticmethod(spyre.device_count)
    is_available = staticmethod(spyre.is_available)
    current_stream = staticmethod(spyre.current_stream)
    set_stream = staticmethod(spyre.set_stream)
    synchronize = staticmethod(spyre.synchronize)
    get_device_properties = staticmethod(spyre.get_device_properties)

    @staticmethod
    def exchange_device(device: int) -> int:
        previous = spyre.current_device()
        spyre.set_device(device)
        return previous

    maybe_exchange_device = exchange_device

    @staticmethod
    def get_raw_stream(device_index: int) -> int:
        return spyre.current_stream(device_index).stream_id

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return True

    @staticmethod
    def get_compute_capability(device: torch.types.Device = None) -> str:
        return spyre.get_device_properties(device).type
