"""Hints of a graph on their way from its nodes to kernel ops."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
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

# Nodes that change no number: if they are removed, nothing else is computed for them.
COPIES = (
    torch.ops.aten.alias.default,
    torch.ops.aten.clone.default,
    torch.ops.prims.convert_element_type.default,
)


class HintedGraph:
    """The hints of a graph that is being compiled."""

    def __init__(
        self,
        hints: Mapping[Hint, Sequence[torch.fx.Node]],
        inputs: Mapping[str, TensorDims],
        sizes: Mapping[str, int],
    ) -> None:
        self.hints = hints  # with the nodes that each is about, which may be none
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
        """Raise :class:`InvalidHint` for a dimension that nothing in a hint's scope has. It is no
        error if the dimension is there but has no loop, or if no op of the scope is left: then
        there is nothing to do."""
        for hint, nodes in self.hints.items():
            known = self.found.get(hint, set())
            for kind, wanted in (("spyre_hint", hint.tiles), ("work_division_hint", hint.work_div)):
                for dim, count in wanted:
                    if dim in known:
                        continue
                    why = self._without_loops(hint, dim, count)
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

    def _without_loops(self, hint: Hint, dim: str, count: int) -> str:
        """Why there is no loop of a dimension; empty if there should be one."""
        named = self._named_results(hint)
        if any(_made_of_nothing(node) and dim in _names(dims) for node, dims in named):
            return "it is one of a constant, which has no memory of its own"
        given = [*self.names.inputs.values(), *(dims for _, dims in named)]
        sizes = {size for dims in given for parts in dims for name, size in parts if name == dim}
        if sizes == {1} and count == 1:
            return "its size is 1"
        # If the user has named the dimensions inside, any other name is wrong.
        return "" if named or self._has_ops(hint) else "but for constants, no op inside is left"

    def _named_results(self, hint: Hint) -> list[tuple[torch.fx.Node, TensorDims]]:
        """The nodes in a hint's scope that hints give names to, with these."""
        found = []
        for node in self.hints[hint]:
            shape = getattr(node.meta.get("val"), "shape", None)
            names = result_names(hints_of(node))
            if shape is None or not names:
                continue
            dims = split_names(names, [seen_size(size) for size in shape], self.names.sizes)
            if dims is not None:
                found.append((node, dims))
        return found

    def _has_ops(self, hint: Hint) -> bool:
        """Whether something in a hint's scope is computed, in a kernel or by an eager call.
        Constants do not count: they may become numbers in the loops that read them."""
        computed = {
            node.name
            for operation in V.graph.operations
            if operation.get_operation_name() not in V.graph.removed_operations
            for node in operation.get_origins()
        }
        left = {node.name for node in V.graph.graph.nodes}
        for node in self.hints[hint]:
            if node.op != "call_function" or _is_constant(node):
                continue
            # Inductor may have replaced a node by another one without saying so.
            folded = node.target in COPIES or _made_of_nothing(node)
            if node.name in computed or (node.name not in left and not folded):
                return True
        return False


def _is_constant(node: torch.fx.Node) -> bool:
    """Whether a node is a number as a tensor, or a view of one, and is no result of the graph."""
    if any(user.op == "output" for user in node.users):
        return False
    if node.target is torch.ops.aten.full.default:
        return True
    return getattr(node.target, "is_view", False) and all(
        _is_constant(other) for other in node.all_input_nodes if _is_tensor(other)
    )


def _made_of_nothing(node: torch.fx.Node) -> bool:
    """Whether a node depends on no tensor that the graph is given. It may depend on numbers, such
    as sizes."""
    seen = {node}
    todo = [node]
    while todo:
        for other in todo.pop().all_input_nodes:
            if other.op == "placeholder" and _is_tensor(other):
                return False
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return True


def _is_tensor(node: torch.fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _names(dims: TensorDims) -> set[str]:
    return {name for parts in dims for name, _ in parts}


_hinted: ContextVar[HintedGraph | None] = ContextVar("hinted", default=None)


@contextlib.contextmanager
def lowered_with(hinted: HintedGraph) -> Iterator[None]:
    """While a graph with these hints is lowered."""
    token = _hinted.set(hinted)
    try:
        yield
    finally:
        _hinted.reset(token)


def graph_hints() -> HintedGraph:
    """The hints of the graph that is being lowered."""
    return _hinted.get() or HintedGraph({}, {}, {})


def seen_size(value: Any) -> int:
    """The number that a size, or an expression of sizes, had when the graph was compiled."""
    if isinstance(value, int):
        return value
    if isinstance(value, torch.SymInt):
        value = value.node.expr
    return int(V.graph.sizevars.optimization_hint(value, fallback=64))
