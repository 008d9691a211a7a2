"""Reductions and scans on the card, against PyTorch on the CPU in float64 or int64."""

import itertools
import warnings

import pytest
import torch
from device_tensors import VIEWS, wide

pytestmark = pytest.mark.usefixtures("native")


FLOATS = [torch.float16, torch.bfloat16, torch.float32]
INTEGERS = [torch.int32, torch.int64, torch.bool]
SHAPES = [(), (1,), (63,), (65,), (3, 70), (2, 5, 129), (4, 1, 64)]
# A DLFloat16 result has 9 fraction bits and is rounded once; all is accumulated in fp32.
RELATIVE = {torch.float16: 2**-10, torch.bfloat16: 2**-10, torch.float32: 1e-6}


def on_card(shape, dtype, view="whole", seed=0):
    """A view on the card, and its values in float64 or int64 (bool: bool) on the host."""
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        values = torch.randn(shape, generator=generator)
    else:
        values = torch.randint(-4, 5, shape, generator=generator)
    base = values.to(dtype).to("spyre")
    return VIEWS[view](base), VIEWS[view](wide(base))


def check(actual, expected, dtype, scale=1.0):
    """`scale`: of the numbers that were added up."""
    assert actual.device.type == "spyre"
    if not dtype.is_floating_point or not expected.is_floating_point():
        torch.testing.assert_close(wide(actual), expected, rtol=0, atol=0, check_dtype=False)
        return
    torch.testing.assert_close(
        wide(actual),
        expected.double(),
        rtol=1.01 * RELATIVE[actual.dtype],
        atol=1e-6 * scale,
        equal_nan=True,
    )


def dims_of(x):
    yield None
    for count in range(1, x.dim() + 1):
        yield from itertools.combinations(range(-x.dim(), 0), count)


def scale_of(x):
    return max(1.0, float(x.abs().sum())) if x.is_floating_point() else 1.0


# ---------------------------------------------------------------------------------- over dimensions

OVER_DIMS = {
    "sum": torch.sum,
    "mean": torch.mean,
    "amax": lambda x, dim, **kw: torch.amax(x, () if dim is None else dim, **kw),
    "amin": lambda x, dim, **kw: torch.amin(x, () if dim is None else dim, **kw),
    "any": torch.any,
    "all": torch.all,
    "logsumexp": lambda x, dim, **kw: torch.logsumexp(
        x, tuple(range(x.dim())) if dim is None else dim, **kw
    ),
    "var": torch.var,
    "std": lambda x, dim, **kw: torch.std(x, dim, correction=0, **kw),
    "norm": lambda x, dim, **kw: torch.linalg.vector_norm(x, 2, dim, **kw),
    "norm1": lambda x, dim, **kw: torch.linalg.vector_norm(x, 1, dim, **kw),
    "norminf": lambda x, dim, **kw: torch.linalg.vector_norm(x, torch.inf, dim, **kw),
    "norm0": lambda x, dim, **kw: torch.linalg.vector_norm(x, 0, dim, **kw),
}
FLOATS_ONLY = {"mean", "logsumexp", "var", "std", "norm", "norm1", "norminf", "norm0"}


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
@pytest.mark.parametrize("name", OVER_DIMS)
def test_a_reduction_over_any_dimensions(name, dtype):
    if name in FLOATS_ONLY and not dtype.is_floating_point:
        pytest.skip("PyTorch defines it for floating point only")
    for shape, view in itertools.product(SHAPES, VIEWS):
        x, host = on_card(shape, dtype, view)
        for dim, keepdim in itertools.product(dims_of(host), (False, True)):
            if dim is None and keepdim:
                continue
            kw = {"keepdim": True} if keepdim else {}
            if host.numel() == 0 and name in ("amax", "amin", "norminf"):
                continue
            expected = OVER_DIMS[name](host, dim, **kw)
            actual = OVER_DIMS[name](x, dim, **kw)
            assert actual.shape == expected.shape, (shape, view, dim)
            if dtype.is_floating_point and name not in ("any", "all"):
                assert actual.dtype == dtype
            else:
                assert actual.dtype == (dtype if name in ("amax", "amin") else expected.dtype)
            check(actual, expected, dtype, scale_of(host))


