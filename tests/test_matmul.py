"""Matrix products on the card, against float64 products of the values that are really there."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from torch_spyre._C import SpyreTensorLayout

pytestmark = pytest.mark.usefixtures("no_downcast_warning")

SIZES = (1, 2, 63, 64, 65, 130)
FLOATS = (torch.float16, torch.bfloat16, torch.float32)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


@pytest.fixture(autouse=True)
def nothing_on_the_host(request):
    """Products run on the card: nothing comes back but what the test itself asks for."""
    if "host_allowed" in request.fixturenames:
        yield
        return
    before = torch.spyre.counters().transfers_to_host
    reads = Reads.count
    yield
    assert torch.spyre.counters().transfers_to_host - before == Reads.count - reads


@pytest.fixture
def host_allowed():
    """For tests with ops of other kinds, whose kernels are another file's concern."""


class Reads:
    """Transfers to the host that a test made itself."""

    count = 0


def host(tensor: torch.Tensor) -> torch.Tensor:
    """The exact values of a tensor on the card."""
    Reads.count += tensor.numel() > 0
    if tensor.dtype.is_floating_point:  # float16 could not hold all of DLFloat16
        return torch.empty(tensor.shape, dtype=torch.float32).copy_(tensor).double()
    return tensor.cpu().long()


def random(*size: int, dtype: torch.dtype = torch.float16, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(size))
    if dtype.is_floating_point:
        return torch.randn(size, generator=generator).to(dtype).to("spyre")
    return torch.randint(-9 if dtype.is_signed else 0, 10, size, generator=generator).to(
        "spyre", dtype
    )


