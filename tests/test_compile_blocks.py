"""Blocks of models compiled as one graph: what they compute, and which eager calls are left."""

import math

import pytest
import torch
import torch.nn.functional as F
from blocks import gated_mlp, model_on_card, rotated
from compiling import assert_near, card, compiled, counted, same_as_cpu, same_as_eager
from torch import nn

from torch_spyre._inductor import attention as attention_lowering
from torch_spyre._inductor import config

FLOAT = torch.float32
ATTENTION = "aten._scaled_dot_product_fused_attention_overrideable"


pytestmark = pytest.mark.usefixtures("fresh_compiler")


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("op", [torch.softmax, torch.log_softmax])
def test_softmax(op, dim):
    outcome = same_as_cpu(lambda x: op(x * 3, dim), card(3, 9, 130))
    assert (outcome.eager_calls, outcome.kernels) == ([], 1)


def test_softmax_of_masked_rows():
    x = card(4, 70)
    x[1, 3:] = float("-inf")
    x[2] = float("inf")
    same_as_eager(lambda x: torch.softmax(x, -1), x)


@pytest.mark.parametrize("size", [64, 70, 256])
def test_norms(size):
    x, weight, bias = card(3, 5, size), card(size, seed=1), card(size, seed=2)

    def norms(x, weight, bias):
        return (
            F.layer_norm(x, weight.shape, weight, bias),
            F.layer_norm(x, x.shape[1:]),
            F.rms_norm(x, weight.shape, weight, 1e-5),
        )

    outcome = same_as_cpu(norms, x, weight, bias)
    assert (outcome.eager_calls, outcome.kernels) == ([], 1)


def test_gradients_of_norms_and_softmax():
    def loss(x, weight, bias, target):
        y = torch.softmax(F.layer_norm(x, weight.shape, weight, bias), -1)
        return (F.rms_norm(y, weight.shape, weight) * target).sum()

    args = [card(3, 70, dtype=FLOAT), *(card(70, dtype=FLOAT, seed=i) for i in (1, 2))]
    target = card(3, 70, dtype=FLOAT, seed=3)
    gradients = []
    for function in (loss, torch.compile(loss, fullgraph=True)):
        leaves = [arg.detach().requires_grad_() for arg in args]
        gradients.append(torch.autograd.grad(function(*leaves, target), leaves))
    for eager, ours in zip(*gradients, strict=True):
        assert_near(ours, eager, 1e-4)


@pytest.mark.parametrize("size", [32, 64, 128])
def test_rope(size):
    angles = [card(17, size, seed=seed) for seed in (1, 2)]
    outcome = same_as_eager(rotated, card(2, 4, 17, size), card(2, 2, 17, size, seed=3), *angles)
    assert outcome.kernels == 1


def test_swiglu_mlp():
    weights = [card(200, 128, seed=1), card(200, 128, seed=2), card(128, 200, seed=3)]
    outcome = same_as_eager(gated_mlp, card(2, 7, 128), *weights, exact=False)
    assert outcome.kernels == 1


# --------------------------------------------------------------------------------------- attention


def exact_attention(q, k, v, mask=None, causal=False, scale=None):
    """In float64 on the CPU, from the definition."""
    q, k, v = (t.cpu().double() for t in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
    if mask is not None:
        mask = mask.cpu()
        hidden = (
            mask
            if mask.dtype != torch.bool
            else torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
        )
        scores = scores + hidden.double()
    return torch.softmax(scores, -1).nan_to_num(0) @ v


def boolean_mask():
    mask = torch.randn(17, 33, generator=torch.Generator().manual_seed(1)) > 0
    mask[3] = False  # a row that sees nothing
    return mask.to("spyre")


@pytest.mark.parametrize(
    ("heads", "options"),
    [
        (4, {}),
        (4, {"is_causal": True}),
        (4, {"scale": 0.3}),
        (4, {"scale": -0.3}),
        (2, {"enable_gqa": True, "is_causal": True}),
        (1, {"enable_gqa": True}),
    ],
)
@pytest.mark.parametrize("rows", [17, 1])
def test_attention(heads, options, rows):
    q, k, v = card(2, 4, rows, 64), card(2, heads, 33, 64, seed=1), card(2, heads, 33, 48, seed=2)
    outcome = compiled(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options), q, k, v)
    if options.get("scale", 1) > 0:
        assert (outcome.eager_calls, outcome.kernels) == ([], 1)
    right = exact_attention(q, k, v, None, options.get("is_causal", False), options.get("scale"))
    assert_near(outcome.results[0], right)


@pytest.mark.parametrize("mask", [boolean_mask, lambda: card(2, 1, 17, 33), lambda: card(33)])
def test_attention_with_a_mask(mask):
    q, k, v = card(2, 4, 17, 64), card(2, 2, 33, 64, seed=1), card(2, 2, 33, 64, seed=2)
    mask = mask()

    def attend(q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)

    outcome = compiled(attend, q, k, v, mask)
    assert outcome.eager_calls == []
    assert_near(outcome.results[0], exact_attention(q, k, v, mask))


