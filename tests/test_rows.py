"""Softmax and norms on the card, forward and backward, against PyTorch on the CPU in float64."""

import itertools

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.usefixtures("native")


FLOATS = [torch.float16, torch.bfloat16, torch.float32]
SHAPES = [(1,), (63,), (64, 3), (3, 65), (2, 5, 129), (4, 1, 64)]
# One rounding to 9 fraction bits, or fp32 all the way.
RELATIVE = {torch.float16: 2**-10, torch.bfloat16: 2**-10, torch.float32: 2e-6}

VIEWS = {
    "whole": lambda x: x,
    "transposed": lambda x: x.mT if x.dim() > 1 else x,
    "offset": lambda x: x[..., -1:] if x.shape[-1] < 3 else x[..., 1:],
    "expanded": lambda x: x[..., None, :].expand(*x.shape[:-1], 3, x.shape[-1]),
}


def wide(x):
    """The values on the card, exactly."""
    return x.detach().float().cpu().double()


def on_card(shape, dtype, view="whole", seed=0):
    base = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to("spyre")
    return VIEWS[view](base), VIEWS[view](wide(base))


def check(actual, expected, roundings=1, atol=1e-6):
    assert actual.device.type == "spyre"
    assert actual.shape == expected.shape
    torch.testing.assert_close(
        wide(actual),
        expected.detach(),
        rtol=1.01 * roundings * RELATIVE[actual.dtype],
        atol=atol,
        equal_nan=True,
    )


# ------------------------------------------------------------------------------------------ softmax


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", [torch.softmax, torch.log_softmax])
def test_softmax_along_any_dimension(op, dtype):
    for shape, view in itertools.product(SHAPES, VIEWS):
        x, host = on_card(shape, dtype, view)
        for dim in range(-x.dim(), 0):
            actual = op(x, dim)
            assert actual.dtype == dtype
            check(actual, op(host, dim))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", [torch.softmax, torch.log_softmax])
def test_the_gradient_of_softmax(op, dtype):
    for shape, view in itertools.product(SHAPES, VIEWS):
        x, _ = on_card(shape, dtype, view)
        gradient, host_gradient = on_card(x.shape, dtype, seed=1)
        for dim in range(-x.dim(), 0):
            leaf = x.detach().requires_grad_()
            result = op(leaf, dim)
            (actual,) = torch.autograd.grad(result, leaf, gradient)
            # The card sees its own result, rounded; so does the reference.
            data = (
                torch.ops.aten._softmax_backward_data
                if op is torch.softmax
                else torch.ops.aten._log_softmax_backward_data
            )
            expected = data(host_gradient, wide(result), dim, torch.float64)
            check(actual, expected, atol=2e-6 * max(1.0, float(host_gradient.abs().sum(dim).max())))


def test_softmax_with_infinities_and_nan():
    inf = float("inf")
    rows = [[0, -inf, 1], [-inf, -inf, -inf], [inf, 0, 1], [float("nan"), 0, 1]]
    x = torch.tensor(rows, dtype=torch.float16, device="spyre")
    for op in (torch.softmax, torch.log_softmax):
        check(op(x, -1), op(torch.tensor(rows, dtype=torch.float64), -1))


def test_softmax_takes_outputs_scalars_and_nothing():
    x, host = on_card((3, 65), torch.float32)
    out = torch.zeros(65, 3, device="spyre")
    torch.softmax(x, 1, out=out.t())
    check(out, host.softmax(1).t())
    assert torch.softmax(torch.tensor(3.0, device="spyre"), 0).item() == 1
    assert torch.softmax(torch.empty(2, 0, device="spyre"), 1).shape == (2, 0)
    wider = torch.softmax(x.half(), 1, dtype=torch.float32)
    assert wider.dtype == torch.float32
    check(wider, wide(x.half()).softmax(1))
    with pytest.raises(IndexError, match="Dimension out of range"):
        torch.softmax(x, 2)


