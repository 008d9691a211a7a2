"""Graphs that are called in a shorter way.

A kernel is launched in 2 microseconds. The call around it takes 13, or 60 after the card has
streamed weights through the host's caches. So calls leave out what most graphs do not need.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._C._dynamo.eval_frame import set_eval_frame
from torch._dynamo.eval_frame import skip_code
from torch._functorch._aot_autograd.runtime_wrappers import SerializableCompiledFunction
from torch._inductor import debug
from torch._inductor.output_code import CompiledFxGraph
from torch.autograd import profiler


class PlainGraphs:
    """Graphs that AOTAutograd calls for nothing but their results: they have no gradients, change
    none of their inputs, and return no views."""

    def __init__(self) -> None:
        # What AOTAutograd calls; the graph that this calls, and with how many arguments.
        self._found: list[tuple[Any, Any, int]] = []

    def consider(self, wrapper: Any, code: Any, options: dict[str, Any]) -> None:
        """``wrapper`` calls ``code``, a compiled graph."""
        about = options["runtime_metadata"]
        if (
            isinstance(graph := _unwrapped(code), CompiledFxGraph)
            and not options["trace_joint"]
            and not options["disable_amp"]
            and about.num_mutated_inp_runtime_indices == 0
            and not about.mutated_graph_handled_indices_seen_by_autograd
            and about.num_outputs_aliased == 0
            and about.num_intermediate_bases == 0
            and not about.dynamic_outputs
            and about.grad_enabled_mutation is None
        ):
            self._found.append((wrapper, graph, len(about.input_info)))

    def mark(self, compiled: Any, model: torch.fx.GraphModule) -> None:
        """Note that ``compiled``, made of the model, does nothing but call the code of one of the
        graphs with its arguments. Does nothing if that is not so."""
        compiled = getattr(compiled, "_torchdynamo_orig_callable", compiled)
        called = _unwrapped(getattr(compiled, "__wrapped__", None))
        taken = len(model.graph.find_nodes(op="placeholder"))  # fewer: the model has tensors, too
        for wrapper, graph, arguments in self._found:
            if called is wrapper and arguments == taken:
                # Kept with its identity, since functions around it copy its attributes.
                compiled._spyre_plain_graph = (id(compiled), graph)


def _unwrapped(function: Any) -> Any:
    """The function inside of what AOTAutograd puts around it to save it in its cache."""
    return function.compiled_fn if isinstance(function, SerializableCompiledFunction) else function


def shortened(value: Any) -> Any:
    """A compiled graph that Dynamo's bytecode calls, without the five functions in between.

    They are left out from the second call on; the first one ends a compilation. What they do for
    plain graphs is kept: Dynamo does not look into what they call, and there are no gradients.
    """
    compiled = getattr(value, "_torchdynamo_orig_callable", None)
    marked, graph = getattr(compiled, "_spyre_plain_graph", (None, None))
    if graph is None or marked != id(compiled):
        return value
    code: Callable[[list[Any]], Any] | None = None
    is_grad_enabled, set_grad_enabled = torch.is_grad_enabled, torch._C._set_grad_enabled

    @functools.wraps(value)
    def call(*args: Any) -> Any:
        nonlocal code
        if (
            code is None
            or profiler._is_profiler_enabled
            or debug.RECORD_GRAPH_EXECUTION
            or torch.compiler._is_exporting_flag
        ):
            results = value(*args)
            code = graph.current_callable
            return results
        callback, grad = set_eval_frame(None), is_grad_enabled()
        try:
            if grad:
                set_grad_enabled(False)
            return code(list(args))
        finally:
            if grad:
                set_grad_enabled(True)
            set_eval_frame(callback)

    skip_code(call.__code__)  # type: ignore[attr-defined]
    call._torchdynamo_wrapper_id = id(call)  # type: ignore[attr-defined]
    return call
