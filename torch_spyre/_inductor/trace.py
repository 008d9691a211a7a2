"""From the body of an Inductor loop to kernel ops, one for each thing it computes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from sympy import Expr, Symbol
from torch._inductor.dtype_propagation import DtypePropagationOpsHandler
from torch._inductor.ops_handler import OP_NAMES, DefaultHandler
from torch._inductor.virtualized import OpsWrapper, V

from torch_spyre._C import DataFormats, encode_constant
from torch_spyre._inductor.constants import BATCH_MATMUL_OP
from torch_spyre._inductor.dtype_ops import DtypeOpTable, computes_in_integers
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.kernel_ir import (
    Access,
    Buffer,
    KernelOp,
    Ramp,
    has_symbols,
    number_key,
)
from torch_spyre._inductor.views import LinearIndex, linear_index
from torch_spyre.backend.constants import decode_constant
from torch_spyre.ops.table import OPS

# Inductor's name of an op, where the op table has another.
OPFUNCS = {
    "truediv": "realdiv",
    "int_truediv": "realdiv",
    "div_rn": "realdiv",
    "mul_rn": "mul",
    "floordiv": "floordivide",
    "truncdiv": "truncdivide",
    "mod": "fmod",
    "relu": "relufwd",
    "eq": "equal",
    "ne": "notequal",
    "gt": "greaterthan",
    "ge": "greaterequal",
    "lt": "lesserthan",
    "le": "lesserequal",
    "where": "where3",
    "logical_and": "logicaland",
    "logical_or": "logicalor",
    "logical_xor": "logicalxor",
    "logical_not": "logicalnot",
    "and_": "bitwiseand",
    "or_": "bitwiseor",
    "xor": "bitwisexor",
    "lshift": "shiftleft",
    "rshift": "shiftright",
    "bitwise_and": "bitwiseand",
    "bitwise_or": "bitwiseor",
    "bitwise_xor": "bitwisexor",
    "bitwise_not": "bitwisenot",
    "bitwise_left_shift": "shiftleft",
    "bitwise_right_shift": "shiftright",
}
REDUCTIONS = {
    "dot": BATCH_MATMUL_OP,
    **{name: name for name in ("sum", "max", "min", "prod", "any", "argmax", "argmin")},
}
COMPARISONS = ("eq", "ne", "gt", "ge", "lt", "le")
# What bitwise ops are for bools.
LOGICAL = {
    "and_": "logical_and",
    "or_": "logical_or",
    "xor": "logical_xor",
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "logical_xor",
    "bitwise_not": "logical_not",
    "invert": "logical_not",
}
SHORT_FLOATS = (torch.float16, torch.bfloat16)  # both are DLFloat16 on the card
LARGEST = (2 - 2**-7) * 2.0**32  # of the bfloat16s that DLFloat16 holds


class NotLinear(Unsupported):
    """An index divides loops; it may be linear in parts of these."""

    def __init__(self, index: Expr) -> None:
        super().__init__(f"the index {index} is not linear in its loops")
        self.index = index


@dataclass(eq=False)
class Value:
    """The result of an op in a loop body."""

    dtype: torch.dtype
    access: Access | None  # where it is; None: nowhere yet
    number: float | None = None  # a literal
    counted: LinearIndex | None = None  # a number that the loops count

    @property
    def key(self) -> Any:
        """Equal for equal values."""
        return self.access or (number_key(self.number), self.counted, self.dtype)


@functools.cache
def _dtype_rules() -> DtypePropagationOpsHandler:
    return DtypePropagationOpsHandler()  # has no state; takes a millisecond to make


class Tracer(DefaultHandler):
    """Ops handler that turns what a loop body calls into kernel ops."""

    def __init__(
        self,
        space: dict[Symbol, int],
        find_buffer: Callable[[str], Buffer],
        new_local: Callable[[torch.dtype, list[int]], Buffer],
        constant: Callable[[float | Ramp, torch.dtype], Buffer],
        origin: str,
    ) -> None:
        self.symbols = space
        self.space = {symbol.name: size for symbol, size in space.items()}
        self.find_buffer = find_buffer
        self.new_local = new_local
        self.constant_buffer = constant
        self.origin = origin
        self.ops: list[KernelOp] = []
        self.dtypes = _dtype_rules()
        self.known: dict[Any, Value] = {}
        self.masks = 0  # around what is traced now

    # ------------------------------------------------------------------------------------ leaves

    def load(self, name: str, index: Expr) -> Value:
        buffer = self.find_buffer(name)
        linear = self.linear(index + buffer.offset)
        if self.masks and not self._stays_inside(buffer, linear):
            raise Unsupported(f"{index} leads outside of {buffer}, under a mask")
        return Value(buffer.dtype, Access(buffer, linear))

    def _stays_inside(self, buffer: Buffer, linear: LinearIndex) -> bool:
        ends = [stride * (self.space[s] - 1) for s, stride in linear.strides.items()]
        known = V.graph.sizevars.statically_known_leq
        first = linear.offset + sum(end for end in ends if not known(0, end))
        last = linear.offset + sum(end for end in ends if not known(end, 0))
        spans = zip(buffer.size, buffer.stride, strict=True)
        end = buffer.offset + sum((n - 1) * stride for n, stride in spans)
        return known(0, first) and known(last, end)

    def linear(self, index: Expr) -> LinearIndex:
        index = sympy.sympify(index)
        linear = linear_index(index, self.symbols)
        if linear is None or has_symbols([linear.offset, *linear.strides.values()]):
            ranges = {symbol: sympy.sympify(size) for symbol, size in self.symbols.items()}
            index = V.graph.sizevars.simplify_with_ranges(index, ranges)
            linear = linear_index(index, self.symbols)
        if linear is None:
            raise NotLinear(index)
        return linear

    def constant(self, value: float, dtype: torch.dtype) -> Value:
        return Value(dtype, None, _in_range(float(value), dtype))

    def to_dtype(
        self,
        value: Value,
        dtype: torch.dtype,
        src_dtype: torch.dtype | None = None,
        use_compute_types: bool = True,
    ) -> Value:
        if value.number is not None:
            return Value(dtype, None, _converted(value.number, dtype))
        if value.dtype == dtype:
            return value
        if value.counted is not None and (dtype != torch.bool and self._holds(dtype, value)):
            return Value(dtype, None, counted=value.counted)
        opfunc = DtypeOpTable.get_operator(value.dtype, dtype)
        if opfunc is None:
            raise Unsupported(f"the card does not convert {value.dtype} to {dtype}")
        return self.emit(opfunc, [value], dtype)

    def to_dtype_bitcast(self, value: Value, dtype: torch.dtype, src_dtype: torch.dtype) -> Value:
        raise other_bits(src_dtype, dtype)

    def index_expr(self, expression: Expr, dtype: torch.dtype) -> Value:
        """A number that the loops count."""
        if sympy.sympify(expression).is_number:
            return Value(dtype, None, float(expression))
        return self._count(self.linear(expression), dtype)

    def _count(self, index: LinearIndex, dtype: torch.dtype) -> Value:
        if not any(index.strides.values()):
            return Value(dtype, None, _converted(index.offset, dtype))
        return Value(dtype, None, counted=index)

    def value_expr(self, expr: Expr, dtype: torch.dtype) -> Value:
        return self.index_expr(expr, dtype)

    def masked(self, mask: Value, body: Callable[[], Any], other: float) -> Value:
        self.masks += 1
        value = OpsWrapper._unwrap(body())
        self.masks -= 1
        return self._default("where", (mask, value, Value(value.dtype, None, float(other))), {})

    def _rounded_to(self, name: str, value: Value, dtype: torch.dtype) -> Value:
        return self.to_dtype(self._default(name, (value,), {}), dtype)

    def floor_to_int(self, value: Value, dtype: torch.dtype) -> Value:
        return self._rounded_to("floor", value, dtype)

    def ceil_to_int(self, value: Value, dtype: torch.dtype) -> Value:
        return self._rounded_to("ceil", value, dtype)

    def trunc_to_int(self, value: Value, dtype: torch.dtype) -> Value:
        return self._rounded_to("trunc", value, dtype)

    def round_to_int(self, value: Value, dtype: torch.dtype) -> Value:
        return self._rounded_to("round", value, dtype)

    def dot(self, a: Value, b: Value) -> Any:
        """Factors: the reduction that sums their products multiplies them, too."""
        return a, b

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        return self._default("add", (self._default("mul", (a, b), {}), c), {})

    # --------------------------------------------------------------------------------------- ops

    def inline_asm_elementwise(  # type: ignore[override]  # as card_op calls it
        self, *inputs: Value, asm: str, constraints: tuple[float, ...], dtype: torch.dtype
    ) -> Value:
        """An op of the op table by its name; see :func:`card_ops.card_op`."""
        constants = dict(zip(OPS[asm].constants, constraints, strict=True))
        return self.emit(asm, inputs, dtype, constants)

    def _default(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
        values = [a if isinstance(a, Value) else self._literal(a) for a in args]
        if kwargs:
            raise Unsupported(f"{name} with {', '.join(kwargs)}")
        if name == "square":
            return self._default("mul", (values[0], values[0]), {})
        values, counted = self._counted(name, values)
        if counted is not None:
            return counted
        if name in LOGICAL and all(v.dtype == torch.bool for v in values):
            name = LOGICAL[name]
        opfunc = OPFUNCS.get(name, name)
        if opfunc not in OPS or OPS[opfunc].kind != "pointwise" or OPS[opfunc].constants:
            raise Unsupported(f"the card has no op for {name}")
        dtype = getattr(self.dtypes, name)(*values)
        return self.emit(opfunc, values, dtype)

    def _counted(self, name: str, values: list[Value]) -> tuple[list[Value], Value | None]:
        """Numbers that the loops count stay so under + and -, and are compared in float32.

        That is exact and, unlike int64, fuses with the ops around.
        """
        whole = [v for v in values if v.access is None and not v.dtype.is_floating_point]
        if len(whole) < len(values) or all(v.counted is None for v in values):
            return values, None
        if name in COMPARISONS and all(self._holds(torch.float32, v) for v in values):
            return [Value(torch.float32, None, v.number, v.counted) for v in values], None
        if name not in ("add", "sub"):
            return values, None
        a, b = map(_whole, values)
        sign = 1 if name == "add" else -1
        strides = {s: a.strides.get(s, 0) + sign * b.strides.get(s, 0) for s in self.space}
        index = LinearIndex(a.offset + sign * b.offset, strides)
        return values, self._count(index, getattr(self.dtypes, name)(*values))

    def _holds(self, dtype: torch.dtype, value: Value) -> bool:
        """Whether all the numbers that a value may be are exact in a dtype."""
        index = _whole(value)
        reach = sum(abs(stride) * self.space[s] for s, stride in index.strides.items())
        bits = 31 if not dtype.is_floating_point else 24 if dtype == torch.float32 else 9
        known = V.graph.sizevars
        fits = sympy.sympify(abs(index.offset) + reach < 2**bits)
        # Nobody counts so far; and if so, the graph is compiled again.
        return known.guard_or_false(fits) if bits > 9 else known.statically_known_true(fits)

    def _literal(self, value: Any) -> Value:
        dtype = {bool: torch.bool, int: torch.int64}.get(type(value), torch.float32)
        return Value(dtype, None, float(value))

    def emit(
        self,
        opfunc: str,
        values: Sequence[Value],
        dtype: torch.dtype,
        constants: dict[str, float] | None = None,
    ) -> Value:
        constants = constants or {}
        key = (opfunc, dtype, *map(number_key, constants.values()), *(v.key for v in values))
        if key not in self.known:
            buffer = self.new_local(dtype, list(self.space.values()))
            index = self.own_index(buffer)
            inputs = [self.materialised(value, OPS[opfunc].jumps) for value in values]
            op = KernelOp(opfunc, self.space, inputs, Access(buffer, index), constants)
            self.append_op(op, values)
            self.known[key] = Value(dtype, Access(buffer, index))
        return self.known[key]

    def append_op(self, op: KernelOp, values: Sequence[Value]) -> None:
        dtypes = [v.dtype for v in values] + [op.output.buffer.dtype]
        op.exact = computes_in_integers(op.op, dtypes)
        op.origin = self.origin
        self.ops.append(op)

    def materialised(self, value: Value, as_held: bool = False) -> Access:
        """Where the card finds the value; literals live in constants of one element.

        As in eager, a number of a short dtype is float32, which is more exact; with ``as_held`` it
        is rounded as a tensor of that dtype would hold it.
        """
        if value.access is not None:
            return value.access
        if value.counted is not None:
            return self._ramp(value.counted, value.dtype)
        assert value.number is not None
        dtype = value.dtype
        symbolic = has_symbols([value.number])
        if dtype in SHORT_FLOATS and (symbolic or not (as_held or _is_short(value.number))):
            dtype = torch.float32
        return Access(self.constant_buffer(value.number, dtype), LinearIndex(0, {}))

    def _ramp(self, index: LinearIndex, dtype: torch.dtype) -> Access:
        symbols = [s for s in self.space if index.strides.get(s)]
        ramp = Ramp(
            tuple(self.space[s] for s in symbols),
            tuple(index.strides[s] for s in symbols),
            index.offset,
        )
        buffer = self.constant_buffer(ramp, dtype)
        strides = dict(zip(symbols, buffer.stride, strict=True))
        return Access(buffer, LinearIndex(0, {s: strides.get(s, 0) for s in self.space}))

    def own_index(self, buffer: Buffer) -> LinearIndex:
        return LinearIndex(0, dict(zip(self.space, buffer.stride, strict=True)))

    # ----------------------------------------------------------------------------------- results

    def store_to(self, buffer: Buffer, index: Expr, value: Value) -> None:
        """The value goes to a buffer: its op writes there, if there is one that can."""
        target = Access(buffer, self.linear(index + buffer.offset))
        last = self.ops[-1] if self.ops else None
        if (
            last is not None
            and value.access is not None
            and last.output.buffer is value.access.buffer
            and value.dtype == buffer.dtype
            and not any(v is not value and v.access == value.access for v in self.known.values())
        ):
            last.output = target
            return
        source = value.access
        if source is not None and source.buffer is buffer and source.index != target.index:
            # An op reads and writes in any order: of a tensor that moves in itself, it would read
            # what it has just written.
            value = self.emit("identity", [value], value.dtype)
        op = KernelOp("identity", self.space, [self.materialised(value)], target)
        self.append_op(op, [value])

    def reduce_to(
        self, buffer: Buffer, index: Expr, kind: str, value: Value | tuple[Value, ...]
    ) -> None:
        """The value, or the product of two, reduced over the loops that are not in the index."""
        target = Access(buffer, self.linear(index + buffer.offset))
        if kind not in REDUCTIONS:
            raise Unsupported(f"the card has no reduction {kind}")
        values = value if isinstance(value, tuple) else (value,)
        inputs = [self.materialised(each) for each in values]
        op = KernelOp(REDUCTIONS[kind], self.space, inputs, target)
        self.append_op(op, values)


def card_has(name: str) -> bool:
    """Whether loops may call an op of Inductor's; what is no op of loops is made of some."""
    name = name.removeprefix("special_")
    opfunc = OPFUNCS.get(name, name)
    if name not in OP_NAMES or name in vars(Tracer) or name == "square":
        return True
    return opfunc in OPS and OPS[opfunc].kind == "pointwise"


