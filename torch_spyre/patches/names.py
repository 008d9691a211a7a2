"""The names that a tensor's dimensions have, on its copies."""

import functools

import torch

from torch_spyre import _C


@functools.cache
def moves_keep_names() -> None:
    """``Tensor.to`` and ``Tensor.cpu`` give the result the names that a tensor's dimensions have.
    Called with the first name, and so not at all in most programs.

    Missing upstream: attributes of a tensor that stay with its copies.
    """
    _C._keep_attribute(torch._C.TensorBase.cpu, "_spyre_dims")
