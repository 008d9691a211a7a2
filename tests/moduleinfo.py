"""PyTorch's database of modules, and how each of its modules is run on the card."""

import copy
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from proof import Tolerance, Verdict, convert, judge, seed_all, tensors
from torch.testing._internal.common_modules import ModuleInfo, ModuleInput, module_db

SAMPLES = 6  # of each module, dtype and mode
# Sums over several ops in another order than the CPU's.
TOLERANCE = Tolerance(relative=2e-5, absolute=2e-5, together=True)

MODULES = {info.name: info for info in module_db}


def run(info: ModuleInfo, dtype: torch.dtype, verdict: Verdict) -> None:
    """Forward and backward of all samples, in training and evaluation; raises what is wrong."""
    for training in (True, False) if info.train_and_eval_differ else (True,):
        for sample in _samples(info, dtype, training):
            args, kwargs = sample.forward_input.args, sample.forward_input.kwargs
            if not all(t.layout == torch.strided for t in tensors([args, kwargs])):
                continue
            seed_all(1)  # weights by which no ReLU's input is near 0: there gradients jump
            module = _build(info, sample, dtype, training)
            if any(isinstance(p, torch.nn.UninitializedParameter) for p in module.parameters()):
                module(*convert((args, kwargs), _detached)[0], **kwargs)  # a lazy one takes shape
            state = dict(module.state_dict())
            differentiable = [t.requires_grad for t in tensors([args, kwargs])]
            call = _forward_and_backward(module, differentiable)
            arguments = ((torch.device("cpu"), dtype, state, args, kwargs), {})
            judge(call, arguments, verdict, TOLERANCE, half_on_cpu=False)


def _samples(info: ModuleInfo, dtype: torch.dtype, training: bool) -> Iterator[ModuleInput]:
    def first() -> list[ModuleInput]:
        seed_all(0)
        made = info.module_inputs_func(
            info, device="cpu", dtype=dtype, requires_grad=True, training=training
        )
        return list(itertools.islice(made, SAMPLES))

    # The database notes the call stack for every sample: in a thread there is little of it.
    with ThreadPoolExecutor(1) as thread:
        yield from thread.submit(first).result()


def _build(
    info: ModuleInfo, sample: ModuleInput, dtype: torch.dtype, training: bool
) -> torch.nn.Module:
    made = sample.constructor_input
    return info.module_cls(*made.args, **made.kwargs).to(dtype).train(training)


def _forward_and_backward(
    template: torch.nn.Module, differentiable: list[bool]
) -> Callable[..., Any]:
    """A function of everything the module computes with, which returns everything it computes."""

    def call(
        device: torch.device, dtype: torch.dtype, state: dict[str, Any], args: Any, kwargs: Any
    ) -> Any:
        module = copy.deepcopy(template).to(device, dtype)
        module.load_state_dict(state)
        flags = iter(differentiable)
        inputs = convert((args, kwargs), lambda leaf: _leaf(leaf, flags))
        result = module(*inputs[0], **inputs[1])
        outputs = [t for t in tensors([result]) if t.requires_grad]
        torch.autograd.backward(outputs, [cotangent(t) for t in outputs])
        return {
            "outputs": result,
            "inputs": [t.grad for t in tensors([inputs]) if t.requires_grad],
            "parameters": {name: p.grad for name, p in module.named_parameters()},
            "buffers": dict(module.named_buffers()),
        }

    return call


def _detached(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


def _leaf(leaf: Any, flags: Iterator[bool]) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.detach().clone().requires_grad_(next(flags))


def cotangent(tensor: torch.Tensor) -> torch.Tensor:
    """A gradient of mixed signs, exact in every format."""
    numbers = (torch.arange(tensor.numel()) * 7919 % 17 - 8) / 8
    return numbers.reshape(tensor.shape).to(tensor.dtype).to(tensor.device)
