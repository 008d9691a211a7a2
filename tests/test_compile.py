"""``torch.compile`` on spyre tensors: the same numbers as eager ops, from kernels of bundles."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from compiling import card
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from torch_spyre._inductor.compile import CompileFallbackWarning

HALF = torch.float16


pytestmark = pytest.mark.usefixtures("fresh_compiler")


def compiled(function, *args, **kwargs):
    """The compiled function's results, as tuples; fails if the graph ran op by op."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileFallbackWarning)
        got = torch.compile(function, fullgraph=True)(*args, **kwargs)
    return got if isinstance(got, tuple) else (got,)


def agree(function, *args, exact=True):
    got = compiled(function, *args)
    want = function(*args)
    want = want if isinstance(want, tuple) else (want,)
    for ours, eager in zip(got, want, strict=True):
        assert ours.device == eager.device
        assert ours.shape == eager.shape
        assert ours.dtype == eager.dtype
        if exact:
            torch.testing.assert_close(ours.cpu(), eager.cpu(), rtol=0, atol=0, equal_nan=True)
        else:
            scale = eager.float().abs().max().item() if eager.numel() else 0
            torch.testing.assert_close(
                ours.cpu().float(), eager.cpu().float(), rtol=2**-8, atol=2**-8 * scale
            )


UNARY = [
    torch.abs, torch.neg, torch.exp, torch.relu, torch.sigmoid, torch.tanh, torch.floor, torch.ceil,
    torch.sin, torch.cos, torch.erf, torch.square, torch.sign, torch.isnan, F.silu, F.gelu,
    F.softplus, F.hardswish, torch.reciprocal, torch.expm1, torch.round, torch.trunc,
]  # fmt: skip
BINARY = [
    torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.minimum, torch.eq, torch.lt,
    torch.ge, torch.pow, torch.remainder, torch.atan2,
]  # fmt: skip


@pytest.mark.parametrize("op", UNARY, ids=lambda op: op.__name__)
def test_unary(op):
    agree(lambda x: op(x) + 1, card(5, 70).abs() if op is torch.pow else card(5, 70))


@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.__name__)
def test_binary_with_broadcasting(op):
    agree(op, card(6, 130).abs() + 0.5, card(130, seed=1))


@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16, torch.float32, torch.int64, torch.int32])
@pytest.mark.parametrize(
    "size", [(64,), (1,), (3, 200), (2, 3, 65), (4, 1, 7, 64), (2, 2, 2, 2, 3)]
)
def test_sizes_and_dtypes(size, dtype):
    agree(lambda x, y: (x + y) * 2 - x, card(*size, dtype=dtype), card(*size, dtype=dtype, seed=1))


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[3:],
        lambda x: x[:, 5:],
        lambda x: x[::2],
        lambda x: x[:, ::3],
        lambda x: x[:, 64:128],
        lambda x: x[4],
        lambda x: x[:, 7],
        lambda x: x.reshape(-1),
        lambda x: x.reshape(20, 5, 130).permute(2, 0, 1),
        lambda x: x.unsqueeze(1).expand(100, 3, 130),
        lambda x: x.reshape(100, 2, 65).transpose(1, 2),
        lambda x: x.t().reshape(-1),
    ],
)
def test_views_inside_the_graph(view):
    agree(lambda x: view(x * 2) + 1, card(100, 130))


def test_views_as_inputs():
    x = card(100, 130)
    for view in (x[10:], x[:, 5:], x.t(), x[3], x[:, 70]):
        agree(lambda v: v.exp() + 1, view)


def test_layout_of_an_input_may_change():
    function = torch.compile(lambda w: w * 2 + 1)
    weight = nn.Linear(130, 70).half()
    plain = weight.weight.detach().to("spyre")
    turned = weight.to("spyre").weight.detach()
    assert plain.device_tensor_layout() != turned.device_tensor_layout()
    expected = (plain * 2 + 1).cpu()
    for tensor in (plain, turned, plain):
        assert torch.equal(function(tensor).cpu(), expected)


@pytest.mark.parametrize("dim", [0, 1, 2, (0, 2), (1, 2), None])
@pytest.mark.parametrize("op", [torch.sum, torch.mean, torch.amax, torch.amin])
def test_reductions(op, dim):
    x = card(7, 5, 130)
    arguments = {} if dim is None else {"dim": dim}
    if dim is None and op in (torch.amax, torch.amin):
        arguments = {"dim": (0, 1, 2)}
    agree(lambda x: op(x * 2, **arguments), x, exact=False)


def test_a_reduction_meets_a_row():
    agree(lambda a, b: a.sum(1) + b, card(70, 130), card(70, seed=1))


