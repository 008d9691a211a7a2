"""Pointwise ops beyond the common ones: special functions, activations with their derivatives, odd
dtypes, foreach and optimizers. Nothing here falls back to the CPU.
"""

import math
import re
import subprocess
from pathlib import Path

import mpmath
import pytest
import torch
import torch.nn.functional as F
from elementwise import FLOATS, INTEGERS, check, check_gradients, reference, values
from hypothesis import given
from hypothesis import strategies as st

import torch_spyre
from torch_spyre.ops.fallbacks import refused

pytestmark = pytest.mark.usefixtures("native")


SPECIAL = {
    "sinc": (-4, 4), "lgamma": (0.1, 20), "digamma": (0.1, 20), "i0": (-6, 6), "angle": (-2, 2),
    "erfinv": (-0.99, 0.99), "logit": (0.01, 0.99), "positive": (-2, 2), "square": (-3, 3),
    "deg2rad": (-360, 360), "rad2deg": (-4, 4), "sgn": (-1, 1), "isfinite": (-1, 1),
    "isinf": (-1, 1), "isposinf": (-1, 1), "isneginf": (-1, 1), "nan_to_num": (-1, 1),
    "special.i0e": (-30, 30), "special.i1": (-6, 6), "special.i1e": (-30, 30),
    "special.entr": (-1, 5), "special.erfcx": (-2, 20), "special.log_ndtr": (-10, 4),
    "special.expit": (-4, 4), "special.psi": (0.1, 9),
    "special.gammaln": (0.1, 9), "special.log1p": (-0.5, 9), "special.modified_bessel_i0": (-6, 6),
}  # fmt: skip


def function_of(name):
    return getattr(torch.special, name[8:]) if name.startswith("special.") else getattr(torch, name)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions(name, dtype):
    low, high = SPECIAL[name]
    x = values(dtype, low=low, high=high).to("spyre")
    function = function_of(name)
    on_cpu = x.cpu() if dtype == torch.float32 else x.cpu().float()  # some have no half kernel
    check(function(x), reference(function, on_cpu).to(function(x).dtype))


# Between two poles log |gamma| is zero twice from -2 down, and digamma once.
ZEROS = {"lgamma": [-2.4570247, -2.7476827, -3.1435809, -3.9552943, -4.0391613, -5.0082182, 1, 2],
         "digamma": [1.4616321, -0.5040830, -1.5734985, -2.6107209, -5.6677624]}  # fmt: skip


@pytest.mark.parametrize("name", ZEROS)
def test_gamma_functions_against_many_digits(name):
    """One rounding to fp32, also next to zeros and poles: against 40 digits of mpmath."""
    near = torch.tensor(ZEROS[name])[:, None] + torch.arange(-8, 9) * 2.0**-22
    poles = torch.tensor([-1e-30, 1e-30, -1 + 1e-6, -9.999998, -30.000002, 9.9999, 10.0])
    wide = torch.cat([torch.linspace(-40.3, 40, 300), torch.logspace(-37, 34, 80)])
    x = torch.cat([near.flatten(), poles, wide])
    got = getattr(torch, name)(x.to("spyre")).cpu()
    with mpmath.workdps(40):
        exact = {
            "lgamma": lambda value: mpmath.log(abs(mpmath.gamma(value))) if value < 1e3 else
            mpmath.loggamma(value),
            "digamma": mpmath.digamma,
        }[name]  # fmt: skip
        wanted = [float(exact(mpmath.mpf(value))) for value in x.tolist()]
    wanted = torch.tensor(wanted, dtype=torch.float64)
    magnitude = wanted.abs().float().clamp(min=2**-126)
    unit = torch.nextafter(magnitude, torch.tensor(math.inf)).double() - magnitude.double()
    assert ((got.double() - wanted).abs() / unit).max() <= 0.51


