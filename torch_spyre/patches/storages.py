"""Swapping the bytes of storages."""

import torch

from torch_spyre import _C


def storage_bytes() -> None:
    """Storages of the card refuse to swap their bytes.

    Missing upstream: PyTorch does not look at the device. It writes to the address, whatever it is.
    """
    _C._open_byteswap_door(torch._C.StorageBase._byteswap)  # type: ignore[attr-defined]
