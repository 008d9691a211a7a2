"""Calls of what was compiled for the card."""

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from torch_spyre.model_utils import on_spyre
from torch_spyre.patches.replacing import replaced

if TYPE_CHECKING:
    from torch_spyre._inductor.plain_graphs import PlainGraphs


@contextlib.contextmanager
def short_calls() -> Iterator[None]:
    """While a function is traced: calls of what Dynamo compiles become shorter. They tell no
    profiler of themselves. They do not look for the current stream if the graph has no use for it.
    And they call the code of plain graphs directly, not the functions around it.

    Missing upstream: a way to choose this. CUDA's graphs hide the time that it takes.
    """
    from torch._dynamo import config, graph_bytecode_inputs, output_graph

    from torch_spyre._inductor.plain_graphs import shortened

    original = output_graph.OutputGraph.compile_and_call_fx_graph

    def uses_objects(root: torch.nn.Module, graph: torch.fx.Graph) -> bool:
        if len(graph_bytecode_inputs.index_to_bytecode_constructor) > 1:
            return True  # not only the current stream, which is always there
        parts = [part for part in root.modules() if isinstance(part, torch.fx.GraphModule)]
        return any(
            node.target is graph_bytecode_inputs.get_external_object_by_index
            or getattr(node.target, "namespace", None) == "streams"
            for each in (graph, *(part.graph for part in parts))
            for node in each.nodes
        )

    def compile_and_call_fx_graph(self: Any, tx: Any, rv: Any, root: Any) -> Any:
        uses = uses_objects(root, self.graph)
        install = self.install_global_unsafe
        with (
            replaced(output_graph, "has_user_objects", lambda: uses),
            replaced(
                self, "install_global_unsafe", lambda name, value: install(name, shortened(value))
            ),
        ):
            return original(self, tx, rv, root)

    with (
        config.patch(record_runtime_overhead=False),
        replaced(output_graph.OutputGraph, "compile_and_call_fx_graph", compile_and_call_fx_graph),
    ):
        yield


@contextlib.contextmanager
def plain_graphs() -> Iterator["PlainGraphs"]:
    """While a spyre graph is compiled: finds the graphs that are called for nothing but their
    results.

    Missing upstream: that AOTAutograd says what it does around a graph.
    """
    from torch._functorch._aot_autograd import runtime_wrappers

    from torch_spyre._inductor.plain_graphs import PlainGraphs

    original = runtime_wrappers._create_runtime_wrapper
    found = PlainGraphs()

    @functools.wraps(original)
    def _create_runtime_wrapper(compiled_fn: Any, **options: Any) -> Any:
        wrapper = original(compiled_fn, **options)
        found.consider(wrapper, compiled_fn, options)
        return wrapper

    with replaced(runtime_wrappers, "_create_runtime_wrapper", _create_runtime_wrapper):
        yield found


def short_module_calls(eval_frame: Any) -> None:
    """What ``torch.compile(module)`` returns calls its ``forward`` directly, without the five
    functions in between, unless somebody has put a hook there. Only for modules that were on the
    card when they were first called.

    Missing upstream: a way to choose this.
    """
    from torch.nn.modules import module as modules

    original = eval_frame.OptimizedModule.__call__
    mark = "_spyre_calls_are_short"

    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (
            not self.__dict__.get(mark)
            or modules._has_any_global_hook()
            or self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
            or self._compiled_call_impl is not None
            or torch._C._get_tracing_state()
        ):
            result = original(self, *args, **kwargs)
            if mark not in self.__dict__:
                self.__dict__[mark] = on_spyre(self)
            return result
        before = eval_frame._in_optimized_module
        eval_frame._in_optimized_module = True
        try:
            return self.forward(*args, **kwargs)
        finally:
            eval_frame._in_optimized_module = before

    eval_frame.skip_code(__call__.__code__)  # type: ignore[attr-defined]
    eval_frame.OptimizedModule.__call__ = __call__