def test_the_card_calls_nothing_of_libm_that_hosts_round_differently():
    """Same bits on every host: it may call only what has one right answer, as fmod has."""
    library = Path(torch_spyre.__file__).parent / "lib" / "libspyre_card.so"
    symbols = subprocess.run(
        ["nm", "-D", "--undefined-only", str(library)], capture_output=True, text=True, check=True
    ).stdout
    called = {line.split()[-1].split("@")[0] for line in symbols.splitlines()}
    assert "fmodf" in called  # they are seen
    inexact = (
        r"(exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|a?(sin|cos|tan)h?|sincos|atan2|erfc?"
        r"|t?l?gamma|hypot|cbrt|[jy][01n])[fl]?(_r)?"
    )
    assert not [name for name in called if re.fullmatch(inexact, name)]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
@pytest.mark.parametrize(
    "name",
    ["sinc", "i0", "angle", "isfinite", "isinf", "isposinf", "isneginf", "nan_to_num", "sgn",
     "positive", "square", "special.entr", "deg2rad", "logit"],
)  # fmt: skip
def test_unary_of_integers(name, dtype):
    if name == "positive" and dtype == torch.bool:
        pytest.skip("PyTorch refuses +bool")
    x = values(dtype)
    function = function_of(name)
    expected = function(x)
    if expected.is_floating_point():
        expected = function(x.double()).to(expected.dtype)
    check(function(x.to("spyre")), expected)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("name", "low"),
    [("logaddexp", -9), ("logaddexp2", -9), ("xlogy", 0.01), ("special.xlog1py", -0.5),
     ("heaviside", -2), ("rsub", -2)],
)  # fmt: skip
def test_binary_functions(name, low, dtype):
    x, y = values(dtype).to("spyre"), values(dtype, low=low, seed=1).to("spyre")
    x[0] = 0
    function = function_of(name)
    wide = reference(function, x.cpu().float(), y.cpu().float())
    if dtype == torch.float32:
        torch.testing.assert_close(function(x, y).cpu(), wide, rtol=1e-6, atol=1e-6)
    else:
        check(function(x, y), wide.to(dtype))


@given(st.lists(st.tuples(*[st.integers(-(2**31), 2**31 - 1)] * 2), min_size=1, max_size=70))
def test_gcd_and_lcm(pairs):
    x, y = (torch.tensor(column, dtype=torch.int32) for column in zip(*pairs, strict=True))
    with refused():
        got = torch.gcd(x.to("spyre"), y.to("spyre")).cpu().tolist()
        multiples = torch.lcm(x.to("spyre") % 1000, y.to("spyre") % 1000).cpu().tolist()
    # The magnitude of the smallest integer does not fit and wraps.
    wrapped = [math.gcd(a, b) - (2**32 if math.gcd(a, b) == 2**31 else 0) for a, b in pairs]
    assert got == wrapped
    assert multiples == [math.lcm(a % 1000, b % 1000) for a, b in pairs]


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_to_num_replaces_what_is_not_finite(dtype):
    x = torch.tensor([math.nan, math.inf, -math.inf, 1.5], dtype=dtype)
    check(torch.nan_to_num(x.to("spyre"), 1, 2, -2), torch.nan_to_num(x, 1, 2, -2))
    replaced = torch.nan_to_num(x.to("spyre"))
    assert replaced.isfinite().all()
    assert replaced[0] == 0
    if dtype != torch.bfloat16:  # whose largest number the card cannot hold
        check(replaced, torch.nan_to_num(x))
    y = x.to("spyre")
    y.nan_to_num_()
    assert torch.equal(y, replaced)


@pytest.mark.parametrize("dtype", FLOATS)
def test_infinities_are_told_apart(dtype):
    x = torch.tensor([math.nan, math.inf, -math.inf, 0, 3], dtype=dtype)
    for name in ("isnan", "isinf", "isposinf", "isneginf", "isfinite"):
        check(getattr(torch, name)(x.to("spyre")), getattr(torch, name)(x))


