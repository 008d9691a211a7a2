"""Copies of a tensor keep the names of its dimensions."""

import functools

import torch

from torch_spyre import _C


@functools.cache
def moves_keep_names() -> None:
    """``Tensor.to`` and ``Tensor.cpu`` give their result the names of the tensor's dimensions.
    Called when the first tensor gets names, so not at all in most programs.

    Missing upstream: attributes of a tensor that stay with its copies.
    """
    _C._keep_attribute(torch._C.TensorBase.cpu, "_spyre_dims")
