"""From the body of an Inductor loop to kernel ops, one for each thing it computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from sympy import Expr, Symbol
from torch._inductor.dtype_propagation import DtypePropagationOpsHandler
from torch._inductor.ops_handler import DefaultHandler
from torch._inductor.virtualized import OpsWrapper, V

from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp, Ramp
from torch_spyre._inductor.views import LinearIndex
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
REDUCTIONS = {"sum": "sum", "max": "max", "min": "min", "prod": "prod", "any": "any"}


class Value:
    """The result of an op in a loop body."""

    def __init__(self, dtype: torch.dtype, access: Access | None, number: float | None = None):
        self.dtype = dtype
        self.access = access
        self.number = number  # a literal


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
        self.space = space
        self.find_buffer = find_buffer
        self.new_local = new_local
        self.constant_buffer = constant
        self.origin = origin
        self.ops: list[KernelOp] = []
        self.dtypes = DtypePropagationOpsHandler()
        self.known: dict[Any, Value] = {}

    # ------------------------------------------------------------------------------------ leaves

    def load(self, name: str, index: Expr) -> Value:
        buffer = self.find_buffer(name)
        linear = self.linear(index + buffer.offset)
        ends = [stride * (self.space[s] - 1) for s, stride in linear.strides.items()]
        first = linear.offset + sum(end for end in ends if end < 0)
        last = linear.offset + sum(end for end in ends if end > 0)
        spans = zip(buffer.size, buffer.stride, strict=True)
        end = buffer.offset + sum((n - 1) * stride for n, stride in spans)
        if first < 0 or last > end:
            raise Unsupported(f"{index} leads outside of {buffer}, under a mask")
        return Value(buffer.dtype, Access(buffer, linear))

    def linear(self, index: Expr) -> LinearIndex:
        index = simplified(index, self.space)
        linear = LinearIndex.of(index, list(self.space))
        if linear is None:
            raise Unsupported(f"the index {index} is not linear in its loops")
        return linear

    def constant(self, value: float, dtype: torch.dtype) -> Value:
        return Value(dtype, None, float(value))

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
        short = (torch.float16, torch.bfloat16)
        opfunc = "identity"
        if value.dtype in short and dtype == torch.float32:
            opfunc = "dl16tofp32"
        elif value.dtype == torch.float32 and dtype in short:
            opfunc = "fp32todl16"
        return self.emit(opfunc, [value], dtype)

    def index_expr(self, expression: Expr, dtype: torch.dtype) -> Value:
        """A number that the loops count."""
        index = self.linear(expression)
        symbols = [s for s in self.space if index.strides.get(s)]
        if not symbols:
            return Value(dtype, None, float(index.offset))
        ramp = Ramp(
            tuple(self.space[s] for s in symbols),
            tuple(index.strides[s] for s in symbols),
            index.offset,
        )
        buffer = self.constant_buffer(ramp, dtype)
        strides = dict(zip(symbols, buffer.stride, strict=True))
        own = LinearIndex(0, {s: strides.get(s, 0) for s in self.space})
        return Value(dtype, Access(buffer, own))

    def value_expr(self, expr: Expr, dtype: torch.dtype) -> Value:
        return self.index_expr(expr, dtype)

    def masked(self, mask: Value, body: Callable[[], Any], other: float) -> Value:
        value = OpsWrapper._unwrap(body())
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

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        return self._default("add", (self._default("mul", (a, b), {}), c), {})

    # --------------------------------------------------------------------------------------- ops

    def _default(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
        values = [a if isinstance(a, Value) else self._literal(a) for a in args]
        if kwargs:
            raise Unsupported(f"{name} with {', '.join(kwargs)}")
        if name == "square":
            return self._default("mul", (values[0], values[0]), {})
        opfunc = OPFUNCS.get(name, name)
        if opfunc not in OPS or OPS[opfunc].kind != "pointwise" or OPS[opfunc].constants:
            raise Unsupported(f"the card has no op for {name}")
        dtype = getattr(self.dtypes, name)(*values)
        return self.emit(opfunc, values, dtype)

    def _literal(self, value: Any) -> Value:
        dtype = {bool: torch.bool, int: torch.int64}.get(type(value), torch.float32)
        return Value(dtype, None, float(value))

    def emit(self, opfunc: str, values: Sequence[Value], dtype: torch.dtype) -> Value:
        key = (opfunc, dtype, *(v.access or (v.number, v.dtype) for v in values))
        if key not in self.known:
            buffer = self.new_local(dtype, list(self.space.values()))
            index = self.own_index(buffer)
            inputs = [self.materialised(value) for value in values]
            self.append_op(KernelOp(opfunc, self.space, inputs, Access(buffer, index)), values)
            self.known[key] = Value(dtype, Access(buffer, index))
        return self.known[key]

    def append_op(self, op: KernelOp, values: Sequence[Value]) -> None:
        floats = [v for v in values if v.dtype.is_floating_point]
        op.exact = OPS[op.op].int64 and not floats and not op.output.buffer.dtype.is_floating_point
        op.origin = self.origin
        self.ops.append(op)

    def materialised(self, value: Value) -> Access:
        """Where the card finds the value; literals live in constants of one element."""
        if value.access is not None:
            return value.access
        assert value.number is not None
        return Access(self.constant_buffer(value.number, value.dtype), LinearIndex(0, {}))

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
        op = KernelOp("identity", self.space, [self.materialised(value)], target)
        self.append_op(op, [value])

    def reduce_to(
        self, buffer: Buffer, index: Expr, kind: str, value: Value, outer: dict[Symbol, int]
    ) -> None:
        """The value, reduced over the symbols that are not in ``outer``."""
        target = Access(buffer, self.linear(index + buffer.offset))
        if kind not in REDUCTIONS:
            raise Unsupported(f"the card has no reduction {kind}")
        product = self._product(value, outer) if kind == "sum" else None
        if product is not None:
            op = KernelOp("batchmatmul", self.space, product, target)
        else:
            op = KernelOp(REDUCTIONS[kind], self.space, [self.materialised(value)], target)
        self.append_op(op, [value])

    def _product(self, value: Value, outer: dict[Symbol, int]) -> list[Access] | None:
        """The factors, if the value is the product that a matrix multiplication sums."""
        last = self.ops[-1] if self.ops else None
        if (
            last is None
            or last.op != "mul"
            or value.access is None
            or last.output.buffer is not value.access.buffer
        ):
            return None
        a, b = last.inputs
        inner = [s for s in self.space if s not in outer]
        has = [{s for s, t in x.index.strides.items() if t} for x in (a, b)]
        rows, columns = has[0] - has[1], has[1] - has[0]
        contracted = [s for s in inner if s in has[0] and s in has[1]]
        if len(inner) != 1 or contracted != inner or not rows | columns:
            return None
        self.ops.pop()
        return [a, b]


def simplified(index: Expr, space: dict[Symbol, int]) -> Expr:
    """The index without divisions that the sizes of the loops decide."""
    ranges = {symbol: sympy.Integer(size) for symbol, size in space.items()}
    return V.graph.sizevars.simplify_with_ranges(sympy.sympify(index), ranges)


def _converted(number: float, dtype: torch.dtype) -> float:
    if dtype == torch.bool:
        return float(bool(number))
    return number if dtype.is_floating_point else float(int(number))
