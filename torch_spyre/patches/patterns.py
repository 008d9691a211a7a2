"""Inductor's patterns of attention, of padded products and of permutations."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch

from torch_spyre.patches.replacing import replaced


@contextlib.contextmanager
def patterns_when_needed() -> Iterator[None]:
    """While a spyre graph is compiled: they are made for the first graph that could match one, and
    on the CPU. To make them, Inductor fills scalars on the device of the first graph, some dozen
    programs that are not the user's.

    Missing upstream: patterns that are made when a graph has their ops, of fake scalars. Products
    are padded on other devices only; attention has an exponential, a permutation is drawn.
    """
    from torch._inductor import compile_fx
    from torch._inductor.fx_passes import joint_graph

    original = compile_fx.joint_graph_passes
    aten = torch.ops.aten

    @functools.wraps(original)
    def joint_graph_passes(graph: torch.fx.GraphModule, input_device: torch.device | None) -> Any:
        needed = any(
            getattr(node.target, "overloadpacket", None) in (aten.exp, aten.randperm)
            for node in graph.graph.nodes
        )
        if needed:
            return original(graph, torch.device("cpu"))  # it asks for nothing but patterns of it
        with replaced(joint_graph, "lazy_init", lambda _: None):
            return original(graph, input_device)

    with replaced(compile_fx, "joint_graph_passes", joint_graph_passes):
        yield
