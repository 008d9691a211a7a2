"""Embeddings, losses and gradients of indexing on the card, against PyTorch on the CPU."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

pytestmark = pytest.mark.usefixtures("native")


FLOATS = [torch.float16, torch.bfloat16, torch.float32]
RELATIVE = {torch.float16: 2**-9, torch.bfloat16: 2**-8, torch.float32: 1e-5}


def both(shape, dtype, seed=0, grad=False):
    """Small multiples of 1/4 on the card, and the same in float64."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(-8, 9, shape, generator=generator) / 4
    card = values.to(dtype).to("spyre").requires_grad_(grad)
    return card, values.double().requires_grad_(grad)


def close(actual, expected, dtype):
    assert actual.device.type == "spyre"
    torch.testing.assert_close(
        actual.float().cpu().double(), expected, rtol=RELATIVE[dtype], atol=1e-6, equal_nan=True
    )


@given(
    st.sampled_from(FLOATS),
    st.sampled_from([(), (5,), (2, 3), (0,), (2, 1, 4)]),
    st.sampled_from([1, 64, 65, 200]),
    st.sampled_from([torch.int64, torch.int32]),
)
def test_embedding(dtype, size, width, index_dtype):
    weight, reference = both((10, width), dtype)
    index = torch.randint(0, 10, size)
    actual = functional.embedding(index.to(index_dtype).to("spyre"), weight)
    close(actual, functional.embedding(index, reference), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("padding_idx", [None, 2, -1])
@pytest.mark.parametrize("by_frequency", [False, True])
def test_embedding_gradient(dtype, padding_idx, by_frequency):
    index = torch.tensor([[2, 0, 2], [9, 2, 5]])
    weight, reference = both((10, 70), dtype, grad=True)
    gradient, plain = both((2, 3, 70), dtype, seed=1)
    options = {"padding_idx": padding_idx, "scale_grad_by_freq": by_frequency}
    functional.embedding(index.to("spyre"), weight, **options).backward(gradient)
    functional.embedding(index, reference, **options).backward(plain)
    close(weight.grad, reference.grad, dtype)


ROWS = torch.tensor([[2, 0, 2], [4, 2, 1]])
OPS = {
    "gather": lambda x, y, i: x.gather(1, i.expand(2, 3)),
    "scatter": lambda x, y, i: x.scatter(1, i[:, :1], y[:2, :1]),
    "scatter_add": lambda x, y, i: x.scatter_add(1, i, y[:2, :3]),
    "index_put": lambda x, y, i: x.index_put((i[:, 0],), y),
    "index_put accumulated": lambda x, y, i: x.index_put((i[0],), y[:3], accumulate=True),
    "brackets": lambda x, y, i: x[:, i],
    "index_select": lambda x, y, i: x.index_select(1, i[0]),
    "index_add": lambda x, y, i: x.index_add(0, i[0], y[:3]),
    "index_copy": lambda x, y, i: x.index_copy(0, i[:, 0], y[:2]),
    "index_fill": lambda x, y, i: x.index_fill(0, i[0], 1.0),
    "take": lambda x, y, i: x.take(i * 20),
    "masked_select": lambda x, y, i: x.masked_select(x.detach() > 0),
    "unfold": lambda x, y, i: x.unfold(1, 3, 2),
    "unfold rows": lambda x, y, i: x.unfold(0, 2, 1),
    "take_along_dim": lambda x, y, i: x.take_along_dim(i[:1].expand(5, 3), 1),
    "scatter_reduce": lambda x, y, i: x.scatter_reduce(0, i, y[:2, :3], "sum"),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", sorted(OPS))
def test_gradients(name, dtype):
    def run(x, y, i):
        if name == "index_put":
            y = y[:2]
        result = OPS[name](x, y, i)
        weights = torch.arange(result.numel()).reshape(result.shape) % 5
        (result * weights.to(result.dtype).to(result.device)).sum().backward()
        return result.detach()

    x, reference_x = both((5, 70), dtype, grad=True)
    y, reference_y = both((5, 70), dtype, seed=1, grad=True)
    close(run(x, y, ROWS.to("spyre")), run(reference_x, reference_y, ROWS), dtype)
    close(x.grad, reference_x.grad, dtype)
    if reference_y.grad is not None:
        close(y.grad, reference_y.grad, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [(), (6,), (2, 3, 4), (0,)])
def test_nll_loss(dtype, reduction, weighted, size):
    classes = 70
    shape = (*size[:1], classes, *size[1:])
    x, reference = both(shape, dtype, grad=True)
    weight, plain = both((classes,), dtype, seed=2)
    if not weighted:
        weight = plain = None
    target = torch.randint(0, classes, size, generator=torch.Generator().manual_seed(0))
    if target.dim() and target.numel():
        target.view(-1)[1] = -100
    options = {"reduction": reduction}
    actual = functional.nll_loss(x, target.to("spyre"), weight, **options)
    expected = functional.nll_loss(reference, target, plain, **options)
    close(actual, expected, dtype)
    gradient, plain_gradient = both(expected.shape, dtype, seed=3)
    actual.backward(gradient)
    expected.backward(plain_gradient)
    close(x.grad, reference.grad, dtype)


def test_cross_entropy():
    x, reference = both((8, 100), torch.float16, grad=True)
    target = torch.randint(0, 100, (8,))
    actual = functional.cross_entropy(x, target.to("spyre"))
    expected = functional.cross_entropy(reference, target)
    actual.backward()
    expected.backward()
    torch.testing.assert_close(actual.item(), expected.item(), rtol=2**-9, atol=0)
    torch.testing.assert_close(x.grad.cpu().double(), reference.grad, rtol=2**-7, atol=1e-4)


def test_ignored_infinities_do_not_count():
    x = torch.full((2, 3), float("-inf"), device="spyre")
    x[0, 0] = -1.0
    target = torch.tensor([0, -100], device="spyre")
    assert functional.nll_loss(x, target).item() == 1
