"""Pointwise ops on the card: right values, any view, any dtype, no detour through the host."""

import math

import pytest
import torch
import torch.nn.functional as F
from elementwise import FLOATS, INTEGERS, check, reference, values
from hypothesis import given
from hypothesis import strategies as st

from torch_spyre.ops.fallbacks import refused

pytestmark = pytest.mark.usefixtures("native")

UNARY = [
    "abs", "neg", "exp", "exp2", "expm1", "sin", "cos", "tan", "atan", "sinh", "cosh", "asinh",
    "tanh", "sigmoid", "erf", "erfc", "floor", "ceil", "trunc", "round", "frac", "sign", "square",
    "reciprocal", "relu", "signbit", "isnan", "logical_not", "rad2deg",
]  # fmt: skip
POSITIVE = ["log", "log2", "log10", "log1p", "sqrt", "rsqrt"]
BINARY = [
    "add", "sub", "mul", "div", "maximum", "minimum", "fmax", "fmin", "atan2", "hypot", "copysign",
    "remainder", "fmod", "floor_divide", "eq", "ne", "gt", "ge", "lt", "le", "logical_and",
    "logical_or", "logical_xor",
]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, dtype):
    x = values(dtype).to("spyre")
    function = getattr(torch, name)
    check(function(x), reference(function, x.cpu()))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", POSITIVE)
def test_unary_of_positive_numbers(name, dtype):
    x = values(dtype, low=0.05, high=50).to("spyre")
    function = getattr(torch, name)
    check(function(x), reference(function, x.cpu()))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, dtype):
    x, y = values(dtype).to("spyre"), values(dtype, low=0.5, seed=1).to("spyre")
    function = getattr(torch, name)
    check(function(x, y), reference(function, x.cpu(), y.cpu()))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    "name",
    ["add", "sub", "mul", "maximum", "minimum", "remainder", "fmod", "floor_divide", "eq", "lt",
     "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and"],
)  # fmt: skip
def test_integers_are_exact(name, dtype):
    x, y = values(dtype).to("spyre"), (values(dtype, seed=1).abs() + 1).to("spyre")
    function = getattr(torch, name)
    check(function(x, y), function(x.cpu(), y.cpu()))


def test_integers_wrap():
    x = torch.tensor([2**31 - 1, -(2**31)], dtype=torch.int32)
    check(x.to("spyre") + 1, x + 1)
    byte = torch.tensor([250, 3], dtype=torch.uint8)
    check(byte.to("spyre") + 10, byte + 10)


@pytest.mark.parametrize("left", [*FLOATS, torch.int32, torch.int64, torch.bool])
@pytest.mark.parametrize("right", [torch.float16, torch.float32, torch.int64, torch.bool])
def test_types_promote(left, right):
    x, y = values(left).to("spyre"), values(right, seed=1).to("spyre")
    check(x + y, reference(torch.add, x.cpu(), y.cpu()))
    check(x * y, reference(torch.mul, x.cpu(), y.cpu()))


@pytest.mark.parametrize("scalar", [2, 0.5, -3, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int32])
def test_scalars(scalar, dtype):
    x = values(dtype).to("spyre")
    check(x + scalar, reference(torch.add, x.cpu(), scalar))
    check(x * scalar, reference(torch.mul, x.cpu(), scalar))
    check(x > scalar, x.cpu() > scalar)
    check(1 - x, reference(torch.rsub, x.cpu(), 1))


@pytest.mark.parametrize(
    "shapes",
    [((5, 70), (70,)), ((5, 70), (5, 1)), ((5, 70), ()), ((1,), (3, 2, 65)), ((4, 1, 6), (5, 1)),
     ((64, 64), (64, 64)), ((0, 3), (1, 3)), ((2, 3, 4, 5, 6), (4, 1, 6))],
)  # fmt: skip
def test_broadcasting(shapes):
    x, y = (values(torch.float16, shape, seed=i).to("spyre") for i, shape in enumerate(shapes))
    check(x + y, reference(torch.add, x.cpu(), y.cpu()))


