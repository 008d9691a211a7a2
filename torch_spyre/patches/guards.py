"""What Dynamo asks before it calls what it compiled."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from torch_spyre import _C


def tensor_guards(guards: Any) -> None:
    """Dynamo's guards of tensors compare device layouts and names of dimensions, too: a tensor with
    others gets another graph.

    Missing upstream: a way for a device to add to ``TENSOR_MATCH``.
    """
    original = guards.GuardBuilder.TENSOR_MATCH

    @functools.wraps(original)
    def TENSOR_MATCH(self: Any, guard: Any, value: Any = None) -> None:
        original(self, guard, value)
        graph = self.check_fn_manager.output_graph
        if graph.export or guards.match_on_id_for_tensor(guard):
            return
        seen = self.get(guard)
        layout = _C._find_layout(seen)
        if layout is not None:
            sizes = guards.convert_to_concrete_values(
                graph.input_source_to_sizes_strides[guard.originating_source]["size"]
            )
            add_guards(self, guard, seen, layout, sizes)

    def add_guards(self: Any, guard: Any, seen: torch.Tensor, layout: Any, sizes: Any) -> None:
        from torch_spyre._inductor.hints import hints_were_given
        from torch_spyre._inductor.propagate_named_dims import dims_of_tensor, same_names

        dims = dims_of_tensor(seen)

        def is_named_so(tensor: torch.Tensor) -> bool:
            return same_names(dims_of_tensor(tensor), dims, sizes)

        def add(check: Callable[[torch.Tensor], bool], code: str) -> None:
            parts = guards.get_verbose_code_parts(f"{self.arg_ref(guard)}{code}", guard)
            self.get_guard_manager(guard).add_lambda_guard(check, parts, guard.user_stack)

        if None not in sizes:  # with sizes that vary, layouts vary
            add(_C._layout_guard(layout), f".device_tensor_layout() == {layout!r}")
        if dims is not None or hints_were_given():  # without hints nothing looks at names
            add(is_named_so, f": its dimensions are called {dims}, where they are {sizes}")

    guards.GuardBuilder.TENSOR_MATCH = TENSOR_MATCH
