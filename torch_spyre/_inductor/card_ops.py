"""ATen ops that are one pointwise op of the card: one step, one rounding, as in eager."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor import ir, lowering
from torch._inductor.virtualized import ops
from torch._ops import OpOverload
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as PROMOTION

from torch_spyre.constants import DEVICE_NAME
from torch_spyre.ops.table import OPS

aten = torch.ops.aten
Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class CardOp:
    """How an ATen op is called on the card. Its tensors are the inputs, in ATen's order."""

    opfunc: str | Callable[[Arguments], str]  # may depend on the arguments
    constants: tuple[str, ...] = ()  # ATen's names, in the order of the op table
    ignored: tuple[str, ...] = ()  # tensors that the card's op does not read
    numbers: tuple[str, ...] = ()  # inputs that may be numbers

    def name(self, arguments: Arguments) -> str:
        return self.opfunc if isinstance(self.opfunc, str) else self.opfunc(arguments)


DIVISIONS = {None: "realdiv", "floor": "floordivide", "trunc": "truncdivide"}

CARD_OPS: dict[OpOverload, CardOp] = {
    aten.silu.default: CardOp("silu"),
    aten.silu_backward.default: CardOp("silubwd"),
    aten.gelu.default: CardOp(
        lambda a: "gelutanh" if a["approximate"] == "tanh" else "gelufwd",
    ),
    aten.gelu_backward.default: CardOp(
        lambda a: "gelutanhbwd" if a["approximate"] == "tanh" else "geluerfbwd",
    ),
    aten.softplus.default: CardOp("softplus", ("beta", "threshold")),
    aten.softplus_backward.default: CardOp("softplusbwd", ("beta", "threshold")),
    aten.leaky_relu.default: CardOp("leakyrelu", ("negative_slope",)),
    aten.leaky_relu_backward.default: CardOp("leakyrelubwd", ("negative_slope",)),
    aten.elu.default: CardOp("elu", ("alpha", "scale", "input_scale")),
    aten.elu_backward.default: CardOp(
        lambda a: "elubwdresult" if a["is_result"] else "elubwd", ("alpha", "scale", "input_scale")
    ),
    aten.celu.default: CardOp("celu", ("alpha",)),
    aten.mish.default: CardOp("mish"),
    aten.mish_backward.default: CardOp("mishbwd"),
    aten.hardswish.default: CardOp("hardswish"),
    aten.hardswish_backward.default: CardOp("hardswishbwd"),
    aten.hardsigmoid.default: CardOp("hardsigmoid"),
    aten.hardsigmoid_backward.default: CardOp("hardsigmoidbwd"),
    aten.hardtanh.default: CardOp("clip", ("min_val", "max_val")),
    aten.hardtanh_backward.default: CardOp("hardtanhbwd", ("min_val", "max_val")),
    aten.hardshrink.default: CardOp("hardshrink", ("lambd",)),
    aten.hardshrink_backward.default: CardOp("shrinkbwd", ("lambd",)),
    aten.softshrink.default: CardOp("softshrink", ("lambd",)),
    aten.softshrink_backward.default: CardOp("shrinkbwd", ("lambd",)),
    aten.threshold.default: CardOp("threshold", ("threshold", "value")),
    aten.threshold_backward.default: CardOp("thresholdbwd", ("threshold",)),
    aten.log_sigmoid_backward.default: CardOp("logsigmoidbwd", ignored=("buffer",)),
    aten.sigmoid_backward.default: CardOp("sigmoidbwd"),
    aten.tanh_backward.default: CardOp("tanhbwd"),
    aten._prelu_kernel.default: CardOp("prelu"),
    aten.addcmul.default: CardOp("addcmul", ("value",)),
    aten.addcdiv.default: CardOp("addcdiv", ("value",)),
    aten.div.Tensor_mode: CardOp(lambda a: DIVISIONS[a["rounding_mode"]], numbers=("other",)),
    aten.lerp.Tensor: CardOp("lerp"),
    aten.lerp.Scalar: CardOp("lerp", numbers=("weight",)),
    aten.xlogy.Tensor: CardOp("xlogy"),
    aten.special_xlog1py.default: CardOp("xlog1py"),
    aten.logaddexp.default: CardOp("logaddexp"),
    aten.logaddexp2.default: CardOp("logaddexp2"),
    aten.hypot.default: CardOp("hypot"),
    aten.sinc.default: CardOp("sinc"),
    aten.special_entr.default: CardOp("entr"),
    aten.special_erfcx.default: CardOp("erfcx"),
    aten.special_log_ndtr.default: CardOp("log_ndtr"),
    aten.special_i0e.default: CardOp("i0e"),
    aten.special_i1.default: CardOp("i1"),
    aten.special_i1e.default: CardOp("i1e"),
    aten.i0.default: CardOp("i0"),
    aten.lgamma.default: CardOp("lgamma"),
    aten.digamma.default: CardOp("digamma"),
    aten.erfinv.default: CardOp("erfinv"),
}


