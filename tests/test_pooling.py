"""Pooling and resizing on the card, against PyTorch on the CPU in float64."""

import functools
import math

import pytest
import torch
import torch.nn.functional as F
from gradients import FLOATS, VIEWS, agree, check, on_card, random, wide
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from torch_spyre.ops.fallbacks import refused

MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
ADAPTIVE_MAX = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
ADAPTIVE_AVG = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}


@pytest.fixture(autouse=True)
def native():
    """Nothing here may fall back to the CPU."""
    with refused():
        yield


@st.composite
def windows(draw, dilated):
    rank = draw(st.integers(1, 3))
    numbers = lambda low, high: [draw(st.integers(low, high)) for _ in range(rank)]  # noqa: E731
    kernel = numbers(1, 4)
    kwargs = {
        "kernel_size": kernel,
        "stride": draw(st.one_of(st.none(), st.just(numbers(1, 4)))),
        "padding": [draw(st.integers(0, k // 2)) for k in kernel],
        "ceil_mode": draw(st.booleans()),
    }
    if dilated:
        kwargs["dilation"] = numbers(1, 2)
    else:
        kwargs["count_include_pad"] = draw(st.booleans())
        if rank > 1:
            kwargs["divisor_override"] = draw(st.sampled_from([None, None, 3]))
    batch = draw(st.sampled_from([(), (2,)]))
    return rank, (*batch, draw(st.integers(1, 3)), *numbers(8, 10 if rank == 3 else 15)), kwargs


# ------------------------------------------------------------------------------------------ maxima


@given(windows(dilated=True))
def test_max_pool_with_indices_and_gradients(case):
    rank, shape, kwargs = case
    x = random(*shape)
    values, indices = MAX[rank](x.to("spyre"), **kwargs, return_indices=True)
    expected, where = MAX[rank](x, **kwargs, return_indices=True)
    assert torch.equal(values.cpu(), expected)
    assert torch.equal(indices.cpu(), where)
    agree(lambda x: MAX[rank](x, **kwargs), [x], scale=10)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_max_pool_of_every_dtype_and_view(dtype, view):
    agree(lambda x: F.max_pool2d(x, 3, 2, 1), [random(2, 3, 13, 70)], dtype, view, scale=10)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_max_pool_of_integers(dtype):
    x = (
        torch.arange(2 * 49).reshape(2, 1, 7, 7) * 37 % 100 - (0 if dtype == torch.uint8 else 50)
    ).to(dtype)
    values, indices = F.max_pool2d(x.to("spyre"), 3, 2, 1, return_indices=True)
    expected, where = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    assert torch.equal(values.cpu(), expected)
    assert torch.equal(indices.cpu(), where)


def test_nan_and_infinities_in_max_pool():
    x = random(1, 1, 6, 6)
    x[0, 0, 2, 3] = math.nan
    x[0, 0, 5, 5] = math.inf
    torch.testing.assert_close(
        F.max_pool2d(x.to("spyre"), 2).cpu(), F.max_pool2d(x, 2), rtol=0, atol=0, equal_nan=True
    )


def test_a_window_of_nothing_but_minus_infinity_points_at_a_real_element():
    x = torch.full((1, 1, 5, 5), -math.inf)
    for kwargs in ({"padding": 1}, {"padding": 1, "dilation": 2}, {}):
        values, indices = F.max_pool2d(x.to("spyre"), 3, 2, **kwargs, return_indices=True)
        expected, where = F.max_pool2d(x, 3, 2, **kwargs, return_indices=True)
        assert torch.equal(values.cpu(), expected)
        assert torch.equal(indices.cpu(), where)


def test_the_first_of_equals_is_the_maximum():
    x = torch.zeros(1, 1, 4, 4)
    _, indices = F.max_pool2d(x.to("spyre"), 2, return_indices=True)
    assert indices.flatten().tolist() == [0, 2, 8, 10]


# ------------------------------------------------------------------------------------------- means


@given(windows(dilated=False))
def test_avg_pool_and_gradients(case):
    rank, shape, kwargs = case
    agree(lambda x: AVG[rank](x, **kwargs), [random(*shape)], scale=20)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_avg_pool_of_every_dtype_and_view(dtype, view):
    for kwargs in ({"padding": 1}, {"padding": 1, "count_include_pad": False}, {"ceil_mode": True}):
        op = functools.partial(F.avg_pool2d, kernel_size=3, stride=2, **kwargs)
        agree(op, [random(2, 3, 13, 70)], dtype, view, scale=10)


def test_avg_pool_of_integers():
    x = torch.arange(-40, 58).reshape(2, 1, 7, 7)
    for include in (True, False):
        actual = F.avg_pool2d(x.to("spyre"), 3, 2, 1, count_include_pad=include)
        assert torch.equal(actual.cpu(), F.avg_pool2d(x, 3, 2, 1, count_include_pad=include))


def test_an_infinity_stays_in_its_window():
    x = random(1, 1, 6, 10)
    x[0, 0, 0, 0] = math.inf
    for op in (lambda x: F.avg_pool2d(x, 2), lambda x: F.adaptive_avg_pool2d(x, (4, 3))):
        torch.testing.assert_close(op(x.to("spyre")).cpu(), op(x))


def test_lp_pool_and_local_response_norm():
    agree(lambda x: F.lp_pool2d(x, 2, 2), [random(1, 2, 8, 8)], scale=10)
    agree(lambda x: F.local_response_norm(x, 3), [random(1, 4, 5, 5)], scale=10)


# ---------------------------------------------------------------------------------------- adaptive


@settings(max_examples=40)
@given(st.data())
def test_adaptive_pools_of_any_size(data):
    rank = data.draw(st.integers(1, 3))
    size = [data.draw(st.integers(1, 12 if rank < 3 else 6)) for _ in range(rank)]
    out = [data.draw(st.integers(1, 8 if rank < 3 else 4)) for _ in range(rank)]
    x = random(*data.draw(st.sampled_from([(), (2,)])), 2, *size)
    agree(lambda x: ADAPTIVE_AVG[rank](x, out), [x], scale=20)
    values, indices = ADAPTIVE_MAX[rank](x.to("spyre"), out, return_indices=True)
    expected, where = ADAPTIVE_MAX[rank](x, out, return_indices=True)
    assert torch.equal(values.cpu(), expected)
    assert torch.equal(indices.cpu(), where)
    agree(lambda x: ADAPTIVE_MAX[rank](x, out), [x], scale=20)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_adaptive_pools_of_every_dtype_and_view(dtype, view):
    x = random(2, 3, 14, 10)
    agree(lambda x: F.adaptive_avg_pool2d(x, (7, 4)), [x], dtype, view, scale=10)
    agree(lambda x: F.adaptive_avg_pool2d(x, 1), [x], dtype, view, scale=10)
    agree(lambda x: F.adaptive_max_pool2d(x, (7, 4)), [x], dtype, view, scale=10)


def test_out_and_nothing():
    x = random(2, 3, 8, 8)
    out = torch.empty(3, 2, 4, 4, device="spyre").transpose(0, 1)
    torch._C._nn.avg_pool2d(x.to("spyre"), 2, out=out)
    check(out, F.avg_pool2d(x, 2))
    empty = torch.empty(0, 3, 8, 8, device="spyre")
    for op in (F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d, F.adaptive_max_pool2d):
        assert op(empty, 2).shape == op(torch.empty(0, 3, 8, 8), 2).shape


@pytest.mark.parametrize(
    "call",
    [
        lambda d: F.max_pool2d(torch.ones(1, 1, 2, 2, device=d), 3),
        lambda d: F.max_pool2d(torch.ones(1, 1, 4, 4, device=d), 2, padding=2),
        lambda d: F.max_pool3d(torch.ones(1, 1, 2, 2, 2, device=d), 3),
        lambda d: F.max_pool2d(torch.ones(1, 1, 4, 4, device=d).bool(), 2),
        lambda d: F.avg_pool2d(torch.ones(1, 1, 4, 4, device=d), 0),
        lambda d: F.avg_pool2d(torch.ones(1, 1, 4, 4, device=d), 2, divisor_override=0),
        lambda d: F.avg_pool2d(torch.ones(1, 1, 4, 4, device=d, dtype=torch.int32), 2),
        lambda d: F.adaptive_avg_pool2d(torch.ones(4, 4, device=d), 2),
        lambda d: F.adaptive_avg_pool2d(torch.ones(1, 1, 4, 4, device=d, dtype=torch.int64), 2),
        lambda d: F.interpolate(torch.ones(1, 1, 4, 4, device=d), size=0),
    ],
    ids=["large", "padding", "3d", "bool", "zero", "divisor", "int32", "rank", "int64", "size"],
)
def test_what_the_cpu_refuses_is_refused(call):
    with pytest.raises(Exception) as expected:
        call("cpu")
    with pytest.raises(expected.type):
        call("spyre")


# ---------------------------------------------------------------------------------------- resizing

MODES = {
    1: ["nearest", "nearest-exact", "linear"],
    2: ["nearest", "nearest-exact", "bilinear", "bicubic"],
    3: ["nearest", "nearest-exact", "trilinear"],
}


@settings(max_examples=40)
@given(st.data())
def test_resizing_by_any_ratio(data):
    rank = data.draw(st.integers(1, 3))
    mode = data.draw(st.sampled_from(MODES[rank]))
    size = [data.draw(st.integers(1, 9)) for _ in range(rank)]
    kwargs = {"mode": mode}
    if data.draw(st.booleans()):
        kwargs["size"] = [data.draw(st.integers(1, 14)) for _ in range(rank)]
    else:
        # A quarter: scales that float32, in which PyTorch computes places, holds exactly.
        low = max(1, math.ceil(4 / min(size)))
        kwargs["scale_factor"] = [data.draw(st.integers(low, 12)) / 4 for _ in range(rank)]
        # A size just kept or doubled by a scale that is not 1 or 2: PyTorch's index function takes
        # it for 1 or 2, and so do we, backwards too; its CPU kernels do so backwards, and forwards
        # in some ranks and memory formats only.
        scaled = zip(size, kwargs["scale_factor"], strict=True)
        assume(not any(scale not in (1, 2) and int(n * scale) in (n, 2 * n) for n, scale in scaled))
    if "near" not in mode:
        kwargs["align_corners"] = data.draw(st.booleans())
    # Weights are float32 on both; in float64 places between two inputs would differ.
    x = random(2, 2, *size)
    card, host = x.to("spyre").requires_grad_(), x.clone().requires_grad_()
    actual, expected = F.interpolate(card, **kwargs), F.interpolate(host, **kwargs)
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-5, atol=1e-5)
    gradient = random(*expected.shape, seed=1)
    actual.backward(gradient.to("spyre"))
    expected.backward(gradient)
    torch.testing.assert_close(card.grad.cpu(), host.grad, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_resizing_of_every_dtype_and_view(dtype, view):
    x = random(2, 3, 8, 33)
    agree(lambda x: F.interpolate(x, scale_factor=2), [x], dtype, view, scale=10)
    agree(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), [x], dtype, view, scale=10)
    agree(lambda x: F.interpolate(x, size=(5, 7), mode="nearest-exact"), [x], dtype, view, scale=10)


def test_nearest_copies_bits():
    x = torch.arange(24, dtype=torch.uint8).reshape(1, 2, 3, 4)
    actual = F.interpolate(x.to("spyre"), scale_factor=3)
    assert torch.equal(actual.cpu(), F.interpolate(x, scale_factor=3))
    y = on_card(random(1, 1, 4, 4), torch.float16)
    assert torch.equal(wide(F.interpolate(y, size=4)), wide(y))


def test_integers_are_not_interpolated():
    with pytest.raises(NotImplementedError, match="float16"):
        F.interpolate(
            torch.ones(1, 1, 4, 4, dtype=torch.uint8, device="spyre"), size=8, mode="bilinear"
        )