ALONG_ONE = {
    "max": torch.max,
    "min": torch.min,
    "argmax": torch.argmax,
    "argmin": torch.argmin,
    "prod": torch.prod,
    "aminmax": lambda x, dim, keepdim: torch.aminmax(x, dim=dim, keepdim=keepdim),
    "cumsum": lambda x, dim, keepdim: torch.cumsum(x, dim),
    "cumprod": lambda x, dim, keepdim: torch.cumprod(x, dim),
    "cummax": lambda x, dim, keepdim: torch.cummax(x, dim),
    "cummin": lambda x, dim, keepdim: torch.cummin(x, dim),
    "logcumsumexp": lambda x, dim, keepdim: torch.logcumsumexp(x, dim),
    "count_nonzero": lambda x, dim, keepdim: torch.count_nonzero(x, dim),
}


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
@pytest.mark.parametrize("name", ALONG_ONE)
def test_a_reduction_or_scan_along_one_dimension(name, dtype):
    if name == "logcumsumexp" and not dtype.is_floating_point:
        pytest.skip("PyTorch defines it for floating point only")
    if name.startswith("arg") and dtype == torch.bool:
        pytest.skip("PyTorch does not define it for booleans")
    for shape, view in itertools.product(SHAPES, VIEWS):
        x, host = on_card(shape, dtype, view)
        if host.numel() == 0:
            continue
        if name.endswith("prod") and not dtype.is_floating_point and dtype != torch.bool:
            x, host = x.clamp(-1, 1), host.clamp(-1, 1)  # no overflow of 32 bits
        for dim, keepdim in itertools.product(range(-max(1, x.dim()), 0), (False, True)):
            if host.shape[dim : dim + 1 or None] == (0,):
                continue
            expected = ALONG_ONE[name](host, dim, keepdim)
            actual = ALONG_ONE[name](x, dim, keepdim)
            if isinstance(expected, torch.Tensor):
                expected, actual = (expected,), (actual,)
            for theirs, ours in zip(expected, actual, strict=True):
                assert ours.shape == theirs.shape, (shape, view, dim)
                # Products of n numbers are rounded n times in fp32.
                check(ours, theirs, dtype, scale_of(host))


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_a_reduction_of_everything(dtype):
    for shape, view in itertools.product(SHAPES, VIEWS):
        x, host = on_card(shape, dtype, view)
        if host.numel() == 0:
            continue
        for op in (torch.max, torch.min, torch.count_nonzero, torch.sum):
            check(op(x), op(host), dtype, scale_of(host))
        check(torch.any(x), torch.any(host), torch.bool)
        check(torch.all(x), torch.all(host), torch.bool)
        if dtype == torch.bool:
            check(torch.prod(x), torch.prod(host), dtype)
            continue
        check(torch.argmax(x), torch.argmax(host), dtype)
        check(torch.argmin(x), torch.argmin(host), dtype)
        check(torch.prod(x.clamp(0, 1)), torch.prod(host.clamp(0, 1)), dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_variance_or_deviation_with_the_mean(dtype):
    x, host = on_card((5, 131), dtype)
    for op in (torch.var_mean, torch.std_mean):
        for dim in (0, 1, (0, 1)):
            for ours, theirs in zip(op(x, dim), op(host, dim), strict=True):
                check(ours, theirs, dtype, 2)


@pytest.mark.parametrize("order", [-torch.inf, 0.5, 3, -2])
def test_norms_of_other_orders(order):
    x, host = on_card((5, 65), torch.float32)
    expected = torch.linalg.vector_norm(host, order, -1)
    torch.testing.assert_close(
        wide(torch.linalg.vector_norm(x, order, -1)), expected, rtol=2e-5, atol=0
    )
    check(x.norm(), host.norm(), torch.float32)
    check(x.norm(dim=0), host.norm(dim=0), torch.float32)


# ------------------------------------------------------------------------------------------ numbers


def test_sums_of_halves_are_accumulated_in_fp32_and_rounded_once():
    x = torch.ones(100_000, dtype=torch.float16, device="spyre")
    assert wide(x.sum()).item() == 99_968  # 9 fraction bits: a multiple of 128
    assert x.mean().item() == 1
    assert torch.sum(x, dtype=torch.float32).item() == 100_000


def test_integers_are_exact():
    x = torch.tensor([2**24, 1, 2**24, 1], dtype=torch.int32, device="spyre")
    assert x.sum().item() == 2**25 + 2
    assert x.sum().dtype == torch.int64
    assert torch.sum(x, dtype=torch.int32).dtype == torch.int32
    assert torch.cumsum(x, 0).tolist() == [2**24, 2**24 + 1, 2**25 + 1, 2**25 + 2]


def test_a_dtype_applies_before_the_sum():
    x = torch.tensor([0.5, 0.5, 1.5], device="spyre")
    assert torch.sum(x, dtype=torch.int64).item() == 1
    assert torch.sum(x, dtype=torch.bool).item() is True
    assert torch.cumsum(x, 0, dtype=torch.int32).tolist() == [0, 0, 1]
    assert torch.mean(torch.arange(4, device="spyre"), dtype=torch.float32).item() == 1.5


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_and_infinity(dtype):
    nan, inf = float("nan"), float("inf")
    host = torch.tensor([[1, nan, 3], [inf, 2, -inf], [-inf, -inf, -inf], [4, 5, 5]])
    x, host = host.to(dtype).to("spyre"), host.double()
    for op in (torch.sum, torch.amax, torch.amin, torch.logsumexp, torch.mean, torch.nansum):
        check(op(x, -1), op(host, -1), dtype)
    for op in (torch.max, torch.min, torch.cummax, torch.cummin):
        for ours, theirs in zip(op(x, -1), op(host, -1), strict=True):
            check(ours, theirs, dtype)
    for op in (torch.argmax, torch.argmin, torch.any, torch.all, torch.cumsum, torch.logcumsumexp):
        check(op(x, -1), op(host, -1), dtype)


@pytest.mark.parametrize("dtype", FLOATS + [torch.int32], ids=str)
def test_the_first_of_equal_extremes_counts(dtype):
    x = torch.zeros(3, 200, dtype=dtype, device="spyre")
    assert x.argmax(-1).tolist() == [0, 0, 0]
    assert x.min(-1).indices.tolist() == [0, 0, 0]
    x[:, 150:] = 2
    assert x.argmax(-1).tolist() == [150, 150, 150]
    assert x.argmax().item() == 150


# ------------------------------------------------------------------------------------------ nothing


def test_reductions_of_nothing():
    x = torch.empty(2, 0, device="spyre")
    assert x.sum().item() == 0
    assert x.sum(1).tolist() == [0, 0]
    assert x.sum(0).shape == (0,)
    assert torch.prod(x, 1).tolist() == [1, 1]
    assert torch.prod(x).item() == 1
    assert x.mean(1).isnan().cpu().all()
    assert x.any(1).tolist() == [False, False]
    assert x.all().item() is True
    assert torch.logsumexp(x, 1).tolist() == [-torch.inf] * 2
    assert torch.count_nonzero(x).item() == 0
    assert torch.cumsum(x, 1).shape == (2, 0)
    assert torch.linalg.vector_norm(x).item() == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.var(x, 1).cpu().isnan().all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.max(), "input.numel\\(\\) == 0"),
        (lambda x: x.min(), "input.numel\\(\\) == 0"),
        (lambda x: x.amax(), "reduction dim"),
        (lambda x: x.argmax(), "reduction dim"),
        (lambda x: x.max(1), "reduction dim 1"),
    ],
)
def test_extremes_of_nothing_are_refused(call, message):
    with pytest.raises((RuntimeError, IndexError), match=message):
        call(torch.empty(2, 0, device="spyre"))


