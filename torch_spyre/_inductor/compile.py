"""Compiling a graph: our settings around Inductor's, for graphs with spyre tensors only."""

from __future__ import annotations

import contextlib
import copy
import inspect
import logging
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any

import torch
from torch._dynamo.convert_frame import compile_lock
from torch._dynamo.exc import ShortenTraceback
from torch._dynamo.utils import counters
from torch._functorch import config as functorch_config
from torch._inductor import compile_fx as inductor
from torch._inductor import config as inductor_config
from torch._inductor.exc import InductorError
from torch._inductor.output_code import RegionalOutputCode
from torch._inductor.virtualized import V
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import has_free_symbols

from torch_spyre import _C, patches
from torch_spyre._inductor import config, load
from torch_spyre._inductor.cache_key import Given, Placement, compiled_for
from torch_spyre._inductor.collector import uncollected
from torch_spyre._inductor.errors import (
    CompilerFault,
    InvalidHint,
    InvalidInput,
    InvalidSetting,
    Unsupported,
)
from torch_spyre._inductor.hinted_graph import HintedGraph, lowered_with
from torch_spyre._inductor.hints import Hint, hints_in, hints_text
from torch_spyre._inductor.lowering import decompositions, spyre_lowerings
from torch_spyre._inductor.passes import CustomPreSchedulingPasses, hooks
from torch_spyre._inductor.propagate_named_dims import declared_sizes, dims_of_tensor
from torch_spyre.constants import DEVICE_NAME
from torch_spyre.environment import KNOBS, InvalidValue

log = logging.getLogger("spyre.inductor")


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
    # Random numbers are the same as in eager: from the card's generator, in the same order.
    "fallback_random": True,
    # Scheduling puts loops into kernels itself, after Inductor looked for pairs to fuse and for
    # parts to capture: neither finds anything here, and both take time for every node.
    "max_fusion_buffer_group_pairwise_attempts": 0,
    "graph_partition": False,
}


REPORT = (
    "please report it, with the directory that TORCH_COMPILE_DEBUG=1 leaves; until then, unless "
    "TORCH_SPYRE_COMPILE_FALLBACK=error, the graph runs op by op"
)


class CompileFallbackWarning(UserWarning):
    """A graph that could not be compiled runs eagerly."""


class NotCompiled(Unsupported, ShortenTraceback):
    """An :class:`Unsupported` on its way to the user: Dynamo lets it through as it is."""

    def __init__(self, reason: Unsupported, frame: FrameType | None) -> None:
        super().__init__(
            reason.what,
            op=reason.op,
            tensors=reason.tensors,
            source=reason.source,
            hint=reason.hint,
        )
        self.reason = reason
        self.first_useful_frame = frame


