"""Every class of op compiled: shapes, views and dtypes, against eager ops and against the CPU."""

import warnings

import numpy as np
import oracle
import pytest
import torch
import torch.nn.functional as F
from compiling import card, compiled, same_as_cpu, same_as_eager
from torch._inductor.exc import InductorError

from torch_spyre.ops.fallbacks import FallbackWarning

HALF, FLOAT = torch.float16, torch.float32


pytestmark = pytest.mark.usefixtures("fresh_compiler")


# ------------------------------------------------------------------- op classes x shapes and views

PLACES = {
    "aligned": lambda: card(4, 128),
    "unaligned": lambda: card(5, 70),
    "one element": lambda: card(1, 1),
    "one row": lambda: card(1, 70),
    "empty": lambda: card(0, 70),
    "transposed": lambda: card(70, 6).t(),
    "sliced": lambda: card(9, 200)[2:7, 5:75],
    "strided": lambda: card(9, 140)[::2, ::2],
    "expanded": lambda: card(1, 70).expand(5, 70),
}
CLASSES = {
    "pointwise": lambda x: F.gelu(x) * 0.1 + x.exp(),
    "broadcast": lambda x: x * x[:1] + x[:, :1],
    "rows": lambda x: torch.softmax(x, -1),
    "columns": lambda x: torch.log_softmax(x, 0),
    "sums": lambda x: (x.sum(-1), x.float().mean(0), x.sum()),
    "norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "product": lambda x: x @ x.t(),
    "pieces": lambda x: torch.cat([x, x * 2]),
    "mask": lambda x: x.masked_fill(x > 0, -1.0),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", CLASSES)
def test_op_classes(kind, place):
    same_as_eager(CLASSES[kind], PLACES[place](), exact=kind not in ("columns", "sums", "product"))


@pytest.mark.parametrize("kind", ["rows", "columns", "sums", "norm", "product"])
def test_op_classes_against_the_cpu(kind):
    same_as_cpu(CLASSES[kind], card(5, 70))


DEEP = (2, 3, 2, 3, 3, 2, 5, 7)
OF_RANK_8 = {
    "pointwise": (lambda x: x * 2 + 1, [DEEP]),
    "a last dimension of one element": (lambda x: x * 2 + 1, [(*DEEP[:7], 1)]),
    "broadcast": (lambda x, y: x * 2 + y, [(*DEEP[:7], 1), DEEP]),
    "norm": (lambda x: F.layer_norm(x, x.shape[-1:]), [DEEP]),
    "rows": (lambda x: torch.softmax(x, 0), [DEEP]),
    "sums": (lambda x: (x.sum(-1, keepdim=True) + x, x.amax((1, -1))), [DEEP]),
    "product": (lambda x, y: x @ y, [DEEP, (*DEEP[:6], 7, 9)]),
    "product of results": (lambda x, y: (x * 2) @ (y + 1), [DEEP, (*DEEP[:6], 7, 9)]),
    "product of a view": (
        lambda x, y: x.permute(5, 4, 3, 2, 1, 0, 6, 7) @ y,
        [DEEP, (*DEEP[5::-1], 7, 9)],
    ),
    "product of rank 7": (lambda x, y: x @ y, [DEEP[1:], (3, 1, 3, 1, 2, 7, 9)]),
}


@pytest.mark.parametrize("name", OF_RANK_8)
def test_as_many_dimensions_as_a_tensor_has(name):
    function, sizes = OF_RANK_8[name]
    same_as_cpu(function, *(card(*size, seed=i) for i, size in enumerate(sizes)))


# ------------------------------------------------------------------------------------- activations

ACTIVATIONS = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softplus": lambda x: F.softplus(x, 2, 1),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.3),
    "elu": lambda x: F.elu(x, 1.7),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 1.3),
    "mish": F.mish,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": lambda x: F.hardtanh(x, -0.4, 0.6),
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "threshold": lambda x: F.threshold(x, 0.1, 20.0),
    "logsigmoid": F.logsigmoid,
    "clamp": lambda x: x.clamp(-0.3, 0.7),
    "prelu": lambda x: F.prelu(x, torch.full((1,), 0.25, dtype=x.dtype, device=x.device)),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_ops_of_a_kernel(name):
    """One op, one rounding: the bits are those of the eager op."""
    exact = name not in ("logsigmoid", "selu")
    assert same_as_eager(ACTIVATIONS[name], card(5, 70), exact=exact).kernels == 1


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients_of_activations(name):
    x, weight = card(5, 70, dtype=FLOAT), card(5, 70, dtype=FLOAT, seed=1)

    def gradient(function):
        leaf = x.detach().requires_grad_()
        (grad,) = torch.autograd.grad((function(leaf) * weight).sum(), leaf)
        return grad

    got = gradient(torch.compile(ACTIVATIONS[name], fullgraph=True))
    torch.testing.assert_close(got, gradient(ACTIVATIONS[name]), rtol=1e-5, atol=1e-5)