@pytest.mark.parametrize("decimals", [-2, -1, 0, 1, 3])
def test_round_to_decimals(decimals):
    x = values(torch.float32, low=-500, high=500)
    check(torch.round(x.to("spyre"), decimals=decimals), torch.round(x, decimals=decimals))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_frexp_and_ldexp(dtype):
    x = values(dtype, low=-500, high=500)
    x[0, :4] = torch.tensor([0.0, 1.0, 0.5, -64.0])
    mantissa, exponent = torch.frexp(x.to("spyre"))
    assert exponent.dtype == torch.int32
    expected = torch.frexp(x.to("spyre").cpu())
    check(mantissa, expected.mantissa)
    check(exponent, expected.exponent)
    check(torch.ldexp(mantissa, exponent), x.to("spyre").cpu())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int64])
def test_clamp_by_tensors(dtype):
    x = values(dtype)
    low, high = values(dtype, (70,), seed=1), values(dtype, (5, 1), seed=2)
    a, b, c = (t.to("spyre") for t in (x, low, high))
    check(a.clamp(b, c), x.to("spyre").cpu().clamp(b.cpu(), c.cpu()))
    check(a.clamp(min=b), a.cpu().clamp(min=b.cpu()))
    check(a.clamp(max=c), a.cpu().clamp(max=c.cpu()))
    bound = a.clone()  # out= that is a bound
    torch.clamp(a, b, bound, out=bound)
    check(bound, a.cpu().clamp(b.cpu(), a.cpu()))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool])
def test_equal(dtype):
    x = values(dtype)
    a, b = x.to("spyre"), x.to("spyre")
    before = torch.spyre.counters().bytes_to_host
    assert torch.equal(a, b)
    assert torch.spyre.counters().bytes_to_host - before < 1000  # one element, in its stick
    assert torch.equal(a.t(), b.t())
    b[3, 66] = not b[3, 66]
    assert not torch.equal(a, b)
    assert not torch.equal(a, a[:4])
    assert torch.equal(a[:0], b[:0])
    assert torch.equal(a[0, 0], a[0, 0])
    other = torch.float32 if dtype != torch.float32 else torch.int32
    assert torch.equal(a, a.to(other)) == torch.equal(x, x.to(other))


def test_closeness():
    x = values(torch.float32).to("spyre")
    assert torch.allclose(x, x + 1e-9)
    assert not torch.allclose(x, x + 1)
    nan = torch.full_like(x, math.nan)
    assert not torch.allclose(nan, nan)
    assert torch.allclose(nan, nan, equal_nan=True)
    check(torch.isclose(x, x * (1 + 1e-6)), torch.isclose(x.cpu(), x.cpu() * (1 + 1e-6)))


@pytest.mark.parametrize("left", [torch.float16, torch.float32, torch.int64, torch.bool])
@pytest.mark.parametrize("right", [torch.float16, torch.float32, torch.int32, torch.bool])
def test_where_promotes(left, right):
    x, y = values(left).to("spyre"), values(right, seed=1).to("spyre")
    mask = values(torch.bool, seed=2).to("spyre")
    check(torch.where(mask, x, y), torch.where(mask.cpu(), x.cpu(), y.cpu()))
    check(torch.where(mask, 1.5, y), torch.where(mask.cpu(), 1.5, y.cpu()))


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool])
@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor", "logical_and",
                                  "logical_or", "logical_xor", "eq", "ne"])  # fmt: skip
def test_logic_with_numbers(name, dtype):
    x = values(dtype)
    other = True if dtype == torch.bool else 6
    if name.startswith("logical"):
        other = torch.tensor(other, dtype=dtype)
        on_card = other.to("spyre")
    else:
        on_card = other
    function = getattr(torch, name)
    check(function(x.to("spyre"), on_card), function(x, other))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int16])
def test_integers_of_three_operands(dtype):
    x, y, z = (values(dtype, seed=seed) for seed in range(3))
    a, b, c = (t.to("spyre") for t in (x, y, z))
    check(torch.addcmul(a, b, c, value=3), torch.addcmul(x, y, z, value=3))
    for name in ("trunc", "floor", "ceil", "round"):
        check(getattr(torch, name)(a), getattr(torch, name)(x))
    for mode in (None, "floor", "trunc"):
        divisor = y.abs() + 1
        check(
            torch.div(a, divisor.to("spyre"), rounding_mode=mode),
            torch.div(x, divisor, rounding_mode=mode),
        )


