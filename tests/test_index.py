"""Indexing along one dimension on the card, against PyTorch on the CPU in float64 or int64.

Values are small whole numbers, so that sums are exact in every dtype and nothing is tolerated.
"""

import pytest
import torch
from device_tensors import wide
from hypothesis import given
from hypothesis import strategies as st
from indexing import VIEWS, both, random

pytestmark = pytest.mark.usefixtures("native")


FLOATS = [torch.float16, torch.bfloat16, torch.float32]
DTYPES = [*FLOATS, torch.int32, torch.int64, torch.int8, torch.uint8, torch.bool]
SIZES = st.sampled_from([1, 2, 3, 5, 31, 33, 63, 64, 65, 70, 130])
SHAPES = st.lists(SIZES, min_size=1, max_size=3).filter(lambda s: torch.Size(s).numel() < 20000)
NUMBERS = [d for d in DTYPES if d != torch.bool]
VIEW_NAMES = st.sampled_from(sorted(VIEWS))


def indices(shape, size, seed, low=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, size, shape, generator=generator)


def same(actual, expected):
    """Equal; integers that the dtype cannot hold are wrapped."""
    assert actual.device.type == "spyre"
    if not actual.is_floating_point():
        expected = wide(expected.to(actual.dtype))
    torch.testing.assert_close(wide(actual), expected, rtol=0, atol=0, check_dtype=False)


@st.composite
def along(draw):
    """A tensor, a dimension, and the size of an index that fits."""
    shape = draw(SHAPES)
    view = draw(VIEW_NAMES)
    size = VIEWS[view](torch.empty(shape)).shape
    dim = draw(st.integers(-len(size), len(size) - 1))
    index_size = [draw(st.integers(0 if n < 4 else 1, n)) for n in size]
    index_size[dim] = draw(st.sampled_from([1, 3, 64, 67]))
    return shape, view, dim, index_size


# ------------------------------------------------------------------------------- gather, scatter


@given(along(), st.sampled_from(DTYPES), st.integers(0, 99))
def test_gather(case, dtype, seed):
    shape, view, dim, index_size = case
    x, reference = both(shape, dtype, view, seed)
    index = indices(index_size, x.shape[dim], seed)
    same(x.gather(dim, index.to("spyre")), reference.gather(dim, index))


def distinct(x, dim, index_size, seed):
    """An index without two equal coordinates in a line: the order of writes has no effect."""
    order = torch.rand(index_size[:], generator=torch.Generator().manual_seed(seed))
    index = order.argsort(dim)
    return index.narrow(dim, 0, min(x.shape[dim], index_size[dim])) % x.shape[dim]


@given(along(), st.sampled_from(DTYPES), st.sampled_from(sorted(VIEWS)), st.integers(0, 99))
def test_scatter(case, dtype, source_view, seed):
    shape, view, dim, index_size = case
    x, reference = both(shape, dtype, view, seed)
    index_size[dim] = min(index_size[dim], x.shape[dim])
    index = distinct(x, dim, index_size, seed)
    big = [3 * n + 1 for n in index_size]
    big[-2:] = [max(big[-2:])] * len(big[-2:])  # transposed, it is large enough, too
    source, plain = both(big, dtype, source_view, seed + 1)
    same(x.scatter(dim, index.to("spyre"), source), reference.scatter(dim, index, plain))
    same(x.scatter(dim, index.to("spyre"), 1), reference.scatter(dim, index, 1))
    x.scatter_(dim, index.to("spyre"), source)
    same(x, reference.scatter(dim, index, plain))


@given(along(), st.sampled_from(NUMBERS), st.integers(0, 99))
def test_scatter_add(case, dtype, seed):
    shape, view, dim, index_size = case
    x, reference = both(shape, dtype, view, seed)
    index = indices(index_size, x.shape[dim], seed)
    source, plain = both(index_size, dtype, seed=seed + 1, low=0, high=3)
    card_index = index.to("spyre")
    same(x.scatter_add(dim, card_index, source), reference.scatter_add(dim, index, plain))
    expected = reference.scatter_add(dim, index, torch.ones(index_size, dtype=reference.dtype))
    same(x.scatter(dim, card_index, 1, reduce="add"), expected)
    same(x.scatter(dim, card_index, source, reduce="add"), reference.scatter_add(dim, index, plain))
    x.scatter_add_(dim, card_index, source)
    same(x, reference.scatter_add(dim, index, plain))