# -------------------------------------------------------------------------------------- reductions


def with_ties_and_nan():
    x = card(5, 9, 70).round()
    x[0, 3, 7] = x[2, 3, 7] = x[2, 4, 7] = x[2, 3, 8] = float("nan")
    return x


@pytest.mark.parametrize(
    "reduce",
    [
        lambda x: x.argmax(-1),
        lambda x: x.argmin(0),
        lambda x: x.argmax(),
        lambda x: x.max(1),
        lambda x: x.min(-1, keepdim=True),
        lambda x: x.max(),
        lambda x: x.transpose(0, 2).argmax(-1),
    ],
)
def test_where_the_extremes_are(reduce):
    """Among equals the first, and a NaN before everything."""
    outcome = same_as_eager(reduce, with_ties_and_nan())
    want = reduce(with_ties_and_nan().cpu())
    want = tuple(want) if isinstance(want, tuple) else (want,)
    for ours, right in zip(outcome.results, want, strict=True):
        torch.testing.assert_close(ours.cpu(), right, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "reduce",
    [
        lambda x: x.var(-1),
        lambda x: x.std((0, 2), correction=0),
        lambda x: torch.var_mean(x, 1),
        lambda x: x.norm(dim=-1),
        lambda x: torch.linalg.vector_norm(x, 3, dim=1),
        lambda x: x.logsumexp((0, 2)),
        lambda x: x.abs().clamp(0.9, 1.1).prod(1),
        lambda x: ((x > 0).all(-1), (x > 2).any(0), (x > 0).sum()),
    ],
)
def test_reductions(reduce):
    outcome = same_as_cpu(reduce, card(5, 9, 70, dtype=FLOAT), tolerance=1e-5)
    assert outcome.eager_calls == []


@pytest.mark.parametrize("sizes", [(7, 70, 1), (1, 70, 1), (1, 1, 1), (7, 1, 5), (1, 64, 128)])
def test_products_with_vectors(sizes):
    m, k, n = sizes
    same_as_eager(torch.matmul, card(m, k), card(k, n, seed=1))
    same_as_eager(torch.matmul, card(3, m, k), card(3, k, n, seed=1))


def test_a_matrix_times_a_vector_is_a_product():
    torch.spyre.reset()
    same_as_eager(torch.mv, card(40, 70), card(70, seed=1))
    assert torch.spyre.counters().macs >= 2 * 40 * 70  # compiled, and eager


def test_biased_products():
    x, weight, bias = card(3, 5, 70), card(64, 70, seed=1), card(64, seed=2)
    same_as_eager(F.linear, x, weight, bias, exact=False)
    outcome = same_as_cpu(
        lambda x, w: torch.addmm(w[0], x[0], w.t(), beta=0.5, alpha=3), x, card(70, 70, seed=1)
    )
    assert outcome.eager_calls == []


# ---------------------------------------------------------------------------- numbers and constants


@pytest.mark.parametrize("number", [0.1, 1 / 3, 1e-5, 3.14159])
def test_numbers_are_not_rounded_before_they_are_used(number):
    x = card(3, 70)
    (got,) = compiled(lambda x: x * number, x).results
    dl16 = oracle.format_of("SEN169_FP16")
    exact = x.cpu().float().numpy() * np.float32(number)
    want = oracle.decode(dl16, oracle.encode_float(dl16, exact.astype(np.float64)))
    np.testing.assert_array_equal(got.float().cpu().numpy(), want.astype(np.float32))


def test_both_zeros():
    outcome = compiled(lambda x: torch.where(x > 0, 0.0, -0.0), card(3, 70))
    assert torch.equal(outcome.results[0].signbit().cpu(), card(3, 70).cpu() <= 0)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b, c: torch.add(a, b, alpha=0.3),
        lambda a, b, c: torch.sub(a, b, alpha=0.3),
        lambda a, b, c: torch.addcmul(a, b, c, value=0.3),
        lambda a, b, c: torch.addcmul(a.int(), b.int(), c.int(), value=3),
        lambda a, b, c: torch.lerp(a, b, c),
        lambda a, b, c: torch.logaddexp(a, b),
    ],
)
def test_compound_ops_round_once(function):
    same_as_eager(function, card(5, 70), card(70, seed=1), card(5, 1, seed=2))


