"""Copies and fills: between host and card, on a card, between cards; any view, dtype and layout.

Device memory is compared bit for bit, padding included, with what `oracle` finds by walking the
layout's definition.
"""

import gc
import math

import numpy as np
import oracle
import pytest
import torch
from hypothesis import given, note, settings
from hypothesis import strategies as st
from subprocesses import forked

from torch_spyre._C import SpyreTensorLayout

# -------------------------------------------------------------------------------- what is generated

EXTENTS = [0, 1, 2, 3, 5, 31, 33, 63, 64, 65, 130]
SHAPES = st.lists(st.sampled_from(EXTENTS), max_size=5).filter(lambda s: volume(s) <= 3000)
SEEDS = st.integers(0, 1000)


def volume(shape):
    """Elements of a tensor of this shape if none of its extents were 0."""
    return math.prod(max(extent, 1) for extent in shape)


@st.composite
def view_ops(draw, shape, expand=False, longest=3):
    """A chain of view operations that fits a tensor of this shape."""
    tensor = torch.empty(shape, device="meta")
    ops = []
    for _ in range(draw(st.integers(0, longest))):
        choices = ["permute", "unsqueeze", *(["slice", "select"] if tensor.dim() else [])]
        kind = draw(st.sampled_from([*choices, *(["expand"] if expand else [])]))
        dim = draw(st.integers(0, max(tensor.dim() - 1, 0)))
        if kind == "slice":
            start = draw(st.integers(0, tensor.shape[dim]))
            op = ("slice", dim, start, draw(st.integers(start, tensor.shape[dim])),
                  draw(st.integers(1, 3)))  # fmt: skip
        elif kind == "select":
            if tensor.shape[dim] == 0:
                continue
            op = ("select", dim, draw(st.integers(0, tensor.shape[dim] - 1)))
        elif kind == "permute":
            op = ("permute", tuple(draw(st.permutations(range(tensor.dim())))))
        elif kind == "unsqueeze":
            op = ("unsqueeze", dim)
        else:
            op = ("expand", (draw(st.integers(1, 3)), *tensor.shape))
        tensor = apply_ops(tensor, [op])
        ops.append(op)
    return ops


def apply_ops(tensor, ops):
    for kind, *arguments in ops:
        if kind == "slice":
            dim, start, stop, step = arguments
            index = [slice(None)] * dim + [slice(start, stop, step)]
            tensor = tensor[tuple(index)]
        else:
            tensor = getattr(tensor, kind)(*arguments)
    return tensor