def test_rows_longer_than_a_block():
    x, host = on_card((2, 40_000), torch.float32)
    check(torch.softmax(x, -1), host.softmax(-1), atol=1e-9)
    check(torch.softmax(x, 0), host.softmax(0))


# -------------------------------------------------------------------------------------------- norms


def normalized_shapes(x):
    return [tuple(x.shape[d:]) for d in range(x.dim())]


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_layer_norm(dtype, affine):
    for shape, view in itertools.product(SHAPES, VIEWS):
        x, host = on_card(shape, dtype, view)
        for normalized in normalized_shapes(x):
            weight, host_weight = on_card(normalized, dtype, seed=1)
            bias, host_bias = on_card(normalized, dtype, seed=2)
            ours, theirs = ((weight, bias), (host_weight, host_bias)) if affine else ((), ())
            actual = F.layer_norm(x, normalized, *ours)
            assert actual.dtype == dtype
            # The mean is exact to fp32, which counts where a row's elements are almost equal.
            spread = host.flatten(-len(normalized)).std(-1, correction=0) + 1e-5**0.5
            atol = 1e-6 + 4e-7 * float(host.abs().max() / spread.min())
            check(actual, F.layer_norm(host, normalized, *theirs), atol=atol)


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rms_norm(dtype, affine):
    for shape, view in itertools.product(SHAPES, VIEWS):
        x, host = on_card(shape, dtype, view)
        for normalized in normalized_shapes(x):
            weight, host_weight = on_card(normalized, dtype, seed=1)
            ours, theirs = (weight, host_weight) if affine else (None, None)
            actual = F.rms_norm(x, normalized, ours, 1e-5)
            assert actual.dtype == dtype
            check(actual, F.rms_norm(host, normalized, theirs, 1e-5), atol=2e-6)


def test_rms_norm_without_an_epsilon_uses_that_of_fp32():
    x = torch.full((2, 70), 2**-12, dtype=torch.float32, device="spyre")
    check(F.rms_norm(x, (70,)), F.rms_norm(x.cpu(), (70,)).double())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_the_gradients_of_norms(norm, dtype):
    for shape, rank in [((3, 65), 1), ((2, 5, 129), 1), ((2, 5, 70), 2), ((6, 64), 2)]:
        leaves, host_leaves = [], []
        x, host = on_card(shape, dtype)
        normalized = shape[len(shape) - rank :]
        for seed in range(2 if norm == "layer" else 1):
            parameter, host_parameter = on_card(normalized, dtype, seed=seed + 1)
            leaves.append(parameter.requires_grad_())
            host_leaves.append(host_parameter.requires_grad_())
        op = F.layer_norm if norm == "layer" else F.rms_norm
        gradient, host_gradient = on_card(shape, dtype, seed=7)
        x.requires_grad_(), host.requires_grad_()
        ours = torch.autograd.grad(op(x, normalized, *leaves, eps=1e-5), (x, *leaves), gradient)
        theirs = torch.autograd.grad(
            op(host, normalized, *host_leaves, eps=1e-5), (host, *host_leaves), host_gradient
        )
        for actual, expected in zip(ours, theirs, strict=True):
            assert actual.dtype == dtype
            check(actual, expected, atol=3e-5)


def test_norms_of_nothing_and_of_the_wrong_shape():
    assert F.layer_norm(torch.empty(0, 5, device="spyre"), (5,)).shape == (0, 5)
    assert F.rms_norm(torch.empty(0, 5, device="spyre"), (5,)).shape == (0, 5)
    with pytest.raises(RuntimeError, match="normalized_shape"):
        F.layer_norm(torch.empty(2, 5, device="spyre"), (4,))
    with pytest.raises(RuntimeError, match="same device"):
        F.layer_norm(torch.ones(2, 5, device="spyre"), (5,), torch.ones(5))
