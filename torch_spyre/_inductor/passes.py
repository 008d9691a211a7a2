"""Places between Inductor's stages where functions run on spyre graphs, and on no others.

Each class is one place, with an ordered list of functions. Append to ``passes`` of a class, or use
:meth:`register`, before the first graph is compiled::

    @CustomPostPasses.register
    def drop_double_negation(graph: torch.fx.Graph) -> None: ...

What is registered enters the keys of Inductor's caches, by name and source text. Planning of single
kernels has passes of its own, over ``kernel_ir.py``.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import torch
from torch._inductor import config as inductor_config
from torch._inductor.custom_graph_pass import (
    CustomGraphPass,
    CustomPassBase,
    CustomSchedulerPass,
    get_custom_graph_passes,
)
from torch._inductor.graph import GraphLowering
from torch._inductor.scheduler import BaseSchedulerNode

from torch_spyre._inductor.host_numbers import bring_numbers_over
from torch_spyre._inductor.ir import lay_out_inputs

log = logging.getLogger("spyre.inductor.passes")
Function = TypeVar("Function", bound=Callable[..., Any])
Nodes = list[BaseSchedulerNode]


class _Place(CustomPassBase):
    """An ordered list of functions."""

    passes: ClassVar[list[Callable[..., Any]]]
    _places: ClassVar[list[type[_Place]]] = []

    def __init_subclass__(cls) -> None:
        cls.passes = []
        _Place._places.append(cls)

    @classmethod
    def register(cls, function: Function) -> Function:
        """Run a function here, after those that are registered already."""
        cls.passes.append(function)
        return function

    def uuid(self) -> str:
        return type(self).__name__

    def _each(self) -> list[Callable[..., Any]]:
        for function in self.passes:
            log.debug("%s: %s", type(self).__name__, getattr(function, "__name__", function))
        return self.passes


class _OnGraph(_Place, CustomGraphPass):
    def __call__(self, graph: torch.fx.Graph) -> None:
        for function in self._each():
            function(graph)


class CustomPreGradPasses(_OnGraph):
    """On the graph that Dynamo captured, before autograd and decompositions."""


class CustomPrePasses(_OnGraph):
    """On the graph of ATen ops, before Inductor's own rewrites."""


class CustomPostPasses(_OnGraph):
    """On the graph of ATen ops, after Inductor's own rewrites."""

    def uuid(self) -> str:
        """Of all places: Inductor has no key for the one before scheduling."""
        digest = hashlib.sha256()
        for place in _Place._places:
            for function in place.passes:
                digest.update(f"{place.__name__} {_text(function)}".encode())
        return digest.hexdigest()


class CustomPreSchedulingPasses(_Place):
    """On Inductor's loops, before their order and their kernels are decided."""

    def __call__(self, graph: GraphLowering) -> None:
        for function in self._each():
            function(graph)


class _OnNodes(_Place, CustomSchedulerPass):
    def __call__(self, nodes: Nodes) -> Nodes:
        for function in self._each():
            nodes = function(nodes)
        return nodes


class CustomPreFusionPasses(_OnNodes):
    """On the scheduler's nodes, in order, before Inductor fuses those of other devices."""


class CustomPostFusionPasses(_OnNodes):
    """On the scheduler's nodes just before kernels are made of them."""


CustomPostPasses.register(bring_numbers_over)
CustomPreSchedulingPasses.register(lay_out_inputs)


def hooks() -> dict[str, Any]:
    """Settings of Inductor that run our places, before what the user has set there."""
    graphs = {
        "pre_grad_custom_pass": CustomPreGradPasses(),
        "post_grad_custom_pre_pass": CustomPrePasses(),
        "post_grad_custom_post_pass": CustomPostPasses(),
    }
    nodes = {
        "_pre_fusion_custom_pass": CustomPreFusionPasses(),
        "_post_fusion_custom_pass": CustomPostFusionPasses(),
    }
    found: dict[str, Any] = {}
    for name, ours in graphs.items():
        found[name] = [ours, *get_custom_graph_passes(getattr(inductor_config, name))]
    for name, place in nodes.items():
        user = getattr(inductor_config, name)
        found[name] = place if user is None else _in_turn(place, user)
    return found


class _Both(CustomSchedulerPass):
    """Ours, then the user's."""

    def __init__(self, ours: _OnNodes, user: CustomSchedulerPass) -> None:
        self.ours = ours
        self.user = user

    def __call__(self, nodes: Nodes) -> Nodes:
        return self.user(self.ours(nodes))

    def uuid(self) -> Any:
        return self.ours.uuid(), self.user.uuid()


def _in_turn(ours: _OnNodes, user: Any) -> Any:
    if isinstance(user, CustomSchedulerPass):
        return _Both(ours, user)
    return lambda nodes: user(ours(nodes))  # a plain function, and so no cache, as Inductor has it


def _text(function: Callable[..., Any]) -> str:
    name = f"{function.__module__}.{getattr(function, '__qualname__', function)}"
    try:
        return name + inspect.getsource(function)
    except (OSError, TypeError):
        return name