VIEWS = {
    "transposed": lambda t: t.t(),
    "slice inside a stick": lambda t: t[1:, 3:],
    "steps": lambda t: t[::2, ::3],
    "expanded": lambda t: t[:, :1].expand(-1, 9),
    "row": lambda t: t[2],
    "flat": lambda t: t.reshape(-1)[7:200],
}


@pytest.mark.parametrize("second", VIEWS)
@pytest.mark.parametrize("first", VIEWS)
def test_views_are_read_in_place(first, second):
    x, y = values(torch.float16).to("spyre"), values(torch.float32, seed=1).to("spyre")
    a, b = VIEWS[first](x), VIEWS[second](y)
    if a.shape != b.shape:
        b = VIEWS[first](y)
    before = torch.spyre.counters()
    result = a * b
    after = torch.spyre.counters()
    assert after.launches == before.launches + 1
    assert after.transfers_to_host == before.transfers_to_host
    check(result, reference(torch.mul, a.cpu(), b.cpu()))


@given(st.data())
def test_any_pair_of_views(data):
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 31, 64, 65]), min_size=1, max_size=3))
    x, y = (values(torch.float16, tuple(shape), seed=i).to("spyre") for i in range(2))
    order = data.draw(st.permutations(range(len(shape))))
    x, y = x.permute(order), y.contiguous().permute(order)
    for dim, size in enumerate(x.shape):
        start = data.draw(st.integers(0, size - 1))
        step = data.draw(st.integers(1, 3))
        index = (slice(None),) * dim + (slice(start, None, step),)
        x, y = x[index], y[index]
    with refused():
        check(x - y, reference(torch.sub, x.cpu(), y.cpu()))


def test_in_place_writes_the_view_and_nothing_else():
    x = values(torch.float16).to("spyre")
    expected = x.cpu()
    x[1:3, 5:40].add_(1)
    expected[1:3, 5:40] = (expected[1:3, 5:40].float() + 1).half()
    check(x, expected.to("spyre").cpu())


def test_out_is_written_and_resized():
    x = values(torch.float32).to("spyre")
    out = torch.empty(0, device="spyre")
    assert torch.mul(x, 2, out=out) is out
    check(out, x.cpu() * 2)
    strided = torch.zeros(70, 5, device="spyre").t()
    torch.add(x, 1, out=strided)
    check(strided, x.cpu() + 1)


def test_alpha():
    x, y = values(torch.float32).to("spyre"), values(torch.float32, seed=1).to("spyre")
    check(torch.add(x, y, alpha=3), x.cpu() + 3 * y.cpu())
    check(torch.sub(x, y, alpha=0.5), x.cpu() - 0.5 * y.cpu())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int64, torch.bool])
def test_where_and_masks(dtype):
    x, y = values(dtype).to("spyre"), values(dtype, seed=1).to("spyre")
    mask = values(torch.bool, seed=2).to("spyre")
    check(torch.where(mask, x, y), torch.where(mask.cpu(), x.cpu(), y.cpu()))
    check(x.masked_fill(mask, 1), x.cpu().masked_fill(mask.cpu(), 1))
    check(torch.where(mask, x, 1), torch.where(mask.cpu(), x.cpu(), 1))


def test_masks_of_minus_infinity_work():
    x = values(torch.float16).to("spyre")
    masked = x.masked_fill(values(torch.bool, seed=2).to("spyre"), -math.inf)
    assert torch.equal(masked.cpu().isinf(), values(torch.bool, seed=2))
    assert (masked.exp().cpu()[values(torch.bool, seed=2)] == 0).all()


@pytest.mark.parametrize("name", ["gelu", "silu", "mish", "softplus", "elu", "leaky_relu", "relu",
                                  "hardswish", "hardsigmoid", "relu6", "softsign"])  # fmt: skip
