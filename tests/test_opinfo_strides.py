"""Strides of results and gradients of every op of PyTorch's database.

They are the CPU's, or what PyTorch's shape functions say, which is not always the same. The
compiler believes the latter, and generated code checks what kernels return. Inputs lie in memory as
`MEMORY` says, dense and not in order.
"""

from collections.abc import Iterator
from typing import Any

import opinfo
import pytest
import torch
from proof import Arguments, convert, seed_all, tensors
from refusals import check_differences, small_and_quiet  # noqa: F401  (a fixture)
from torch._subclasses.fake_tensor import FakeTensorMode

pytestmark = pytest.mark.filterwarnings("ignore")  # samples use what PyTorch deprecates

SAMPLES = 3


def turned(t: torch.Tensor) -> torch.Tensor:
    order = list(range(t.dim()))[::-1]
    return t.permute(order).contiguous().permute(order)


def channels_last(t: torch.Tensor) -> torch.Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return t.contiguous(memory_format=formats.get(t.dim(), torch.contiguous_format))


MEMORY = {"turned around": turned, "channels last": channels_last}


def strides(result: torch.Tensor) -> list[int]:
    """Where a dimension has one element or none, its stride says nothing."""
    if result.numel() == 0:
        return []
    return [stride for stride, size in zip(result.stride(), result.shape, strict=True) if size > 1]


def is_card(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.device.type == "spyre"


def outcome(function: Any, arguments: Any) -> Iterator[torch.Tensor]:
    args, kwargs = arguments
    seed_all(0)
    results = [t for t in tensors(function(*args, **kwargs)) if isinstance(t, torch.Tensor)]
    yield from results
    inputs = [t for t in tensors(arguments) if t.requires_grad]
    outputs = [t for t in results if t.requires_grad]
    if inputs and outputs:
        ones = [torch.ones_like(t) for t in outputs]
        grads = torch.autograd.grad(outputs, inputs, ones, allow_unused=True)
        yield from (grad for grad in grads if grad is not None)


def find(op: Any, change: Any) -> str | None:
    """The first difference from both: the CPU, and fake tensors of the card."""
    for number, sample in enumerate(opinfo.samples(op, torch.float32, SAMPLES)):

        def leaf(entry: Any) -> Any:
            is_tensor = isinstance(entry, torch.Tensor) and entry.is_floating_point()
            return change(entry.detach()) if is_tensor else entry

        tree = convert(((sample.input, *sample.args), dict(sample.kwargs)), leaf)
        try:
            moved = Arguments(tree)
            for t in tensors([moved.card, moved.host]):
                t.requires_grad_(op.supports_autograd and t.is_floating_point())
            ours, host = (
                [*map(strides, outcome(op.op, side))] for side in (moved.card, moved.host)
            )
            if ours == host:
                continue
            with FakeTensorMode() as mode:
                fake = convert(moved.card, lambda t: mode.from_tensor(t) if is_card(t) else t)
                expected = [*map(strides, outcome(op.op, fake))]
        except Exception:
            continue  # refused, which others look at, or sizes that depend on values
        if any(mine not in both for mine, *both in zip(ours, host, expected, strict=True)):
            return f"sample {number}: {ours}, the CPU: {host}, fake: {expected}"
    return None


@pytest.mark.parametrize(
    "name", [n for n, op in opinfo.OPS.items() if torch.float32 in opinfo.dtypes(op)]
)
def test_strides(name):
    wrong = {}
    for memory, change in MEMORY.items():
        text = find(opinfo.OPS[name], change)
        if text:
            wrong[f"{name} {memory}"] = text
    check_differences("strides", name, wrong)
