"""Batch, group and instance norm and renorm on the card, against PyTorch on the CPU in float64."""

import math

import pytest
import torch
import torch.nn.functional as F
from gradients import FLOATS, VIEWS, agree, check, random, refused_as_on_the_cpu, wide
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

pytestmark = pytest.mark.usefixtures("native")


SHAPES = [(6, 5), (3, 4, 7), (2, 6, 5, 9), (2, 3, 4, 5, 6)]


def parameters(channels):
    return [random(channels, seed=1), random(channels, seed=2)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_batch_norm_in_training(dtype, shape):
    agree(
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        [random(*shape), *parameters(shape[1])],
        dtype,
        scale=20,
    )
    agree(lambda x: F.batch_norm(x, None, None, training=True), [random(*shape)], dtype, scale=20)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("view", VIEWS)
def test_batch_norm_of_views(view, dtype):
    agree(
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        [random(2, 6, 5, 70), *parameters(6)],
        dtype,
        view,
        scale=30,
    )


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_batch_norm_in_evaluation(dtype):
    mean, var = random(4, seed=3), random(4, seed=4).abs() + 0.5

    def op(x, w, b):
        stats = (mean.to(x), var.to(x)) if x.is_cpu else (mean.to("spyre"), var.to("spyre"))
        return F.batch_norm(x, *stats, w, b)

    agree(op, [random(3, 4, 5, 6), *parameters(4)], dtype, scale=30)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics(momentum):
    torch.manual_seed(0)
    host = nn.BatchNorm2d(5, momentum=momentum).double()
    card = nn.BatchNorm2d(5, momentum=momentum).to("spyre")
    for seed in range(3):
        x = random(4, 5, 3, 7, seed=seed) + seed
        expected, actual = host(x.double()), card(x.to("spyre"))
        check(actual, expected, scale=5)
    check(card.running_mean, host.running_mean, scale=5)
    check(card.running_var, host.running_var, scale=5)
    assert card.num_batches_tracked.item() == 3
    host.eval(), card.eval()
    check(card(x.to("spyre")), host(x.double()), scale=5)


def test_statistics_do_not_lose_small_variances():
    """The variance of values around a large mean: two passes, not a difference of squares."""
    x = random(8, 2, 16, 16) * 0.1 + 1000
    out = F.batch_norm(x.to("spyre"), None, None, training=True)
    expected = F.batch_norm(x.double(), None, None, training=True)
    assert (wide(out) - expected).abs().max() < 2e-3


def test_the_functions_beneath_batch_norm():
    x = random(3, 4, 5)
    w, b = parameters(4)
    card = [t.to("spyre") for t in (x, w, b)]
    mean, var = torch.zeros(4), torch.ones(4)
    for op in (torch.ops.aten.native_batch_norm, torch.ops.aten._native_batch_norm_legit):
        on_host, on_card = (mean.clone(), var.clone()), (mean.to("spyre"), var.to("spyre"))
        expected = op(x, w, b, *on_host, True, 0.1, 1e-5)
        actual = op(*card, *on_card, True, 0.1, 1e-5)
        for a, e in zip((*actual, *on_card), (*expected, *on_host), strict=True):
            check(a, e, scale=5)
    on_host, on_card = (mean.clone(), var.clone()), (mean.to("spyre"), var.to("spyre"))
    expected = torch.ops.aten._batch_norm_with_update(x, w, b, *on_host, 0.1, 1e-5)
    actual = torch.ops.aten._batch_norm_with_update(*card, *on_card, 0.1, 1e-5)
    for a, e in zip((*actual[:3], *on_card), (*expected[:3], *on_host), strict=True):
        check(a, e, scale=5)
    args = (None, None), (True, 1e-5, [True] * 3)
    of_host = torch.ops.aten.batch_norm_backward(
        x, x, w, *args[0], *expected[1:3], *args[1], expected[3]
    )
    of_card = torch.ops.aten.batch_norm_backward(
        card[0], card[0], card[1], *args[0], *actual[1:3], *args[1], actual[3]
    )
    for a, e in zip(of_card, of_host, strict=True):
        check(a, e, scale=20)
    expected = torch.ops.aten._native_batch_norm_legit.no_stats(x, w, b, True, 0.1, 1e-5)
    actual = torch.ops.aten._native_batch_norm_legit.no_stats(*card, True, 0.1, 1e-5)
    for a, e in zip(actual, expected, strict=True):
        check(a, e, scale=5)


@settings(max_examples=30)
@given(st.data())
def test_group_norm(data):
    groups, each = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    spatial = [data.draw(st.integers(2, 8)) for _ in range(data.draw(st.integers(1, 3)))]
    # Of a few values all may be nearly equal, and then gradients are nothing but rounding errors.
    assume(each * math.prod(spatial) >= 8)
    x = random(data.draw(st.integers(1, 3)), groups * each, *spatial)
    if data.draw(st.booleans()):
        agree(
            lambda x, w, b: F.group_norm(x, groups, w, b),
            [x, *parameters(groups * each)],
            scale=50,
        )
    else:
        agree(lambda x: F.group_norm(x, groups), [x], scale=50)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("view", VIEWS)
def test_group_norm_of_views(view, dtype):
    agree(
        lambda x, w, b: F.group_norm(x, 2, w, b),
        [random(2, 6, 5, 70), *parameters(6)],
        dtype,
        view,
        scale=50,
    )


def test_group_norm_without_positions():
    agree(lambda x: F.group_norm(x, 2), [random(3, 8)], scale=20)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_instance_norm(dtype):
    agree(
        lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
        [random(2, 3, 6, 7), *parameters(3)],
        dtype,
        scale=30,
        # PyTorch repeats the parameters for every image and sums their gradients after rounding.
        roundings=4,
    )


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("dim", [0, 2])
def test_weight_norm(dim, dtype):
    size = [1, 1, 1]
    size[dim] = (5, 3, 70)[dim]
    agree(
        lambda v, g: torch._weight_norm(v, g, dim),
        [random(5, 3, 70), random(*size, seed=1)],
        dtype,
        scale=20,
    )


@pytest.mark.parametrize("p", [1, 2, 3.5, math.inf])
@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_renorm(dtype, dim, p):
    x = random(5, 3, 7) * torch.linspace(0.1, 3, 5)[:, None, None]  # shorter and longer than 2
    agree(lambda x: torch.renorm(x, p, dim, 2.0), [x], dtype, scale=20)
    agree(lambda x: x.clone().renorm_(p, dim, 2.0), [x], dtype, scale=20)
    out = torch.empty(0, dtype=dtype, device="spyre")
    given = x.to(dtype)
    assert torch.renorm(given.to("spyre"), p, dim, 2.0, out=out) is out
    torch.testing.assert_close(out.cpu(), torch.renorm(given, p, dim, 2.0), rtol=0.02, atol=0.02)


def test_no_images():
    x = torch.empty(0, 4, 5, device="spyre")
    assert F.group_norm(x, 2).shape == (0, 4, 5)


@pytest.mark.parametrize(
    "call",
    [
        lambda d: F.batch_norm(torch.ones(1, 3, device=d), None, None, training=True),
        lambda d: F.batch_norm(
            torch.ones(4, 3, device=d), torch.ones(2, device=d), torch.ones(2, device=d)
        ),
        lambda d: F.batch_norm(torch.ones(4, 3, device=d), None, None),
        lambda d: F.batch_norm(torch.ones(4, 3, device=d).long(), None, None, training=True),
        lambda d: F.group_norm(torch.ones(4, 3, 2, device=d), 2),
        lambda d: F.group_norm(torch.ones(4, 4, 2, device=d), 2, torch.ones(3, device=d)),
        lambda d: torch.ones(4, device=d).renorm(2, 0, 1.0),
        lambda d: torch.ones(4, 4, device=d).renorm(0, 0, 1.0),
        lambda d: torch.ones(4, 4, device=d).renorm(2, 0, -1.0),
    ],
    ids=["values", "statistics", "none", "integers", "groups", "weight", "rank", "p", "maxnorm"],
)
def test_what_the_cpu_refuses_is_refused(call):
    refused_as_on_the_cpu(call)