def test_activations(name):
    x = values(torch.float16).to("spyre")
    function = getattr(torch.nn.functional, name)
    check(function(x), reference(function, x.cpu()))


def test_gelu_with_tanh():
    x = values(torch.float16).to("spyre")
    check(torch.nn.functional.gelu(x, approximate="tanh"),
          torch.nn.functional.gelu(x.cpu().double(), approximate="tanh").half())  # fmt: skip


@pytest.mark.parametrize(("low", "high"), [(-1, 2), (None, 0.5), (0, None)])
def test_clamp(low, high):
    x = values(torch.float16).to("spyre")
    check(x.clamp(low, high), x.cpu().clamp(low, high))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int32], ids=str)
@pytest.mark.parametrize("bounds", [(math.nan, None), (None, math.nan), (0, math.nan)])
def test_clamp_to_nan_is_nan(bounds, dtype):
    x = torch.arange(-3, 3, dtype=dtype)
    check(x.to("spyre").clamp(*bounds), x.clamp(*bounds))


def test_masked_fill_with_an_element_of_itself():
    x = torch.arange(5.0, device="spyre")
    x.masked_fill_(x > 2, x[1])
    assert x.tolist() == [0, 1, 2, 1, 1]


def test_numbers_are_exact_integers(no_downcast_warning):
    x = torch.tensor([2**24 + 1, 2**31 - 1, -(2**24) - 1], device="spyre")
    for number in (2**24 + 1, 2**31 - 1, -(2**24) - 1):
        check(x == number, x.cpu() == number)
        check(x > number, x.cpu() > number)
        check(x.masked_fill(x > 0, number), x.cpu().masked_fill(x.cpu() > 0, number))
        check(x.fmod(number), x.cpu().fmod(number))


@pytest.mark.parametrize("number", [1e39, -1e300, 2.0**200])
def test_numbers_beyond_float32_compare_as_infinity(number):
    x = torch.tensor([-math.inf, -3e38, 0.0, 3e38, math.inf, math.nan])
    for compare in (torch.lt, torch.le, torch.gt, torch.ge, torch.eq, torch.ne):
        check(compare(x.to("spyre"), number), compare(x, float(number)))


def test_special_values():
    special = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0])
    for dtype in (torch.float16, torch.float32):
        x = special.to(dtype).to("spyre")
        check(x + 1, special.to(dtype) + 1)
        check(torch.maximum(x, torch.zeros_like(x)), special.to(dtype).clamp(min=0))
        check(1 / x[3:], 1 / special[3:].to(dtype))
        check(x.isnan(), special.isnan())


def test_overflow_is_infinity_only_beyond_the_format():
    x = torch.full((3,), 60000.0, dtype=torch.float16, device="spyre")
    assert (x * 2).to("cpu", torch.float32).tolist() == [120064.0] * 3  # DLFloat16 goes to 8.6e9
    assert (x * x * x).cpu().isinf().all()


def test_a_cpu_tensor_is_refused():
    x = torch.ones(3, device="spyre")
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(3)


def test_partial_overlap_is_refused():
    x = torch.ones(10, device="spyre")
    with pytest.raises(RuntimeError, match=r"overlap|memory"):
        torch.add(x[:9], 1, out=x[1:])


def test_programs_are_kept():
    x = values(torch.float16, (33, 65)).to("spyre")
    x + x
    before = torch.spyre.counters().programs_loaded
    for _ in range(5):
        x + x
    assert torch.spyre.counters().programs_loaded == before


@pytest.mark.parametrize(
    "function", [torch.sigmoid, torch.tanh, F.silu, F.gelu, torch.relu, torch.exp, torch.sin]
)
def test_gradients(function):
    x = values(torch.float32)
    card = x.to("spyre").requires_grad_()
    host = x.clone().requires_grad_()
    function(card).backward(torch.ones_like(card))
    function(host).backward(torch.ones_like(host))
    torch.testing.assert_close(card.grad.cpu(), host.grad, rtol=1e-5, atol=1e-6)
