"""Inductor's patterns of attention, of padded products and of permutations."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch

from torch_spyre.patches.replacing import replaced


@contextlib.contextmanager
def patterns_when_needed() -> Iterator[None]:
    """While a spyre graph is compiled: patterns are made for the first graph that could match one,
    and on the CPU. Inductor makes them for the first graph of all, and fills scalars on its device:
    some dozen programs on the card that are not the user's.

    A graph could match one if it has an exponential, as attention has, or draws a permutation.
    Inductor pads products on other devices only.

    Missing upstream: patterns that are made when a graph has their ops, from fake scalars.
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
            return original(graph, torch.device("cpu"))  # the device is for the patterns only
        with replaced(joint_graph, "lazy_init", lambda _: None):
            return original(graph, input_device)

    with replaced(compile_fx, "joint_graph_passes", joint_graph_passes):
        yield