@given(
    along(),
    st.sampled_from([*FLOATS, torch.int32]),
    st.sampled_from(["sum", "prod", "mean", "amax", "amin"]),
    st.booleans(),
    st.integers(0, 99),
)
def test_scatter_reduce(case, dtype, reduce, include_self, seed):
    shape, view, dim, index_size = case
    index_size[dim] = min(index_size[dim], 3)  # so that products stay small
    x, reference = both(shape, dtype, view, seed)
    index = indices(index_size, x.shape[dim], seed)
    source, plain = both(index_size, dtype, seed=seed + 1)
    actual = x.scatter_reduce(dim, index.to("spyre"), source, reduce, include_self=include_self)
    expected = reference.scatter_reduce(dim, index, plain, reduce, include_self=include_self)
    if reduce == "mean" and dtype.is_floating_point:
        torch.testing.assert_close(wide(actual), expected, rtol=2**-10, atol=0)
    else:
        same(actual, expected)


def test_half_sums_are_rounded_once():
    """A thousand additions of 1/1024 to 1: each alone would be lost."""
    x = torch.ones(1, dtype=torch.float16, device="spyre")
    index = torch.zeros(1024, dtype=torch.int64, device="spyre")
    source = torch.full((1024,), 2**-10, dtype=torch.float16, device="spyre")
    assert x.scatter_add(0, index, source).item() == 2
    assert x.index_add(0, index, source).item() == 2
    assert x.index_put((index,), source, accumulate=True).item() == 2


def test_the_last_write_wins():
    index = torch.tensor([1, 0, 1] * 50, device="spyre")
    source = torch.arange(150.0, device="spyre")
    assert torch.zeros(2, device="spyre").scatter_(0, index, source).tolist() == [148, 149]
    assert torch.zeros(2, device="spyre").index_copy_(0, index, source).tolist() == [148, 149]
    square = index.reshape(3, 50), source.reshape(3, 50)
    assert torch.zeros(2, device="spyre").index_put_(square[:1], square[1]).tolist() == [148, 149]


def test_nan_wins_extremes():
    x = torch.tensor([1.0, float("nan"), 2.0], device="spyre")
    index = torch.tensor([0, 1, 2], device="spyre")
    source = torch.tensor([float("nan"), 5.0, 3.0], device="spyre")
    for reduce in ("amax", "amin"):
        result = x.scatter_reduce(0, index, source, reduce).cpu()
        assert result.isnan().tolist() == [True, True, False]


def test_out_and_empty():
    x, reference = both((5, 70), torch.float16)
    index = indices((2, 70), 5, 0)
    out = torch.empty(0, dtype=torch.float16, device="spyre")
    result = torch.gather(x, 0, index.to("spyre"), out=out)
    assert result is out
    same(out, reference.gather(0, index))
    none = torch.empty((0, 70), dtype=torch.int64)
    same(x.gather(0, none.to("spyre")), reference.gather(0, none))
    same(x.scatter(0, none.to("spyre"), 1), reference)
    scalar = torch.tensor(3.0, device="spyre")
    assert scalar.gather(0, torch.tensor([0], device="spyre")).tolist() == [3]
    assert scalar.gather(0, torch.tensor(0, device="spyre")).item() == 3
    assert scalar.scatter(0, torch.tensor(0, device="spyre"), 4).item() == 4


# ---------------------------------------------------------------------------------------- slices


@given(along(), st.sampled_from(DTYPES), st.sampled_from([torch.int64, torch.int32]), st.integers())
def test_index_select(case, dtype, index_dtype, seed):
    shape, view, dim, index_size = case
    seed %= 100
    x, reference = both(shape, dtype, view, seed)
    index = indices(index_size[dim : dim + 1] or index_size[dim:], x.shape[dim], seed)
    card_index = index.to(index_dtype).to("spyre")
    same(x.index_select(dim, card_index), reference.index_select(dim, index))
    out = torch.empty(0, dtype=dtype, device="spyre")
    torch.index_select(x, dim, card_index, out=out)
    same(out, reference.index_select(dim, index))


