"""What tests of streams, events and the modelled clock share."""

import torch

NAP = 0.4  # seconds a stream is kept busy


def timed() -> torch.Event:
    return torch.spyre.Event(enable_timing=True)
