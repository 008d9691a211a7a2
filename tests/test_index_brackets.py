"""Tensors in brackets, masks and flat positions on the card, against PyTorch on the CPU."""

import pytest
import torch
from device_tensors import wide
from hypothesis import given, settings
from hypothesis import strategies as st
from indexing import VIEWS, both

pytestmark = pytest.mark.usefixtures("native")


DTYPES = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
]
FORMS = [(-1,), (-1, 1), (1, -1)]
SIZES = st.sampled_from([1, 2, 3, 5, 33, 64, 65, 130])
SHAPES = st.lists(SIZES, min_size=1, max_size=4).filter(lambda s: torch.Size(s).numel() < 20000)


def same(actual, expected):
    assert actual.device.type == "spyre"
    torch.testing.assert_close(wide(actual), expected, rtol=0, atol=0, check_dtype=False)


def to_card(index):
    if isinstance(index, tuple):
        return tuple(map(to_card, index))
    return index.to("spyre") if isinstance(index, torch.Tensor) else index


@st.composite
def brackets(draw):
    """A tensor and what may stand in its brackets: slices, None, integers, index tensors, masks."""
    shape = draw(SHAPES)
    view = draw(st.sampled_from(sorted(VIEWS)))
    size = VIEWS[view](torch.empty(shape)).shape
    seed = draw(st.integers(0, 99))
    generator = torch.Generator().manual_seed(seed)
    common = draw(st.sampled_from([(3,), (2, 3), (1,), (2, 1), ()]))
    masked = draw(st.booleans())
    if masked:
        common = (1,)  # broadcasts with what any mask gives
    entries, d = [], 0
    while d < len(size):
        kind = draw(st.sampled_from(["slice", "all", "index", "index", "int", "none", "mask"]))
        if kind == "index":
            entries.append(torch.randint(-size[d], size[d], common, generator=generator))
        elif kind == "mask" and masked:
            rank = draw(st.integers(1, len(size) - d))
            entries.append(torch.rand(size[d : d + rank], generator=generator) < 0.3)
            d += rank - 1
            masked = False  # two masks need not have as many true elements
        elif kind == "none":
            entries.append(None)
            continue
        elif kind == "int":
            entries.append(draw(st.integers(-size[d], size[d] - 1)))
        else:
            entries.append(slice(None) if kind == "all" else slice(size[d] // 3, None))
        d += 1
        if draw(st.booleans()):
            break
    return shape, view, tuple(entries), seed


@given(brackets(), st.sampled_from(DTYPES))
def test_reading(case, dtype):
    shape, view, entries, seed = case
    x, reference = both(shape, dtype, view, seed)
    same(x[to_card(entries)], reference[entries])
    same(x[entries], reference[entries])  # index tensors on the host serve, too


@given(brackets(), st.sampled_from(DTYPES), st.booleans())
def test_writing(case, dtype, broadcast):
    shape, view, entries, seed = case
    x, reference = both(shape, dtype, view, seed)
    size = reference[entries].shape
    if broadcast and size:
        size = (*[1] * (len(size) - 1), size[-1])
        values, plain = both(size, dtype, seed=seed + 1)
    else:
        # The same value wherever two elements may meet.
        values, plain = torch.ones(size, dtype=dtype, device="spyre"), torch.ones(size)
    if broadcast and torch.Size(size).numel() > 1:
        values, plain = values[..., :1], plain[..., :1]
    x[to_card(entries)] = values
    reference[entries] = plain.to(reference.dtype)
    same(x, reference)


@given(brackets(), st.sampled_from([d for d in DTYPES if d != torch.bool]))
def test_accumulating(case, dtype):
    shape, view, entries, seed = case
    tensors = [e for e in entries if isinstance(e, torch.Tensor)]
    if not tensors or any(e is None or isinstance(e, int) for e in entries):
        return
    entries = tuple(e if isinstance(e, torch.Tensor) else None for e in entries)
    x, reference = both(shape, dtype, view, seed)
    indices = [e if e is None else e.to("spyre") for e in entries]
    size = torch.ops.aten.index(reference, list(entries)).shape
    values, plain = both(size, dtype, seed=seed + 1)
    torch.ops.aten.index_put_(x, indices, values, True)
    torch.ops.aten.index_put_(reference, list(entries), plain.to(reference.dtype), True)
    if dtype == torch.uint8:
        reference %= 256
    same(x, reference)


def test_where_the_dimensions_go():
    """Indices side by side stay in place; a slice between them sends their dimensions forward."""
    x, reference = both((4, 5, 6, 7), torch.float32)
    i, j = torch.tensor([[0, 1], [2, 3]]), torch.tensor([1, 0])
    for entries in [
        (slice(None), i, j),
        (slice(None), i, slice(None), j),
        (i, None, j),
        (i, ..., j),
        (..., i),
        (0, slice(None), j),
    ]:
        same(x[to_card(entries)], reference[entries])


@st.composite
def laid_out(draw):
    """A tensor whose strides are in any order, with any for dimensions of one element."""
    shape = draw(st.lists(st.sampled_from([1, 1, 2, 3, 5]), min_size=1, max_size=4))
    order, strides, packed = draw(st.permutations(range(len(shape)))), [0] * len(shape), 1
    for dim in order:
        strides[dim] = packed if shape[dim] > 1 else draw(st.sampled_from([1, 2, 3, 7, 30, 200]))
        packed *= shape[dim]
    return torch.arange(700.0).as_strided(shape, strides)


@settings(max_examples=200)
@given(x=laid_out(), data=st.data())
def test_results_lie_as_on_the_cpu(x, data):
    brackets = [
        torch.arange(data.draw(st.integers(1, 3))).reshape(data.draw(st.sampled_from(FORMS))) % size
        if data.draw(st.booleans())
        else slice(None)
        for size in x.shape
    ]
    try:
        expected = x[tuple(brackets)]
    except IndexError:  # indices that do not fit together
        return
    on_card = [b if isinstance(b, slice) else b.to("spyre") for b in brackets]
    got = torch.arange(700.0, device="spyre").as_strided(x.shape, x.stride())[tuple(on_card)]
    if not expected._is_view():
        assert got.stride() == expected.stride()
    same(got, expected.double())


def test_byte_masks_and_scalars():
    x, reference = both((3, 70), torch.float16)
    mask = torch.rand(3, 70) < 0.5
    with pytest.warns(UserWarning, match="uint8 is now deprecated"):
        actual = x[mask.to(torch.uint8).to("spyre")]
    same(actual, reference[mask])
    same(x[torch.tensor(True, device="spyre")], reference[torch.tensor(True)])
    x[mask.to("spyre")] = 2.0
    reference[mask] = 2.0
    same(x, reference)
    x[torch.tensor([True, False, True], device="spyre")] = torch.tensor(3.0).half()
    reference[torch.tensor([True, False, True])] = 3.0
    same(x, reference)


def test_out():
    x, reference = both((5, 6), torch.float32)
    index = torch.tensor([4, 0])
    out = torch.empty(0, device="spyre")
    torch.ops.aten.index.Tensor_out(x, [index.to("spyre")], out=out)
    same(out, reference[index])


def test_a_tensor_that_indexes_itself():
    x = torch.tensor([2, 0, 1, 1], device="spyre")
    assert x[x].tolist() == [1, 2, 0, 0]
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        x[x] = x.clone() + 5
    assert x.tolist() == [2, 0, 1, 1]


# ---------------------------------------------------------------------------- masks and positions


@given(SHAPES, st.sampled_from(sorted(VIEWS)), st.sampled_from(DTYPES), st.integers(0, 99))
def test_masks(shape, view, dtype, seed):
    x, reference = both(shape, dtype, view, seed)
    same(x.nonzero(), reference.nonzero())
    assert x.nonzero().stride() == reference.nonzero().stride()
    mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) < 0.4
    same(x.masked_select(mask.to("spyre")), reference.masked_select(mask))
    row = mask[..., :1]
    same(x.masked_select(row.to("spyre")), reference.masked_select(row))
    source, plain = both((x.numel() + 3,), dtype, "offset", seed + 1)
    x.masked_scatter_(mask.to("spyre"), source)
    same(x, reference.masked_scatter(mask, plain.to(reference.dtype)))


@given(SHAPES, st.sampled_from(sorted(VIEWS)), st.sampled_from(DTYPES), st.integers(0, 99))
def test_take_and_put(shape, view, dtype, seed):
    x, reference = both(shape, dtype, view, seed)
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(-x.numel(), x.numel(), (2, 5), generator=generator)
    same(x.take(index.to("spyre")), reference.take(index))
    order = torch.randperm(x.numel(), generator=generator)[: x.numel() // 2 + 1]
    source, plain = both((len(order),), dtype, seed=seed + 1)
    x.put_(order.to("spyre"), source)
    reference.put_(order, plain)
    same(x, reference)
    if dtype not in (torch.bool, torch.uint8):
        source, plain = both((2, 5), dtype, seed=seed + 2)
        x.put_(index.to("spyre"), source, accumulate=True)
        reference.put_(index, plain, accumulate=True)
        same(x, reference)


def test_out_of_masks():
    x = torch.tensor([0, 3, 0, 4], device="spyre")
    out = torch.empty(0, dtype=torch.int64, device="spyre")
    assert torch.nonzero(x, out=out).tolist() == [[1], [3]]
    assert torch.masked_select(x, x > 3, out=out.resize_(0)).tolist() == [4]
    assert torch.take(x, torch.tensor([[-1]], device="spyre"), out=out.resize_(0)).tolist() == [[4]]
    assert torch.tensor(3.0, device="spyre").nonzero().shape == (1, 0)
    assert [t.tolist() for t in torch.where(x > 0)] == [[1, 3]]


def test_take_along_dim_and_one_hot():
    x, reference = both((3, 70), torch.float16)
    order = reference.argsort(-1)
    same(x.take_along_dim(order.to("spyre"), -1), reference.take_along_dim(order, -1))
    classes = torch.tensor([0, 2, 1, 2])
    expected = torch.nn.functional.one_hot(classes, 5)
    same(torch.nn.functional.one_hot(classes.to("spyre"), 5), expected)
    same(torch.nn.functional.one_hot(classes.to("spyre")), expected[:, :3])


def test_repeat_interleave():
    x, reference = both((3, 70), torch.float32)
    repeats = torch.tensor([2, 0, 3])
    same(x.repeat_interleave(repeats.to("spyre"), 0), reference.repeat_interleave(repeats, 0))
    same(x.repeat_interleave(2, 1), reference.repeat_interleave(2, 1))


# ------------------------------------------------------------------------------------------ misuse

ROWS, FIRST = torch.arange(12.0).reshape(3, 4), torch.tensor([0, 1])
MISUSES = {
    "float index": lambda x, i: torch.ops.aten.index(x, [i.float()]),
    "int8 index": lambda x, i: torch.ops.aten.index(x, [i.to(torch.int8)]),
    "mask shape": lambda x, i: x[i > 0],
    "too many": lambda x, i: x[i, i, i],
    "no broadcast": lambda x, i: x[i, i.new_zeros(3)],
    "nothing there": lambda x, i: x[:0][i],
    "put dtype": lambda x, i: x.index_put((i,), i),
    "put shape": lambda x, i: x.index_put((i,), x),
    "mask dtype": lambda x, i: x.masked_select(x),
    "few": lambda x, i: x.masked_scatter(x >= 0, x[0]),
    "scatter dtype": lambda x, i: x.masked_scatter(x >= 0, i),
    "take from nothing": lambda x, i: x[:0].take(i),
}


@pytest.mark.parametrize("name", sorted(MISUSES))
def test_misuse_raises_what_the_cpu_raises(name):
    with pytest.raises((RuntimeError, IndexError)) as expected:
        MISUSES[name](ROWS, FIRST)
    with pytest.raises(expected.type) as actual:
        MISUSES[name](ROWS.to("spyre"), FIRST.to("spyre"))
    assert type(actual.value) is type(expected.value)
