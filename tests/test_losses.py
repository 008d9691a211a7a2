"""Losses on the card: values, reductions, gradients, without a detour through the CPU."""

import pytest
import torch
import torch.nn.functional as F
from elementwise import check_gradients, values

pytestmark = pytest.mark.usefixtures("native")


def probabilities(seed):
    return values(torch.float32, low=0.02, high=0.98, seed=seed)


def signs(shape, seed):
    return values(torch.float32, shape, seed=seed).sign()


SHAPE = (5, 70)
X, Y = values(torch.float32, SHAPE), values(torch.float32, SHAPE, seed=1)
P, Q, WEIGHT = probabilities(2), probabilities(3), probabilities(4)
SIGNS, POSITIVE = signs(SHAPE, 5), values(torch.float32, SHAPE, low=0.5, seed=6)
ROW_SIGNS = signs((5,), 7)

# name: (function of the inputs and reduction=, differentiable inputs, the others)
LOSSES = {
    "mse": (F.mse_loss, [X, Y], []),
    "l1": (F.l1_loss, [X, Y], []),
    "smooth l1": (lambda x, y, **k: F.smooth_l1_loss(x, y, beta=1.5, **k), [X, Y], []),
    "smooth l1, beta 0": (lambda x, y, **k: F.smooth_l1_loss(x, y, beta=0.0, **k), [X, Y], []),
    "huber": (lambda x, y, **k: F.huber_loss(x, y, delta=0.7, **k), [X, Y], []),
    "binary cross entropy": (F.binary_cross_entropy, [P], [Q]),
    "weighted binary cross entropy": (F.binary_cross_entropy, [P], [Q, WEIGHT]),
    "with logits": (F.binary_cross_entropy_with_logits, [X], [Q]),
    "with logits and weights": (
        lambda x, q, w, **k: F.binary_cross_entropy_with_logits(x, q, w, pos_weight=w[0], **k),
        [X],
        [Q, WEIGHT],
    ),
    "kl": (F.kl_div, [X], [Q]),
    "kl of logarithms": (lambda x, y, **k: F.kl_div(x, y, log_target=True, **k), [X, Y], []),
    "soft margin": (F.soft_margin_loss, [X], [SIGNS]),
    "poisson": (lambda x, y, **k: F.poisson_nll_loss(x, y, full=True, **k), [X], [POSITIVE]),
    "gaussian": (F.gaussian_nll_loss, [X, Y, POSITIVE], []),
    "hinge embedding": (F.hinge_embedding_loss, [X], [SIGNS]),
    "margin ranking": (
        lambda x, y, s, **k: F.margin_ranking_loss(x, y, s, margin=0.1, **k),
        [X, Y],
        [SIGNS],
    ),
    "cosine embedding": (F.cosine_embedding_loss, [X, Y], [ROW_SIGNS]),
    "triplet margin": (F.triplet_margin_loss, [X, Y, P], []),
    "multilabel soft margin": (F.multilabel_soft_margin_loss, [X], [Q]),
}


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", LOSSES)
def test_values_and_gradients(name, reduction):
    function, differentiable, others = LOSSES[name]
    count = len(differentiable)

    def loss(*inputs):
        fixed = [x.detach() for x in inputs[count:]]
        if reduction == "mean" and name.startswith("kl"):
            return function(*inputs[:count], *fixed, reduction="batchmean")
        return function(*inputs[:count], *fixed, reduction=reduction)

    inputs = [*differentiable, *others]
    card = [x.to("spyre").requires_grad_(i < count) for i, x in enumerate(inputs)]
    host = [x.double().requires_grad_(i < count) for i, x in enumerate(inputs)]
    result, expected = loss(*card), loss(*host)
    assert result.shape == expected.shape
    torch.testing.assert_close(
        result.detach().cpu().double(), expected.detach(), rtol=1e-5, atol=1e-5
    )
    weight = torch.linspace(0.5, 1.5, expected.numel()).reshape(expected.shape)
    result.backward(weight.to("spyre"))
    expected.backward(weight.double())
    for x, y in zip(card[:count], host, strict=False):
        torch.testing.assert_close(x.grad.cpu().double(), y.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("function", [F.mse_loss, F.smooth_l1_loss, F.huber_loss])
def test_a_mean_of_halves_is_rounded_once(function, dtype):
    x, y = X.to(dtype).to("spyre"), Y.to(dtype).to("spyre")
    result = function(x, y)
    assert result.dtype == dtype
    exact = function(x.cpu().double(), y.cpu().double())
    assert abs(result.item() - exact.item()) <= exact.item() * 2.0**-8


def test_a_large_sum_of_halves_does_not_lose_small_terms():
    x = torch.full((300, 70), 0.01, dtype=torch.float16, device="spyre")
    expected = F.mse_loss(
        x.cpu().double(), torch.zeros(300, 70, dtype=torch.float64), reduction="sum"
    )
    result = F.mse_loss(x, torch.zeros_like(x), reduction="sum")
    assert abs(result.item() - expected.item()) <= expected.item() * 2.0**-9


def test_views_and_broadcasting():
    x = values(torch.float32, (70, 9)).to("spyre")
    y = values(torch.float32, (9,), seed=1).to("spyre")
    with pytest.warns(UserWarning, match="target size"):
        result = F.mse_loss(x[3:50], y)
    torch.testing.assert_close(result.cpu(), ((x[3:50] - y) ** 2).mean().cpu())
    check_gradients(lambda a, b: F.huber_loss(a.t()[:, 3:50], b.t()[:, 3:50]), x.cpu(), x.cpu() + 2)


def test_losses_of_nothing():
    empty = torch.empty(0, 3, device="spyre")
    assert F.mse_loss(empty, empty).isnan()
    assert F.mse_loss(empty, empty, reduction="sum") == 0
    assert F.huber_loss(empty, empty, reduction="none").shape == (0, 3)


def test_out():
    x, y = X.to("spyre"), Y.to("spyre")
    out = torch.empty(0, device="spyre")
    torch._C._nn.mse_loss(x, y, 1, out=out)
    torch.testing.assert_close(out.cpu(), F.mse_loss(X, Y))
    torch._C._nn.mse_loss(x, y, 0, out=out)
    assert out.shape == SHAPE


def test_wrong_arguments_are_refused_as_on_the_cpu():
    x = X.to("spyre")
    with pytest.raises(RuntimeError, match="delta"):
        F.huber_loss(x, x, delta=0.0)
    with pytest.raises(RuntimeError, match="beta"):
        F.smooth_l1_loss(x, x, beta=-1.0)
    with pytest.raises(ValueError, match="is not a valid value for reduction"):
        F.mse_loss(x, x, reduction="median")
    with pytest.raises(NotImplementedError, match="not implemented for 'Int'"):
        F.mse_loss(x.int(), x.int())
    with pytest.raises(RuntimeError, match="same device"):
        F.mse_loss(x, Y)


def test_the_loss_of_an_impossible_class_is_bounded():
    x = torch.tensor([0.0, 1.0], device="spyre")
    y = torch.tensor([0.0, 0.0], device="spyre")
    assert F.binary_cross_entropy(x, y, reduction="none").tolist() == [0, 100]