COUNTED = [
    lambda x: torch.arange(3, 70, 2, device=x.device) + 1,
    lambda x: torch.arange(1, 3, 0.5, device=x.device) * 2,
    lambda x: torch.arange(3000, device=x.device).half(),
    lambda x: x.tril(),
    lambda x: x.triu(2) + 1,
    lambda x: torch.eye(9, device=x.device),
    lambda x: torch.where(
        torch.arange(9, device=x.device)[:, None] >= torch.arange(70, device=x.device) - 5,
        x,
        float("-inf"),
    ),
    lambda x: torch.full((2, 3), 7, device=x.device),
    lambda x: torch.where(x > 0, 1.0, 0.0),
    lambda x: ((x > 0) & (x < 1) | ~(x > 0.5), (x > 0) ^ (x < 1)),
]


@pytest.mark.parametrize("make", COUNTED)
def test_counted_numbers_and_masks(make):
    same_as_eager(make, card(9, 70))


# ------------------------------------------------------------------------------------------ pieces

PIECES = [
    (lambda x, y: torch.cat([x * 2, x + 1]), ()),
    (lambda x, y: torch.cat([y, x * 2], 1), ()),
    (lambda x, y: torch.cat([y[:, 32:], y[:, :32] * 2], 1) + 1, ()),
    (lambda x, y: torch.cat([x, y], 1), ("aten.cat",)),  # the second piece crosses sticks
    (lambda x, y: torch.cat([x, x.float()]), ()),
    (lambda x, y: torch.stack([x, x * 2], 1), ()),
    (lambda x, y: torch.stack([y, y * 2], -1), ()),
    (lambda x, y: F.pad(x, (0, 3)) + 1, ()),
    (lambda x, y: F.pad(x, (0, 0, 2, 1), value=3.0) * 2, ()),
    (lambda x, y: F.pad(y, (64, 64, 1, -2)), ()),
    (lambda x, y: F.pad(x, (1, 1)), ("aten.constant_pad_nd",)),
    (lambda x, y: torch.slice_scatter(x, x[:3], 0, 0, 9, 3), ()),
    (lambda x, y: torch.select_scatter(x, x[:, 0] * 2, 1, 3), ()),
    (lambda x, y: torch.roll(y, 3, 0) + torch.roll(y, 64), ()),
    (lambda x, y: y.repeat(2, 3), ()),
    (lambda x, y: F.avg_pool2d(F.pad(y[None], (0, 0, 1, 1)), 3), ("aten.avg_pool2d",)),
]


@pytest.mark.parametrize(("make", "calls"), PIECES)
def test_tensors_made_of_pieces(make, calls):
    same_as_eager(make, card(9, 130), card(9, 64, seed=1), calls=calls)


def test_a_cache_is_updated_in_place():
    """Only the new rows are written: not even a copy of the cache exists on the way."""
    cache, rows = card(8, 512, 64), card(8, 1, 64, seed=1)

    def update(cache, rows):
        cache[:, 3:4] = rows * 2

    want = cache.clone()
    update(want, rows)
    step = torch.compile(update, fullgraph=True)
    address = cache.data_ptr()
    step(cache, rows)
    torch.spyre.synchronize()
    before = torch.spyre.counters()
    step(cache, rows)
    after = torch.spyre.counters()
    assert cache.data_ptr() == address
    assert torch.equal(cache.cpu(), want.cpu())
    assert after.launches - before.launches == 1
    assert after.device_bytes_written - before.device_bytes_written < cache.nbytes / 8


def _move_down(x):
    x[1:] = x[:-1].clone()


def _move_up(x):
    x[:-1] = x[1:].clone()
    x[-1] = 0


def _transpose(x):
    x.copy_(x.t().clone())


@pytest.mark.parametrize("move", [_move_down, _move_up, _transpose])
def test_a_tensor_moves_in_itself(move):
    x = card(130, 130)
    want = x.cpu()
    move(want)
    compiled(move, x)
    assert torch.equal(x.cpu(), want)


def test_a_cache_is_updated_by_index():
    cache, rows, where = card(4, 10, 64), card(4, 1, 64, seed=1), torch.tensor([3]).to("spyre")

    def update(cache, rows, where):
        cache.index_copy_(1, where, rows * 2)
        return cache.sum(1)

    want = cache.clone()
    total = update(want, rows, where)
    outcome = compiled(update, cache, rows, where)
    assert outcome.eager_calls == ["aten.index_put_"]
    assert torch.equal(cache.cpu(), want.cpu())
    assert torch.equal(outcome.results[0].cpu(), total.cpu())


