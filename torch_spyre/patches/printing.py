"""Printing tensors."""

import functools

import torch

from torch_spyre.constants import DEVICE_NAME


def tensor_printing() -> None:
    """Format a spyre tensor from one copy on the CPU.

    Missing upstream: ``_tensor_str`` has a fixed list of device types whose tensors it copies to
    the CPU first. Without a copy, printing runs dozens of small ops on the device.
    """
    import torch._tensor_str as printing

    original = printing._tensor_str

    @functools.wraps(original)
    def _tensor_str(self: torch.Tensor, indent: int) -> str:
        return original(self.cpu() if self.device.type == DEVICE_NAME else self, indent)

    printing._tensor_str = _tensor_str