# ------------------------------------------------------------------------------- outputs and errors


def test_outputs_may_be_views():
    x, host = on_card((3, 70), torch.float32)
    target = torch.zeros(70, 3, device="spyre")
    torch.sum(x, 0, out=target[:, 1])
    expected = torch.zeros(70, 3, dtype=torch.float64)
    expected[:, 1] = host.sum(0)
    check(target, expected, torch.float32)
    torch.amax(x, 1, keepdim=True, out=target[5:8, 2:])
    expected[5:8, 2:] = host.amax(1, keepdim=True)
    check(target, expected, torch.float32)
    values, indices = torch.empty(3, device="spyre"), torch.empty(3, 2, device="spyre").long()
    torch.max(x, 1, out=(values, indices[:, 1]))
    assert indices[:, 1].tolist() == host.argmax(1).tolist()
    torch.std(x, 1, out=values)
    check(values, host.std(1), torch.float32)


def test_an_empty_output_is_resized():
    x, host = on_card((3, 70), torch.float16)
    out = torch.empty(0, dtype=torch.float16, device="spyre")
    assert torch.mean(x, 0, out=out) is out
    check(out, host.mean(0), torch.float16)


def test_scans_in_place():
    x, host = on_card((5, 70), torch.float32)
    x.cumsum_(0)
    check(x, host.cumsum(0), torch.float32, 10)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.sum(2), IndexError, "Dimension out of range"),
        (lambda x: x.sum((0, 0)), RuntimeError, "multiple times"),
        (lambda x: x.long().mean(), RuntimeError, "could not infer output dtype|floating point"),
        (lambda x: x.long().var(), RuntimeError, "floating point"),
        (
            lambda x: torch.amax(x, 0, out=x[0].long()),
            RuntimeError,
            "dtype",
        ),
        (lambda x: torch.cumsum(x, 3), IndexError, "Dimension out of range"),
    ],
)
def test_bad_arguments_are_refused_as_on_the_cpu(call, error, message):
    with pytest.raises(error, match=message):
        call(torch.ones(3, 4, device="spyre"))


def test_gradients_of_reductions():
    x, host = on_card((4, 65), torch.float32)
    x, host = x.requires_grad_(), host.requires_grad_()
    for op in (
        lambda t: t.sum(),
        lambda t: (t.mean(0) * t.mean(0)).sum(),
        lambda t: t.amax(1).sum(),
        lambda t: torch.logsumexp(t, 1).sum(),
        lambda t: t.var(1).sum(),
        lambda t: t.norm(),
    ):
        ours, theirs = torch.autograd.grad(op(x), x), torch.autograd.grad(op(host), host)
        torch.testing.assert_close(wide(ours[0]), theirs[0], rtol=1e-5, atol=1e-6)


def test_a_reduction_is_one_launch_and_no_transfer():
    x, _ = on_card((4, 65), torch.float16)
    torch.spyre.synchronize()
    from torch_spyre import _C

    before = _C._counters(0)
    x.sum(0), x.std(1), x.max(1), torch.cumsum(x, 0)
    torch.spyre.synchronize()
    after = _C._counters(0)
    changed = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert changed.pop("launches") == 4
    assert not [name for name in changed if "host" in name or "copies" in name], changed
