"""Sorting, top k, medians, modes, membership, histograms on the card, against the CPU."""

import itertools

import pytest
import torch
from device_tensors import VIEWS
from hypothesis import assume, given
from hypothesis import strategies as st

from torch_spyre.ops.fallbacks import refused

pytestmark = [pytest.mark.usefixtures("native"), pytest.mark.filterwarnings("ignore")]

DTYPES = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.int32,
    torch.int64,
    torch.int8,
    torch.uint8,
    torch.bool,
]
FLOATS = DTYPES[:3]


def host_values(shape, dtype, seed=0):
    """Values that DLFloat16 holds exactly, with many equal ones."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0 if dtype == torch.uint8 else -9, 10, shape, generator=generator)
    values = values.to(dtype)
    if dtype.is_floating_point:
        few = torch.rand(shape, generator=generator)
        values = torch.where(few < 0.1, torch.inf, torch.where(few > 0.9, torch.nan, values))
        values = torch.where((few > 0.4) & (few < 0.5), -0.0, values).to(dtype)
    return values


def pair(shape, dtype, view="whole", seed=0):
    """A view on the card and the same one on the host."""
    host = host_values(shape, dtype, seed)
    return VIEWS[view](host.to("spyre")), VIEWS[view](host)


def same(actual, expected):
    assert actual.device.type == "spyre"
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0, equal_nan=True)


SHAPES = [(), (1,), (65,), (3, 70), (2, 5, 129), (600, 3), (4, 1, 64), (0,), (3, 0), (0, 3)]


@given(
    shape=st.sampled_from(SHAPES),
    dtype=st.sampled_from(DTYPES),
    view=st.sampled_from(list(VIEWS)),
    descending=st.booleans(),
    data=st.data(),
)
def test_sort_is_stable_in_any_direction(shape, dtype, view, descending, data):
    with refused():
        x, host = pair(shape, dtype, view)
        dim = data.draw(st.integers(-max(1, host.dim()), max(1, host.dim()) - 1))
        values, indices = x.sort(stable=True, dim=dim, descending=descending)
        wanted = host.sort(stable=True, dim=dim, descending=descending)
        same(values, wanted.values)
        same(indices, wanted.indices)
        same(x.argsort(stable=True, dim=dim, descending=descending), wanted.indices)
        assert values.stride() == wanted.values.stride()


@given(
    shape=st.sampled_from(SHAPES),
    dtype=st.sampled_from([dtype for dtype in DTYPES if dtype != torch.bool]),
    view=st.sampled_from(list(VIEWS)),
    largest=st.booleans(),
    data=st.data(),
)
def test_topk_values_and_where_they_are(shape, dtype, view, largest, data):
    with refused():
        x, host = pair(shape, dtype, view)
        dim = data.draw(st.integers(-max(1, host.dim()), max(1, host.dim()) - 1))
        k = data.draw(st.integers(min(1, host.dim() == 0), host.size(dim) if host.dim() else 1))
        ordered = data.draw(st.booleans())
        values, indices = x.topk(k, dim, largest, ordered)
        wanted = host.topk(k, dim, largest, True)
        same(values, wanted.values)
        taken = host.gather(dim, indices.cpu()) if host.dim() else host
        torch.testing.assert_close(taken, wanted.values, rtol=0, atol=0, equal_nan=True)
        # The lower index comes first among equals: as in a stable sort.
        if host.dim():
            first = host.sort(stable=True, dim=dim, descending=largest).indices.narrow(dim, 0, k)
            same(indices, first)


@pytest.mark.parametrize("dtype", FLOATS)
def test_topk_of_a_vocabulary(dtype):
    host = torch.randn(2, 50257, generator=torch.Generator().manual_seed(1)).to(dtype)
    x = host.to("spyre")
    values, indices = x.topk(50)
    card = x.float().cpu()  # rounded to what the card holds
    torch.testing.assert_close(values.float().cpu(), card.topk(50).values, rtol=0, atol=0)
    torch.testing.assert_close(card.gather(1, indices.cpu()), values.float().cpu(), rtol=0, atol=0)


def test_msort_and_argsort():
    x, host = pair((7, 66), torch.float32)
    same(x.msort(), host.msort())
    same(x.argsort(0), host.argsort(dim=0, stable=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_sort_into_given_outputs(dtype):
    x, host = pair((5, 70), dtype)
    values = torch.empty(70, 5, dtype=dtype, device="spyre").t()
    indices = torch.empty(5, 140, dtype=torch.int64, device="spyre")[:, ::2]
    torch.sort(x, dim=0, stable=True, out=(values, indices))
    wanted = host.sort(dim=0, stable=True)
    same(values, wanted.values)
    same(indices, wanted.indices)
    # Onto itself: lines are read before they are written.
    torch.sort(x, dim=1, stable=True, out=(x, indices))
    same(x, host.sort(dim=1, stable=True).values)


def test_what_outputs_are_refused():
    x = torch.ones(4, device="spyre")
    longs = torch.empty(4, dtype=torch.int64, device="spyre")
    with pytest.raises(RuntimeError, match="dtype"):
        torch.sort(x, out=(torch.empty(4, dtype=torch.float16, device="spyre"), longs))
    with pytest.raises(RuntimeError, match="dtype"):
        torch.kthvalue(x, 1, out=(torch.empty(4, device="spyre"), x.to(torch.int32)))
    with pytest.raises(RuntimeError, match="device"):
        torch.sort(x, out=(torch.empty(4), longs))
    with pytest.raises(RuntimeError, match="memory"):
        torch.sort(x[:3], out=(x[1:], longs[:3]))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: x.topk(9), RuntimeError, "out of range"),
        (lambda x: x.topk(-1), RuntimeError, "out of range"),
        (lambda x: x.sort(5), IndexError, "Dimension out of range"),
        (lambda x: x.topk(1, 5), IndexError, "Dimension out of range"),
        (lambda x: x.kthvalue(0), RuntimeError, "out of range"),
        (lambda x: x.kthvalue(9), RuntimeError, "out of range"),
        (lambda x: x.median(5), IndexError, "Dimension out of range"),
        (lambda x: x[:, :0].median(1), IndexError, "non-zero size"),
        (lambda x: x[:, :0].kthvalue(1, 1), (IndexError, RuntimeError), ""),
        (lambda x: x[:, :0].mode(1), (IndexError, RuntimeError), "non-zero size"),
    ],
)
def test_errors_are_those_of_the_cpu(call, error, match):
    host = torch.ones(3, 4)
    with pytest.raises(error):
        call(host)
    with pytest.raises(error, match=match):
        call(host.to("spyre"))


# ------------------------------------------------------------------------- one element of each line


@given(
    shape=st.sampled_from([(), (1,), (65,), (3, 70), (2, 5, 129), (600, 3), (0, 3)]),
    dtype=st.sampled_from(DTYPES[:-1]),
    view=st.sampled_from(list(VIEWS)),
    keepdim=st.booleans(),
    data=st.data(),
)
def test_medians_modes_and_kth_values(shape, dtype, view, keepdim, data):
    with refused():
        x, host = pair(shape, dtype, view)
        dim = data.draw(st.integers(0, max(1, host.dim()) - 1))
        length = host.size(dim) if host.dim() else 1
        assume(length > 0)
        k = data.draw(st.integers(1, length))
        for op in (
            lambda t: t.kthvalue(k, dim, keepdim),
            lambda t: t.median(dim, keepdim),
            lambda t: t.nanmedian(dim, keepdim),
        ):
            # Contiguous: PyTorch 2.13 reads beyond the end of expanded tensors here.
            found, wanted = op(x), op(host.contiguous())
            same(found.values, wanted.values)
            assert found.indices.shape == wanted.indices.shape
            at = found.indices.cpu()
            if host.dim():
                at = at if keepdim else at.unsqueeze(dim)
                taken = host.gather(dim, at)
                taken = taken if keepdim else taken.squeeze(dim)
                torch.testing.assert_close(taken, wanted.values, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int64, torch.bool])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_mode_is_the_smallest_of_the_most_frequent(dtype, dim):
    # PyTorch does not say what NaN counts as, and its CPU kernel counts each by itself.
    host = torch.randint(-3, 4, (6, 70), generator=torch.Generator().manual_seed(2)).to(dtype)
    x = host.to("spyre")
    values, indices = x.mode(dim)
    wanted = host.mode(dim).values
    same(values, wanted)
    torch.testing.assert_close(host.gather(dim, indices.cpu().unsqueeze(dim)).squeeze(dim), wanted)
    out = torch.empty(0, dtype=dtype, device="spyre"), torch.empty(0).long().to("spyre")
    same(torch.mode(x, dim, True, out=out).values, wanted.unsqueeze(dim))


@pytest.mark.parametrize("dtype", DTYPES[:-1])
@pytest.mark.parametrize("shape", [(), (5,), (3, 66), (2, 3, 5), (0,)])
def test_medians_of_everything(shape, dtype):
    if shape == (0,) and not dtype.is_floating_point:
        pytest.skip("PyTorch's result is what NaN happens to be as an integer")
    x, host = pair(shape, dtype)
    same(x.nanmedian(), host.nanmedian())
    same(x.median(), host.median())
    whole = host_values(shape, torch.int32).to(dtype)  # without NaN
    same(whole.to("spyre").median(), whole.median())


def test_medians_into_given_outputs():
    x, host = pair((5, 70), torch.float32)
    values = torch.empty(10, device="spyre")[::2]
    indices = torch.empty(5, dtype=torch.int64, device="spyre")
    torch.nanmedian(x, 1, out=(values, indices))
    same(values, host.nanmedian(1).values)
    torch.kthvalue(x, 3, 1, out=(values, indices))
    same(values, host.kthvalue(3, 1).values)


def test_results_do_not_depend_on_the_direction_of_memory():
    host = host_values((40, 130), torch.float32)
    x = host.to("spyre")
    along = x.sort(dim=1, stable=True)
    across = x.t().contiguous().sort(dim=0, stable=True)
    same(across.values.t(), along.values.cpu())
    same(across.indices.t(), along.indices.cpu())


# ------------------------------------------------------------------------------------------- search


@given(
    shapes=st.sampled_from(
        [
            ((70,), ()),
            ((70,), (3, 66)),
            ((1,), (5,)),
            ((2, 70), (2, 9)),
            ((0,), (3,)),
            ((70,), (0,)),
        ]
    ),
    dtype=st.sampled_from(DTYPES[:6]),
    other=st.sampled_from([torch.float32, torch.int32]),
    view=st.sampled_from(["whole", "stepped", "offset"]),
    right=st.booleans(),
    int32=st.booleans(),
)
def test_searchsorted_and_bucketize(shapes, dtype, other, view, right, int32):
    with refused():
        # Without NaN: with one PyTorch's binary search goes astray on the CPU.
        sequence = host_values(shapes[0], torch.uint8).to(dtype).sort().values
        queries = host_values(shapes[1], other, seed=4)
        x, y = VIEWS[view](sequence.to("spyre")), queries.to("spyre")
        sequence = VIEWS[view](sequence)
        options = {"right": right, "out_int32": int32}
        same(torch.searchsorted(x, y, **options), torch.searchsorted(sequence, queries, **options))
        if sequence.dim() == 1:
            same(torch.bucketize(y, x, **options), torch.bucketize(queries, sequence, **options))
            same(torch.bucketize(2, x, **options), torch.bucketize(2, sequence, **options))
            same(torch.searchsorted(x, 2.5), torch.searchsorted(sequence, 2.5))


def test_searchsorted_refuses_what_the_cpu_refuses():
    host = torch.arange(6.0)
    x = host.to("spyre")
    for bad in (
        lambda t: torch.searchsorted(t.view(2, 3), t),
        lambda t: torch.searchsorted(t, t, side="middle"),
        lambda t: torch.searchsorted(t, t, right=True, side="left"),
        lambda t: torch.searchsorted(t, t, out=t.to(torch.int32)),
        lambda t: torch.bucketize(t, t.view(2, 3)),
    ):
        for tensor in (host, x):
            with pytest.raises(RuntimeError):
                bad(tensor)
    out = torch.empty(12, dtype=torch.int64, device="spyre")[::2]
    torch.searchsorted(x, x, side="right", out=out)
    same(out, torch.arange(1, 7))


# --------------------------------------------------------------------------------------- membership


@given(
    shape=st.sampled_from([(), (5,), (3, 70), (0,), (2, 3, 4)]),
    tests=st.sampled_from([(), (1,), (7,), (2, 40), (0,)]),
    dtype=st.sampled_from([torch.float16, torch.float32, torch.int32, torch.int64]),
    invert=st.booleans(),
)
def test_isin(shape, tests, dtype, invert):
    with refused():
        x, host = pair(shape, dtype)
        y, other = pair(tests, dtype, seed=3)
        same(torch.isin(x, y, invert=invert), torch.isin(host, other, invert=invert))
        same(torch.isin(x, 3, invert=invert), torch.isin(host, 3, invert=invert))
        same(torch.isin(3, y, invert=invert), torch.isin(3, other, invert=invert))


def test_isin_takes_many_test_elements_in_parts():
    elements = torch.arange(0, 60000, 3, dtype=torch.int32)
    tests = torch.arange(0, 5000, 7, dtype=torch.int32)
    found = torch.isin(elements.to("spyre"), tests.to("spyre"))
    same(found, torch.isin(elements, tests))


# --------------------------------------------------------------------------------------- histograms


@given(
    dtype=st.sampled_from([torch.float32, torch.float16, torch.int32, torch.int64, torch.uint8]),
    size=st.sampled_from([(0,), (1,), (70,), (3, 66)]),
    view=st.sampled_from(["whole", "stepped", "offset"]),
    bins=st.sampled_from([1, 4, 7, 65]),
    limits=st.sampled_from([(0, 0), (0, 3), (-2.5, 4), (3, 3)]),
)
def test_histc(dtype, size, view, bins, limits):
    """Integers too, which the CPU refuses; counted by plain comparisons with the edges."""
    # Edges that are not multiples of 1/64 fall on none of these numbers, nor rounding on an edge.
    host = host_values(size, torch.int32).remainder(512).to(torch.float32) / 64
    host = (host if dtype.is_floating_point else host.floor()).to(dtype)
    card = VIEWS[view](host.to("spyre"))
    host = VIEWS[view](host)
    low, high = (float(limit) for limit in limits)
    if low == high and host.numel() > 0:
        low, high = host.min().item(), host.max().item()
    if low == high:
        low, high = low - 1, high + 1
    edges = torch.linspace(low, high, bins + 1, dtype=torch.float32)
    values = host.float().flatten()
    inside = [(values >= a) & (values < b) for a, b in itertools.pairwise(edges)]
    inside[-1] |= values == high
    want = torch.stack([each.sum() for each in inside]).to(dtype)
    same(torch.histc(card, bins, *limits), want)
    out = torch.empty(0, dtype=dtype, device="spyre")
    assert torch.histc(card, bins, *limits, out=out) is out
    same(out, want)


def test_histc_ignores_nan_and_refuses_what_the_cpu_refuses():
    host = torch.tensor([0.0, float("nan"), 2.0, 9.0])
    assert torch.histc(host.to("spyre"), 2, 0, 2).tolist() == [1, 1]
    for arguments in ((0, 0, 1), (3, 2, 1), (3, 0, float("inf")), (3, float("nan"), 1)):
        for tensor in (host, host.to("spyre")):
            with pytest.raises(RuntimeError):
                torch.histc(tensor, *arguments)
    with pytest.raises(RuntimeError, match="not finite"):
        torch.histc(host.to("spyre"), 2)