def wrapped(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Integers as the card holds them: int64 has 32 bits there."""
    return values.to(torch.int32 if dtype == torch.int64 else dtype).long()


def check(result, a, b, bias=None, alpha=1.0, beta=1.0) -> None:
    """`result` is alpha * a @ b + beta * bias, within one rounding and float32 sums."""
    dtype, got = result.dtype, host(result)
    a, b = host(a), host(b)
    expected, size = alpha * (a @ b), abs(alpha) * (a.abs() @ b.abs())
    if bias is not None and beta != 0:
        bias = host(bias)
        expected, size = expected + beta * bias, size + abs(beta) * bias.abs()
    assert got.shape == expected.shape
    if not dtype.is_floating_point:
        assert torch.equal(got, wrapped(expected, dtype))
        return
    tolerance = 1e-5 if dtype == torch.float32 else 2**-10
    # What is not a number has to be so on both sides.
    finite = expected.isfinite()
    assert torch.equal(got.isnan(), expected.isnan())
    assert torch.equal(got[expected.isinf()], expected[expected.isinf()])
    assert ((got - expected).abs() <= tolerance * size + 2**-31)[finite].all()


# ------------------------------------------------------------------------------------------ sizes


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("k", SIZES)
def test_mm_of_every_size_around_a_stick(m, n, k):
    a, b = random(m, k), random(k, n, seed=1)
    check(a @ b, a, b)
    c = random(n, k, seed=2)
    check(a @ c.t(), a, c.t())


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize(("m", "k", "n"), [(3, 5, 7), (1, 200, 33), (70, 129, 65), (130, 64, 300)])
def test_mm_of_every_dtype(dtype, m, k, n):
    a, b = random(m, k, dtype=dtype), random(k, n, dtype=dtype, seed=1)
    check(a @ b, a, b)
    check(a @ random(n, k, dtype=dtype, seed=2).t(), a, random(n, k, dtype=dtype, seed=2).t())


@pytest.mark.parametrize("dtype", FLOATS)
def test_integers_are_exact_in_floats(dtype):
    a = torch.randint(-3, 4, (65, 40)).to("spyre", dtype)
    b = torch.randint(-1, 2, (40, 130)).to("spyre", dtype)
    assert torch.equal(host(a @ b), host(a) @ host(b))


@pytest.mark.parametrize(("m", "k", "n"), list(itertools.product((0, 3), (0, 70), (0, 4))))
def test_empty_matrices(m, k, n):
    a, b = random(m, k), random(k, n)
    check(a @ b, a, b)
    bias = random(n)
    check(torch.addmm(bias, a, b, beta=2), a, b, bias, beta=2)
    check(torch.bmm(a.expand(2, m, k), b.expand(2, k, n)), a.expand(2, m, k), b)
    check(torch.bmm(random(0, m, k), random(0, k, n)), random(0, m, k), random(0, k, n))


# ------------------------------------------------------------------------------------------ views

VIEWS = {
    "whole": lambda m, n, **options: random(m, n, **options),
    "transposed": lambda m, n, **options: random(n, m, **options).t(),
    "rows of a larger one": lambda m, n, **options: random(m + 5, n, **options)[3 : 3 + m],
    "first columns": lambda m, n, **options: random(m, n + 7, **options)[:, :n],
    "columns from a stick on": lambda m, n, **options: random(m, n + 64, **options)[:, 64:],
    "columns from inside a stick": lambda m, n, **options: random(m, n + 7, **options)[:, 7:],
    "every second row": lambda m, n, **options: random(2 * m, n, **options)[::2],
    "every third column": lambda m, n, **options: random(m, 3 * n, **options)[:, ::3],
    "part of a transposed one": lambda m, n, **options: random(n + 9, m + 64, **options).t()[
        64:, 9:
    ],
    "one of a batch": lambda m, n, **options: random(3, m, n, **options)[1],
    "across a batch": lambda m, n, **options: random(m, 3, n, **options)[:, 1],
    "folded": lambda m, n, **options: random(2, m, n, **options).view(2 * m, n)[:m],
    "repeated row": lambda m, n, **options: random(1, n, **options).expand(m, n),
    "repeated column": lambda m, n, **options: random(m, 1, **options).expand(m, n),
    "repeated number": lambda m, n, **options: random(1, 1, **options).expand(m, n),
    "of a line": lambda m, n, **options: random(m * n + 3, **options)[3:].view(m, n),
    "stick on dim 0": lambda m, n, **options: stick_first(random(m, n, **options)),
    "stick on dim 0, transposed": lambda m, n, **options: stick_first(random(n, m, **options)).t(),
    "overlapping": lambda m, n, **options: random(m + 2 * n, **options).as_strided((m, n), (1, 2)),
}


def stick_first(tensor: torch.Tensor) -> torch.Tensor:
    """The same matrix as nn.Linear keeps its weight: sticks along dim 0."""
    size, stride = list(tensor.shape), list(tensor.stride())
    layout = SpyreTensorLayout(size, stride, tensor.dtype, [1, 0])
    return tensor.to(device_layout=layout)


@pytest.mark.parametrize("left", VIEWS)
@pytest.mark.parametrize("right", VIEWS)
def test_mm_of_views(left, right):
    for m, k, n in ((65, 130, 70), (3, 64, 5)):
        a, b = VIEWS[left](m, k), VIEWS[right](k, n, seed=1)
        check(a @ b, a, b)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_mm_of_views_in_other_dtypes(view, dtype):
    a, b = VIEWS[view](40, 140, dtype=dtype), random(140, 33, dtype=dtype, seed=1)
    check(a @ b, a, b)
    c = VIEWS[view](140, 40, dtype=dtype)
    d = random(50, 140, dtype=dtype, seed=1)
    check(d @ c, d, c)


@pytest.mark.parametrize(
    "view", [name for name in VIEWS if "repeated" not in name and name != "overlapping"]
)
def test_out_is_any_view(view):
    a, b = random(65, 70), random(70, 130, seed=1)
    out = VIEWS[view](65, 130)
    assert torch.mm(a, b, out=out) is out
    check(out, a, b)


def test_out_leaves_its_surroundings():
    whole = torch.ones(80, 200, device="spyre", dtype=torch.float16)
    for window in (whole[5:70, 64:194], whole[5:70, 3:133]):
        whole.fill_(1)
        a, b = random(65, 70), random(70, 130, seed=1)
        torch.mm(a, b, out=window)
        check(window, a, b)
        window.fill_(1)
        assert (host(whole) == 1).all()


def test_weights_of_both_layouts_are_read_in_place():
    x = random(5, 192)
    weight = random(130, 192)
    for w in (weight.t(), stick_first(weight).t()):
        x @ w
        before = torch.spyre.memory_stats()["num_device_alloc"]
        y = x @ w
        assert torch.spyre.memory_stats()["num_device_alloc"] <= before + 1
        check(y, x, w)


@given(
    st.lists(st.sampled_from((1, 2, 3)), max_size=2),
    st.tuples(*[st.sampled_from((1, 2, 31, 32, 33, 64, 65, 130))] * 3),
    st.permutations(range(4)),
    st.permutations(range(4)),
    st.lists(st.integers(0, 66), min_size=4, max_size=4),
)
def test_matmul_of_permuted_slices(batch, mkn, order_a, order_b, starts):
    """Batches and matrices in any order of dimensions, cut out anywhere."""
    m, k, n = mkn
    batch = [1] * (2 - len(batch)) + batch

    def view(size, order, seed):
        padded = [extent + start for extent, start in zip(size, starts, strict=True)]
        if padded[0] * padded[1] * padded[2] * padded[3] > 2**22:
            padded = list(size)
        base = random(*[padded[d] for d in order], seed=seed)
        inverse = [order.index(d) for d in range(4)]
        whole = base.permute(inverse)
        for d, extent in enumerate(size):
            whole = whole.narrow(d, whole.size(d) - extent, extent)
        return whole

    a, b = view([*batch, m, k], order_a, 0), view([*batch, k, n], order_b, 1)
    check(a @ b, a, b)


# ----------------------------------------------------------------------------------------- batches


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int32])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 64, 65), (63, 2, 130), (65, 130, 1), (7, 33, 70)])
def test_bmm(dtype, m, k, n):
    a, b = random(3, m, k, dtype=dtype), random(3, k, n, dtype=dtype, seed=1)
    check(torch.bmm(a, b), a, b)
    c, d = random(3, k, m, dtype=dtype), random(3, n, k, dtype=dtype, seed=1)
    check(torch.bmm(c.mT, d.mT), c.mT, d.mT)
    check(torch.bmm(a[:1].expand(3, m, k), b), a[:1].expand(3, m, k), b)
    check(torch.bmm(a, b[1:2].expand(3, k, n)), a, b[1:2].expand(3, k, n))
    check(torch.bmm(a.transpose(0, 1).contiguous().transpose(0, 1), b), a, b)


def test_matmul_broadcasts():
    for left, right in (
        ((70,), (70,)),
        ((5, 70), (70,)),
        ((70,), (70, 3)),
        ((2, 5, 70), (70,)),
        ((70,), (2, 70, 3)),
        ((2, 5, 70), (70, 66)),
        ((5, 70), (2, 70, 66)),
        ((4, 1, 5, 70), (3, 70, 66)),
        ((2, 3, 5, 70), (2, 3, 70, 66)),
        ((2, 3, 65, 70), (70, 66)),
    ):
        a, b = random(*left), random(*right, seed=1)
        got, expected = host(a @ b), host(a) @ host(b)
        assert got.shape == expected.shape
        assert (got - expected).abs().max() <= 2**-8 * expected.abs().max()


@pytest.mark.parametrize(
    "equation",
    ["ij,jk->ik", "bij,bkj->bik", "bhqd,bhkd->bhqk", "bhqk,bkhd->bqhd", "ij,ij->", "i,j->ij"],
)
def test_einsum(equation):
    extent = {"b": 2, "h": 3, "q": 65, "k": 70, "d": 64, "i": 5, "j": 66}
    terms = equation.split("->")[0].split(",")
    a, b = (random(*[extent[c] for c in term], seed=i) for i, term in enumerate(terms))
    if equation in ("ij,ij->", "i,j->ij"):
        return  # made of products and sums of elements, which other files test
    got, expected = host(torch.einsum(equation, a, b)), torch.einsum(equation, host(a), host(b))
    size = torch.einsum(equation, host(a).abs(), host(b).abs())
    assert ((got - expected).abs() <= 2**-10 * size).all()


# ------------------------------------------------------------------------------- sums with products


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int32])
@pytest.mark.parametrize("shape", [(65, 130), (130,), (1, 130), (65, 1), (1,), ()])
def test_addmm_broadcasts_and_scales(dtype, shape):
    a, b = random(65, 70, dtype=dtype), random(70, 130, dtype=dtype, seed=1)
    bias = random(*shape, dtype=dtype, seed=2)
    for alpha, beta in ((1, 1), (2, 3), (0, 1), (1, 0), (-1, 2)):
        check(torch.addmm(bias, a, b, alpha=alpha, beta=beta), a, b, bias, alpha, beta)
    if dtype.is_floating_point:
        check(torch.addmm(bias, a, b, alpha=0.3, beta=-1.7), a, b, bias, 0.3, -1.7)


@pytest.mark.parametrize("view", VIEWS)
def test_addmm_of_views(view):
    a, b, bias = random(65, 70), random(70, 130, seed=1), VIEWS[view](65, 130, seed=2)
    check(torch.addmm(bias, a, b), a, b, bias)


def test_addmm_in_place():
    a, b, bias = random(65, 70), random(70, 130, seed=1), random(65, 130, seed=2)
    result = bias.clone()
    assert result.addmm_(a, b, beta=0.5) is result
    check(result, a, b, bias, beta=0.5)
    whole = random(65, 200)
    window, before = whole[:, 64:194], whole[:, 64:194].clone()
    window.addmm_(a, b)
    check(window, a, b, before)


def test_square_matrix_times_itself_in_place():
    a = random(70, 70)
    before = a.clone()
    torch.mm(a, a, out=a)
    check(a, before, before)


def test_beta_of_zero_ignores_nan():
    a, b = random(5, 70), random(70, 66)
    bias = torch.full((66,), float("nan"), dtype=torch.float16).to("spyre")
    check(torch.addmm(bias, a, b, beta=0), a, b)
    assert host(torch.addmm(bias, a, b)).isnan().all()


def test_nan_and_infinity_go_through():
    a, b = random(5, 70), random(70, 66, seed=1)
    a[1, 3], a[2, 69], b[4, 65] = float("nan"), float("inf"), float("-inf")
    check(a @ b, a, b)
    check(b.t() @ a.t(), b.t(), a.t())


@pytest.mark.parametrize("shape", [(3, 65, 130), (65, 130), (130,), (3, 1, 1), (1,)])
def test_baddbmm_and_addbmm(shape):
    a, b = random(3, 65, 70), random(3, 70, 130, seed=1)
    bias = random(*shape, seed=2)
    check(torch.baddbmm(bias, a, b, alpha=0.5, beta=2), a, b, bias, 0.5, 2)
    if len(shape) < 3:
        joined = (a.transpose(0, 1).reshape(65, 210), b.reshape(210, 130))
        check(torch.addbmm(bias, a, b, alpha=0.5, beta=2), *joined, bias, 0.5, 2)


# ------------------------------------------------------------------------------------------ vectors


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int64])
@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("k", SIZES)
def test_mv_addmv_and_dot(dtype, m, k):
    mat, vec = random(m, k, dtype=dtype), random(k, dtype=dtype, seed=1)
    check(mat @ vec, mat, vec)
    turned = random(k, m, dtype=dtype).t()
    check(turned.mv(vec), turned, vec)
    check(mat @ turned[0, :].expand(k), mat, turned[0].expand(k))
    bias = random(m, dtype=dtype, seed=2)
    check(torch.addmv(bias, mat, vec, alpha=2, beta=3), mat, vec, bias, 2, 3)
    check(torch.dot(mat[0], vec), mat[0], vec)
    check(torch.vdot(turned[0], vec), turned[0], vec)
    check(torch.dot(mat[:, 0], mat[:, k - 1]), mat[:, 0], mat[:, k - 1])


def test_mv_of_a_diagonal():
    mat = random(130, 130)
    check(mat.mv(mat.diagonal()), mat, mat.diagonal())


# ------------------------------------------------------------------------------------ other results


def test_products_of_float16_in_float32():
    a, b = random(65, 300), random(300, 70, seed=1)
    check(torch.mm(a, b, out_dtype=torch.float32), a, b)
    check(torch.bmm(a[None], b[None], out_dtype=torch.float32), a[None], b[None])
    bias = random(70, dtype=torch.float32)
    check(torch.addmm(bias, a, b, out_dtype=torch.float32, beta=2), a, b, bias, 1, 2)


def test_int_mm():
    a = torch.randint(-128, 128, (65, 300), dtype=torch.int8).to("spyre")
    b = torch.randint(-128, 128, (300, 70), dtype=torch.int8).to("spyre")
    result = torch._int_mm(a, b)
    assert result.dtype == torch.int32
    check(result, a, b)


# ------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: random(2, 3) @ random(4, 5), "cannot be multiplied"),
        (lambda: torch.mm(random(2, 3), random(3)), "must be a matrix"),
        (lambda: torch.bmm(random(2, 3), random(3, 2)), "3D"),
        (lambda: random(2, 3) @ random(3, 2, dtype=torch.float32), "same dtype"),
        (lambda: random(2, 3) @ torch.ones(3, 2, dtype=torch.float16), "device"),
        (lambda: torch.addmm(random(5), random(2, 3), random(3, 2)), "expand"),
        (lambda: torch.dot(random(5), random(6)), "inconsistent tensor size"),
        (lambda: torch.dot(random(5, 1), random(5)), "1D tensors expected"),
        (
            lambda: torch.mm(random(2, 3), random(3, 2), out=random(2, 2, dtype=torch.float32)),
            "Expected out tensor to have dtype",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(RuntimeError, match=message):
        call()


def test_bools_are_not_multiplied():
    x = torch.ones(2, 2, dtype=torch.bool, device="spyre")
    with pytest.raises(NotImplementedError, match="not implemented for"):
        torch.mm(x, x)


# ------------------------------------------------------------------------------------------ modules


@pytest.mark.parametrize("shape", [(70,), (5, 70), (2, 65, 70), (2, 3, 5, 70)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(shape, bias):
    torch.manual_seed(0)
    layer = nn.Linear(70, 130, bias=bias).half().to("spyre")
    x = random(*shape)
    got = host(F.linear(x, layer.weight, layer.bias).detach())
    values = [host(p.detach()) for p in layer.parameters()]
    expected = F.linear(host(x), *values)
    size = F.linear(host(x).abs(), *[v.abs() for v in values])
    assert ((got - expected).abs() <= 2**-9 * size).all()


def test_linear_of_a_folded_batch_reads_it_in_place():
    x, weight, bias = random(4, 65, 128), random(70, 128), random(70)
    F.linear(x, weight, bias)
    before = torch.spyre.memory_stats()["num_device_alloc"]
    F.linear(x, weight, bias)
    assert torch.spyre.memory_stats()["num_device_alloc"] <= before + 1


@pytest.mark.usefixtures("host_allowed")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(5, 70), (2, 65, 70)])
def test_backward_of_linear(dtype, shape):
    torch.manual_seed(0)
    card = nn.Linear(70, 130).to(dtype).to("spyre")
    x = random(*shape, dtype=dtype).requires_grad_()
    grad = random(*shape[:-1], 130, dtype=dtype, seed=3)
    card(x).backward(grad)

    exact = nn.Linear(70, 130).double()
    with torch.no_grad():
        exact.weight.copy_(host(card.weight.detach()))
        exact.bias.copy_(host(card.bias.detach()))
    y = host(x.detach()).requires_grad_()
    exact(y).backward(host(grad))
    tolerance = 2**-7 if dtype == torch.float16 else 1e-4
    for got, expected in (
        (x.grad, y.grad),
        (card.weight.grad, exact.weight.grad),
        (card.bias.grad, exact.bias.grad),
    ):
        error = (host(got) - expected).abs().max()
        assert error <= tolerance * expected.abs().max()


@pytest.mark.usefixtures("host_allowed")
def test_training_step_of_an_mlp():
    torch.manual_seed(0)
    exact = nn.Sequential(nn.Linear(70, 130), nn.ReLU(), nn.Linear(130, 10)).double()
    card = nn.Sequential(nn.Linear(70, 130), nn.ReLU(), nn.Linear(130, 10))
    card.load_state_dict(exact.state_dict())
    card = card.float().to("spyre")
    x, target = torch.randn(33, 70), torch.randn(33, 10)
    for model, inputs, wanted in (
        (exact, x.double(), target.double()),
        (card, x.to("spyre"), target.to("spyre")),
    ):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (model(inputs) - wanted).square().mean().backward()
            optimizer.step()
    for got, expected in zip(card.parameters(), exact.parameters(), strict=True):
        assert (host(got.detach()) - expected).abs().max() <= 1e-4
