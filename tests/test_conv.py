"""Convolutions, F.unfold and F.fold on the card, against PyTorch on the CPU in float64."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from gradients import FLOATS, agree, check, on_card, random, refused_as_on_the_cpu, wide
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

pytestmark = pytest.mark.usefixtures("native")


CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def terms(*tensors):
    """The size of a sum of that many products of normal numbers, generously."""
    return 30.0 + 4 * max(t.numel() for t in tensors) ** 0.5


@st.composite
def geometries(draw):
    rank, transposed = draw(st.integers(1, 3)), draw(st.booleans())
    numbers = lambda low, high: [draw(st.integers(low, high)) for _ in range(rank)]  # noqa: E731
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    inner, outer = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
    kernel, stride, dilation = numbers(1, 4), numbers(1, 3), numbers(1, 2)
    size = numbers(8, 12 if rank == 3 else 20)
    kwargs = {"stride": stride, "padding": numbers(0, 2), "dilation": dilation, "groups": groups}
    if transposed:
        kwargs["output_padding"] = [
            draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True)
        ]
        weight = (inner, outer // groups, *kernel)
    else:
        weight = (outer, inner // groups, *kernel)
    batch = draw(st.sampled_from([(), (1,), (3,)]))
    op = (TRANSPOSED if transposed else CONV)[rank]
    bias = (outer,) if draw(st.booleans()) else None
    return op, (*batch, inner, *size), weight, bias, kwargs


@given(geometries())
def test_any_geometry_and_its_gradients(geometry):
    op, input, weight, bias, kwargs = geometry
    tensors = [random(*input), random(*weight, seed=1)]
    if bias:
        tensors.append(random(*bias, seed=2))
    agree(lambda x, w, b=None: op(x, w, b, **kwargs), tensors, scale=terms(*tensors))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("input", "weight", "kwargs"),
    [
        ((2, 3, 40, 33), (7, 3, 3, 3), {"padding": 1}),
        ((2, 3, 32, 32), (65, 3, 8, 8), {"stride": 8}),
        ((1, 20, 130), (70, 20, 3), {"padding": 1, "stride": 2}),
        ((2, 65, 9, 9), (5, 65, 1, 1), {}),
        ((2, 6, 17, 17), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
        ((2, 3, 7, 7), (2, 3, 7, 7), {}),
    ],
    ids=["3x3", "patches", "1d", "1x1", "depthwise", "whole image"],
)
def test_the_convolutions_of_models(input, weight, kwargs, dtype):
    tensors = [random(*input), random(*weight, seed=1), random(weight[0], seed=2)]
    op = CONV[len(input) - 2]
    agree(lambda x, w, b: op(x, w, b, **kwargs), tensors, dtype, scale=terms(*tensors))


@pytest.mark.parametrize("view", ["channels_last", "offset", "stepped"])
def test_views(view):
    tensors = [random(2, 6, 9, 11), random(4, 3, 3, 2, seed=1)]
    op = lambda x, w: F.conv2d(x, w, padding=1, groups=2)  # noqa: E731
    agree(op, tensors, torch.float16, view, scale=60)
    agree(lambda w, x: op(x, w), tensors[::-1], torch.float16, view, scale=60)


def test_a_channels_last_kernel_and_image():
    x, w = random(2, 4, 9, 9), random(8, 4, 3, 3, seed=1)
    out = F.conv2d(
        on_card(x, torch.float32, "channels_last"), on_card(w, torch.float32, "channels_last")
    )
    check(out, F.conv2d(x.double(), w.double()), scale=60)


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_named_paddings(padding):
    tensors = [random(2, 3, 9, 10), random(4, 3, 3, 5, seed=1)]
    agree(
        lambda x, w: F.conv2d(x, w, padding=padding, dilation=2 if padding == "same" else 1),
        tensors,
        scale=60,
    )


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_integers_are_exact(dtype):
    x, w = (
        torch.arange(2 * 3 * 25).reshape(2, 3, 5, 5) % 7,
        torch.arange(2 * 27).reshape(2, 3, 3, 3) % 3,
    )
    out = F.conv2d(x.to(dtype).to("spyre"), w.to(dtype).to("spyre"))
    assert out.dtype == dtype
    assert torch.equal(out.cpu(), F.conv2d(x.to(dtype), w.to(dtype)))


def test_large_images_go_in_blocks():
    """The columns of one image are over the limit of 64 MiB, and those of three images too."""
    for input, weight in [((1, 8, 600, 600), (2, 8, 3, 3)), ((3, 4, 512, 300), (2, 4, 5, 5))]:
        tensors = [random(*input), random(*weight, seed=1)]
        agree(lambda x, w: F.conv2d(x, w, padding=1), tensors, scale=30_000)


def test_the_temporary_of_a_large_image_is_bounded():
    x, w = (
        torch.zeros(1, 64, 512, 512).half().to("spyre"),
        torch.zeros(8, 64, 3, 3).half().to("spyre"),
    )
    torch.spyre.synchronize()
    torch.spyre.reset_peak_memory_stats()
    before = torch.spyre.memory_allocated()
    F.conv2d(x, w, padding=1)
    image = 64 * 514 * 576 * 2  # padded, in sticks
    assert torch.spyre.max_memory_allocated() - before < 3 * image + (160 << 20)


def test_nothing_in_gives_nothing_out():
    w = random(4, 3, 3, 3).to("spyre")
    assert F.conv2d(torch.empty(0, 3, 8, 8, device="spyre"), w).shape == (0, 4, 6, 6)
    x = torch.empty(0, 3, 8, 8, device="spyre", requires_grad=True)
    weight = w.clone().requires_grad_()
    F.conv2d(x, weight).sum().backward()
    assert x.grad.shape == x.shape
    assert torch.equal(weight.grad.cpu(), torch.zeros(4, 3, 3, 3))


def test_gradients_of_gradients():
    tensors = [random(1, 2, 6, 6), random(3, 2, 3, 3, seed=1)]

    def twice(x, w):
        out = F.conv2d(x, w, padding=1)
        (first,) = torch.autograd.grad((out * out).sum(), x, create_graph=True)
        return first

    agree(twice, tensors, scale=4000)


def test_only_the_gradients_that_are_asked_for():
    x, w = random(1, 2, 6, 6).to("spyre"), random(3, 2, 3, 3).to("spyre").requires_grad_()
    F.conv2d(x, w).sum().backward()
    assert x.grad is None
    expected = F.conv2d(wide(x).transpose(0, 1), torch.ones(1, 1, 4, 4).double())
    check(w.grad, expected.transpose(0, 1).expand(3, 2, 3, 3), scale=30)


def test_modules():
    torch.manual_seed(0)
    host = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(8, 2, 2, stride=2)
    )
    x = random(2, 3, 10, 10)
    with torch.no_grad():
        expected = host(x)
    check(host.to("spyre")(x.to("spyre")), expected, scale=10)


@pytest.mark.parametrize(
    "call",
    [
        lambda d: F.conv2d(torch.ones(1, 3, 5, 5, device=d), torch.ones(2, 4, 3, 3, device=d)),
        lambda d: F.conv2d(torch.ones(1, 3, 2, 2, device=d), torch.ones(2, 3, 3, 3, device=d)),
        lambda d: F.conv2d(
            torch.ones(1, 3, 5, 5, device=d), torch.ones(2, 3, 3, 3, device=d).half()
        ),
        lambda d: F.conv2d(
            torch.ones(1, 3, 5, 5, device=d), torch.ones(2, 3, 3, 3, device=d), stride=0
        ),
        lambda d: F.conv2d(
            torch.ones(1, 3, 5, 5, device=d), torch.ones(2, 3, 3, 3, device=d), padding=-1
        ),
        lambda d: F.conv2d(
            torch.ones(1, 4, 5, 5, device=d), torch.ones(3, 2, 3, 3, device=d), groups=2
        ),
        lambda d: F.conv2d(*[torch.ones(1, 1, 3, 3, device=d).bool()] * 2),
        lambda d: F.unfold(torch.ones(1, 3, 2, 2, device=d), 3),
        lambda d: F.fold(torch.ones(1, 5, 4, device=d), (4, 4), 2),
        lambda d: F.unfold(torch.ones(3, 2, device=d), 1),
    ],
    ids=[
        "channels",
        "too small",
        "dtypes",
        "stride",
        "padding",
        "groups",
        "bool",
        "unfold",
        "fold",
        "rank",
    ],
)
def test_what_the_cpu_refuses_is_refused(call):
    refused_as_on_the_cpu(call)


def test_tensors_on_different_devices():
    with pytest.raises(RuntimeError, match="same device"):
        F.conv2d(torch.ones(1, 1, 3, 3, device="spyre"), torch.ones(1, 1, 3, 3))


# ---------------------------------------------------------------------------------- unfold and fold


@settings(max_examples=30)
@given(st.data())
def test_unfold_and_fold(data):
    pair = lambda low, high: tuple(data.draw(st.integers(low, high)) for _ in range(2))  # noqa: E731
    kwargs = {
        "kernel_size": pair(1, 4),
        "stride": pair(1, 4),
        "padding": pair(0, 2),
        "dilation": pair(1, 2),
    }
    size, batch = pair(8, 14), data.draw(st.sampled_from([(), (2,)]))
    agree(lambda x: F.unfold(x, **kwargs), [random(*batch, 3, *size)], scale=30)
    columns = F.unfold(torch.zeros(*batch, 3, *size), **kwargs)
    agree(lambda x: F.fold(x, size, **kwargs), [random(*columns.shape)], scale=30)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_unfold_of_every_dtype_and_view(dtype):
    for view in ("whole", "channels_last", "stepped"):
        agree(lambda x: F.unfold(x, 3, padding=1), [random(2, 3, 8, 9)], dtype, view, scale=10)
    agree(lambda x: F.fold(x, (8, 9), 3), [random(2, 27, 42)], dtype, scale=10)


def test_out_of_unfold_and_fold():
    x = random(1, 2, 6, 6)
    out = torch.empty(25, 8, device="spyre").t()[None]
    torch._C._nn.im2col(x.to("spyre"), (2, 2), (1, 1), (0, 0), (1, 1), out=out)
    assert torch.equal(out.cpu(), F.unfold(x, 2))
    for shape in itertools.chain([(0,), (1, 2, 6, 6)]):
        image = torch.empty(shape, device="spyre")
        torch._C._nn.col2im(out, (6, 6), (2, 2), (1, 1), (0, 0), (1, 1), out=image)
        check(image, F.fold(F.unfold(x, 2), (6, 6), 2), scale=10)