@st.composite
def layouts(draw, shape, dtype):
    """A layout with a place for every element of a contiguous tensor of this shape."""
    strides = list(torch.empty(shape, device="meta").stride())
    order = draw(st.permutations(range(len(shape))))
    if shape and math.prod(shape) <= 200 and draw(st.booleans()):
        order = [*order, -1]
    layout = SpyreTensorLayout(list(shape), strides, dtype, list(order))
    format, eps = layout.device_dtype, layout.elems_per_stick()
    if draw(st.integers(0, 5)) == 0:  # folded: storage order, stick by stick
        return SpyreTensorLayout([-(-math.prod(shape) // eps), eps], [eps, 1], format)
    dims = list(zip(layout.device_size, layout.stride_map, strict=True))
    outer, stick = dims[:-1], dims[-1]
    changes = draw(st.sets(st.sampled_from(["pad or split", "insert"])))
    target = draw(st.integers(0, len(outer) - 1))
    size, stride = outer[target]
    factors = [k for k in range(2, size) if size % k == 0]
    innermost = len(outer)
    if "pad or split" in changes:
        if stride > 0 and factors and draw(st.booleans()):
            inner = draw(st.sampled_from(factors))
            outer[target] = (inner, stride)
            outer.insert(draw(st.integers(0, len(outer))), (size // inner, stride * inner))
        else:
            outer[target] = (size + draw(st.integers(1, 2)), stride)
            innermost = max(len(outer) - 2, 0)  # the dimension that counts sticks keeps its place
    if "insert" in changes:
        replicated, synthetic = (draw(st.integers(1, 3)), 0), (draw(st.integers(1, 2)), -1)
        for extra in (replicated, synthetic, (1, draw(st.integers(-1, 100)))):
            outer.insert(draw(st.integers(0, innermost)), extra)
    sizes, strides = zip(*outer, stick, strict=True)
    if math.prod(sizes) > 20_000:
        return layout
    return SpyreTensorLayout(list(sizes), list(strides), format)


HOST_VIEWS = ["contiguous", "permuted", "sliced", "offset"]
OVERLAPPING_HOST_VIEWS = ["expanded", "overlapping"]


def host_tensor(shape, dtype, kind, seed):
    """A CPU tensor of hard values with strides and offset of some kind."""
    random = np.random.default_rng(seed)
    if kind == "permuted":
        order = random.permutation(len(shape))
        base = oracle.random_host(tuple(shape[i] for i in order), dtype, seed)
        return base.permute(*np.argsort(order).tolist()) if shape else base
    if kind == "sliced":
        steps = [2 if volume(shape) * 3**i < 9000 else 1 for i in range(len(shape))]
        full = [step * extent + 1 for step, extent in zip(steps, shape, strict=True)]
        base = oracle.random_host(tuple(full), dtype, seed)
        return base[tuple(slice(1, None, step) for step in steps)]
    if kind == "offset":
        base = oracle.random_host((math.prod(shape) + 5,), dtype, seed)
        return base[5:].view(shape)
    if kind == "expanded":
        keep = random.integers(0, 2, len(shape))
        base = oracle.random_host(
            tuple(e if k or e == 0 else 1 for e, k in zip(shape, keep, strict=True)), dtype, seed
        )
        return base.expand(shape)
    if kind == "overlapping":
        strides = [int(step) for step in random.integers(0, 4, len(shape))]
        span = sum(max(e - 1, 0) * s for e, s in zip(shape, strides, strict=True)) + 4
        return oracle.random_host((span,), dtype, seed).as_strided(shape, strides, 3)
    return oracle.random_host(tuple(shape), dtype, seed)


@st.composite
def device_tensors(draw, expand=False, dtypes=oracle.DEVICE_DTYPES, device="spyre:0"):
    """A device tensor in any layout, a view of it, and what its memory holds, padding included."""
    shape, dtype = draw(SHAPES), draw(st.sampled_from(dtypes))
    layout = draw(layouts(shape, dtype))
    ops = draw(view_ops(shape, expand))
    note(f"device tensor: {shape} in {layout}, seen through {ops}")
    base = torch.empty(shape, dtype=dtype, device=device, device_layout=layout)
    memory = oracle.scramble(base, draw(SEEDS))
    return base, apply_ops(base, ops), memory


@pytest.fixture(autouse=True)
def no_downcast_warning():
    torch.spyre.set_downcast_warning(False)
    yield
    torch.spyre.set_downcast_warning(True)


def assert_memory(tensor, expected):
    np.testing.assert_array_equal(oracle.device_codes(tensor), expected)


# ------------------------------------------------------------------------------------- host to card


@given(
    device_tensors(),
    st.sampled_from(oracle.HOST_DTYPES),
    st.sampled_from(HOST_VIEWS + OVERLAPPING_HOST_VIEWS),
    SEEDS,
)
@settings(max_examples=200)
def test_host_to_card_writes_the_view_and_nothing_else(device, dtype, kind, seed):
    base, view, memory = device
    host = host_tensor(tuple(view.shape), dtype, kind, seed)
    view.copy_(host)
    elements = oracle.to_device_codes(oracle.host_codes(host), dtype, view.dtype)
    assert_memory(base, oracle.written(memory, view, elements))


@pytest.mark.parametrize("target", oracle.DEVICE_DTYPES)
@pytest.mark.parametrize("source", oracle.HOST_DTYPES)
def test_host_to_card_converts_in_one_rounding(source, target):
    host = oracle.random_host((40, 70), source)
    x = torch.empty(40, 70, dtype=target, device="spyre").copy_(host)
    memory = oracle.device_codes(x)
    expected = oracle.to_device_codes(oracle.host_codes(host), source, target)
    np.testing.assert_array_equal(oracle.read(memory, x), expected)


@pytest.mark.parametrize("dtype", oracle.DEVICE_DTYPES)
def test_to_and_back_gives_what_the_device_format_keeps(dtype):
    host = oracle.random_host((5, 130), dtype)
    oracle.assert_same_bits(host.to("spyre").cpu(), oracle.host_round_trip(host))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.int8, torch.int16, torch.int32, torch.uint8, torch.bool]
)
def test_to_and_back_is_exact(dtype):
    host = oracle.random_host((5, 130), dtype)
    oracle.assert_same_bits(host.to("spyre").cpu(), host)


def test_int64_keeps_its_low_32_bits():
    values = torch.tensor([0, 1, -1, 2**31 - 1, 2**31, -(2**31) - 1, 2**40 + 7, -(2**63)])
    assert torch.equal(values.to("spyre").cpu(), values.to(torch.int32).to(torch.int64))


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), -0.0, 65504.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_special_value_survives(value, dtype):
    host = torch.full((3,), value, dtype=dtype)
    back = host.to("spyre").cpu()
    torch.testing.assert_close(back, host, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(torch.signbit(back), torch.signbit(host)) or math.isnan(value)


# ------------------------------------------------------------------------------------- card to host


@given(
    device_tensors(expand=True),
    st.sampled_from(oracle.HOST_DTYPES),
    st.sampled_from(HOST_VIEWS),
    SEEDS,
)
@settings(max_examples=200)
def test_card_to_host_reads_the_view(device, dtype, kind, seed):
    base, view, memory = device
    host = host_tensor(tuple(view.shape), dtype, kind, seed)
    around = torch.empty(0, dtype=dtype).set_(host.untyped_storage())
    expected = oracle.host_codes(around)
    elements = oracle.to_host_codes(oracle.read(memory, view), view.dtype, dtype)
    expected[oracle.storage_offsets(host)] = elements

    host.copy_(view)
    np.testing.assert_array_equal(oracle.host_codes(around), expected)
    assert_memory(base, memory)


@pytest.mark.parametrize("target", oracle.HOST_DTYPES)
@pytest.mark.parametrize("source", oracle.DEVICE_DTYPES)
def test_card_to_host_converts_in_one_rounding(source, target):
    x = torch.empty(40, 70, dtype=source, device="spyre")
    memory = oracle.scramble(x)
    host = x.to("cpu", target)
    expected = oracle.to_host_codes(oracle.read(memory, x), source, target)
    np.testing.assert_array_equal(oracle.host_codes(host), expected)


def test_float32_of_a_float16_tensor_is_the_value_on_the_card():
    host = torch.tensor([1 / 3, 1e5, 1e9, 65519.0])
    there = host.to("spyre", torch.float16).to("cpu", torch.float32)
    assert there.tolist() == [0.33349609375, 99968.0, 1000341504.0, 65536.0]


def test_host_tensor_whose_elements_overlap_cannot_be_written():
    x = torch.empty(4, 4, device="spyre")
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.zeros(4).expand(4, 4).copy_(x)


# -------------------------------------------------------------------------------------- on the card


@given(device_tensors(expand=True), st.data())
@settings(max_examples=200)
def test_copy_on_the_card_writes_the_view_and_nothing_else(source, data):
    source_base, source_view, source_memory = source
    check_card_copy(source_base, source_view, source_memory, "spyre:0", data)


@given(device_tensors(expand=True), st.data())
def test_copy_between_cards_writes_the_view_and_nothing_else(source, data):
    source_base, source_view, source_memory = source
    check_card_copy(source_base, source_view, source_memory, "spyre:1", data)


def check_card_copy(source_base, source, source_memory, device, data):
    dtype = data.draw(st.sampled_from(oracle.DEVICE_DTYPES))
    # The target: a permuted, stepped, shifted view of a larger tensor.
    shape = tuple(source.shape)
    order = data.draw(st.permutations(range(len(shape))))
    steps = data.draw(st.lists(st.integers(1, 2), min_size=len(shape), max_size=len(shape)))
    starts = data.draw(st.lists(st.integers(0, 2), min_size=len(shape), max_size=len(shape)))
    full = [start + step * extent for start, step, extent in zip(starts, steps, shape, strict=True)]
    base_shape = [full[i] for i in order]
    if math.prod(base_shape) > 6000:
        base_shape, order = list(shape), list(range(len(shape)))
        starts, steps = [0] * len(shape), [1] * len(shape)
    layout = data.draw(layouts(base_shape, dtype))
    base = torch.empty(base_shape, dtype=dtype, device=device, device_layout=layout)
    memory = oracle.scramble(base, data.draw(SEEDS))
    target = base.permute(*np.argsort(order).tolist()) if shape else base
    target = target[tuple(slice(b, None, s) for b, s in zip(starts, steps, strict=True))]
    assert target.shape == shape

    target.copy_(source)
    elements = oracle.across_card_codes(
        oracle.read(source_memory, source), source.dtype, target.dtype
    )
    assert_memory(base, oracle.written(memory, target, elements))
    assert_memory(source_base, source_memory)


@pytest.mark.parametrize("device", ["spyre:0", "spyre:1"])
@pytest.mark.parametrize("target", oracle.DEVICE_DTYPES)
@pytest.mark.parametrize("source", oracle.DEVICE_DTYPES)
def test_card_to_card_converts_in_one_rounding(source, target, device):
    x = torch.empty(20, 70, dtype=source, device="spyre:0")
    memory = oracle.scramble(x)
    y = x.to(device, target, copy=True)
    expected = oracle.across_card_codes(oracle.read(memory, x), source, target)
    np.testing.assert_array_equal(oracle.read(oracle.device_codes(y), y), expected)


@pytest.mark.parametrize("device", ["cpu", "spyre:0", "spyre:1"])
@pytest.mark.parametrize(
    ("source", "target"), [((), (3, 4)), ((4,), (3, 4)), ((3, 1), (3, 4)), ((1, 1), (2, 3, 4))]
)
def test_copy_broadcasts(source, target, device):
    host = oracle.random_host(source, torch.float32)
    y = torch.zeros(target, device="spyre:0").copy_(host.to(device))
    oracle.assert_same_bits(y.cpu(), host.expand(target).contiguous())


@pytest.mark.parametrize(
    ("source", "target"), [("cpu", "spyre"), ("spyre", "cpu"), ("spyre", "spyre"), ("cpu", "cpu")]
)
def test_copy_of_mismatched_sizes_is_refused(source, target):
    x, y = torch.zeros(4, device=source), torch.ones(3, device=target)
    with pytest.raises(RuntimeError, match="size"):
        y.copy_(x)
    assert y.cpu().tolist() == [1, 1, 1]


@pytest.mark.parametrize("device", ["cpu", "spyre"])
def test_empty_tensors_are_copied_without_a_transfer(device):
    before = torch.spyre.counters()
    x = torch.zeros(0, 5, device=device).to("spyre")
    y = torch.empty(0, 5, device="spyre").copy_(x)
    assert y.cpu().shape == (0, 5)
    after = torch.spyre.counters()
    assert (after.transfers_to_card, after.transfers_to_host, after.launches) == (
        before.transfers_to_card,
        before.transfers_to_host,
        before.launches,
    )


def test_copy_to_itself_changes_nothing():
    x = torch.arange(200.0).to("spyre")
    x.copy_(x)
    assert torch.equal(x.cpu(), torch.arange(200.0))


@pytest.mark.parametrize("ops", [[("slice", 0, 1, 5, 1)], [("permute", (1, 0))]])
def test_copy_between_overlapping_views_is_refused(ops):
    x = torch.arange(36.0).view(6, 6).to("spyre")
    target = x[:4] if ops[0][0] == "slice" else x
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        target.copy_(apply_ops(x, ops))
    assert torch.equal(x.cpu(), torch.arange(36.0).view(6, 6))


def test_copy_between_disjoint_views_of_one_tensor():
    x = torch.arange(200.0).view(2, 100).to("spyre")
    x[0].copy_(x[1])
    assert torch.equal(x.cpu(), torch.arange(100.0, 200.0).expand(2, 100))


def test_on_card_copy_makes_no_transfer():
    x = torch.zeros(10, 100, device="spyre")
    y = torch.empty(100, 10, device="spyre", dtype=torch.float16)
    before = torch.spyre.counters()
    y.copy_(x.t())
    after = torch.spyre.counters()
    assert after.launches == before.launches + 1
    assert after.transfers_to_card == before.transfers_to_card
    assert after.transfers_to_host == before.transfers_to_host


def test_transfer_counts_its_bytes():
    host = torch.zeros(10, 100, dtype=torch.float32)
    x = torch.empty(10, 100, dtype=torch.float16, device="spyre")
    before = torch.spyre.counters()
    x.copy_(host)
    x.cpu()
    after = torch.spyre.counters()
    assert after.transfers_to_card == before.transfers_to_card + 1
    assert after.transfers_to_host == before.transfers_to_host + 1
    assert after.bytes_to_card - before.bytes_to_card == 2000
    assert after.bytes_to_host - before.bytes_to_host == 2000


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_host_tensor_is_refused(dtype):
    x = torch.zeros(3, device="spyre")
    message = f"Unsupported CPU tensor dtype for DMA transfer: {dtype}"
    with pytest.raises(TypeError, match=message):
        x.copy_(torch.zeros(3, dtype=dtype))
    with pytest.raises(TypeError, match=message):
        torch.zeros(3, dtype=dtype).copy_(x)
    assert x.cpu().tolist() == [0, 0, 0]


@pytest.mark.parametrize("lazy", ["conj", "neg"])
def test_lazily_negated_host_tensor_arrives_with_its_values(lazy):
    values = torch.arange(6.0).view(2, 3)
    host = torch.complex(values, values).conj().imag if lazy == "conj" else values._neg_view()
    assert host.is_neg()
    assert torch.equal(host.to("spyre").cpu(), -values)


def test_host_tensor_with_gradient_can_be_copied():
    host = torch.ones(3, 4, requires_grad=True)
    x = host.to("spyre")
    assert x.requires_grad
    x.backward(torch.full((3, 4), 2.0).to("spyre"))
    assert host.grad.tolist() == [[2.0] * 4] * 3


def test_clone_and_contiguous_gather_a_view():
    host = torch.arange(60.0).view(4, 15)
    x = host.to("spyre")
    for ops in ([("permute", (1, 0))], [("slice", 1, 3, 15, 2)], [("expand", (2, 4, 15))]):
        expected = apply_ops(host, ops)
        for copied in (apply_ops(x, ops).contiguous(), apply_ops(x, ops).clone()):
            assert torch.equal(copied.cpu(), expected)
            assert copied.data_ptr() != x.data_ptr()
    assert x.t().contiguous().is_contiguous()
    assert x.t().clone().stride() == (1, 15)
    assert x.t().clone(memory_format=torch.contiguous_format).stride() == (4, 1)


# -------------------------------------------------------------------------------------------- fills


def fill_code(value, dtype):
    """Device bits of a Python number, which PyTorch takes for float64 or int64."""
    source = torch.float64 if isinstance(value, float) else torch.int64
    host = oracle.host_codes(torch.tensor(value, dtype=source))
    return oracle.to_device_codes(host, source, dtype)[0]


@given(device_tensors(), st.sampled_from([0, 1, 100, 0.0, 1.0, 2.5, 100.0]))
@settings(max_examples=150)
def test_fill_writes_the_view_and_nothing_else(device, value):
    base, view, memory = device
    view.fill_(value)
    elements = np.full(view.numel(), fill_code(value, view.dtype))
    assert_memory(base, oracle.written(memory, view, elements))


@given(device_tensors())
def test_zero_writes_the_view_and_nothing_else(device):
    base, view, memory = device
    view.zero_()
    assert_memory(base, oracle.written(memory, view, np.zeros(view.numel(), np.int64)))


@given(device_tensors(), st.sampled_from(oracle.DEVICE_DTYPES), st.booleans(), SEEDS)
def test_fill_with_a_tensor_converts_its_value(device, dtype, on_card, seed):
    base, view, memory = device
    value = oracle.random_host((), dtype, seed)
    code = oracle.to_device_codes(oracle.host_codes(value), dtype, view.dtype)
    if on_card:
        value = value.to("spyre")
        held = oracle.read(oracle.device_codes(value), value)
        code = oracle.across_card_codes(held, dtype, view.dtype)
    view.fill_(value)
    assert_memory(base, oracle.written(memory, view, np.repeat(code, view.numel())))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (float("inf"), torch.float16),
        (float("-inf"), torch.float16),
        (float("nan"), torch.float16),
        (-0.0, torch.float16),
        (65504, torch.float16),
        (1e30, torch.float32),
        (float("nan"), torch.float32),
        (-7, torch.int32),
        (2**31, torch.int64),
        (-(2**63), torch.int64),
        (255, torch.uint8),
        (-128, torch.int8),
        (True, torch.bool),
        (5, torch.bool),
        (448.0, torch.float8_e4m3fn),
    ],
)
def test_fill_gives_the_value_a_host_tensor_would_bring(value, dtype):
    x = torch.empty(70, dtype=dtype, device="spyre").fill_(value)
    expected = oracle.host_round_trip(torch.full((70,), value, dtype=dtype))
    oracle.assert_same_bits(x.cpu(), expected)


@pytest.mark.parametrize(
    ("value", "dtype"), [(256, torch.uint8), (1 << 40, torch.int32), (1e39, torch.float32)]
)
def test_fill_with_a_value_the_dtype_cannot_hold_is_refused(value, dtype):
    x = torch.zeros(3, dtype=dtype, device="spyre")
    with pytest.raises(RuntimeError, match="value cannot be converted"):
        x.fill_(value)
    assert x.cpu().tolist() == [0, 0, 0]


def test_fill_of_an_expanded_tensor_is_refused():
    x = torch.zeros(1, 4, device="spyre")
    with pytest.raises(RuntimeError, match="single memory location"):
        x.expand(3, 4).fill_(1)
    assert x.cpu().tolist() == [[0, 0, 0, 0]]


def test_fill_with_a_tensor_of_many_values_is_refused():
    x = torch.zeros(3, device="spyre")
    with pytest.raises(RuntimeError, match="0-dimension value tensor"):
        x.fill_(torch.ones(3))


# ---------------------------------------------------------------------------------- large transfers

LARGE = """
import hashlib
import torch

torch.manual_seed(0)
digest = hashlib.sha256()
host = torch.randn(700, 1501)
for dtype in (torch.float16, torch.float32, torch.int32):
    x = (host * 1000).to(dtype).to("spyre")
    y = torch.zeros(1501, 700, dtype=torch.float32, device="spyre").copy_(x.t())
    y[3::2, 5:].fill_(7)
    for result in (x.cpu(), x.t().cpu(), x[1::3, 7::2].cpu(), y.cpu(), y.to("cpu", torch.float16)):
        digest.update(result.contiguous().numpy().tobytes())
print(digest.hexdigest())
"""


def test_large_transfers_give_the_same_bits_with_any_number_of_threads():
    digests = {forked(LARGE, SPYRE_CARD_THREADS=threads).output for threads in (1, 2, 5)}
    assert len(digests) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int64])
