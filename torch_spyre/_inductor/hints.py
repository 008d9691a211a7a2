"""What a user says about how a part of a graph is to be computed.

:func:`spyre_hint` leaves a note on every node that is traced inside of it. The note is text in the
node's ``meta["custom"]``: PyTorch carries it through autograd, functionalisation and
decompositions. The compiler reads it back with :func:`hints_of`.
"""

from __future__ import annotations

import json
import operator
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

PREFIX = "_hint_"  # of keys in a node's notes; then the number of the scope


@dataclass(frozen=True)
class Hint:
    """One ``with spyre_hint(...)``. Values are as the user wrote them, not checked yet."""

    scope: str
    tiles: tuple[tuple[str, Any], ...] = ()  # (dimension, number of tiles), outermost first
    work_div: tuple[tuple[str, Any], ...] = ()  # (dimension, number of cores)
    named_dims: tuple[str, ...] = ()  # of results

    @property
    def plain(self) -> dict[str, Any]:
        """As the user wrote it."""
        values = {
            "num_tiles_per_dim": dict(self.tiles),
            "work_div": dict(self.work_div),
            "named_dims": list(self.named_dims),
        }
        return {name: value for name, value in values.items() if value}


def spyre_hint(
    *,
    num_tiles_per_dim: Mapping[str, int] | None = None,
    tiles: Mapping[str, int] | None = None,
    slices: Mapping[str, int] | None = None,
    work_div: Mapping[str, int] | None = None,
    named_dims: Sequence[str] | None = None,
) -> AbstractContextManager[None]:
    """Says how the ops in the ``with`` block are computed when they are compiled.

    Dimensions are called by the names of ``name_tensor_dims``. Hints nest.

    * ``num_tiles_per_dim={"M": 4}``: the ops run in a loop, each time on a quarter of M.
      Several dimensions are nested loops, the first one outermost. ``tiles`` and ``slices`` are
      older names.
    * ``work_div={"M": 4, "N": 8}``: over how many cores each op splits its dimensions.
    * ``named_dims=["M", "N"]``: names of the dimensions of results that have as many.
    """
    counted = [_fixed(counts) for counts in (num_tiles_per_dim, tiles, slices)]
    return torch.fx.traceback.annotate({_key(): _text(counted, _fixed(work_div), named_dims)})


def _fixed(counts: Any) -> Any:
    """These numbers, fixed: Dynamo may otherwise take them for sizes that vary."""
    if not isinstance(counts, dict):
        return counts
    return {d: operator.index(n) if type(n) is int else n for d, n in counts.items()}


_scopes = 0  # that there were


def _key() -> str:
    global _scopes
    _scopes += 1
    return f"{PREFIX}{_scopes}"


def hints_were_given() -> bool:
    """Whether this process has met a hint at all."""
    return _scopes > 0


def _text(
    tiles: Sequence[Mapping[str, int] | None],  # by the names that the argument has
    work_div: Mapping[str, int] | None,
    named_dims: Sequence[str] | None,
) -> str:
    for name, value in zip(("tiles", "slices"), tiles[1:], strict=True):
        if value is not None:
            warnings.warn(
                f"spyre_hint({name}=...) is called num_tiles_per_dim now",
                DeprecationWarning,
                stacklevel=3,
            )
    given = [value for value in tiles if value is not None]
    if len(given) > 1:
        raise TypeError("spyre_hint: num_tiles_per_dim, tiles and slices are the same: give one")
    values = {
        "tiles": _counts("num_tiles_per_dim", given[0] if given else {}),
        "work_div": _counts("work_div", work_div or {}),
        "named_dims": _names(named_dims or ()),
    }
    return json.dumps(values)


def _counts(argument: str, value: Any) -> list[tuple[str, Any]]:
    """The counts by name. Whether they make sense is checked later, with the op they are about."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        expected = f"names of dimensions with whole numbers, such as {{{'M'!r}: 4}}"
        raise TypeError(f"spyre_hint: {argument} takes {expected}, not {value!r}")
    return list(value.items())


def _names(value: Any) -> list[str]:
    names = [] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    if (value and not names) or not all(isinstance(name, str) for name in names):
        expected = f"a list of names of dimensions, such as {['M', 'N']!r}"
        raise TypeError(f"spyre_hint: named_dims takes {expected}, not {value!r}")
    return names


# Dynamo calls them when it traces, and takes what they return as it is.
_key._dynamo_marked_constant = True  # type: ignore[attr-defined]
_text._dynamo_marked_constant = True  # type: ignore[attr-defined]


def hints_of(node: torch.fx.Node) -> tuple[Hint, ...]:
    """The hints around a node of a graph, outermost first."""
    # If a pattern of Inductor's replaced nodes, as for attention, the note is on the node that
    # takes the first result.
    taken = (user for user in node.users if user.target is operator.getitem)
    notes: Mapping[str, str] = next(
        filter(None, (n.meta.get("custom") for n in (node, *taken))), {}
    )
    return tuple(_parsed(scope, text) for scope, text in notes.items() if scope.startswith(PREFIX))


def _parsed(scope: str, text: str) -> Hint:
    values = json.loads(text)
    tiles, work_div = (tuple((d, n) for d, n in values[key]) for key in ("tiles", "work_div"))
    return Hint(scope, tiles, work_div, tuple(values["named_dims"]))


def get_op_hints(op: Any) -> list[dict[str, Any]]:
    """The hints around a node of an FX graph, a buffer of Inductor or a kernel op."""
    if isinstance(op, torch.fx.Node):
        return [hint.plain for hint in hints_of(op)]
    if hasattr(op, "hints"):
        return [hint.plain for hint in op.hints]
    return [hint.plain for hint in hints_of_buffer(op)]


def hints_of_buffer(buffer: Any) -> tuple[Hint, ...]:
    """The hints around the node that a buffer of Inductor was made for."""
    origin = buffer.get_origin_node() if hasattr(buffer, "get_origin_node") else None
    for node in (origin, *buffer.get_origins()):
        found = hints_of(node) if node is not None else ()
        if found:
            return found
    return ()


def hints_in(nodes: Iterable[torch.fx.Node]) -> dict[Hint, list[torch.fx.Node]]:
    """All hints of a graph, each with the nodes that it is about."""
    found: dict[Hint, list[torch.fx.Node]] = {}
    for node in nodes:
        for hint in hints_of(node):
            found.setdefault(hint, []).append(node)
    return found


def result_names(hints: Sequence[Hint]) -> tuple[str, ...]:
    """The names of the dimensions of results, by the innermost hint that has some."""
    return next((hint.named_dims for hint in reversed(hints) if hint.named_dims), ())


def hints_text(nodes: Iterable[torch.fx.Node]) -> str:
    """Equal for graphs with equal hints: scopes are counted anew."""
    numbers: dict[str, int] = {}
    lines = []
    for node in nodes:
        notes = {k: v for k, v in (node.meta.get("custom") or {}).items() if k.startswith(PREFIX)}
        for scope in notes:
            numbers.setdefault(scope, len(numbers))
        if notes:
            lines.append(f"{node.name}: {[(numbers[s], text) for s, text in notes.items()]}")
    return "; ".join(lines)
