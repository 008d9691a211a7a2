"""Kernels from Inductor's scheduled loops."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import sympy
import torch
from sympy import Expr, Symbol
from torch._inductor import ir
from torch._inductor.codegen.wrapper import pexpr
from torch._inductor.dependencies import WeakDep
from torch._inductor.virtualized import OpsWrapper, V
from torch.utils._sympy.functions import FloorDiv, ModularIndexing
from torch.utils._sympy.symbol import SymT, symbol_is_type

from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor.errors import Unsupported, origin_of
from torch_spyre._inductor.granularity import kept_instances
from torch_spyre._inductor.hinted_graph import graph_hints, seen_size
from torch_spyre._inductor.ir import FixedTiledLayout
from torch_spyre._inductor.kernel_ir import (
    Buffer,
    KernelOp,
    Ramp,
    contiguous_strides,
    copied,
    has_symbols,
    number,
    number_key,
)
from torch_spyre._inductor.kernel_template import Template, plan_template
from torch_spyre._inductor.trace import NotLinear, Tracer

NO_LAYOUT = "compute it in another dtype, in fewer dimensions, or after .cpu()"


class KernelBuilder:
    """Collects the ops of consecutive nodes, of which kernels are parts."""

    def __init__(self) -> None:
        self.ops: list[KernelOp] = []
        self.buffers: dict[str, Buffer] = {}
        self.constants: dict[tuple[Any, torch.dtype], Buffer] = {}
        self.locals = 0
        self.nodes = 0

    def add(self, node: ir.ComputedBuffer) -> None:
        """Append the ops that compute a buffer. Raises :class:`Unsupported`."""
        data = node.data
        if not isinstance(data, (ir.Pointwise, ir.Reduction)):
            raise Unsupported(f"{type(data).__name__} has no ops on the card")
        ranges = [_size(extent) for extent in data.ranges]
        inner = []
        if isinstance(data, ir.Reduction):
            inner = [_size(extent) for extent in data.reduction_ranges]
        splits, ops = _Splits(), None
        while ops is None:
            index, space = self._index(ranges + inner, splits)
            try:
                ops = self._traced(node, index[: len(ranges)], index[len(ranges) :], space)
            except NotLinear as error:
                if not splits.found_in(error.index, index, space):
                    raise
        for op in ops:
            op.node = self.nodes
        graph_hints().name_loops(node, ops)
        self.nodes += 1
        self.ops += ops

    def _traced(
        self,
        node: ir.ComputedBuffer,
        outer: list[Expr],
        inside: list[Expr],
        space: dict[Symbol, int],
    ) -> list[KernelOp]:
        data = node.data
        tracer = Tracer(space, self._buffer, self._new_local, self._constant, origin_of(node))
        target = self._buffer(node.get_name())
        with V.set_ops_handler(tracer):
            value = OpsWrapper._unwrap(_body(data, outer, inside))
        where = node.get_layout().make_indexer()(outer)
        if isinstance(data, ir.Reduction):
            tracer.reduce_to(target, where, data.reduction_type, value)
        else:
            tracer.store_to(target, where, value)
        return tracer.ops

    def part(
        self, begin: int, end: int, inside: Iterable[str]
    ) -> tuple[list[KernelOp], dict[str, Buffer]]:
        """The ops of some nodes, for planning to change, and their buffers in the graph. Those
        ``inside`` nobody else sees."""
        ops = copied([op for op in self.ops if begin <= op.node < end])
        buffers = {access.buffer.name: access.buffer for op in ops for access in op.accesses}
        for op in ops:
            op.node -= begin
        for name in inside:
            buffers[name].local = True
        return ops, {name: buffer for name, buffer in buffers.items() if name in self.buffers}

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
                # Pickles of equal kernels are equal: equal names are one string.
                name = sys.intern(f"c{len(space)}")
                symbol = Symbol(name, integer=True, nonnegative=True)
                space[symbol] = size
                expression += symbol * unit
            index.append(expression)
        return index, space

    def _buffer(self, name: str) -> Buffer:
        name = real_name(name)
        if name not in self.buffers:
            layout = V.graph.get_buffer(name).get_layout()
            size = [_size(extent) for extent in layout.size]
            stride = [_size(step) for step in layout.stride]
            buffer = Buffer(name, layout.dtype, size, stride)
            if not has_symbols(size + stride):
                buffer.layout, buffer.offset = placement(name, size, stride, layout.dtype)
            self.buffers[name] = buffer
        return self.buffers[name]

    def _new_local(self, dtype: torch.dtype, size: list[int]) -> Buffer:
        self.locals += 1
        return Buffer(f"t{self.locals}", dtype, size, contiguous_strides(size), local=True)

    def _constant(self, value: float | Ramp, dtype: torch.dtype) -> Buffer:
        key = (number_key(value), dtype)
        if key not in self.constants:
            size = list(value.size) if isinstance(value, Ramp) else []
            layout = None if has_symbols(size) else SpyreTensorLayout(size, dtype)
            stride = contiguous_strides(size)
            name = f"k{len(self.constants)}"
            self.constants[key] = Buffer(name, dtype, size, stride, layout, constant=value)
        return self.constants[key]


def has_dynamic_sizes(node: Any) -> bool:
    """Whether a scheduled node can only be planned when it is launched."""
    if not V.graph.sizevars.shape_env.var_to_range:  # no symbols: to look at loops takes time
        return False
    used = node.read_writes.reads_and_writes()
    names = {dependency.name for dependency in used if not isinstance(dependency, WeakDep)}
    layouts = [V.graph.get_buffer(real_name(name)).get_layout() for name in names if _is_one(name)]
    sizes = [extent for layout in layouts for extent in (*layout.size, *layout.stride)]
    symbols = sympy.Tuple(*sizes).free_symbols
    if node.node is not None:
        symbols |= node.node.get_free_symbol_uses()  # of loops and of what they compute
    kinds = (SymT.SIZE, SymT.UNBACKED_INT)
    return any(symbol_is_type(symbol, kinds) and has_symbols([_size(symbol)]) for symbol in symbols)


def _is_one(name: str) -> bool:
    """Whether a name is one tensor: an eager call may have several results, or make no tensor."""
    buffer = V.graph.get_buffer(name)
    return buffer is not None and isinstance(buffer.get_output_spec(), ir.Layout)


def is_product(node: Any) -> bool:
    """Whether a scheduled node is a product of matrices."""
    data = getattr(node.node, "data", None)
    return isinstance(data, ir.Reduction) and data.reduction_type == "dot"


def template_source(template: Template) -> str:
    """Arguments of ``async_compile.sdsc_template`` after the name."""
    ranges = [values for _, values in _symbols(template.sizes)]
    kept = kept_instances((_bound(r.lower) or 0, _bound(r.upper)) for r in ranges)
    numbers = ", ".join(map(pexpr, template.numbers))
    return f"lambda {', '.join(template.sizes)}: [{numbers}], {template.data!r}, kept={kept}"


def check_template(template: Template) -> None:
    """Raises :class:`Unsupported` if the template cannot be planned for the sizes seen."""
    seen = {symbol: seen_size(symbol) for symbol, _ in _symbols(template.sizes)}
    numbers = [int(each.xreplace(seen)) for each in template.numbers]
    plan_template(template.data, numbers, {}, template.origins)


def _symbols(names: list[str]) -> list[tuple[Symbol, Any]]:
    """Size symbols and the ranges of their values."""
    ranges = V.graph.sizevars.shape_env.var_to_range
    known = {symbol.name: (symbol, values) for symbol, values in ranges.items()}
    return [known[name] for name in names]


def _bound(value: Any) -> int | None:
    """An end of the range of a size; None if there is none."""
    return int(value) if value.is_Integer and abs(value) < sys.maxsize - 1 else None


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
    try:
        return SpyreTensorLayout(size, stride, dtype, list(range(len(size)))), 0
    except (TypeError, RuntimeError) as error:  # a dtype or a rank that the card does not have
        what = f"{name} has no layout on the card: {str(error).splitlines()[0]}"
        raise Unsupported(what, hint=NO_LAYOUT) from error


class _Splits:
    """Where loops have to be cut so that reshaped reads become linear."""

    def __init__(self) -> None:
        self.units: dict[int, set[Any]] = {}

    def pieces(self, position: int, extent: Any) -> list[tuple[Any, Any]]:
        """(size, unit) of the loops that stand for one, outermost first."""
        units = sorted(self.units.get(position, ()), key=functools.cmp_to_key(_by_division))
        pieces, below = [], 1
        for unit in [*units, extent]:
            pieces.append((_quotient(unit, below), below))
            below = unit
        return pieces[::-1]

    def found_in(self, read: Expr, loops: list[Expr], space: dict[Symbol, int]) -> bool:
        """Look for divisions of loop variables; True if there are new places to cut."""
        divisions = sorted(read.atoms(FloorDiv, ModularIndexing), key=str)
        return any(self._cut(division, loops, space) for division in divisions)

    def _cut(self, division: Expr, index: list[Expr], space: dict[Symbol, int]) -> bool:
        divided = division.args[0]
        wanted = [number(division.args[1])]
        if isinstance(division, ModularIndexing):
            wanted.append(number(division.args[1] * division.args[2]))
        if not divided.is_Symbol or divided not in space:
            return False
        for position, expression in enumerate(index):
            unit = number(expression.coeff(divided))
            if unit == 0:
                continue
            extent = space[divided]
            inner = [size for size in wanted if size not in (1, extent) and _divides(size, extent)]
            cuts = {number(sympy.expand(unit * size)) for size in inner}
            known = self.units.setdefault(position, set())
            chained = all(_by_division(a, b) for a in cuts | known for b in cuts | known if a != b)
            if chained and not cuts <= known:
                known |= cuts
                return True
        return False


def _divides(size: Any, extent: Any) -> bool:
    if V.graph.sizevars.statically_known_multiple_of(sympy.sympify(extent), size):
        return True
    # Of sums such as 2*s0 + 6 and s0 + 3: whole as symbols are.
    return has_symbols([size]) and bool(sympy.denom(_exact(extent, size)) == 1)


def _quotient(extent: Any, size: Any) -> Any:
    return number(_exact(extent, size) if has_symbols([size]) else extent // size)


def _exact(extent: Any, size: Any) -> Expr:
    return sympy.cancel(sympy.sympify(extent) / sympy.sympify(size))


def _by_division(one: Any, other: Any) -> int:
    """Compares: less is what divides; 0 if neither does."""
    return -1 if _divides(one, other) else int(_divides(other, one))


def _body(data: Any, outer: list[Expr], inner: list[Expr]) -> Any:
    return data.inner_fn(outer, inner) if isinstance(data, ir.Reduction) else data.inner_fn(outer)


def _size(value: Any) -> Any:
    if isinstance(value, int | sympy.Integer):
        return int(value)
    return number(V.graph.sizevars.simplify(sympy.sympify(value)))