# ------------------------------------------------------------------------------------------ dtypes

MIXED = [
    lambda x: x.to(torch.int8),
    lambda x: x.to(torch.uint8) + 1,
    lambda x: (x.float() + x, x.bfloat16() + x.float()),
    lambda x: (x > 0) * x,
    lambda x: (x.int() // 3, x.int() / 3, x.int() % 3, x.int() + 1.5),
    lambda x: x.long() * 30000001,
    lambda x: (x.long().float(), x.bool(), x.int().sum(), x.sum(dtype=torch.float32)),
    lambda x: x.float() @ x.float().t(),
    lambda x: x.bfloat16() @ x.bfloat16().t(),
    lambda x: torch.bitwise_and(x.int(), 5) | 8,
]


@pytest.mark.parametrize("function", MIXED)
def test_dtypes(function):
    same_as_eager(function, card(9, 70))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 2).to("cpu", torch.float64) + 1,
        lambda x: x.to("cpu", torch.int64),
        lambda x: (x.float() / 3).to("cpu", torch.float16),  # of more bits than the card's
    ],
)
def test_what_leaves_the_card_is_converted_on_the_host(function):
    x = card(7, 65)
    (got,) = compiled(function, x).results
    want = function(x)
    assert (got.device.type, got.dtype) == ("cpu", want.dtype)
    assert torch.equal(got, want)


def test_float64_is_refused():
    with pytest.raises((InductorError, TypeError), match=r"does not support dtype torch.float64"):
        torch.compile(lambda x: x.double() * 2, fullgraph=True)(card(3, 5))


# ------------------------------------------------------------------------ what stays an eager call


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (lambda w, i: F.embedding(i, w) * 2, ("aten.embedding",)),
        (lambda w, i: w[i] + 1, ("aten.index",)),
        (lambda w, i: w.index_select(0, i[0]) * 2, ("aten.index_select",)),
        (lambda w, i: torch.gather(w, 1, i) + 1, ("aten.gather",)),
        (lambda w, i: w.cumsum(0) + 1, ("aten.cumsum",)),
        (lambda w, i: w.sort(-1)[0] * 2, ("aten.sort",)),
    ],
)
def test_eager_calls(function, calls):
    same_as_eager(function, card(50, 70), torch.tensor([[3, 1], [0, 49]]).to("spyre"), calls=calls)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x > 0).nonzero() * 2,
        lambda x: x[x > 0] * 2,
        lambda x: x[x[:, 0] > 0].amax(1),
    ],
)
def test_results_as_large_as_numbers_say(function):
    x = card(9, 70)
    (got,) = compiled(function, x).results
    assert torch.equal(got.cpu(), function(x.cpu()))


def test_an_index_out_of_range_raises():
    look_up = torch.compile(lambda w, i: (F.embedding(i, w) * 2).cpu(), fullgraph=True)
    with pytest.raises(IndexError):
        look_up(card(5, 70), torch.tensor([7]).to("spyre"))


def test_an_op_without_kernel_falls_back_inside_of_the_graph():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function = torch.compile(lambda x: torch.special.bessel_j0(x * 2) + 1, fullgraph=True)
        got = function(card(3, 5, dtype=FLOAT))
        function(card(3, 5, dtype=FLOAT))
    told = [str(w.message) for w in caught if issubclass(w.category, FallbackWarning)]
    assert len([text for text in told if "bessel_j0" in text]) <= 1
    want = torch.special.bessel_j0(card(3, 5, dtype=FLOAT).cpu() * 2) + 1
    torch.testing.assert_close(got.cpu(), want)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.dropout(x, 0.3) * 2,
        lambda x: x + torch.rand(70, device=x.device, dtype=x.dtype),
        lambda x: torch.randn_like(x) * 2,
        lambda x: torch.bernoulli(torch.sigmoid(x)),
        lambda x: x + torch.randint(0, 9, (70,), device=x.device),
    ],
)
def test_random_numbers_are_those_of_eager(function):
    x = card(5, 70)
    torch.manual_seed(5)
    want = [function(x).cpu() for _ in range(2)]
    torch.manual_seed(5)
    step = torch.compile(function, fullgraph=True)
    assert all(torch.equal(step(x).cpu(), right) for right in want)
