"""Scaled gradients."""

import functools

import torch

from torch_spyre.constants import DEVICE_NAME


def gradient_scaler() -> None:
    """``GradScaler.unscale_`` inverts the scale in float32, which is exactly rounded on the card.

    Missing upstream: a way for a backend to say that it has no float64. It compares with "mps:0".
    """

    class Single(torch.Tensor):
        def double(self) -> torch.Tensor:
            return self.as_subclass(torch.Tensor)

    scaler = torch.amp.GradScaler
    original = scaler.unscale_

    @functools.wraps(original)
    def unscale_(self: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> None:
        scale = self._scale
        if scale is None or scale.device.type != DEVICE_NAME:
            return original(self, optimizer)
        self._scale = scale.as_subclass(Single)
        try:
            original(self, optimizer)
        finally:
            self._scale = scale

    scaler.unscale_ = unscale_  # type: ignore[method-assign]
