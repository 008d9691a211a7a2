"""Wrong calls that PyTorch's database does not have: the card refuses them as the CPU does.

And the calls beside them that are right, and must stay so.
"""

import pytest
import torch
from torch.nn import functional as F

pytestmark = pytest.mark.filterwarnings("ignore")  # of resized outputs and beta ops


def ones(device, *size, dtype=torch.float32):
    return torch.ones(size, dtype=dtype, device=device)


def numbers(device, *values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype, device=device)


def attention(d, queries, keys, values, **options):
    return F.scaled_dot_product_attention(
        ones(d, *queries), ones(d, *keys), ones(d, *values), **options
    )


def clamp_over_itself(d):
    m = torch.arange(10.0, device=d)
    return torch.clamp(m[:-1], ones(d, 9), ones(d, 9), out=m[1:])


def over_itself(op, *rest, count=1):
    """`out` one element behind the input, in the same memory."""

    def call(d):
        m = torch.arange(10.0, device=d).div(10)
        out = m[1:]
        others = [torch.empty(9, dtype=torch.int64, device=d) for _ in range(count - 1)]
        return op(m[:-1], *rest, out=(out, *others) if others else out)

    return call


def extreme_places_over_input(d):
    m = torch.arange(20, device=d)
    values = torch.empty(4, dtype=torch.int64, device=d)
    return torch.max(m[:16].view(4, 4), 1, out=(values, m[2:6]))


def loss_of_images(dtype):
    return lambda d: F.cross_entropy(ones(d, 2, 3, 4), torch.zeros(2, 4, dtype=dtype, device=d))


