"""Ops that rearrange or create elements on the card, against PyTorch on the CPU."""

import pytest
import torch
import torch.nn.functional as F
from device_tensors import VIEWS
from hypothesis import given
from hypothesis import strategies as st

from torch_spyre.ops.fallbacks import refused

pytestmark = [pytest.mark.usefixtures("native"), pytest.mark.filterwarnings("ignore")]

DTYPES = [torch.float16, torch.float32, torch.int32, torch.int64, torch.uint8, torch.bool]


def host_values(shape, dtype=torch.float32, seed=0):
    """Small whole numbers: exact in every format."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 100, shape, generator=generator).to(dtype)


def pair(shape, dtype=torch.float32, view="whole", seed=0):
    host = host_values(shape, dtype, seed)
    return VIEWS[view](host.to("spyre")), VIEWS[view](host)


def same(actual, expected):
    if isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected)
        for a, b in zip(actual, expected, strict=True):
            same(a, b)
        return
    assert actual.device.type == "spyre"
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0)


def check_gradient(op, shape, dtype=torch.float32):
    """The gradient of small whole numbers is exact."""
    x, host = pair(shape, dtype)
    x.requires_grad_()
    host.requires_grad_()
    out, wanted = op(x), op(host)
    weights = host_values(wanted.shape, dtype, seed=5) % 4
    out.backward(weights.to("spyre"))
    wanted.backward(weights)
    same(out.detach(), wanted.detach())
    same(x.grad, host.grad)


# ---------------------------------------------------------------------------------- concatenation


@given(
    sizes=st.lists(st.sampled_from([0, 1, 3, 64, 70]), min_size=1, max_size=4),
    dim=st.integers(-3, 2),
    dtypes=st.lists(st.sampled_from(DTYPES), min_size=4, max_size=4),
    views=st.lists(st.sampled_from(["whole", "transposed", "stepped"]), min_size=4, max_size=4),
)
def test_cat_of_views_and_mixed_dtypes(sizes, dim, dtypes, views):
    with refused():
        tensors, hosts = [], []
        for seed, (size, dtype, view) in enumerate(zip(sizes, dtypes, views, strict=False)):
            shape = [2, 5, 6]
            shape[dim] = size
            # As large a base as the view needs to have that shape.
            if view == "transposed":
                shape = [shape[0], shape[2], shape[1]]
            if view == "stepped":
                shape[2] = max(0, 3 * shape[2] - 2)
            x, host = pair(shape, dtype, view, seed)
            tensors.append(x)
            hosts.append(host)
        same(torch.cat(tensors, dim), torch.cat(hosts, dim))


def test_cat_skips_vectors_without_elements():
    x, host = pair((3, 70))
    empty = torch.empty(0)
    same(torch.cat([empty.to("spyre"), x, x], 1), torch.cat([empty, host, host], 1))
    same(torch.cat([empty.to("spyre")] * 2), torch.cat([empty] * 2))


def test_cat_of_many_tensors():
    tensors = [torch.tensor([float(i)]) for i in range(600)]
    same(torch.cat([t.to("spyre") for t in tensors]), torch.cat(tensors))


def test_cat_of_channels_last_strides():
    x, host = pair((2, 5, 6, 4))
    x, host = x.permute(0, 3, 1, 2), host.permute(0, 3, 1, 2)
    same(torch.cat([x, x], 1), torch.cat([host, host], 1))


def test_cat_into_given_outputs():
    x, host = pair((3, 70))
    for out in (torch.empty(70, 6), torch.empty(0), torch.empty(6, 70, dtype=torch.float16)):
        given_out = out.to("spyre")
        if out.shape == (70, 6):
            given_out, out = given_out.t(), out.t()
        torch.cat([x, x], out=given_out)
        same(given_out, torch.cat([host, host], out=out))
    with pytest.raises(TypeError, match="cast"):
        torch.cat([x, x], out=torch.empty(6, 70, dtype=torch.int32, device="spyre"))
    with pytest.raises(RuntimeError, match="memory"):
        torch.cat([x, x], out=x)


def test_cat_refuses_what_the_cpu_refuses():
    x, host = pair((3, 70))
    for bad in (lambda t: [t, t[:, :3]], lambda t: [t, t[0]], lambda t: []):
        with pytest.raises((RuntimeError, ValueError)):
            torch.cat(bad(host))
        with pytest.raises((RuntimeError, ValueError)):
            torch.cat(bad(x))
    with pytest.raises(IndexError):
        torch.cat([x, x], 2)
    with pytest.raises(RuntimeError, match="same device"):
        torch.cat([x, host])


@pytest.mark.parametrize(
    "op",
    [
        lambda t: torch.stack([t, t], 1),
        lambda t: torch.stack([t, t], -1),
        lambda t: torch.hstack([t, t]),
        lambda t: torch.vstack([t, t]),
        lambda t: torch.dstack([t, t]),
        lambda t: torch.column_stack([t, t]),
        lambda t: torch.block_diag(t, t),
        lambda t: torch.cartesian_prod(t[0], t[1]),
        lambda t: torch.meshgrid(t[0], t[1], indexing="ij"),
        lambda t: torch._chunk_cat([t, t], 0, 2),
        lambda t: t.repeat(2, 3),
        lambda t: t.tile(2),
        lambda t: t.repeat_interleave(3, 1),
        lambda t: t.rot90(),
        lambda t: t.fliplr(),
        lambda t: t.diag(),
        lambda t: t[0].diag(1),
        lambda t: t[0].diag_embed(-1),
        lambda t: t.diagonal_scatter(t[0, :3]),
        lambda t: t.slice_scatter(t[:2], 0, 1, 3),
        lambda t: t.select_scatter(t[0], 0, 1),
        lambda t: t.as_strided_scatter(t[:2, :2], (2, 2), (1, 2)),
        lambda t: torch.diagonal_copy(t),
        lambda t: torch.narrow_copy(t, 1, 2, 65),
        lambda t: torch.narrow_copy(t, 1, -70, 65, out=t.new_empty(0)),
        lambda t: torch.split_with_sizes_copy(t, [30, 40], 1),
        lambda t: torch.unbind_copy(t),
        lambda t: torch.permute_copy(t, (1, 0)),
        lambda t: torch.expand_copy(t, (2, 3, 70)),
        lambda t: torch.unfold_copy(t, 1, 5, 3),
        lambda t: t.clone().fill_diagonal_(2),
        lambda t: F.pad(t, (1, 2, 3, 0), value=7),
        lambda t: F.pad(t, (-1, 2)),
        lambda t: F.pad(t[None], (3, 2), mode="circular"),
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_made_of_copies(op, dtype):
    x, host = pair((3, 70), dtype)
    same(op(x), op(host))


def test_narrow_copy_writes_an_out_of_other_strides():
    x, host = pair((3, 70))
    out = torch.empty(65, 3, device="spyre").t()
    torch.narrow_copy(x, 1, 2, 65, out=out)
    same(out, host[:, 2:67])


# ---------------------------------------------------------------------------------- flips and rolls


@given(
    shape=st.sampled_from([(), (1,), (65,), (3, 70), (2, 5, 129), (3, 0)]),
    dtype=st.sampled_from(DTYPES),
    view=st.sampled_from(list(VIEWS)),
    data=st.data(),
)
def test_flip_and_roll(shape, dtype, view, data):
    with refused():
        x, host = pair(shape, dtype, view)
        dims = data.draw(st.lists(st.integers(0, max(0, host.dim() - 1)), unique=True))
        if host.dim():
            same(x.flip(dims), host.flip(dims))
            shifts = [data.draw(st.integers(-200, 200)) for _ in dims]
            if dims:
                same(x.roll(shifts, dims), host.roll(shifts, dims))
        same(x.roll(3), host.roll(3))


def test_flip_and_roll_refuse_what_the_cpu_refuses():
    x, host = pair((3, 4))
    for error, bad in (
        (RuntimeError, lambda t: t.flip(0, 0)),
        (IndexError, lambda t: t.flip(2)),
        (IndexError, lambda t: t.roll(1, 2)),
        (RuntimeError, lambda t: t.roll((1, 2), 0)),
        (RuntimeError, lambda t: t.roll((1, 2))),
    ):
        for t in (host, x):
            with pytest.raises(error):
                bad(t)


# ---------------------------------------------------------------------------------------- triangles


@given(
    shape=st.sampled_from([(1, 1), (3, 70), (70, 3), (2, 65, 66), (0, 3), (2, 3, 0)]),
    dtype=st.sampled_from(DTYPES),
    view=st.sampled_from(list(VIEWS)),
    diagonal=st.integers(-80, 80),
)
def test_triangles(shape, dtype, view, diagonal):
    with refused():
        x, host = pair(shape, dtype, view)
        same(x.tril(diagonal), host.tril(diagonal))
        same(x.triu(diagonal), host.triu(diagonal))


def test_triangles_keep_no_trace_of_what_they_cut():
    host = torch.full((4, 5), torch.nan)
    same(host.to("spyre").tril(-5), torch.zeros(4, 5))


def test_triangles_in_place_and_into_outputs():
    x, host = pair((5, 70))
    out = torch.empty(70, 5, device="spyre").t()
    torch.triu(x, 2, out=out)
    same(out, host.triu(2))
    x.mT.tril_(-1)
    host.mT.tril_(-1)
    same(x, host)
    with pytest.raises(RuntimeError, match="at least 2 dim"):
        x[0].tril()


@pytest.mark.parametrize("dtype", DTYPES[:4])
def test_trace(dtype):
    x, host = pair((5, 5), dtype)
    same(x.trace(), host.trace())
    same(x[:2].t().trace(), host[:2].t().trace())
    with pytest.raises(RuntimeError, match="expected a matrix"):
        x[0].trace()


# ------------------------------------------------------------------------------------------ padding


@given(
    count=st.integers(1, 3),
    batched=st.booleans(),
    mode=st.sampled_from(["reflect", "replicate"]),
    dtype=st.sampled_from([torch.float16, torch.float32]),
    view=st.sampled_from(["whole", "transposed", "offset"]),
    data=st.data(),
)
def test_padding(count, batched, mode, dtype, view, data):
    with refused():
        shape = [2, 3, 6, 5, 70][-count - 1 - batched :]
        x, host = pair(shape, dtype, view)
        padding = []
        for size in reversed(host.shape[-count:]):
            padding += [data.draw(st.integers(-2, min(4, size - 1))) for _ in range(2)]
        same(F.pad(x, padding, mode), F.pad(host, padding, mode))


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_gradients_of_padding(mode, count):
    padding = [1, 3, 2, 0, -1, 2][: 2 * count]
    check_gradient(lambda t: F.pad(t, padding, mode), [2, 3, 6, 5, 7][-count - 2 :])


def test_gradients_of_short_floats_add_up_in_float32():
    x = torch.ones(1, 1, 3, dtype=torch.float16).to("spyre").requires_grad_()
    F.pad(x, (600, 600), mode="replicate").sum().backward()
    assert x.grad.flatten().tolist() == [601, 1, 601]


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_padding_refuses_what_the_cpu_refuses(mode):
    x, host = pair((2, 3, 4, 5))
    for padding in ((9, 9, 9, 9), (-3, -3, 0, 0), (-6, 0, 0, 0)):
        if mode == "replicate" and min(padding) > 0:
            continue
        for t in (host, x):
            with pytest.raises(RuntimeError):
                F.pad(t, padding, mode)
    with pytest.raises(RuntimeError):
        torch.ops.aten.reflection_pad2d(x[:, :, :0], (1, 1, 1, 1))


def test_padding_into_given_outputs():
    x, host = pair((2, 4, 70))
    out = torch.empty(2, 72, 5, device="spyre").mT
    torch.ops.aten.reflection_pad2d.out(x, (1, 1, 1, 0), out=out)
    same(out, F.pad(host, (1, 1, 1, 0), "reflect"))


# --------------------------------------------------------------------------------------- the rest


@pytest.mark.parametrize("dtype", DTYPES)
def test_shuffles(dtype):
    x, host = pair((2, 12, 3, 70), dtype)
    same(torch.channel_shuffle(x, 3), torch.channel_shuffle(host, 3))
    same(F.pixel_shuffle(x, 2), F.pixel_shuffle(host, 2))
    same(F.pixel_unshuffle(x, 1), F.pixel_unshuffle(host, 1))
    with pytest.raises(RuntimeError, match="divisible by groups"):
        torch.channel_shuffle(x, 5)


@pytest.mark.parametrize(
    "op",
    [
        lambda t: torch.cat([t, t[:, :3]], 1),
        lambda t: torch.stack([t, t]),
        lambda t: t.flip(0),
        lambda t: t.roll(1, 0),
        lambda t: t.tril(),
        lambda t: t.repeat(2, 3),
        lambda t: t.diagonal(),
        lambda t: t[1:, ::2],
        lambda t: t.unfold(1, 3, 1),
        lambda t: t.unfold(1, 3, 5),
        lambda t: t.unfold(1, 60, 2),
        lambda t: t.as_strided((2, 2), (1, 2)),
        lambda t: F.pad(t, (1, -1)),
        lambda t: t.tile(2),
    ],
)
def test_gradients_of_rearrangements(op):
    check_gradient(op, (3, 70))


FACTORIES = {
    "arange": lambda device: torch.arange(3, 90, 7, device=device),
    "arange of floats": lambda device: torch.arange(0, 1, 0.01, device=device),
    "eye": lambda device: torch.eye(3, 70, device=device),
    "full": lambda device: torch.full((3, 70), 2.5, device=device),
    "linspace": lambda device: torch.linspace(0, 1, 70, device=device),
    "logspace": lambda device: torch.logspace(0, 1, 5, device=device),
    "tril_indices": lambda device: torch.tril_indices(4, 5, 1, device=device),
    "triu_indices": lambda device: torch.triu_indices(4, 5, dtype=torch.int32, device=device),
    "kaiser_window": lambda device: torch.kaiser_window(9, device=device),
    "kaiser_window with beta": lambda device: torch.kaiser_window(9, False, 3.0, device=device),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_factories(name):
    same(FACTORIES[name]("spyre"), FACTORIES[name]("cpu"))