@pytest.mark.parametrize("rows", [1, None])
def test_attention_over_a_growing_number_of_keys(rows):
    """Sizes are symbols, heads are not."""

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True, is_causal=rows is None)

    compiled_attend = torch.compile(attend, fullgraph=True, dynamic=True)
    for keys in (7, 9, 20):
        q = card(2, 4, rows or keys, 64)
        k, v = card(2, 2, keys, 64, seed=1), card(2, 2, keys, 64, seed=2)
        right = exact_attention(q, k, v, None, rows is None)
        with config.patch(compile_fallback="error"):
            assert_near(compiled_attend(q, k, v), right)


@pytest.mark.parametrize(("rows", "keys"), [(512, 512), (530, 530), (513, 100), (600, 700)])
def test_causal_attention_of_many_rows_leaves_out_what_none_sees(rows, keys):
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    q, k, v = card(1, 4, rows, 64), card(1, 2, keys, 64, seed=1), card(1, 2, keys, 64, seed=2)
    outcome = compiled(attend, q, k, v)
    assert (outcome.eager_calls, outcome.kernels) == ([], 1)
    assert_near(outcome.results[0], exact_attention(q, k, v, None, True))
    macs = counted(lambda: torch.compile(attend)(q, k, v)).macs
    half = -(-rows // 128) * 64  # the first rows, which see as many keys
    scores = half * min(half, keys) + (rows - half) * min(rows, keys)
    assert macs == 4 * scores * 2 * 64


@pytest.mark.parametrize("shape", [(5, 9, 64), (2, 1, 3, 9, 64)])
def test_attention_of_other_ranks(shape):
    q, k = card(*shape), card(*shape, seed=1)
    same_as_eager(lambda q, k: F.scaled_dot_product_attention(q, k, k), q, k, exact=False)


def test_attention_from_one_projection():
    """Heads are views of the projection, and their results are put together without a copy."""

    def attend(x, qkv, out):
        batch, length, hidden = x.shape
        q, k, v = (
            t.view(batch, length, 2, -1).transpose(1, 2) for t in F.linear(x, qkv).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.linear(y.transpose(1, 2).reshape(batch, length, hidden), out)

    weights = card(384, 128, seed=1) * 0.1, card(128, 128, seed=2) * 0.1
    outcome = same_as_eager(attend, card(2, 9, 128), *weights, exact=False)
    assert outcome.kernels == 1


def test_attention_of_many_scores_stays_an_eager_call(monkeypatch):
    """Its kernel makes the scores in blocks of rows."""
    monkeypatch.setattr(attention_lowering, "MAX_SCORE_BYTES", 1000)
    q = card(2, 4, 17, 64)
    outcome = same_as_eager(lambda q: F.scaled_dot_product_attention(q, q, q), q, calls=[ATTENTION])
    assert outcome.kernels == 0


def test_gradients_of_attention():
    def loss(q, k, v, target):
        return (F.scaled_dot_product_attention(q, k, v, is_causal=True) * target).sum()

    args = [card(1, 2, 9, 64, dtype=FLOAT, seed=seed) for seed in range(4)]
    gradients = []
    for function in (loss, torch.compile(loss, fullgraph=True)):
        leaves = [arg.detach().requires_grad_() for arg in args[:3]]
        gradients.append(torch.autograd.grad(function(*leaves, args[3]), leaves))
    for eager, ours in zip(*gradients, strict=True):
        assert_near(ours, eager, 1e-4)


def test_attention_in_a_loop_over_blocks_of_keys():
    """Running maximum and sum, as flash attention has them, written in Python."""

    def attend(q, k, v):
        most = torch.full(q.shape[:-1], -1e30, device=q.device)
        total, result = torch.zeros_like(most), torch.zeros(q.shape, device=q.device)
        for block in range(0, k.shape[-2], 64):
            keys, values = k[..., block : block + 64, :], v[..., block : block + 64, :]
            scores = (q @ keys.transpose(-1, -2)).float() * 0.125
            new = torch.maximum(most, scores.amax(-1))
            weights = torch.exp(scores - new[..., None])
            keep = torch.exp(most - new)
            total = total * keep + weights.sum(-1)
            result = result * keep[..., None] + weights @ values.float()
            most = new
        return (result / total[..., None]).half()

    q, k, v = card(1, 2, 16, 64), card(1, 2, 192, 64, seed=1), card(1, 2, 192, 64, seed=2)
    outcome = compiled(attend, q, k, v)
    assert outcome.eager_calls == []
    assert_near(outcome.results[0], exact_attention(q, k, v), 2**-7)


# ------------------------------------------------------------------------------------------ models


def test_conv_block():
    torch.manual_seed(0)
    conv, norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
    norm.running_mean += 0.3
    block = nn.Sequential(conv, norm, nn.ReLU(), nn.MaxPool2d(2)).half().eval()
    block = block.requires_grad_(False).to("spyre")
    same_as_eager(
        block, card(2, 3, 10, 12), calls=["aten.convolution", "aten.max_pool2d_with_indices"]
    )


def test_embedding_to_logits():
    model = model_on_card()
    words = torch.randint(0, 50, (2, 9)).to("spyre")
    outcome = same_as_eager(model, words, calls=["aten.embedding"], exact=False)
    assert outcome.kernels == 1