@pytest.mark.parametrize("transposed", [False, True])
def test_large_transfer_arrives(dtype, transposed):
    host = (torch.arange(1000 * 1031).view(1000, 1031) % 509).to(dtype)
    host = host.t() if transposed else host
    x = host.to("spyre")
    assert torch.equal(x.cpu(), host)
    assert torch.equal(x.t().contiguous().cpu(), host.t())


# --------------------------------------------------------------------------------- queued transfers


def counting(rows=200, columns=65):
    return torch.arange(rows * columns, dtype=torch.float32).view(rows, columns)


def test_queued_transfer_to_the_card_keeps_its_source_alive():
    torch.spyre._sleep(0.2)
    x = torch.empty(200, 65, device="spyre")
    x.copy_(counting().pin_memory(), non_blocking=True)  # the only reference is gone
    gc.collect()
    noise = [torch.full((200, 65), -1.0).pin_memory() for _ in range(4)]
    assert torch.equal(x.cpu(), counting())
    del noise


def test_queued_transfer_to_the_card_returns_before_it_is_done():
    host = counting().pin_memory()
    x = torch.empty(200, 65, device="spyre")
    torch.spyre.synchronize()
    torch.spyre._sleep(0.3)
    x.copy_(host, non_blocking=True)
    assert not torch.spyre.current_stream().query()
    torch.spyre.synchronize()
    assert torch.equal(x.cpu(), counting())