# ------------------------------------------------------------------------------------- activations

ACTIVATIONS = {
    "celu": lambda x: F.celu(x, 0.7),
    "selu": F.selu,
    "elu": lambda x: F.elu(x, 1.3),
    "elu in place": lambda x: F.elu(x * 1, inplace=True),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "hardshrink": F.hardshrink,
    "softshrink": lambda x: F.softshrink(x, 0.3),
    "tanhshrink": F.tanhshrink,
    "logsigmoid": F.logsigmoid,
    "hardtanh": lambda x: F.hardtanh(x, -0.8, 1.2),
    "relu6": lambda x: F.relu6(x * 3),
    "hardsigmoid": lambda x: F.hardsigmoid(x * 1.5),
    "hardswish": lambda x: F.hardswish(x * 1.5),
    "mish": F.mish,
    "softplus": lambda x: F.softplus(x, 1.5, 3),
    "threshold": lambda x: F.threshold(x, 0.5, -2),
    "glu": lambda x: F.glu(x, 1),
    "glu of rows": lambda x: F.glu(x[:4], 0),
    "rrelu in evaluation": lambda x: F.rrelu(x),
    "sigmoid": torch.sigmoid,
    "gelu": F.gelu,
    "silu": F.silu,
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name, dtype):
    function = ACTIVATIONS[name]
    x = values(dtype).to("spyre")
    expected = reference(function, x.cpu())
    result = function(x)
    if "*" in name or name in ("relu6", "hardsigmoid", "hardswish"):  # two roundings
        torch.testing.assert_close(result.cpu(), expected, rtol=2e-2, atol=2e-2)
    elif dtype == torch.float32:
        torch.testing.assert_close(result.cpu(), expected, rtol=1e-5, atol=1e-6)
    else:
        torch.testing.assert_close(result.cpu().float(), expected.float(), rtol=1e-2, atol=4e-3)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_derivatives_of_activations(name):
    check_gradients(ACTIVATIONS[name], values(torch.float32))


def test_prelu_and_its_derivatives():
    x = values(torch.float32, (3, 6, 11))
    check_gradients(F.prelu, x, torch.linspace(0.1, 0.6, 6))
    check_gradients(F.prelu, x, torch.tensor([0.25]))


@pytest.mark.parametrize(
    ("function", "low", "high"),
    [
        (torch.logit, 0.1, 0.9),
        (lambda x: torch.logit(x, 0.25), 0, 1),
        (torch.special.entr, 0.1, 3),
        (torch.lgamma, 0.2, 5),
        (torch.sinc, 0.1, 0.9),
        (torch.erfinv, -0.9, 0.9),
        (torch.special.i0e, -3, 3),
        (torch.special.log_ndtr, -3, 3),
        (torch.special.erfcx, -1, 3),
        (torch.angle, 0.1, 1),
        (torch.sgn, -1, 1),
    ],
)
def test_derivatives_of_special_functions(function, low, high):
    check_gradients(function, values(torch.float32, low=low, high=high), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "function",
    [torch.logaddexp, torch.logaddexp2, torch.xlogy, torch.special.xlog1py, torch.hypot,
     torch.atan2, torch.rsub, lambda x, y: torch.clamp(x, y, y + 1)],
)  # fmt: skip
def test_derivatives_of_two_operands(function):
    x, y = values(torch.float32, low=0.3), values(torch.float32, (70,), low=0.5, seed=1)
    check_gradients(function, x, y, rtol=1e-4, atol=1e-4)


