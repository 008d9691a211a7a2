"""Numbers in compiled code are those of the program: both zeros, Infinity, NaN, every digit."""

import math

import pytest
import torch
from compiling import card, compiled
from sympy import Symbol
from torch.nn.functional import hardtanh, threshold

from torch_spyre._C import DataFormats
from torch_spyre._inductor import op_spec, programs
from torch_spyre._inductor.codegen.source import kernel_text
from torch_spyre._inductor.kernel_ir import Buffer, contiguous_strides, literal, number_key
from torch_spyre._inductor.kernel_template import filled, template_of
from torch_spyre._inductor.planning.accumulate import Numbers
from torch_spyre._inductor.trace import Tracer
from torch_spyre.execution import kernel_runner

FULL = torch.float32
SPECIALS = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, 0.1, -1 / 3]
C0 = Symbol("c0", integer=True, nonnegative=True)


def bits(tensor):
    """Every NaN is one."""
    host = tensor.detach().cpu().float()
    return torch.where(host.isnan(), torch.nan, host).view(torch.int32).tolist()


@pytest.fixture(params=[False, True], ids=["static", "dynamic"])
def dynamic(request):
    return request.param


def same_bits(function, x, dynamic):
    torch._dynamo.reset()
    torch._dynamo.config.assume_static_by_default = not dynamic
    try:
        got = compiled(function, x).results
    finally:
        torch._dynamo.config.assume_static_by_default = True
    want = function(x)
    for ours, eager in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
        assert bits(ours) == bits(eager)


# ---------------------------------------------------------------------------------- in whole graphs


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, FULL])
def test_zeros_have_signs(requires_grad, dtype, dynamic):
    def function(x):
        zero = torch.full((), -0.0, device=x.device, dtype=x.dtype)
        return 1 / (x * 0.0) - 1 / (x * -0.0), 1 / (x * zero), threshold(x, 3.0, -0.0).reciprocal()

    same_bits(function, card(3, 70, dtype=dtype).abs().requires_grad_(requires_grad), dynamic)


@pytest.mark.parametrize("dtype", [torch.float16, FULL])
def test_constants_of_ops_may_be_anything(dtype, dynamic):
    def function(x):
        return (
            hardtanh(x, -math.inf, 0.5),
            hardtanh(x, -0.5, math.inf),
            threshold(x, 0.0, math.nan),
            threshold(x, 0.0, -math.inf),
            torch.add(x, x, alpha=1 / 3),
        )

    same_bits(function, card(3, 70, dtype=dtype), dynamic)


# -------------------------------------------------------------------------------------- in one loop


def traced(*numbers):
    """The ops of a loop that multiplies a tensor by numbers."""
    made = {}

    def constant(value, dtype):
        return made.setdefault(number_key(value), Buffer("k", dtype, [], [], constant=value))

    x = Buffer("x", FULL, [70], [1])

    def local(dtype, size):
        return Buffer("t", dtype, size, contiguous_strides(size), local=True)

    tracer = Tracer({C0: 70}, lambda name: x, local, constant, "")
    loaded = tracer.emit("identity", [tracer.constant(1.0, FULL)], FULL)
    for number in numbers:
        tracer.emit("mul", [loaded, tracer.constant(number, FULL)], FULL)
        tracer.emit("clip", [loaded], FULL, {"min": number, "max": number})
    return [op for op in tracer.ops if op.op != "identity"]


def test_equal_values_are_computed_once():
    for number in SPECIALS:
        assert len(traced(number, number)) == 2


def test_different_values_are_not():
    ops = traced(*SPECIALS)
    assert len(ops) == 2 * len(SPECIALS)
    held = [op.inputs[1].buffer.constant for op in ops if op.op == "mul"]
    assert [*map(repr, held)] == [*map(repr, SPECIALS)]


def test_numbers_that_planning_adds_have_signs():
    numbers = Numbers()
    zeros = [numbers.number(value, FULL).buffer for value in (0.0, -0.0, 0.0)]
    assert [math.copysign(1, zero.constant) for zero in zeros] == [1, -1, 1]
    assert zeros[0] is zeros[2]


def test_constants_on_the_card_have_signs():
    held = [kernel_runner.constant_tensor(value, FULL, 0) for value in (0.0, -0.0, 1, True)]
    assert [bits(tensor) for tensor in held] == [bits(torch.tensor(v)) for v in (0.0, -0.0, 1, 1)]


# ------------------------------------------------------------------------------------------ as text


@pytest.mark.parametrize("number", SPECIALS)
def test_texts_hold_every_number(number):
    assert repr(eval(literal(number), {})) == repr(number)
    (op,) = traced(number)[1:]
    op.output.buffer.local = False
    (made,), _, _ = filled(template_of([op], ()).data, [])
    assert repr(made.constants) == repr({"min": number, "max": number})


@pytest.mark.parametrize("number", SPECIALS)
def test_op_specs_hold_every_number(number):
    from kernel_ops import A, at, buffer, op

    from torch_spyre._inductor.planning import plan_kernel

    x, y = buffer("x", 70, dtype=FULL), buffer("y", 70, dtype=FULL)
    made = op("clip", {A: 70}, [at(x, A)], at(y, A), constants={"min": number, "max": 1.0})
    kernel = plan_kernel([made])
    text = kernel_text(kernel)
    names = vars(op_spec) | {"DataFormats": DataFormats}
    specs = eval(text[: text.index("expected=")], names)[0]
    assert repr(specs[0].constants) == repr({"min": number, "max": 1.0})
    superdscs = programs.bundle_of([*map(op_spec.in_integers, specs)]).superdscs
    again = programs.bundle_of(kernel.specs).superdscs
    assert superdscs == again
