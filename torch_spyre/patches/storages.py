"""Bytes of storages in another order."""

import torch

from torch_spyre import _C


def storage_bytes() -> None:
    """Storages of the card refuse to swap their bytes.

    Missing upstream: a look at the device. It writes to the address, whatever that is.
    """
    _C._open_byteswap_door(torch._C.StorageBase._byteswap)  # type: ignore[attr-defined]