def test_views_and_out():
    x = values(torch.float16, (9, 70)).to("spyre")
    view = x.t()[3:40, 1::2]
    out = torch.zeros(80, 37, dtype=torch.float16, device="spyre").t()[:, 7:11]
    torch.sinc(view, out=out)
    check(out, reference(torch.sinc, view.cpu().float()).half())
    check(F.glu(x.t()[:66], 0), reference(lambda t: F.glu(t, 0), x.t()[:66].cpu().float()).half())
    empty = torch.empty(0, 3, device="spyre")
    assert torch.lgamma(empty).shape == (0, 3)
    assert F.glu(torch.ones(4, device="spyre")).shape == (2,)


def test_wrong_arguments_are_refused_as_on_the_cpu():
    x = torch.ones(3, 5, device="spyre")
    with pytest.raises(RuntimeError, match="Halving dimension must be even"):
        F.glu(x, 1)
    for function in (torch.logit, torch.angle, torch.sinc, torch.exp):
        with pytest.raises(RuntimeError, match="can't be cast"):
            function(x.int(), out=x.int())
    with pytest.raises(RuntimeError, match="can't be cast"):
        x.int().logit_()
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.div(x, x, out=x.int())
    with pytest.raises(RuntimeError, match="nan_to_num"):
        torch.nan_to_num(x, out=x.half())
    with pytest.raises(RuntimeError, match="frexp"):
        torch.frexp(x.int())
    with pytest.raises(RuntimeError, match="lambda must be"):
        F.softshrink(x, -1)
    with pytest.raises(RuntimeError, match="one of 'min' or 'max'"):
        torch.clamp(x)
    with pytest.raises(RuntimeError, match="heaviside"):
        torch.heaviside(x, x.half())
    with pytest.raises((NotImplementedError, RuntimeError), match=r"gcd|not implemented"):
        torch.gcd(x, x)


# ---------------------------------------------------------------------------- foreach, optimizers


def test_foreach_ops():
    x = [values(torch.float32, (3, 5), seed=i) for i in range(3)]
    a = [t.to("spyre") for t in x]
    for name, rest in [("add", (2,)), ("mul", (0.5,)), ("neg", ()), ("exp", ()), ("abs", ()),
                       ("sigmoid", ()), ("add", ("self",)), ("addcmul", ("self", "self", 0.5)),
                       ("addcdiv", ("self", "self", 0.5)), ("lerp", ("self", 0.3)),
                       ("maximum", ("self",)), ("clamp_min", (0.5,))]:  # fmt: skip
        function = getattr(torch, f"_foreach_{name}")
        got = function(a, *(a[::-1] if r == "self" else r for r in rest))
        expected = function(x, *(x[::-1] if r == "self" else r for r in rest))
        for g, e in zip(got, expected, strict=True):
            torch.testing.assert_close(g.cpu(), e, rtol=1e-5, atol=1e-6)
    norms = torch._foreach_norm(a)
    torch.testing.assert_close(norms[1].cpu(), x[1].norm())


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1),
    "SGD with momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, 0.01),
    "Adam with amsgrad": lambda p: torch.optim.Adam(p, 0.01, amsgrad=True, weight_decay=0.1),
    "AdamW": lambda p: torch.optim.AdamW(p, 0.01),
    "AdamW, one by one": lambda p: torch.optim.AdamW(p, 0.01, foreach=False),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.5),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 0.01),
    "Adamax": lambda p: torch.optim.Adamax(p, 0.01),
    "NAdam": lambda p: torch.optim.NAdam(p, 0.01),
    "RAdam": lambda p: torch.optim.RAdam(p, 0.01),
    "Adadelta": lambda p: torch.optim.Adadelta(p),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_step_as_on_the_cpu(name):
    weights = {}
    for device in ("cpu", "spyre"):
        p = [values(torch.float32, shape, seed=5).to(device) for shape in [(3, 70), (5,)]]
        optimizer = OPTIMIZERS[name]([t.requires_grad_() for t in p])
        for _ in range(3):
            optimizer.zero_grad()
            sum((t * t).sum() for t in p).backward()
            torch.nn.utils.clip_grad_value_(p, 5.0)
            optimizer.step()
        weights[device] = [t.detach().cpu() for t in p]
    for got, expected in zip(weights["spyre"], weights["cpu"], strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
