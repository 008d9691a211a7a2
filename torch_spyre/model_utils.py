"""Moving modules to the card and back."""

from collections.abc import Callable

import torch
from torch.nn.parameter import UninitializedTensorMixin, is_lazy  # type: ignore[attr-defined]

from torch_spyre import _C
from torch_spyre.checkpoints import MappedFiles
from torch_spyre.constants import DEVICE_NAME


def on_spyre(model: torch.nn.Module) -> bool:
    """Whether any parameter or buffer of the module lies on a card."""
    tensors = (*model.parameters(), *model.buffers())
    return any(tensor.device.type == DEVICE_NAME for tensor in tensors)


def load_model_to_spyre(
    model: torch.nn.Module, dtype: torch.dtype | None = None
) -> torch.nn.Module:
    """Move a module to the current device in place, and return it: ``model.to("spyre", dtype)``."""
    return move_module(model, torch.device(DEVICE_NAME), dtype)


def move_module(
    model: torch.nn.Module,
    device: torch.device | None,
    dtype: torch.dtype | None = None,
    non_blocking: bool = False,
) -> torch.nn.Module:
    """``model.to(device, dtype)`` where the module is on a card or goes to one.

    Floating-point tensors become ``dtype`` if one is given. Weights of linear layers are laid out
    on the card with the output features in the stick, the order in which the matrix unit reads
    them. Nothing has moved if it raises.
    """
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        raise TypeError(
            "nn.Module.to only accepts floating point or complex dtypes, "
            f"but got desired dtype={dtype}"
        )
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, tensor in tensors.items():
        target = _target(tensor, device, dtype)
        if tensor.is_meta and target[0].type != "meta":
            raise NotImplementedError(
                f"{name}: Cannot copy out of meta tensor; no data! Please use "
                "torch.nn.Module.to_empty() instead of torch.nn.Module.to() when moving module "
                "from meta to a different device."
            )
        if target[0].type == DEVICE_NAME:
            try:
                _C.get_device_dtype(target[1])
            except TypeError as error:
                raise ValueError(
                    f"{name}: dtype {target[1]} has no Spyre device representation. {error}"
                    " Give a dtype: model.to('spyre', torch.float16)"
                ) from None

    files = MappedFiles()
    weights = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Linear)}

    def move(tensor: torch.Tensor) -> torch.Tensor:
        moved = copied(tensor)
        if moved.device.type == DEVICE_NAME and not non_blocking and not is_lazy(tensor):
            files.give_back_pages(tensor)
        return moved

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        where, what = _target(tensor, device, dtype)
        if id(tensor) not in weights or where.type != DEVICE_NAME or is_lazy(tensor):
            return tensor.to(where, what, non_blocking=non_blocking)
        size = list(tensor.shape)
        layout = _C.SpyreTensorLayout(size, [size[1], 1], what, [1, 0])
        if tensor.device.type == DEVICE_NAME and not _lies_as_created(tensor):
            return tensor.to(where, what, non_blocking=non_blocking)  # somebody chose its layout
        weight = _C.empty_with_layout(size, layout, what, where)
        return weight.copy_(tensor, non_blocking=non_blocking)

    return convert_module(model, move)


def _lies_as_created(tensor: torch.Tensor) -> bool:
    """Whether a tensor on the card has the layout of a new one, as loaded weights do."""
    return _C.get_spyre_tensor_layout(tensor) == _C.SpyreTensorLayout(
        list(tensor.shape), tensor.dtype
    )


def _target(
    tensor: torch.Tensor, device: torch.device | None, dtype: torch.dtype | None
) -> tuple[torch.device, torch.dtype]:
    converts = dtype is not None and (tensor.is_floating_point() or tensor.is_complex())
    return device or tensor.device, dtype if converts and dtype is not None else tensor.dtype


def convert_module(
    model: torch.nn.Module,
    convert: Callable[[torch.Tensor], torch.Tensor],
    recurse: bool = True,
) -> torch.nn.Module:
    """Apply ``convert`` to parameters and buffers, keeping Parameter objects.

    A CPU and a spyre tensor have different implementations, so ``param.data = moved`` cannot work,
    and PyTorch would make new Parameters, one for each place that holds a tied weight. Exchanging
    what is inside them keeps ties, optimizers, hooks and attributes valid.
    """
    converted: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def once(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in converted:
            # The source is kept too: its id must not be taken by another tensor meanwhile.
            converted[id(tensor)] = (tensor, convert(tensor))
        return converted[id(tensor)][1]

    kept = [
        (p, type(p), dict(p.__dict__), p._backward_hooks, p._post_accumulate_grad_hooks)
        for p in model.parameters(recurse)
    ]
    seen: set[int] = set()

    def swap(tensor: torch.Tensor) -> torch.Tensor:
        # Parameters are exchanged in place: met again, they are converted already.
        if isinstance(tensor, torch.nn.Parameter):
            if id(tensor) in seen:
                return tensor
            seen.add(id(tensor))
            return convert(tensor)
        return once(tensor)

    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model._apply(swap, recurse=recurse)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
        for parameter, kind, attributes, hooks, post_hooks in kept:
            if issubclass(kind, UninitializedTensorMixin):
                parameter.__class__ = kind
            parameter.__dict__.update(attributes)
            if hooks is not None:
                parameter._backward_hooks = hooks
            if post_hooks is not None:
                parameter._post_accumulate_grad_hooks = post_hooks
    return model
