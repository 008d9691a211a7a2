"""Copies between host and card, on a card, between cards, bit for bit: any view, dtype and layout.

Device memory is compared bit for bit, padding included, with what `oracle` finds by walking the
layout's definition.
"""

import math

import numpy as np
import oracle
import pytest
import torch
from device_tensors import (
    HOST_VIEWS,
    OVERLAPPING_HOST_VIEWS,
    SEEDS,
    apply_ops,
    assert_memory,
    device_tensors,
    host_tensor,
    layouts,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from subprocesses import forked

pytestmark = pytest.mark.usefixtures("no_downcast_warning")


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