@pytest.mark.parametrize("dtype", [HALF, torch.float32])
@pytest.mark.parametrize("sizes", [(1, 130, 70), (64, 64, 64), (5, 200, 3), (7, 1, 70)])
def test_matmul(sizes, dtype):
    m, k, n = sizes
    agree(torch.matmul, card(m, k, dtype=dtype), card(k, n, dtype=dtype, seed=1), exact=False)
    agree(lambda a, b: a @ b.t(), card(m, k, dtype=dtype), card(n, k, dtype=dtype), exact=False)
    agree(lambda a, b: a.t() @ b, card(k, m, dtype=dtype), card(k, n, dtype=dtype), exact=False)


def test_batched_matmul():
    q, k = card(2, 4, 17, 64), card(2, 4, 17, 64, seed=1)
    agree(lambda q, k: (q @ k.transpose(-1, -2)) * 0.125, q, k, exact=False)


def test_integers_and_booleans():
    a = torch.arange(100).to("spyre")
    agree(
        lambda a: ((a * 3) // 2, a > 4, torch.where(a > 2, a, -a), (a > 3) & (a < 9), ~(a > 1)), a
    )


def test_casts():
    agree(lambda x: (x.float() * 2, x.to(torch.int32), (x > 0).half(), x.bfloat16()), card(5, 70))


def test_arange_in_a_graph():
    agree(lambda x: x + torch.arange(70, device=x.device), card(5, 70).float())


# ------------------------------------------------------------------------------------------ blocks


def test_softmax():
    agree(lambda x: torch.softmax(x * 2, -1), card(9, 130))


def test_rope():
    def rope(x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    agree(rope, card(2, 4, 17, 64), card(17, 32, seed=1), card(17, 32, seed=2))


class Block(nn.Module):
    def __init__(self, hidden=128, heads=2):
        super().__init__()
        self.heads = heads
        self.norm = nn.RMSNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.up, self.gate = nn.Linear(hidden, 200), nn.Linear(hidden, 200)
        self.down = nn.Linear(200, hidden)

    def forward(self, x):
        batch, length, hidden = x.shape
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


def test_a_transformer_block():
    torch.manual_seed(0)
    block = Block().half().to("spyre").requires_grad_(False)
    agree(block, card(2, 17, 128), exact=False)


def test_training():
    torch.manual_seed(0)
    block = Block().to("spyre")
    x = card(2, 9, 128, dtype=torch.float32)
    block(x).square().mean().backward()
    eager = {name: p.grad.cpu() for name, p in block.named_parameters()}
    block.zero_grad()
    torch.compile(block)(x).square().mean().backward()
    for name, parameter in block.named_parameters():
        scale = eager[name].abs().max().item()
        torch.testing.assert_close(parameter.grad.cpu(), eager[name], rtol=1e-3, atol=1e-4 * scale)


def test_mutation_of_an_input():
    cache, row = card(4, 10, 64), card(4, 1, 64, seed=1)

    def update(cache, row):
        cache[:, 3:4] = row * 2
        return cache.sum(1)

    expected_cache = cache.clone()
    expected = update(expected_cache, row)
    got = torch.compile(update)(cache, row)
    assert torch.equal(cache.cpu(), expected_cache.cpu())
    torch.testing.assert_close(got.cpu(), expected.cpu())


# --------------------------------------------------------------------------------------- the rest


def test_cpu_graphs_are_untouched():
    x = torch.randn(5, 7)
    got = torch.compile(lambda x: torch.softmax(x, -1) + 1)(x)
    torch.testing.assert_close(got, torch.softmax(x, -1) + 1)


def test_what_cannot_be_compiled_runs_and_says_so():
    def odd(x, i):
        return x[i] * 2 + F.pad(x, (1, 1)).sum()

    x, i = card(10, 70), torch.tensor([3, 1]).to("spyre")
    assert torch.compile(odd)(x, i).shape == (2, 70)


STEPS = [
    lambda x: x * 2,
    lambda x: x.exp().clamp(max=4),
    lambda x: x - x.amax(-1, keepdim=True),
    lambda x: x.transpose(0, 1),
    lambda x: x[:, 1:] if x.shape[1] > 2 else x,
    lambda x: x + x.sum(0),
    lambda x: x.reshape(x.shape[1], x.shape[0]),
    lambda x: torch.where(x > 0, x, -x),
    lambda x: x @ x.transpose(0, 1).contiguous() * 0.01,
    lambda x: x.unsqueeze(0).expand(2, *x.shape).mean(0),
]


@settings(max_examples=15, derandomize=True)  # a compilation each: the same ones every time
@given(
    st.lists(st.sampled_from(range(len(STEPS))), min_size=2, max_size=5),
    st.tuples(st.sampled_from([1, 3, 64, 70]), st.sampled_from([2, 64, 65, 130])),
)
def test_small_graphs(steps, size):
    def graph(x):
        for step in steps:
            x = STEPS[step](x)
        return x

    torch._dynamo.reset()
    agree(graph, card(*size, dtype=torch.float32), exact=False)
