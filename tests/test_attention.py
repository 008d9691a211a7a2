"""Attention on the card, against float64 attention of the values that are really there."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def host(tensor: torch.Tensor) -> torch.Tensor:
    """The exact values of a tensor on the card."""
    return torch.empty(tensor.shape, dtype=torch.float32).copy_(tensor).double()


def random(*size: int, dtype: torch.dtype = torch.float16, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(size))
    return torch.randn(size, generator=generator).to(dtype).to("spyre")


def expected(q, k, v, mask=None, is_causal=False, scale=None, enable_gqa=False):
    if enable_gqa:
        k, v = (x.repeat_interleave(q.size(-3) // x.size(-3), -3) for x in (k, v))
    scores = q @ k.mT * (1 / math.sqrt(q.size(-1)) if scale is None else scale)
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -math.inf)
    elif mask is not None:
        scores = scores + mask
    return scores.softmax(-1).nan_to_num(0) @ v


def check(q, k, v, mask=None, **options):
    result = F.scaled_dot_product_attention(q, k, v, mask, **options)
    assert result.dtype == q.dtype
    values = mask
    if mask is not None:
        values = mask.cpu() if mask.dtype == torch.bool else host(mask)
    exact = expected(host(q), host(k), host(v), values, **options)
    tolerance = 1e-5 if q.dtype == torch.float32 else 2**-10
    # Weights sum to one, so the largest value bounds every result.
    assert ((host(result) - exact).abs() <= tolerance * host(v).abs().max()).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("rows", "keys", "size"), [(1, 1, 64), (1, 130, 64), (65, 65, 64), (33, 70, 80), (7, 64, 128)]
)
@pytest.mark.parametrize("is_causal", [False, True])
def test_attention(dtype, rows, keys, size, is_causal):
    q = random(2, 3, rows, size, dtype=dtype)
    k, v = (random(2, 3, keys, size, dtype=dtype, seed=s) for s in (1, 2))
    check(q, k, v, is_causal=is_causal)


@pytest.mark.parametrize("shape", [(3, 33, 64), (2, 1, 3, 33, 64)])
def test_any_number_of_batch_dimensions(shape):
    check(random(*shape), random(*shape, seed=1), random(*shape, seed=2))


def test_values_of_another_size_than_keys():
    check(random(2, 3, 33, 64), random(2, 3, 40, 64, seed=1), random(2, 3, 40, 100, seed=2))


@pytest.mark.parametrize("scale", [None, 0.5, 0.01])
def test_scale(scale):
    check(random(1, 2, 33, 64), random(1, 2, 65, 64), random(1, 2, 65, 64, seed=1), scale=scale)


@pytest.mark.parametrize("heads", [1, 2, 4, 8])
@pytest.mark.parametrize("is_causal", [False, True])
def test_grouped_queries(heads, is_causal):
    q = random(2, 8, 33, 64)
    k, v = (random(2, heads, 33, 64, seed=s) for s in (1, 2))
    check(q, k, v, is_causal=is_causal, enable_gqa=True)


@pytest.mark.parametrize(
    "shape", [(2, 3, 33, 70), (33, 70), (1, 1, 1, 70), (2, 1, 33, 1), (3, 33, 70)]
)
@pytest.mark.parametrize("boolean", [False, True])
def test_masks(shape, boolean):
    q, k, v = random(2, 3, 33, 64), random(2, 3, 70, 64, seed=1), random(2, 3, 70, 64, seed=2)
    mask = random(*shape, seed=3)
    if boolean:
        mask = (mask.cpu() > -0.5).to("spyre")
    check(q, k, v, mask)


def test_rows_that_see_nothing_are_zero():
    q, k, v = random(1, 2, 5, 64), random(1, 2, 70, 64, seed=1), random(1, 2, 70, 64, seed=2)
    mask = torch.ones(5, 70, dtype=torch.bool)
    mask[2] = False
    result = F.scaled_dot_product_attention(q, k, v, mask.to("spyre"))
    assert (host(result)[:, :, 2] == 0).all()
    check(q, k, v, mask.to("spyre"))


def test_heads_as_models_cut_them_out_of_a_projection():
    x = random(2, 33, 3 * 4 * 64)
    q, k, v = (part.view(2, 33, 4, 64).transpose(1, 2) for part in x.chunk(3, -1))
    check(q, k, v, is_causal=True)


def test_long_sequences_are_taken_in_blocks():
    q, k, v = (random(1, 4, 1500, 64, seed=s) for s in range(3))
    check(q, k, v, is_causal=True)
    check(q, k, v)


def test_fused_and_composed_agree():
    q, k, v = (random(1, 4, 65, 64, seed=s) for s in range(3))
    fused = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    with sdpa_kernel(SDPBackend.MATH):
        composed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert (host(fused) - host(composed)).abs().max() <= 2**-8


def test_attention_stays_on_the_card():
    q, k, v = random(1, 8, 33, 64), random(1, 2, 33, 64), random(1, 2, 33, 64)
    before = torch.spyre.counters().transfers_to_host
    F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    F.scaled_dot_product_attention(q, k, v, random(33, 33), enable_gqa=True)
    assert torch.spyre.counters().transfers_to_host == before


@pytest.mark.parametrize(("is_causal", "masked"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("heads", [2, 4])
def test_backward(is_causal, heads, masked):
    card = [random(2, 4, 33, 64), *(random(2, heads, 40, 64, seed=s) for s in (1, 2))]
    if masked:
        card.append(random(4, 33, 40, seed=3))
    card = [tensor.requires_grad_() for tensor in card]
    exact = [host(tensor.detach()).requires_grad_() for tensor in card]
    grad = random(2, 4, 33, 64, seed=4)
    options = {"is_causal": is_causal, "enable_gqa": heads != 4}
    F.scaled_dot_product_attention(*card, **options).backward(grad)
    expected(*exact, **options).backward(host(grad))
    for got, wanted in zip(card, exact, strict=True):
        assert (host(got.grad) - wanted.grad).abs().max() <= 2**-8 * wanted.grad.abs().max()


def test_dropout_takes_the_composed_way():
    q, k, v = (random(1, 2, 33, 64, seed=s) for s in range(3))
    assert F.scaled_dot_product_attention(q, k, v, dropout_p=0.5).shape == q.shape
    assert (host(F.scaled_dot_product_attention(q, k, v, dropout_p=1.0)) == 0).all()
