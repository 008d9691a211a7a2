"""Moving modules to the card."""

import contextlib
from collections.abc import Iterator

import torch

from torch_spyre import _C
from torch_spyre.constants import DEVICE_NAME


@contextlib.contextmanager
def swapped_parameters() -> Iterator[None]:
    """Let ``nn.Module`` conversions exchange the tensors inside Parameter objects.

    A CPU and a spyre tensor have different implementations, so ``param.data = moved`` cannot work,
    and PyTorch would make new Parameters, one for each place that holds a tied weight. Exchanging
    keeps the objects: ties, optimizers and hooks stay valid.
    """
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def check_dtype(dtype: torch.dtype | None) -> None:
    """Refuse dtypes the card has no format for, before anything has moved."""
    if dtype is None:
        return
    try:
        _C.get_device_dtype(dtype)
    except TypeError as error:
        raise ValueError(f"dtype {dtype} has no Spyre device representation. {error}") from None


def load_model_to_spyre(
    model: torch.nn.Module,
    dtype: torch.dtype | None = None,
    device: torch.device | str = DEVICE_NAME,
    non_blocking: bool = False,
) -> torch.nn.Module:
    """Move a module to the card in place, and return it.

    Tied parameters and buffers stay tied. Floating-point tensors become ``dtype`` if one is given.
    Weights of linear layers are laid out with the output features in the stick, the order in which
    the matrix unit reads them.
    """
    check_dtype(dtype)
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        kept = dtype is None or not tensor.is_floating_point()
        if kept and tensor.device.type != DEVICE_NAME:
            try:
                check_dtype(tensor.dtype)
            except ValueError as error:
                raise ValueError(
                    f"{name}: {error} Give a dtype: model.to('spyre', dtype)"
                ) from None

    linear_weights = {
        id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Linear)
    }
    moved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def move(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in moved:
            target = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
            # The source is kept too: its id must not be taken by another tensor meanwhile.
            moved[id(tensor)] = (tensor, _move(tensor, target, id(tensor) in linear_weights))
        return moved[id(tensor)][1]

    def _move(tensor: torch.Tensor, target: torch.dtype, is_weight: bool) -> torch.Tensor:
        if not is_weight or tensor.device.type == DEVICE_NAME or tensor.is_meta:
            return tensor.to(device, target, non_blocking=non_blocking)
        layout = _C.SpyreTensorLayout(list(tensor.shape), _packed(tensor.shape), target, [1, 0])
        weight = _C.empty_with_layout(list(tensor.shape), layout, target, torch.device(device))
        return weight.copy_(tensor, non_blocking=non_blocking)

    with swapped_parameters():
        return model._apply(move)


def _packed(shape: torch.Size) -> list[int]:
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * max(shape[i + 1], 1)
    return strides
