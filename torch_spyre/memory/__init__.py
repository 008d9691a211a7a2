"""Memory of the spyre device: PyTorch's accelerator API, plus what the card itself knows."""

from dataclasses import dataclass

from torch.accelerator.memory import (
    empty_cache,
    get_memory_info,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)

from torch_spyre import _C
from torch_spyre.streams import Device, device_index

__all__ = [
    "CardMemory",
    "card_memory",
    "empty_cache",
    "get_memory_info",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
]


@dataclass(frozen=True)
class CardMemory:
    """Device memory as the card sees it, in bytes."""

    capacity: int
    free: int
    largest_free_block: int
    allocations: int
    backed: int  #: host memory that a software card holds for it


def card_memory(device: Device = None) -> CardMemory:
    """State of a card's tensor memory. Starts the device."""
    return CardMemory(**_C._memory_info(device_index(device)))


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Free and total bytes of a device."""
    info = card_memory(device)
    return info.free, info.capacity
