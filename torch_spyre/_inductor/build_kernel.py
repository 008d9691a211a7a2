"""Kernels from Inductor's scheduled loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from sympy import Expr, Symbol
from torch._inductor import ir
from torch._inductor.ops_handler import DefaultHandler
from torch._inductor.virtualized import OpsWrapper, V
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.ir import FixedTiledLayout
from torch_spyre._inductor.kernel_ir import Buffer, KernelOp, Ramp, contiguous_strides
from torch_spyre._inductor.trace import Tracer, simplified

MAX_CUTS = 8  # of the loops of one node: each brings them closer to a view's


class KernelBuilder:
    """Collects the ops of consecutive nodes."""

    def __init__(self) -> None:
        self.ops: list[KernelOp] = []
        self.buffers: dict[str, Buffer] = {}
        self.constants: dict[tuple[float | Ramp, torch.dtype], Buffer] = {}
        self.locals = 0
        self.nodes = 0

    def add(self, node: ir.ComputedBuffer) -> None:
        """Append the ops that compute a buffer. Raises :class:`Unsupported`."""
        data = node.data
        if not isinstance(data, (ir.Pointwise, ir.Reduction)):
            raise Unsupported(f"{type(data).__name__} has no ops on the card")
        ranges = [_number(extent) for extent in data.ranges]
        inner = []
        if isinstance(data, ir.Reduction):
            inner = [_number(extent) for extent in data.reduction_ranges]
        splits = _Splits()
        for _ in range(MAX_CUTS):
            index, space = self._index(ranges + inner, splits)
            outer, inside = index[: len(ranges)], index[len(ranges) :]
            if not splits.found_in(data, outer, inside, space):
                break
        else:
            raise Unsupported(
                f"the views of {node.get_name()} cut its loops too often",
                hint="make the view contiguous() before it is used",
            )
        tracer = self._traced(node, outer, inside, space)
        for op in tracer.ops:
            op.node = self.nodes
        self.nodes += 1
        self.ops += tracer.ops

    def _traced(
        self,
        node: ir.ComputedBuffer,
        outer: list[Expr],
        inside: list[Expr],
        space: dict[Symbol, int],
    ) -> Tracer:
        data = node.data
        tracer = Tracer(space, self._buffer, self._new_local, self._constant, _origin(node))
        target = self._buffer(node.get_name())
        with V.set_ops_handler(tracer):
            value = OpsWrapper._unwrap(_body(data, outer, inside))
        where = node.get_layout().make_indexer()(outer)
        if isinstance(data, ir.Reduction):
            kept = {s: n for s, n in space.items() if any(s in e.free_symbols for e in outer)}
            tracer.reduce_to(target, where, data.reduction_type, value, kept)
        else:
            tracer.store_to(target, where, value)
        return tracer

    def _index(
        self, extents: Sequence[int], splits: _Splits
    ) -> tuple[list[Expr], dict[Symbol, int]]:
        """Index expressions over fresh symbols, none for what has one element."""
        index: list[Expr] = []
        space: dict[Symbol, int] = {}
        for position, extent in enumerate(extents):
            expression: Expr = sympy.Integer(0)
            for size, unit in splits.pieces(position, extent):
                if size == 1:
                    continue
                symbol = Symbol(f"c{len(space)}", integer=True, nonnegative=True)
                space[symbol] = size
                expression += symbol * unit
            index.append(expression)
        return index, space

    def _buffer(self, name: str) -> Buffer:
        name = real_name(name)
        if name not in self.buffers:
            layout = V.graph.get_buffer(name).get_layout()
            size = [_number(extent) for extent in layout.size]
            stride = [_number(step) for step in layout.stride]
            device, offset = placement(name, size, stride, layout.dtype)
            self.buffers[name] = Buffer(name, layout.dtype, size, stride, device, offset)
        return self.buffers[name]

    def _new_local(self, dtype: torch.dtype, size: list[int]) -> Buffer:
        self.locals += 1
        return Buffer(f"t{self.locals}", dtype, size, contiguous_strides(size), local=True)

    def _constant(self, value: float | Ramp, dtype: torch.dtype) -> Buffer:
        key = (value, dtype)
        if key not in self.constants:
            size = list(value.size) if isinstance(value, Ramp) else []
            layout = SpyreTensorLayout(size, dtype)
            stride = contiguous_strides(size)
            name = f"k{len(self.constants)}"
            self.constants[key] = Buffer(name, dtype, size, stride, layout, constant=value)
        return self.constants[key]


def real_name(name: str) -> str:
    """The buffer whose memory a buffer is: mutations write into another one."""
    layout = V.graph.get_buffer(name).get_layout()
    while isinstance(layout, ir.MutationLayoutSHOULDREMOVE):
        name = layout.get_buffer().get_name()
        layout = V.graph.get_buffer(name).get_layout()
    scheduler = V.graph.scheduler
    return scheduler.mutation_real_name.get(name, name) if scheduler else name


def placement(
    name: str, size: list[int], stride: list[int], dtype: torch.dtype
) -> tuple[SpyreTensorLayout, int]:
    """Layout and storage offset of a buffer of the graph: those of an input that was seen, else
    those of a new tensor. A launch checks both."""
    layout = V.graph.get_buffer(name).get_layout()
    if isinstance(layout, FixedTiledLayout):
        return layout.device_layout, layout.storage_offset
    return SpyreTensorLayout(size, stride, dtype, list(range(len(size)))), 0


class _Splits:
    """Where loops have to be cut so that reshaped reads become linear."""

    def __init__(self) -> None:
        self.units: dict[int, set[int]] = {}

    def pieces(self, position: int, extent: int) -> list[tuple[int, int]]:
        """(size, unit) of the loops that stand for one, outermost first."""
        units = sorted(self.units.get(position, ()))
        pieces, below = [], 1
        for unit in [*units, extent]:
            pieces.append((unit // below, below))
            below = unit
        return pieces[::-1]

    def found_in(
        self, data: Any, outer: list[Expr], inner: list[Expr], space: dict[Symbol, int]
    ) -> bool:
        """Look for divisions of loop variables; True if there are new places to cut."""
        loads = _Loads(space)
        with V.set_ops_handler(loads):
            _body(data, outer, inner)
        new = False
        for index in loads.indices:
            for division in index.atoms(FloorDiv, ModularIndexing):
                new |= self._cut(division, outer + inner, space)
        return new

    def _cut(self, division: Expr, index: list[Expr], space: dict[Symbol, int]) -> bool:
        divided = division.args[0]
        wanted = [int(division.args[1])]
        if isinstance(division, ModularIndexing):
            wanted.append(int(division.args[1] * division.args[2]))
        if not divided.is_Symbol or divided not in space:
            return False
        for position, expression in enumerate(index):
            unit = expression.coeff(divided)
            if unit == 0:
                continue
            extent = space[divided]
            cuts = {int(unit) * size for size in wanted if 1 < size < extent and extent % size == 0}
            known = self.units.setdefault(position, set())
            chained = all(a % b == 0 or b % a == 0 for a in cuts | known for b in cuts | known)
            if chained and not cuts <= known:
                known |= cuts
                return True
        return False


def _body(data: Any, outer: list[Expr], inner: list[Expr]) -> Any:
    return data.inner_fn(outer, inner) if isinstance(data, ir.Reduction) else data.inner_fn(outer)


class _Loads(DefaultHandler):
    """Ops handler that only looks at which indices are loaded."""

    def __init__(self, space: dict[Symbol, int]) -> None:
        self.space = space
        self.indices: list[Expr] = []

    def load(self, name: str, index: Expr) -> Any:
        self.indices.append(simplified(index, self.space))
        return name

    def _default(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return name


def _number(value: Any) -> int:
    value = sympy.sympify(value)
    if not value.is_number:
        raise Unsupported(
            f"the size {value} is not known when the kernel is compiled",
            hint="torch.compile(..., dynamic=False)",
        )
    return int(value)


def _origin(node: Any) -> str:
    """The user's line a node comes from."""
    for origin in node.get_origins():
        trace = origin.meta.get("stack_trace") if hasattr(origin, "meta") else None
        if trace:
            return str(trace).strip()
    return ""
