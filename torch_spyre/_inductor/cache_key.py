"""What Inductor's cache keys have to know about our code, besides the graph and the knobs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch.fx import GraphModule

from torch_spyre import _C
from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor.propagate_named_dims import TensorDims
from torch_spyre.backend.constants import special_values
from torch_spyre.code_digest import code_digest

# Device layout and storage offset of an input.
Placement = tuple[SpyreTensorLayout, int]


@dataclass(frozen=True)
class Given:
    """What a graph is compiled for, besides itself and the knobs. All of it is in the keys of the
    caches, and who compiles asks nobody else: :func:`given`."""

    placements: Mapping[Any, Placement] = field(default_factory=dict)  # of inputs
    dims: Mapping[Any, TensorDims] = field(default_factory=dict)  # names of those of inputs
    hints: str = ""  # on nodes
    dim_sizes: Mapping[str, int] = field(default_factory=dict)  # that hints give to results
    scratchpads_survive: bool = field(default_factory=lambda: _C._scratchpads_survive())
    special_values: str = field(default_factory=special_values)


_given: ContextVar[Given | None] = ContextVar("given", default=None)


@contextlib.contextmanager
def compiled_for(given: Given) -> Iterator[None]:
    """Graphs are compiled, or looked for in caches, for what is given."""
    token = _given.set(given)
    try:
        yield
    finally:
        _given.reset(token)


def given() -> Given:
    """What the graph that is compiled now is compiled for."""
    return _given.get() or Given()


class SpyreCacheKey(CustomGraphModulePass):
    """Does nothing to a graph: its uuid brings what decides our code into Inductor's cache keys."""

    def __call__(self, gm: GraphModule) -> None:
        pass

    def uuid(self) -> str:
        return f"{compiler_digest()} {given()}"


def compiler_digest() -> str:
    """Of all that decides what graphs become."""
    return f"{code_digest()} torch {torch.__version__} sympy {sympy.__version__}"
