"""Hints of a graph on their way from its nodes to kernel ops."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._inductor.virtualized import V

from torch_spyre._inductor.errors import InvalidHint
from torch_spyre._inductor.hints import Hint, hints_of, hints_of_buffer, result_names
from torch_spyre._inductor.kernel_ir import KernelOp
from torch_spyre._inductor.propagate_named_dims import (
    NamedDims,
    TensorDims,
    names_in,
    split_names,
    warn_of_untracked,
)

log = logging.getLogger("spyre.inductor.passes")


class HintedGraph:
    """What a graph that is compiled knows of its hints."""

    def __init__(
        self,
        hints: Mapping[Hint, Sequence[torch.fx.Node]],
        inputs: Mapping[str, TensorDims],
        sizes: Mapping[str, int],
    ) -> None:
        self.hints = hints  # with the nodes that each is about
        self.names = NamedDims(inputs, sizes, seen_size)
        self.found: dict[Hint, set[str]] = {}  # dimensions of the ops that each is about

    def name_loops(self, node: Any, ops: Sequence[KernelOp]) -> None:
        """Give the ops of a node their hints, and names to their loops."""
        if not self.hints or not ops:
            return
        hints = tuple(hint for hint in hints_of_buffer(node) if hint in self.hints)
        for op in ops:
            op.hints = hints
        self.names.name_loops(ops, result_names(hints))
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
        """Raise :class:`InvalidHint` for a dimension that nothing in a hint's scope has. For one
        that is there, but that no loop counts, there is nothing to do."""
        for hint, nodes in self.hints.items():
            known = self.found.get(hint, set())
            for kind, wanted in (("spyre_hint", hint.tiles), ("work_division_hint", hint.work_div)):
                for dim, count in wanted:
                    if dim in known:
                        continue
                    why = self._without_loops(dim, count, nodes)
                    if why:
                        log.info("%s: nothing to do for dimension %r: %s", kind, dim, why)
                        continue
                    have = ", ".join(sorted(known)) or "none that is compiled"
                    raise InvalidHint(
                        f"{kind}: no op inside has a dimension {dim!r}; there are {have}",
                        op=str(nodes[0].target),
                        source=str(nodes[0].meta.get("stack_trace") or ""),
                        hint="name_tensor_dims names the dimensions of inputs",
                    )

    def _without_loops(self, dim: str, count: int, nodes: Sequence[torch.fx.Node]) -> str:
        """Why a dimension that is there has no loop; empty if it is not there."""
        given = [*self.names.inputs.values()]
        for node in nodes:
            shape = getattr(node.meta.get("val"), "shape", None)
            names = result_names(hints_of(node))
            if shape is None or not names:
                continue
            own = split_names(names, [seen_size(size) for size in shape], self.names.sizes)
            if own is None:
                continue
            given.append(own)
            made_of_nothing = all(other.op == "get_attr" for other in node.all_input_nodes)
            if made_of_nothing and any(dim == name for parts in own for name, _ in parts):
                return "it is one of a constant, which has no memory of its own"
        sizes = {size for dims in given for parts in dims for name, size in parts if name == dim}
        return "its size is 1" if sizes == {1} and count == 1 else ""


def graph_hints() -> HintedGraph:
    """Of the graph that is compiled now."""
    return getattr(V.graph, "spyre_hints", None) or HintedGraph({}, {}, {})


def seen_size(value: Any) -> int:
    """The number that a size, or an expression of sizes, was when the graph was compiled."""
    if isinstance(value, int):
        return value
    if isinstance(value, torch.SymInt):
        value = value.node.expr
    return int(V.graph.sizevars.optimization_hint(value, fallback=64))
