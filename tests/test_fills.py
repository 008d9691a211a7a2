"""fill_ and zero_: any view, dtype and layout, bit for bit; values of every kind."""

import numpy as np
import oracle
import pytest
import torch
from device_tensors import SEEDS, assert_memory, device_tensors
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.usefixtures("no_downcast_warning")


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


def test_numbers_beyond_the_format_of_bfloat16_stay_finite():
    """Masks are made of the dtype's least number, and rows of nothing else have a softmax."""
    least = torch.finfo(torch.bfloat16).min
    largest = (2 - 2**-7) * 2**32  # of the bfloat16s that DLFloat16 holds
    mask = torch.tensor([True, False], device="spyre")
    x = torch.zeros(2, dtype=torch.bfloat16, device="spyre")

    def hide(x, mask):
        return torch.full_like(x, least), x.masked_fill(mask, least), torch.where(mask, least, x)

    for function in (hide, torch.compile(hide, fullgraph=True)):
        full, *masked = (result.float().cpu().tolist() for result in function(x, mask))
        assert full == [-largest, -largest]
        assert masked == [[-largest, 0.0]] * 2
    assert torch.full_like(x, float("-inf")).tolist() == [float("-inf")] * 2


@pytest.mark.parametrize(
    ("value", "dtype"), [(256, torch.uint8), (1 << 40, torch.int32), (1e39, torch.float32)]
)
def test_fill_with_a_value_the_dtype_cannot_hold_is_refused(value, dtype):
    x = torch.zeros(3, dtype=dtype, device="spyre")
    with pytest.raises(RuntimeError, match="value cannot be converted"):
        x.fill_(value)
    assert x.cpu().tolist() == [0, 0, 0]


@pytest.mark.parametrize("value", [1, torch.tensor(1.0)], ids=["number", "tensor"])
def test_fill_of_an_expanded_tensor_writes_each_place_once(value, native):
    base = torch.zeros(3, 4, device="spyre")
    base[1:2].expand(3, 4).fill_(value)
    assert base.tolist() == [[0.0] * 4, [1.0] * 4, [0.0] * 4]
    base[:, 2:3].expand(2, 3, 5).zero_()
    assert base.tolist() == [[0.0] * 4, [1.0, 1.0, 0.0, 1.0], [0.0] * 4]


def test_fill_with_a_tensor_of_many_values_is_refused():
    x = torch.zeros(3, device="spyre")
    with pytest.raises(RuntimeError, match="0-dimension value tensor"):
        x.fill_(torch.ones(3))


@pytest.mark.parametrize("dtype", oracle.DEVICE_DTYPES, ids=str)
@pytest.mark.parametrize(
    "view",
    [
        lambda t: t[1],
        lambda t: t[:, 3:9],
        lambda t: t[2:4, 60:70],
        lambda t: t[::2, ::3],
        lambda t: t.t()[5:8],
        lambda t: t[3, 69],
        lambda t: t[4:4],
    ],
    ids=["row", "columns", "across a stick", "strided", "transposed", "element", "nothing"],
)
def test_fill_and_zero_touch_nothing_but_the_view(view, dtype):
    host = torch.ones(5, 140, dtype=dtype)
    card = host.to("spyre")
    view(card).zero_()
    view(host).zero_()
    oracle.assert_same_bits(card.cpu(), host)
    value = 1 if dtype == torch.bool else 4
    view(card).fill_(value)
    view(host).fill_(value)
    oracle.assert_same_bits(card.cpu(), host)


def test_fill_takes_tensors_of_either_device():
    card = torch.zeros(3, device="spyre")
    assert card.fill_(torch.tensor(2)).tolist() == [2.0] * 3
    assert card.fill_(torch.tensor(5.0, device="spyre")).tolist() == [5.0] * 3
    assert card.fill_(torch.tensor(7, device="spyre:1")).tolist() == [7.0] * 3
