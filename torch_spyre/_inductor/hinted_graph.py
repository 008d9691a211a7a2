"""Hints of a graph on their way from its nodes to kernel ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._inductor.virtualized import V

from torch_spyre._inductor.errors import InvalidHint
from torch_spyre._inductor.hints import Hint, hints_of_buffer
from torch_spyre._inductor.kernel_ir import KernelOp
from torch_spyre._inductor.propagate_named_dims import (
    NamedDims,
    TensorDims,
    names_in,
    warn_of_untracked,
)


class HintedGraph:
    """What a graph that is compiled knows of its hints."""

    def __init__(
        self,
        hints: Mapping[Hint, torch.fx.Node],
        inputs: Mapping[str, TensorDims],
    ) -> None:
        self.hints = hints  # with the first node that each is about
        self.names = NamedDims(inputs, seen_size)
        self.found: dict[Hint, set[str]] = {}  # dimensions of the ops that each is about

    def name_loops(self, node: Any, ops: Sequence[KernelOp]) -> None:
        """Give the ops of a node their hints, and names to their loops."""
        if not self.hints or not ops:
            return
        hints = tuple(hint for hint in hints_of_buffer(node) if hint in self.hints)
        for op in ops:
            op.hints = hints
        names = next((hint.named_dims for hint in reversed(hints) if hint.named_dims), ())
        self.names.name_loops(ops, names)
        for hint in hints:
            self.found.setdefault(hint, set()).update(*(names_in(op) for op in ops))
            if hint.tiles or hint.work_div:
                warn_of_untracked(ops[-1])

    def tile(self, one: Any, other: Any) -> bool:
        """Whether a hint asks for loops around two nodes together."""
        if not self.hints:
            return False
        shared = set(hints_of_buffer(one)) & set(hints_of_buffer(other))
        return any(hint.tiles for hint in shared)

    def check_all_used(self) -> None:
        """Raise :class:`InvalidHint` for a dimension that no op of a hint's scope has."""
        for hint, node in self.hints.items():
            known = self.found.get(hint, set())
            for kind, wanted in (("spyre_hint", hint.tiles), ("work_division_hint", hint.work_div)):
                for dim, _ in wanted:
                    if dim not in known:
                        have = ", ".join(sorted(known)) or "none that is compiled"
                        raise InvalidHint(
                            f"{kind}: no op inside has a dimension {dim!r}; there are {have}",
                            op=str(node.target),
                            source=str(node.meta.get("stack_trace") or ""),
                            hint="name_tensor_dims names the dimensions of inputs",
                        )


def graph_hints() -> HintedGraph:
    """Of the graph that is compiled now."""
    return getattr(V.graph, "spyre_hints", None) or HintedGraph({}, {})


def seen_size(value: Any) -> int:
    """The number that a size, or an expression of sizes, was when the graph was compiled."""
    if isinstance(value, int):
        return value
    return int(V.graph.sizevars.optimization_hint(value, fallback=64))
