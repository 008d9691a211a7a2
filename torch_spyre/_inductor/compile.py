"""Compiling a graph: our settings around Inductor's, for graphs with spyre tensors only."""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch._functorch.aot_autograd import make_boxed_func
from torch._inductor import compile_fx as inductor
from torch._inductor import config as inductor_config
from torch._inductor import ir
from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch._inductor.exc import InductorError
from torch._inductor.graph import GraphLowering
from torch.fx import GraphModule

from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.lowering import decompositions, spyre_lowerings
from torch_spyre.constants import DEVICE_NAME

# Random numbers are those of eager: from the card's generator, in the same order.
RANDOM = {"fallback_random": True}
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
    **RANDOM,
}


class SourcesInKey(CustomGraphModulePass):
    """Does nothing to a graph: its uuid brings what decides our code into Inductor's cache keys."""

    def __call__(self, gm: GraphModule) -> None:
        pass

    def uuid(self) -> str:
        return _sources()


@functools.cache
def _sources() -> str:
    """A digest of the compiler and of the tables it reads."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for folder in (package / "_inductor", package / "backend", package / "ops"):
        for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.toml")]):
            digest.update(path.read_bytes())
    digest.update((package / "machine.toml").read_bytes())
    return digest.hexdigest()


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

    with inductor_config.patch(RANDOM):
        options.setdefault("decompositions", decompositions())
        return original(model, inputs, inner_compile=inner_compile, **options)


def compile_fx(
    original: Callable[..., Any], model: GraphModule, inputs: Any, **options: Any
) -> Any:
    """Inductor's entry point, for all graphs."""
    if not touches_spyre(model, inputs):
        return original(model, inputs, **options)
    return compile_spyre(original, model, inputs, **options)
