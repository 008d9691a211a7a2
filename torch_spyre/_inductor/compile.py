"""Compiling a graph: our settings around Inductor's, for graphs with spyre tensors only."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from torch._functorch.aot_autograd import make_boxed_func
from torch._inductor import compile_fx as inductor
from torch._inductor import config as inductor_config
from torch._inductor import ir
from torch._inductor.exc import InductorError
from torch._inductor.graph import GraphLowering
from torch.fx import GraphModule

from torch_spyre._inductor.cache_key import with_placements_in_key
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.lowering import decompositions, spyre_lowerings
from torch_spyre.constants import DEVICE_NAME

SETTINGS = {
    "split_reductions": False,
    "benchmark_harness": False,
    "unroll_reductions_threshold": 1,
    "permute_fusion": False,
    "allow_buffer_reuse": False,
    "alignment_asserts": False,
    # Templates and fused products of other devices.
    "max_autotune": False,
    "max_autotune_gemm": False,
    # Scheduling puts loops into kernels itself, after Inductor looked for pairs to fuse and for
    # parts to capture: neither finds anything here, and both take time for every node.
    "max_fusion_buffer_group_pairwise_attempts": 0,
    "graph_partition": False,
}


class CompileFallbackWarning(UserWarning):
    """A graph that could not be compiled runs eagerly."""


def touches_spyre(model: GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether a graph has anything to do with the device."""
    if any(isinstance(x, torch.Tensor) and x.device.type == DEVICE_NAME for x in inputs):
        return True
    for node in model.graph.nodes:
        device = node.kwargs.get("device")
        if device is not None and torch.device(device).type == DEVICE_NAME:
            return True
    return False


@contextlib.contextmanager
def spyre_compilation() -> Iterator[None]:
    """Everything that differs while a graph is lowered."""
    with (
        inductor_config.patch(SETTINGS),
        spyre_lowerings(),
        # A value that is used twice is computed once.
        mock.patch.object(ir.Loops, "has_large_inner_fn", return_value=True),
    ):
        yield


def seen_placements(model: GraphModule) -> list[Any]:
    """Layout and storage offset of the tensors that Dynamo saw, one a placeholder."""
    found = []
    for node in model.graph.find_nodes(op="placeholder"):
        argument = node.meta.get("grapharg")
        try:
            example = argument.example if argument is not None else None
        except AssertionError:  # erased
            example = None
        layout = None
        if isinstance(example, torch.Tensor) and example.device.type == DEVICE_NAME:
            layout = (example.device_tensor_layout(), example.storage_offset())  # type: ignore[attr-defined]
        found.append(layout)
    return found


def _alike(one: Any, other: Any) -> bool:
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return False
    return (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)


def compile_spyre(
    original: Callable[..., Any], model: GraphModule, inputs: Any, **options: Any
) -> Any:
    """``compile_fx`` of a graph with spyre tensors."""
    inner = options.pop("inner_compile", inductor.compile_fx_inner)
    seen = list(zip(inputs, seen_placements(model), strict=False))

    def inner_compile(gm: GraphModule, example_inputs: Any, **kwargs: Any) -> Any:
        names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
        placements = {}
        # The table itself has no stable text for the key of the cache; its maker is a name.
        kwargs["get_decomp_fn"] = decompositions
        if not kwargs.get("is_backward"):
            # AOTAutograd keeps the order of inputs. Were it not so, launches would notice.
            for name, example, (fake, placement) in zip(names, example_inputs, seen, strict=False):
                if placement is not None and _alike(example, fake):
                    placements[name] = placement
        try:
            with (
                spyre_compilation(),
                mock.patch.object(GraphLowering, "spyre_placements", placements, create=True),
            ):
                return inner(copy.deepcopy(gm), example_inputs, **kwargs)
        except InductorError as error:
            if not isinstance(error.inner_exception, Unsupported):
                raise
            warnings.warn(
                f"a graph of {len(gm.graph.nodes)} nodes runs op by op, not compiled: "
                f"{error.inner_exception}",
                CompileFallbackWarning,
                stacklevel=2,
            )
            return make_boxed_func(gm.forward)

    options.setdefault("decompositions", decompositions())
    with with_placements_in_key([placement for _, placement in seen]):
        return original(model, inputs, inner_compile=inner_compile, **options)


def compile_fx(
    original: Callable[..., Any], model: GraphModule, inputs: Any, **options: Any
) -> Any:
    """Inductor's entry point, for all graphs."""
    if not touches_spyre(model, inputs):
        return original(model, inputs, **options)
    return compile_spyre(original, model, inputs, **options)