def other_bits(source: torch.dtype, dtype: torch.dtype) -> Unsupported:
    """The error of a view of one dtype as another."""
    return Unsupported(
        f"{source} numbers seen as {dtype}: the card's formats have other bits",
        hint="convert with .to(dtype), or look at the bits after .cpu()",
    )


def _whole(value: Value) -> LinearIndex:
    """A number that the loops count, or a literal, as a count."""
    if value.counted is not None:
        return value.counted
    number: Any = value.number or 0
    return LinearIndex(number if has_symbols([number]) else int(number), {})


def _is_short(number: float) -> bool:
    """Whether a DLFloat16 holds the number."""
    bits = encode_constant(number, DataFormats.SEN169_FP16)
    return number_key(decode_constant(bits, DataFormats.SEN169_FP16)) == number_key(number)


def _converted(number: Any, dtype: torch.dtype) -> Any:
    if has_symbols([number]):
        if dtype == torch.bool:
            raise Unsupported(f"whether {number} is zero is not known when the kernel is compiled")
        return number  # of sizes, so an integer
    if dtype == torch.bool:
        return float(bool(number))
    return _in_range(float(number), dtype) if dtype.is_floating_point else float(int(number))


def _in_range(number: float, dtype: torch.dtype) -> float:
    """As in eager: bfloat16 has more range than the card's format, and finite stays finite."""
    if dtype != torch.bfloat16 or not math.isfinite(number):
        return number
    return max(-LARGEST, min(LARGEST, number))