def test_queued_transfer_to_the_host_arrives_by_synchronisation():
    x = counting().to("spyre")
    host = torch.full((200, 65), -1.0).pin_memory()
    torch.spyre._sleep(0.3)
    host.copy_(x, non_blocking=True)
    assert not torch.spyre.current_stream().query()
    torch.spyre.synchronize()
    assert torch.equal(host, counting())


def test_queued_transfer_to_the_host_keeps_both_sides_alive():
    x = counting().to("spyre")
    host = torch.empty(200, 65).pin_memory()
    alias = host.numpy()  # sees the memory, and keeps it, but not the tensor
    torch.spyre._sleep(0.2)
    host.copy_(x, non_blocking=True)
    del x, host
    torch.full((200, 65), -1.0, device="spyre")  # would take the freed memory
    torch.spyre.synchronize()
    assert np.array_equal(alias, counting().numpy())


def test_target_of_a_queued_transfer_may_be_dropped():
    torch.spyre._sleep(0.1)
    torch.empty(200, 65, device="spyre").copy_(counting().pin_memory(), non_blocking=True)
    torch.empty(200, 65).pin_memory().copy_(counting().to("spyre"), non_blocking=True)
    gc.collect()
    torch.spyre.synchronize()
    assert torch.equal(counting().to("spyre").cpu(), counting())