WRONG = {
    "keys of another size": lambda d: attention(d, (1, 2, 5, 8), (1, 2, 5, 4), (1, 2, 5, 8)),
    "keys that are longer": lambda d: attention(d, (1, 2, 5, 4), (1, 2, 5, 8), (1, 2, 5, 8)),
    "keys of one element": lambda d: attention(d, (2, 5, 64), (2, 5, 1), (2, 5, 64)),
    "a mask and causal": lambda d: attention(
        d, (2, 5, 8), (2, 5, 8), (2, 5, 8), attn_mask=ones(d, 5, 5), is_causal=True
    ),
    "float classes": loss_of_images(torch.float32),
    "float16 classes": loss_of_images(torch.float16),
    "int32 classes": loss_of_images(torch.int32),
    "bool classes": loss_of_images(torch.bool),
    "byte classes": loss_of_images(torch.uint8),
    "a mask of dropout that is too short": lambda d: torch.ops.aten.native_dropout_backward(
        ones(d, 6), ones(d, 3, dtype=torch.bool), 2.0
    ),
    "a probability above 1": lambda d: F.binary_cross_entropy(numbers(d, 2, 0.5), ones(d, 2)),
    "a probability below 0": lambda d: F.binary_cross_entropy(numbers(d, -1, 0.5), ones(d, 2)),
    "no probability": lambda d: F.binary_cross_entropy(numbers(d, 1, float("nan")), ones(d, 2)),
    "no probability as the target": lambda d: F.binary_cross_entropy(
        ones(d, 2), numbers(d, 1, float("nan"))
    ),
    "a target above 1": lambda d: F.binary_cross_entropy(ones(d, 2), numbers(d, 1, 2)),
    "probabilities of two dtypes": lambda d: F.binary_cross_entropy(
        ones(d, 5), ones(d, 5, dtype=torch.float16)
    ),
    "a weight of more dimensions": lambda d: F.binary_cross_entropy(
        ones(d, 5, 5), ones(d, 5, 5), weight=ones(d, 1, 5, 5)
    ),
    "no dilation": lambda d: F.conv1d(ones(d, 1, 1, 5), ones(d, 1, 1, 2), dilation=0),
    "no dilation in 2-D": lambda d: F.conv2d(ones(d, 1, 1, 5, 5), ones(d, 1, 1, 2, 2), dilation=0),
    "no dilation backwards": lambda d: F.conv_transpose2d(
        ones(d, 1, 1, 5, 5), ones(d, 1, 1, 2, 2), dilation=0
    ),
    "much output padding": lambda d: F.conv_transpose2d(
        ones(d, 1, 1, 5, 5), ones(d, 1, 1, 2, 2), output_padding=2
    ),
    "no output": lambda d: F.conv_transpose3d(
        ones(d, 1, 1, 1, 1, 1), ones(d, 1, 1, 2, 2, 2), padding=1
    ),
    "clamp over itself": clamp_over_itself,
    "renorm over itself": lambda d: torch.renorm(
        (m := torch.arange(10.0, device=d))[:-1].view(3, 3), 2, 0, 1, out=m[1:].view(3, 3)
    ),
    "bernoulli over itself": over_itself(torch.bernoulli),
    "aminmax over itself": lambda d: torch.aminmax(
        (m := torch.arange(10.0, device=d))[:9].view(3, 3), dim=1, out=(m[1:4], ones(d, 3))
    ),
    "places over the input": extreme_places_over_input,
    "erfinv of the CPU over itself": over_itself(torch.special.ndtri),
    "nextafter over itself": lambda d: torch.nextafter(
        (m := torch.arange(10.0, device=d))[:-1], ones(d, 9), out=m[1:]
    ),
    "addr over itself": lambda d: torch.addr(
        ones(d, 9, 1), (m := torch.arange(10.0, device=d))[:9], ones(d, 1), out=m[1:].view(9, 1)
    ),
    "addr to a cube": lambda d: torch.addr(ones(d, 2, 3, 4), ones(d, 3), ones(d, 4)),
    "addr to another size": lambda d: torch.addr(ones(d, 2, 2), ones(d, 3), ones(d, 4), beta=0),
    "scatter_add to nothing": lambda d: ones(d, 0, 5).scatter_add(
        0, torch.tensor([[9]], device=d), ones(d, 1, 1)
    ),
    "index_add to nothing": lambda d: ones(d, 0).index_add(
        0, torch.tensor([0], device=d), ones(d, 1)
    ),
    "index_add beyond a vector": lambda d: ones(d, 3).index_add(
        0, torch.tensor([9], device=d), ones(d, 1)
    ),
    "index_add beyond a row": lambda d: ones(d, 3, 4).index_add(
        1, torch.tensor([9], device=d), ones(d, 3, 1)
    ),
    "index_reduce to nothing": lambda d: ones(d, 0, 5).index_reduce(
        0, torch.tensor([9], device=d), ones(d, 1, 5), "amax"
    ),
    "statistics of two dimensions": lambda d: F.batch_norm(
        ones(d, 2, 3), ones(d, 1, 3), ones(d, 1, 3)
    ),
    "statistics of more channels": lambda d: F.batch_norm(ones(d, 2, 3), ones(d, 4), ones(d, 4)),
    "weights of more channels": lambda d: F.batch_norm(
        ones(d, 2, 3), ones(d, 3), ones(d, 3), ones(d, 4)
    ),
    "groups of other positions": lambda d: torch.native_group_norm(
        ones(d, 2, 4, 3), None, None, 2, 4, 2, 2, 1e-5
    ),
    "groups of other weights": lambda d: torch.native_group_norm(
        ones(d, 2, 4, 3), ones(d, 3), None, 2, 4, 3, 2, 1e-5
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls_are_refused_as_on_the_cpu(name):
    with pytest.raises(Exception) as expected:
        WRONG[name]("cpu")
    with pytest.raises(expected.type):
        WRONG[name]("spyre")


def put(d, accumulate):
    torch.use_deterministic_algorithms(True)
    try:
        x = torch.zeros(4, device=d)
        return x.put_(torch.tensor([1], device=d), ones(d, 1), accumulate=accumulate)
    finally:
        torch.use_deterministic_algorithms(False)


def half(d, *values):
    return numbers(d, *values, dtype=torch.float16)


RIGHT = {
    "keys as large": lambda d: attention(d, (1, 2, 5, 8), (1, 2, 7, 8), (1, 2, 7, 4)),
    "a mask for all": lambda d: torch.ops.aten.native_dropout_backward(
        ones(d, 6), ones(d, 1, dtype=torch.bool), 2.0
    ),
    "probabilities": lambda d: F.binary_cross_entropy(numbers(d, 0, 1, 0.5), numbers(d, 0, 1, 1)),
    "classes": loss_of_images(torch.int64),
    "squares of two dtypes": lambda d: F.mse_loss(half(d, 1, 3), numbers(d, 2, 5)),
    "squares of two other dtypes": lambda d: F.mse_loss(numbers(d, 2, 5), half(d, 1, 3)),
    "smooth loss of two dtypes": lambda d: F.smooth_l1_loss(half(d, 1, 3), numbers(d, 2, 5)),
    "equal in two dtypes": lambda d: torch.tensor(torch.equal(half(d, 1, 3), numbers(d, 1, 3))),
    "unequal in two dtypes": lambda d: torch.tensor(torch.equal(half(d, 1, 3), numbers(d, 1, 4))),
    "output padding": lambda d: F.conv_transpose2d(
        ones(d, 1, 1, 5, 5), ones(d, 1, 1, 2, 2), stride=2, output_padding=1
    ),
    "put that accumulates": lambda d: put(d, True),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_calls_beside_them(name):
    expected, ours = RIGHT[name]("cpu"), RIGHT[name]("spyre").cpu()
    assert ours.dtype == expected.dtype
    torch.testing.assert_close(ours, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("device", ["cpu", "spyre"])
def test_put_is_no_deterministic_algorithm(device):
    with pytest.raises(RuntimeError, match="put_ does not have a deterministic"):
        put(device, False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.bool], ids=str)
@pytest.mark.parametrize(
    ("size", "stride"),
    [((3,), (2,)), ((3, 4), (8, 2)), ((3, 4), (1, 5)), ((2, 3, 4), (100, 20, 3)), ((3, 4), (8, 1))],
    ids=str,
)
def test_memory_with_gaps_is_filled(size, stride, dtype):
    torch.use_deterministic_algorithms(True)
    try:
        expected = torch.empty_strided(size, stride, dtype=dtype)
        ours = torch.empty_strided(size, stride, dtype=dtype, device="spyre")
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close(ours.cpu(), expected, equal_nan=True)
