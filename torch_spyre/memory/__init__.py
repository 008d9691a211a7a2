"""Memory of the spyre device, and pinned memory of the host.

PyTorch's accelerator API, what the card itself knows, and what ``torch.cuda`` has for the latter.
"""

from dataclasses import dataclass

from torch.accelerator import memory as accelerator_memory
from torch.accelerator.memory import *  # noqa: F403

from torch_spyre import _C
from torch_spyre.streams import Device, device_index

__all__ = [
    "CardMemory",
    "card_memory",
    "host_memory_stats",
    "mem_get_info",
    "reset_accumulated_host_memory_stats",
    "reset_peak_host_memory_stats",
]
__all__ += accelerator_memory.__all__


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


def host_memory_stats() -> dict[str, int]:
    """Pinned memory: numbers of blocks and bytes in use (``active_requests``, ``active_bytes``) and
    with those kept for reuse (``allocations``, ``allocated_bytes``), each with ``.current``,
    ``.peak``, ``.allocated`` and ``.freed``; microseconds that the system took
    (``host_alloc_time``, ``host_free_time``)."""
    return _C._host_memory_stats()


def reset_accumulated_host_memory_stats() -> None:
    """Begin to count pinned memory that is allocated and freed anew."""
    _C._reset_accumulated_host_memory_stats()


def reset_peak_host_memory_stats() -> None:
    """Begin to look for the most pinned memory anew."""
    _C._reset_peak_host_memory_stats()
