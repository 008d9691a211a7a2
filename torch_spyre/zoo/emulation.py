"""What DLFloat16 does to a model, on the CPU: every 16-bit result of an op is rounded to it.

A float16 model on the card keeps its 16-bit tensors as DLFloat16 (9 bits of fraction, where float16
has 10) and rounds each op's result once. This mode does the same to a float16 model on the CPU: the
error that it shows is the error of the number format, and no kernel of the card takes part.
"""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from torch_spyre._C import DataFormats, _convert

_SHORT = (torch.float16, torch.bfloat16)


def rounded(tensor: torch.Tensor) -> torch.Tensor:
    """The nearest DLFloat16 numbers, as float32."""
    wide = tensor.detach().float().contiguous()
    codes = _convert(wide.numpy().tobytes(), DataFormats.IEEE_FP32, DataFormats.SEN169_FP16)
    data = bytearray(_convert(codes, DataFormats.SEN169_FP16, DataFormats.IEEE_FP32))
    if not data:
        return wide
    return torch.frombuffer(data, dtype=torch.float32).view(wide.shape)


class DLFloat16Emulation(TorchDispatchMode):
    """``with DLFloat16Emulation(): model(**inputs)``, a float16 model on the CPU.

    An op runs twice: as it is, which says what is 16 bits wide in its result, and in float32, whose
    result is rounded. To round what float16 has rounded already would double the error.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        wide = (
            None if func.is_view or func._schema.is_mutable else func(*_wide(args), **_wide(kwargs))
        )
        result = func(*args, **kwargs)
        if not func.is_view:
            exact = result if wide is None else wide
            for ours, value in zip(tree_leaves(result), tree_leaves(exact), strict=True):
                if isinstance(ours, torch.Tensor) and ours.dtype in _SHORT:
                    ours.copy_(rounded(value))
        return result


def _wide(tree: Any) -> Any:
    """Tensors and dtypes of 16 bits as float32."""

    def wide(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype in _SHORT:
            return value.float()
        is_short = isinstance(value, torch.dtype) and value in _SHORT
        return torch.float32 if is_short else value

    return tree_map(wide, tree)


def round_weights(model: torch.nn.Module) -> torch.nn.Module:
    """Make the 16-bit weights of a module the numbers that the card would hold."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.dtype in _SHORT:
                tensor.copy_(rounded(tensor))
    return model
