"""Moving modules."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from torch_spyre import _C
from torch_spyre.constants import DEVICE_NAME
from torch_spyre.model_utils import convert_module
from torch_spyre.streams import resolve_device


def module_methods(in_use: Callable[[], None]) -> None:
    """Adds ``Module.spyre``. And ``Module.to`` tells us, when it has read its arguments, that the
    module is to go to the card.

    Missing upstream: that a device is told before the first module goes there.
    """

    def spyre(self: torch.nn.Module, device: Any = None) -> torch.nn.Module:
        """Move the module to a spyre device, the current one if none is given."""
        return self.to(resolve_device(device) or torch.device(DEVICE_NAME))

    torch.nn.Module.spyre = spyre  # type: ignore[attr-defined]
    _C._open_module_door(torch._C._nn._parse_to, in_use)


def module_moves() -> None:
    """``Module.to`` and the like move all of a module or nothing, if it comes from or goes to the
    card.

    Missing upstream: moves that are undone. PyTorch moves one tensor after the other. If memory
    runs out, the tensors that have been moved stay where they are.
    """
    original = torch.nn.Module._apply

    @functools.wraps(original)
    def _apply(self: torch.nn.Module, fn: Any, recurse: bool = True) -> torch.nn.Module:
        return convert_module(original, self, fn, recurse)

    torch.nn.Module._apply = _apply  # type: ignore[method-assign]
