"""Every change this package makes to PyTorch's own objects. ``README.md`` here lists them.

There are three times for it.

* When PyTorch is imported (:func:`apply`), names are added, and some built-in functions learn to do
  more. Nothing is replaced: they stay the same objects, and a program that does not use the card
  cannot tell the difference (``csrc/module/python_doors.cpp`` says how).
* When a process begins to use the card (:func:`in_use`), functions are replaced, where PyTorch
  gives a device no other way. Each replacement hands on to the original what is not about the card.
* While a graph with tensors of the card is compiled, and only then: the context managers.
"""

import threading

import torch

from torch_spyre import _C, checkpoints
from torch_spyre.imports import when_imported
from torch_spyre.patches.calls import plain_graphs, short_module_calls
from torch_spyre.patches.compiling import device_interface, entry_of_inductor, expect_graphs
from torch_spyre.patches.custom_ops import custom_ops
from torch_spyre.patches.gradient_scaler import gradient_scaler
from torch_spyre.patches.guards import tensor_guards
from torch_spyre.patches.layouts import layout_keywords
from torch_spyre.patches.lowering import lowered_by
from torch_spyre.patches.modules import module_methods, module_moves
from torch_spyre.patches.names import moves_keep_names
from torch_spyre.patches.patterns import patterns_when_needed
from torch_spyre.patches.printing import tensor_printing
from torch_spyre.patches.scheduling import before_scheduling, loops_as_lowered
from torch_spyre.patches.storages import storage_bytes
from torch_spyre.patches.tracing import around_tracing

__all__ = [
    "apply",
    "before_scheduling",
    "expect_graphs",
    "in_use",
    "loops_as_lowered",
    "lowered_by",
    "moves_keep_names",
    "patterns_when_needed",
    "plain_graphs",
]

_lock = threading.Lock()
_used = False


def apply() -> None:
    """What every program gets that imports PyTorch with this package installed."""
    layout_keywords()
    module_methods(in_use)
    custom_ops()
    _C._on_first_use(in_use)
    when_imported("safetensors", checkpoints.open_for_cards)
    torch.Tensor._spyre_tensor_patched = True  # type: ignore[attr-defined]


def in_use() -> None:
    """What a program gets when it begins to use the card: just before it makes its first tensor
    there, or moves its first module there."""
    global _used
    with _lock:
        if _used:
            return
        storage_bytes()
        tensor_printing()
        module_moves()
        gradient_scaler()
        _used = True
    when_imported("torch._dynamo.device_interface", device_interface)
    when_imported("torch._dynamo.guards", tensor_guards)
    when_imported("torch._dynamo.convert_frame", around_tracing)
    when_imported("torch._dynamo.eval_frame", short_module_calls)
    when_imported("torch._inductor.compile_fx", entry_of_inductor)
