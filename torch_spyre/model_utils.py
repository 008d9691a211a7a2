"""Moving modules to the card and back: all of a module, or nothing."""

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from torch_spyre import _C
from torch_spyre.checkpoints import MappedFiles
from torch_spyre.constants import DEVICE_NAME


def on_spyre(model: torch.nn.Module) -> bool:
    """Whether any parameter or buffer of the module lies on a card."""
    return any(map(_on_card, (*model.parameters(), *model.buffers())))


def load_model_to_spyre(
    model: torch.nn.Module, dtype: torch.dtype | None = None
) -> torch.nn.Module:
    """Move a module to the current device in place, and return it: ``model.to("spyre", dtype)``."""
    return model.to(torch.device(DEVICE_NAME), dtype)


Convert = Callable[[torch.Tensor], torch.Tensor]
Apply = Callable[[torch.nn.Module, Convert, bool], torch.nn.Module]

_thread = threading.local()  # .converts: whether this thread is converting a module


def convert_module(
    apply: Apply, module: torch.nn.Module, fn: Convert, recurse: bool = True
) -> torch.nn.Module:
    """``apply(module, fn, recurse)``, where ``apply`` is PyTorch's ``Module._apply``. If tensors
    come from or go to a card, all are converted before any is exchanged.

    If it raises, the module is as it was. A tensor that a module has several times is converted
    once, and stays one tensor. On the card, weights of linear layers have the output features in
    the stick: that is the order in which the matrix unit reads them.
    """
    if getattr(_thread, "converts", False):  # a child of the module that is being converted
        return apply(module, fn, recurse)
    tensors = list(_tensors(module, recurse))
    move = _Move(module, fn)
    if not any(map(_on_card, tensors)):
        first = next(iter(tensors), None)  # it shows where all of them go
        if first is None or not _on_card(move(first)):
            return apply(module, lambda each: move(each) if each is first else fn(each), recurse)
    before = _State(module, recurse)
    try:
        for tensor in tensors:
            move(tensor)
        _thread.converts = True
        return apply(module, move, recurse)
    except BaseException:
        # The error refers to this frame: let it not keep the memory of what was converted.
        move.done.clear()
        before.restore()
        raise
    finally:
        _thread.converts = False


def _on_card(tensor: torch.Tensor) -> bool:
    return tensor.device.type == DEVICE_NAME


def _tensors(module: torch.nn.Module, recurse: bool) -> Iterator[torch.Tensor]:
    """The tensors of a module, in the order in which ``Module._apply`` converts them."""
    if recurse:
        for child in module.children():
            yield from _tensors(child, recurse)
    for parameter in module._parameters.values():
        if parameter is not None:
            yield parameter
            if parameter.grad is not None:
                yield parameter.grad
    yield from (buffer for buffer in module._buffers.values() if buffer is not None)


class _Move:
    """``fn``, called once for each tensor of a module."""

    def __init__(self, module: torch.nn.Module, fn: Convert) -> None:
        self.module = module
        self.fn = fn
        self.weights = {id(m.weight) for m in module.modules() if isinstance(m, torch.nn.Linear)}
        self.files = MappedFiles()
        # By identity. The source is kept, too: otherwise another tensor could get its id.
        self.done: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in self.done:
            self.done[id(tensor)] = tensor, self._converted(tensor)
        return self.done[id(tensor)][1]

    def _converted(self, tensor: torch.Tensor) -> torch.Tensor:
        convert = self._weight if id(tensor) in self.weights and not is_lazy(tensor) else self.fn
        try:
            with torch.no_grad():
                converted = convert(tensor)
        except TypeError as error:
            refused = re.search(r"Spyre backend does not support dtype (torch\.\w+)", str(error))
            if refused is None:
                raise
            raise ValueError(
                f"{self._name(tensor)}: dtype {refused[1]} has no Spyre device representation. "
                f"{error} Give a dtype: model.to('spyre', torch.float16)"
            ) from None
        if _on_card(converted) and not is_lazy(tensor):
            self.files.give_back_pages(tensor)
        return converted

    def _weight(self, tensor: torch.Tensor) -> torch.Tensor:
        """The weight of a linear layer, with output features in the stick."""
        if _on_card(tensor) and not _has_default_layout(tensor):
            return self.fn(tensor)  # somebody chose its layout
        before = _C._turn_weights(True)
        try:
            weight = self.fn(tensor)
        finally:
            _C._turn_weights(before)
        found = _C._find_layout(weight)
        if found is None or weight.dim() != 2:
            return weight
        size = list(weight.shape)
        layout = _C.SpyreTensorLayout(size, [size[1], 1], weight.dtype, [1, 0])
        if found == layout:
            return weight
        return _C.empty_with_layout(size, layout, weight.dtype, weight.device).copy_(weight)

    def _name(self, tensor: torch.Tensor) -> str:
        named = (*self.module.named_parameters(), *self.module.named_buffers())
        return next((name for name, each in named if each is tensor), "a gradient")


def _has_default_layout(tensor: torch.Tensor) -> bool:
    """Whether a tensor on the card has the layout of a new one, as loaded weights have."""
    return _C._find_layout(tensor) == _C.SpyreTensorLayout(list(tensor.shape), tensor.dtype)


class _State:
    """The tensors of a module, to put them back."""

    def __init__(self, module: torch.nn.Module, recurse: bool) -> None:
        modules = list(module.modules()) if recurse else [module]
        tables: list[dict[str, Any]] = [m._parameters for m in modules]
        tables += [m._buffers for m in modules]
        self.tables = [(table, dict(table)) for table in tables]
        self.data = [
            (parameter, parameter.data, parameter.grad, _data(parameter.grad))
            for parameter in module.parameters(recurse)
        ]

    def restore(self) -> None:
        for table, entries in self.tables:
            table.update(entries)
        for parameter, data, gradient, gradient_data in self.data:
            parameter.grad = None
            parameter.data = data
            if gradient is not None and gradient_data is not None:
                gradient.data = gradient_data
                parameter.grad = gradient


def _data(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.data