def touches_spyre(model: GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether a graph has anything to do with the device."""
    if any(isinstance(x, torch.Tensor) and x.device.type == DEVICE_NAME for x in inputs):
        return True
    for node in model.graph.nodes:
        device = node.kwargs.get("device")
        if device is not None and torch.device(device).type == DEVICE_NAME:
            return True
    return False


def check_settings() -> None:
    """Raise :class:`InvalidSetting` for a knob that has a value without a meaning."""
    try:
        for knob in config.knobs():
            knob.read()  # what the environment has, which nobody looked at so far
            knob.check(getattr(config, knob.name))
    except InvalidValue as error:
        what, hint = error.args
        reason = InvalidSetting(what, hint=hint)
        raise NotCompiled(reason, inspect.currentframe()) from reason


@contextlib.contextmanager
def spyre_compilation() -> Iterator[None]:
    """All that is changed while a graph is lowered.

    Tables and functions of Inductor are changed for all threads. So this holds Dynamo's lock, also
    where Dynamo does not take it: for a backward graph that autograd's thread compiles.
    """
    with (
        spyre_lowerings(),
        patches.before_scheduling(CustomPreSchedulingPasses()),
        patches.loops_as_lowered(),
    ):
        yield


def has_negative_zero(model: GraphModule) -> bool:
    """Whether there is a -0.0 in a graph. AOTAutograd takes it for 0.0 when it looks for equal
    calls."""
    return any(
        isinstance(value, float) and value == 0 and math.copysign(1, value) < 0
        for node in model.graph.nodes
        for value in (*node.args, *node.kwargs.values())
    )


def seen_tensors(model: GraphModule) -> list[torch.Tensor | None]:
    """The spyre tensors that Dynamo saw, one for each placeholder; None for other placeholders."""
    found = []
    for node in model.graph.find_nodes(op="placeholder"):
        argument = node.meta.get("grapharg")
        try:
            example = argument.example if argument is not None else None
        except AssertionError:  # erased
            example = None
        ours = isinstance(example, torch.Tensor) and _C._find_layout(example) is not None
        found.append(example if ours else None)
    return found


def placement_of(tensor: torch.Tensor) -> Placement:
    return tensor.device_tensor_layout(), int(tensor.storage_offset())  # type: ignore[attr-defined]


def _alike(one: Any, other: Any) -> bool:
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return False
    if (one.dim(), one.dtype) != (other.dim(), other.dtype):
        return False
    numbers = zip((*one.shape, *one.stride()), (*other.shape, *other.stride()), strict=True)
    # To compare symbols would fix the sizes.
    return all(a == b for a, b in numbers if isinstance(a, int) and isinstance(b, int))


def compile_spyre(
    original: Callable[..., Any],
    model: GraphModule,
    inputs: Any,
    config_patches: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """``compile_fx`` of a graph with spyre tensors."""
    check_settings()
    if V.aot_compilation:
        reason = Unsupported(
            "AOTInductor: there is no C++ wrapper around kernels of the card",
            hint="torch.export.save the program and torch.compile it where it is loaded; "
            "torch.compiler.save_cache_artifacts takes the compiled kernels along",
        )
        raise NotCompiled(reason, inspect.currentframe()) from reason
    inner = options.pop("inner_compile", inductor.compile_fx_inner)
    tensors = seen_tensors(model)
    placed = [None if tensor is None else placement_of(tensor) for tensor in tensors]
    named = [None if tensor is None else dims_of_tensor(tensor) for tensor in tensors]
    seen = list(zip(inputs, placed, named, strict=False))
    # Settings and knobs are set again around each lowering: backward graphs are compiled later, and
    # they may be others then.
    knobs = config.get_config_copy()
    asked = hints_in(model.graph.nodes)
    given = _given(model, asked, _by_number(placed), _by_number(named))
    with inductor_config.patch(config_patches or {}):
        settings = {**(config_patches or {}), **SETTINGS, **hooks()}
        # With a graph from a cache there would be no files to look at.
        if inductor_config.trace.enabled or KNOBS["dump_spyre_code"].read():
            settings["fx_graph_cache"] = False

    @config.patch(knobs)
    def inner_compile(gm: GraphModule, example_inputs: Any, **kwargs: Any) -> Any:
        names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
        placements = {}
        dims = {}
        hints = {}
        # The table itself has no stable text for the key of the cache; its maker is a name.
        kwargs["get_decomp_fn"] = decompositions
        if not kwargs.get("is_backward"):
            # AOTAutograd keeps the order of inputs. If it did not, launches would notice.
            for name, example, (fake, placement, named_dims) in zip(
                names, example_inputs, seen, strict=False
            ):
                if placement is not None and _alike(example, fake):
                    # If sizes vary, layouts do, too. A launch copies tensors with unexpected ones.
                    if not has_free_symbols(example) and _C._follows_strides(placement[0]):
                        placements[name] = placement
                    if named_dims is not None:
                        dims[name] = named_dims
            # Backward graphs have no hints: the tensors that they take have no names.
            if not config.ignore_work_division_hints:
                # Of some of those that there were, AOTAutograd has left no node.
                hints = {**{hint: [] for hint in asked}, **hints_in(gm.graph.nodes)}
        wanted = _given(gm, hints, placements, dims)
        hinted = HintedGraph(hints, wanted.dims, wanted.dim_sizes)
        try:
            with (
                compile_lock,
                inductor_config.patch(settings),
                spyre_compilation(),
                lowered_with(hinted),
                compiled_for(wanted),
            ):
                return inner(own_copy(gm), example_inputs, **kwargs)
        except InductorError as error:
            return op_by_op(gm, reason_of(error))

    with (
        compile_lock,
        uncollected(),
        patches.patterns_when_needed(),
        patches.plain_graphs() as plain,
        inductor_config.patch(settings),
        functorch_config.patch(cse=functorch_config.cse and not has_negative_zero(model)),
        compiled_for(given),
    ):
        options.setdefault("decompositions", decompositions())
        compiled = original(model, inputs, inner_compile=inner_compile, **options)
    plain.mark(compiled, model)
    return compiled


def _given(gm: GraphModule, hints: Iterable[Hint], placements: Any, dims: Any) -> Given:
    """What a graph is compiled for, if its inputs have these layouts and names."""
    names = {name for hint in hints for name in hint.named_dims}
    return Given(placements, dims, hints_text(gm.graph.nodes), declared_sizes(names))


def _by_number(of_inputs: Sequence[Any]) -> dict[int, Any]:
    return {i: known for i, known in enumerate(of_inputs) if known is not None}


def own_copy(gm: GraphModule) -> GraphModule:
    """A graph for Inductor to change; the tensors that it holds are shared."""
    held = [
        value
        for module in gm.modules()
        for values in (vars(module), module._parameters, module._buffers)
        for value in values.values()
        if isinstance(value, torch.Tensor)
    ]
    return copy.deepcopy(gm, {id(tensor): tensor for tensor in held})


def reason_of(error: InductorError) -> Unsupported:
    """The error that Inductor wrapped, as one of ours."""
    cause: BaseException | None = error.inner_exception
    while cause is not None:
        if isinstance(cause, Unsupported):
            return cause
        cause = cause.__cause__ or cause.__context__  # Inductor raises "from None" in lowerings
    inner = error.inner_exception
    text = str(inner).strip() or "without a message"
    fault = CompilerFault(f"the compiler failed: {type(inner).__name__}: {text}", hint=REPORT)
    fault.__cause__ = inner
    return fault


class OpByOp(RegionalOutputCode):
    """A graph as it is, for AOTAutograd to call and to cache. When it comes from the cache, it
    warns again that it is not compiled."""

    def __init__(self, gm: GraphModule, reason: Unsupported) -> None:
        super().__init__(gm)
        self.nodes = sum(node.op not in ("placeholder", "output") for node in gm.graph.nodes)
        self.reason = str(reason)

    def post_compile(self, *args: Any) -> None:
        loaded = self._graph_module is None
        super().post_compile(*args)
        if loaded:
            self.tell()

    def tell(self) -> None:
        log.info("a graph of %d nodes runs op by op: %s", self.nodes, self.reason)
        counters["spyre_op_by_op"][self.reason] += 1
        warnings.warn(
            f"a graph of {self.nodes} nodes runs op by op, not compiled: {self.reason}",
            CompileFallbackWarning,
            stacklevel=2,
        )


def op_by_op(gm: GraphModule, reason: Unsupported) -> OpByOp:
    """The graph as it is, with a warning; or, by the user's choice, an error."""
    if config.compile_fallback == "error" or isinstance(reason, InvalidHint | InvalidInput):
        raise NotCompiled(reason, inspect.currentframe()) from reason
    found = OpByOp(gm, reason)
    found.tell()
    return found


def compile_fx(
    original: Callable[..., Any], model: GraphModule, inputs: Any, **options: Any
) -> Any:
    """Inductor's entry point, for all graphs."""
    if not touches_spyre(model, inputs):
        return original(model, inputs, **options)
    load()
    return compile_spyre(original, model, inputs, **options)