@given(along(), st.sampled_from(NUMBERS), VIEW_NAMES, st.integers(0, 99))
def test_index_add_and_copy(case, dtype, source_view, seed):
    shape, view, dim, index_size = case
    x, reference = both(shape, dtype, view, seed)
    index = indices((index_size[dim],), x.shape[dim], seed)
    size = list(x.shape)
    size[dim] = len(index)
    big = [3 * n + 1 for n in size]
    big[-2:] = [max(big[-2:])] * len(big[-2:])
    source, plain = both(big, dtype, source_view, seed + 1, low=0, high=3)
    for d, n in enumerate(size):
        source, plain = source.narrow(d, 0, n), plain.narrow(d, 0, n)
    card_index = index.to("spyre")
    same(
        x.index_add(dim, card_index, source, alpha=2),
        reference.index_add(dim, index, plain, alpha=2),
    )
    order = torch.randperm(x.shape[dim], generator=torch.Generator().manual_seed(seed))
    order = order[: len(index)]
    source, plain = source.narrow(dim, 0, len(order)), plain.narrow(dim, 0, len(order))
    x.index_copy_(dim, order.to("spyre"), source)
    same(x, reference.index_copy(dim, order, plain))


@given(along(), st.sampled_from(DTYPES), st.integers(0, 99))
def test_index_fill(case, dtype, seed):
    shape, view, dim, index_size = case
    x, reference = both(shape, dtype, view, seed)
    size = x.shape[dim]
    index = indices((index_size[dim],), size, seed, low=-size)
    same(x.index_fill(dim, index.to("spyre"), 1), reference.index_fill(dim, index, 1))
    value = torch.tensor(1, dtype=dtype)
    x.index_fill_(dim, index.to("spyre"), value.to("spyre"))
    same(x, reference.index_fill(dim, index, value.to(reference.dtype)))


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32])
def test_index_reduce(dtype, reduce, include_self):
    for dim in range(3):
        x, reference = both((4, 5, 70), dtype)
        index = torch.tensor([1, 3, 1, 0])
        size = list(x.shape)
        size[dim] = 4
        source, plain = both(size, dtype, seed=1)
        actual = x.index_reduce(dim, index.to("spyre"), source, reduce, include_self=include_self)
        expected = reference.index_reduce(dim, index, plain, reduce, include_self=include_self)
        if reduce == "mean" and dtype.is_floating_point:
            torch.testing.assert_close(wide(actual), expected, rtol=2**-10, atol=0)
        else:
            same(actual, expected)


def test_a_cache_of_keys():
    """Rows written into a cache where it is, one launch each."""
    cache = torch.zeros((2, 3, 40, 128), dtype=torch.float16, device="spyre")
    expected = torch.zeros((2, 3, 40, 128))
    for step in range(3):
        keys = random((2, 1, 3, 128), torch.float16, step)
        position = torch.tensor([7 + step])
        cache.index_copy_(2, position.to("spyre"), keys.to("spyre").transpose(1, 2))
        expected.index_copy_(2, position, keys.float().transpose(1, 2))
    same(cache, expected.double())


# ------------------------------------------------------------------------------------------ misuse

ROWS = torch.arange(12.0).reshape(3, 4)
BAD = torch.tensor([0, 7])
MISUSES = {
    "gather": lambda x, i: x.gather(0, i.reshape(1, 2)),
    "scatter": lambda x, i: x.scatter(0, i.reshape(1, 2), 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i.reshape(1, 2), x),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i.reshape(1, 2), x, "amax"),
    "index_select": lambda x, i: x.index_select(0, i),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:2]),
    "index_fill": lambda x, i: x.index_fill(0, i, 1),
    "index_fill far": lambda x, i: x.index_fill(0, i - 10, 1),
    "index_put": lambda x, i: x.index_put((i,), x[:2]),
    "brackets": lambda x, i: x[i],
    "take": lambda x, i: x.take(i * 10),
    "put": lambda x, i: x.clone().put_(i * 10, x[0, :2]),
    "embedding": lambda x, i: torch.nn.functional.embedding(i, x),
    "nll": lambda x, i: torch.nn.functional.nll_loss(x[:2], i),
    "negative gather": lambda x, i: x.gather(0, -i.reshape(1, 2)),
    "negative index_select": lambda x, i: x.index_select(0, -i),
    "negative index_add": lambda x, i: x.index_add(0, -i, x[:2]),
    "index shape": lambda x, i: x.index_select(0, i.reshape(1, 2)),
    "index dtype": lambda x, i: x.index_select(0, i.float()),
    "gather dtype": lambda x, i: x.gather(0, i.reshape(1, 2).float()),
    "gather shape": lambda x, i: x.gather(0, i),
    "scatter dtype": lambda x, i: x.scatter(0, i.reshape(1, 2), x.int()),
    "scatter shape": lambda x, i: x.scatter(0, i.expand(4, 2), x),
    "scatter reduce": lambda x, i: x.scatter(0, i.reshape(1, 2), x, reduce="max"),
    "index_add shape": lambda x, i: x.index_add(0, i, x),
    "index_copy dtype": lambda x, i: x.index_copy(0, i, x[:2].int()),
    "index_fill dtype": lambda x, i: x.index_fill(0, i.int(), 1),
    "index_fill value": lambda x, i: x.index_fill(0, i, x[0]),
    "take dtype": lambda x, i: x.take(i.int()),
    "put count": lambda x, i: x.clone().put_(i, x),
    "another rank": lambda x, i: x.index_copy(0, i, x[0]),
}