def lower_card_op(op: OpOverload) -> Callable[..., Any]:
    """A lowering to a loop of one op of the card."""
    row = CARD_OPS[op]

    def lower(*args: Any, **kwargs: Any) -> Any:
        arguments = _bound(op, args, kwargs)
        opfunc = row.name(arguments)
        constants = tuple(float(arguments[name]) for name in row.constants)
        inputs: list[Any] = [
            value
            for name, value in arguments.items()
            if name in row.numbers or (isinstance(value, ir.IRNode) and name not in row.ignored)
        ]
        return pointwise(opfunc, inputs, constants)

    return lower


def lower_add(sign: int, theirs: Callable[..., Any]) -> Callable[..., Any]:
    """``a + alpha * b`` (or -) in one step; without alpha, Inductor's lowering does as well."""

    def lower(a: Any, b: Any, *, alpha: float = 1) -> Any:
        if alpha == 1 or not isinstance(a, ir.IRNode) or not isinstance(b, ir.IRNode):
            return theirs(a, b, alpha=alpha)
        if not _result_dtype("axpy", [a, b]).is_floating_point:
            return theirs(a, b, alpha=alpha)
        return pointwise("axpy", [a, b], (sign * float(alpha),))

    return lower


def pointwise(opfunc: str, inputs: list[Any], constants: tuple[float, ...]) -> Any:
    """A loop of one op of the op table, of tensors and numbers."""
    assert len(constants) == len(OPS[opfunc].constants), opfunc
    dtype = _result_dtype(opfunc, inputs)
    given: list[Any] = [value for value in inputs if isinstance(value, ir.IRNode)]
    devices = [tensor.get_device() for tensor in given]
    tensors = lowering.broadcast_tensors(*(lowering.to_dtype(t, dtype) for t in given))
    loaders = [tensor.make_loader() for tensor in tensors]

    def inner_fn(index: Any) -> Any:
        loaded = (load(index) for load in loaders)
        values = [
            next(loaded) if isinstance(value, ir.IRNode) else ops.constant(value, dtype)
            for value in inputs
        ]
        return card_op(opfunc, values, constants, dtype)

    return ir.Pointwise.create(
        device=next(device for device in devices if device.type == DEVICE_NAME),
        dtype=dtype,
        inner_fn=inner_fn,
        ranges=list(tensors[0].get_size()),
    )


def card_op(
    opfunc: str, values: list[Any], constants: tuple[float, ...], dtype: torch.dtype
) -> Any:
    """An op of the op table in a loop body.

    It has the name that Inductor gives to inline device code, which every handler of loop bodies
    passes on. :class:`~torch_spyre._inductor.trace.Tracer` makes a kernel op of it.
    """
    call: Any = ops.inline_asm_elementwise
    return call(*values, asm=opfunc, constraints=constants, dtype=dtype)


def _bound(op: OpOverload, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments by their names, defaults included."""
    bound = {}
    for position, parameter in enumerate(op._schema.arguments):
        if position < len(args):
            bound[parameter.name] = args[position]
        else:
            bound[parameter.name] = kwargs.get(parameter.name, parameter.default_value)
    return bound


def _result_dtype(opfunc: str, inputs: list[Any]) -> torch.dtype:
    """Of integers, ops that do not compute in integers give the default dtype."""
    kind = PROMOTION.DEFAULT if OPS[opfunc].int64 else PROMOTION.INT_TO_FLOAT
    return lowering.get_promoted_dtype(*inputs, type_promotion_kind=kind)
