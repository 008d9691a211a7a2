"""Numbers in tensors of the CPU, as operands of ops on the card."""

from __future__ import annotations

from typing import Any

import torch

from torch_spyre.constants import DEVICE_NAME

prims = torch.ops.prims


def bring_numbers_over(graph: torch.fx.Graph) -> None:
    """Copy CPU tensors without dimensions to the card where a pointwise op of it reads them.

    PyTorch lets such a tensor stand for a number. If it is the first operand, Inductor, which knows
    few devices by name, would make a loop of the host that reads the card's memory.
    """
    copies: dict[tuple[torch.fx.Node, torch.device], torch.fx.Node] = {}
    for node in list(graph.nodes):
        device = _device(node)
        if device is None or device.type != DEVICE_NAME or not _is_pointwise(node.target):
            continue
        for number in node.all_input_nodes:
            if _device(number) != torch.device("cpu") or number.meta["val"].dim() > 0:
                continue
            if (number, device) not in copies:
                copies[number, device] = _copy(graph, node, number, device)
            node.replace_input_with(number, copies[number, device])


def _device(node: torch.fx.Node) -> torch.device | None:
    value = node.meta.get("val")
    return value.device if isinstance(value, torch.Tensor) else None


def _is_pointwise(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.pointwise in target.tags


def _copy(
    graph: torch.fx.Graph, user: torch.fx.Node, number: torch.fx.Node, device: torch.device
) -> torch.fx.Node:
    calls: list[tuple[Any, tuple[Any, ...]]] = [(prims.device_put.default, (device,))]
    if number.meta["val"].dtype == torch.float64:  # which the card does not have
        calls.insert(0, (prims.convert_element_type.default, (torch.float32,)))
    for op, arguments in calls:
        value = op(number.meta["val"], *arguments)
        with graph.inserting_before(user):
            number = graph.call_function(op, (number, *arguments))
        number.meta.update(val=value, stack_trace=user.meta.get("stack_trace"))
    return number