def test_non_blocking_from_pageable_memory_may_change_its_source_at_once():
    host = counting()
    x = torch.empty(200, 65, device="spyre")
    torch.spyre._sleep(0.1)
    x.copy_(host, non_blocking=True)
    host.fill_(-1)
    assert torch.equal(x.cpu(), counting())


def test_non_blocking_to_pageable_memory_is_done_on_return():
    x = counting().to("spyre")
    torch.spyre._sleep(0.1)
    host = torch.empty(200, 65).copy_(x, non_blocking=True)
    assert torch.equal(host, counting())


def test_non_blocking_to_the_cpu_is_queued_into_pinned_memory():
    x = counting().to("spyre")
    host = x.to("cpu", non_blocking=True)
    assert host.is_pinned()
    torch.spyre.synchronize()
    assert torch.equal(host, counting())


@pytest.mark.parametrize("ops", [[("permute", (1, 0))], [("slice", 1, 3, 60, 2)]])
def test_queued_transfer_of_pinned_views(ops):
    view = apply_ops(counting().pin_memory(), ops)
    x = view.to("spyre", non_blocking=True)
    y = torch.empty(200, 65, device="spyre")
    apply_ops(y, ops).copy_(view, non_blocking=True)
    torch.spyre.synchronize()
    assert torch.equal(x.cpu(), apply_ops(counting(), ops))
    assert torch.equal(apply_ops(y, ops).cpu(), apply_ops(counting(), ops))


def test_queued_transfers_run_in_order():
    x = torch.empty(100, device="spyre")
    hosts = [torch.full((100,), float(i)).pin_memory() for i in range(20)]
    results = [torch.empty(100).pin_memory() for _ in hosts]
    for host, result in zip(hosts, results, strict=True):
        x.copy_(host, non_blocking=True)
        result.copy_(x, non_blocking=True)
    torch.spyre.synchronize()
    assert [result[99].item() for result in results] == list(range(20))