@pytest.mark.parametrize("name", sorted(MISUSES))
def test_misuse_raises_what_the_cpu_raises(name):
    with pytest.raises((RuntimeError, IndexError, TypeError)) as expected:
        MISUSES[name](ROWS, BAD)
    x, index = ROWS.to("spyre"), BAD.to("spyre")
    with pytest.raises(expected.type) as actual:
        MISUSES[name](x, index)
    assert type(actual.value) is type(expected.value)
    same(x + 1, ROWS.double() + 1)  # the device works on


def test_a_bad_index_is_named_and_nothing_is_written():
    x = torch.zeros(3, 70, device="spyre")
    index = torch.tensor([0, 1, -9], device="spyre")
    with pytest.raises(IndexError, match="index -9 is out of bounds for dimension 0 with size 3"):
        x[index] = 1.0
    with pytest.raises(RuntimeError, match="scatteradd: index -9 is out of bounds"):
        x.index_add_(0, index, torch.ones(3, 70, device="spyre"))
    assert x.count_nonzero().item() == 0
    torch.accelerator.synchronize()  # no error is left behind


def test_tensors_on_different_devices():
    x, index = ROWS.to("spyre"), BAD.clamp(max=2)
    for name in ("gather", "index_select", "index_add", "index_copy", "take", "embedding"):
        with pytest.raises(RuntimeError, match="same device"):
            MISUSES[name](x, index)
    with pytest.raises(RuntimeError, match="same device"):
        x.scatter(0, index.to("spyre").reshape(1, 2), ROWS)
    with pytest.raises(RuntimeError, match="same device"):
        x.index_put((index.to("spyre"),), ROWS[:2])


def test_a_bad_index_behind_queued_work():
    """The error comes from the call, also if the stream is busy."""
    x = torch.zeros(1000, 1000, device="spyre")
    pinned = torch.ones(1000, 1000).pin_memory()
    x.copy_(pinned, non_blocking=True)
    with pytest.raises(IndexError):
        x[torch.tensor([1000], device="spyre")]
    assert x.sum().item() == 1e6


NO_ROWS = {
    "gather": lambda d, index: torch.gather(torch.ones(0, 3, device=d), 0, index.expand(1, 3)),
    "take_along_dim": lambda d, index: torch.ones(0, 3, device=d).take_along_dim(index[None], 0),
    "scatter": lambda d, index: torch.ones(0, 3, device=d).scatter_(0, index.expand(1, 3), 1.0),
    "index_select": lambda d, index: torch.ones(0, 3, device=d).index_select(0, index),
    "index_fill": lambda d, index: torch.ones(0, 3, device=d).index_fill_(0, index, 1.0),
    "index_copy": lambda d, index: torch.ones(0, 3, device=d).index_copy_(
        0, index, torch.ones(1, 3, device=d)
    ),
    "brackets": lambda d, index: torch.ones(0, 3, device=d)[index],
    "embedding": lambda d, index: torch.nn.functional.embedding(index, torch.ones(0, 3, device=d)),
    "nll_loss": lambda d, index: torch.nn.functional.nll_loss(torch.ones(1, 0, device=d), index),
}


@pytest.mark.parametrize("name", sorted(NO_ROWS))
def test_nothing_lies_in_a_dimension_of_size_0(name):
    with pytest.raises((RuntimeError, IndexError)):
        NO_ROWS[name]("cpu", torch.tensor([0]))
    with pytest.raises((RuntimeError, IndexError), match=r"out of bounds|should be positive"):
        NO_ROWS[name]("spyre", torch.tensor([0], device="spyre"))
