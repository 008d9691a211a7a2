"""Tensors to index: views of small whole numbers, whose sums are exact in every dtype."""

import torch
from device_tensors import wide

VIEWS = {  # none of them is without elements
    "whole": lambda x: x,
    "transposed": lambda x: x.mT if x.dim() > 1 else x,
    "offset": lambda x: x[..., 1:] if x.shape[-1] > 1 else x,
    "rows": lambda x: x[1:] if x.shape[0] > 1 else x,
    "stepped": lambda x: x[..., ::3],
    "even": lambda x: x[..., ::2],
}


def random(shape, dtype, seed, low=-4, high=5):
    low = 0 if dtype in (torch.uint8, torch.bool) else low
    values = torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))
    return values.to(dtype)


def both(shape, dtype, view="whole", seed=0, low=-4, high=5):
    """A view on the card and the same view on the host."""
    values = random(shape, dtype, seed, low, high)
    return VIEWS[view](values.to("spyre")), VIEWS[view](wide(values))
