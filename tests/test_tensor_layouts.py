"""Layouts of device tensors: by default, explicit, changed; the same memory in another layout."""

import oracle
import pytest
import torch
from device_tensors import FP16, flat_layout, small_numbers

from torch_spyre import _C
from torch_spyre._C import DataFormats, SpyreTensorLayout

# ------------------------------------------------------------------------------- layouts of tensors


def test_tensor_has_the_default_layout_of_its_size():
    x = torch.empty(4, 70, dtype=torch.float16, device="spyre")
    assert x.device_tensor_layout() == SpyreTensorLayout([4, 70], torch.float16)
    assert _C.get_spyre_tensor_layout(x) == x.device_tensor_layout()


def test_empty_strided_uses_the_given_strides():
    x = torch.empty_strided((4, 70), (1, 4), dtype=torch.float16, device="spyre")
    expected = SpyreTensorLayout([4, 70], [1, 4], torch.float16, [0, 1])
    assert x.device_tensor_layout() == expected


def test_views_have_the_layout_of_their_base():
    x = torch.empty(4, 70, dtype=torch.float16, device="spyre")
    for view in (x[1:, 3::2], x.t(), x.view(-1), x[2], x.expand(2, 4, 70), x.detach()):
        assert view.device_tensor_layout() == x.device_tensor_layout()


def test_cpu_and_meta_tensors_have_no_device_layout():
    assert torch.zeros(3).device_tensor_layout() is None
    assert torch.zeros(3, device="meta").device_tensor_layout() is None


def test_fake_tensor_has_no_device_layout():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        assert torch.empty(3, device="spyre").device_tensor_layout() is None


def test_layout_of_a_cpu_tensor_cannot_be_read_or_set():
    with pytest.raises(RuntimeError, match="expected a tensor on a spyre device, got one on cpu"):
        _C.get_spyre_tensor_layout(torch.zeros(3))
    with pytest.raises(RuntimeError, match="expected a tensor on a spyre device, got one on cpu"):
        _C.set_spyre_tensor_layout(torch.zeros(3).half(), flat_layout(1))


def test_set_layout_reads_the_same_memory_in_another_way():
    x = small_numbers(2, 128).to("spyre")
    _C.set_spyre_tensor_layout(x, SpyreTensorLayout([2, 2, 64], [128, 64, 1], FP16))
    # Sticks in order of memory: the first of row 0, the first of row 1, then the second ones.
    expected = small_numbers(2, 2, 64).transpose(0, 1).reshape(2, 128)
    assert torch.equal(x.cpu(), expected)


def test_set_layout_does_not_touch_other_views():
    x = small_numbers(2, 128).to("spyre")
    alias = x.view(2, 128)
    _C.set_spyre_tensor_layout(alias, SpyreTensorLayout([2, 2, 64], [128, 64, 1], FP16))
    assert torch.equal(x.cpu(), small_numbers(2, 128))


def test_set_layout_that_needs_more_memory_is_refused():
    x = torch.empty(4, 100, dtype=torch.float16, device="spyre")
    with pytest.raises(ValueError, match="needs 51200 bytes; the tensor's memory has 1024"):
        _C.set_spyre_tensor_layout(x, SpyreTensorLayout([100, 4, 64], [100, 1, 1], FP16))
    assert x.device_tensor_layout() == SpyreTensorLayout([4, 100], torch.float16)


def test_set_layout_without_room_for_the_elements_is_refused():
    x = torch.empty(4, 100, dtype=torch.float16, device="spyre")
    with pytest.raises(ValueError, match="has no place for some elements"):
        _C.set_spyre_tensor_layout(x, flat_layout(1))


# ----------------------------------------------------------------------- tensors of explicit layout

EXPLICIT = {
    "stick dim first": ((5, 100), SpyreTensorLayout([5, 100], [100, 1], torch.float16, [1, 0])),
    "sparse": ((5, 7), SpyreTensorLayout([5, 7], [7, 1], torch.float16, [0, 1, -1])),
    "padded dims": ((5, 100), SpyreTensorLayout([3, 8, 64], [64, 100, 1], FP16)),
    "padded stick dim": ((31, 31), SpyreTensorLayout([2, 31, 64], [64, 31, 1], FP16)),
    "padded full stick": ((2, 3, 64), SpyreTensorLayout([3, 2, 2, 64], [64, 64, 192, 1], FP16)),
    "row of one stick by accident": ((2, 32, 2), SpyreTensorLayout([2, 32, 2], torch.float16)),
    "the same without a count": ((2, 32, 2), SpyreTensorLayout([2, 32, 64], [64, 2, 1], FP16)),
    "replicated": ((5, 100), SpyreTensorLayout([3, 2, 5, 64], [0, 64, 100, 1], FP16)),
    "folded": ((38, 64), flat_layout(38)),
    "folded across rows": ((19, 128), flat_layout(38)),
    "leading size 1": ((5, 100), SpyreTensorLayout([1, 1, 2, 5, 64], [-1, 1, 64, 100, 1], FP16)),
    "inner size 1": ((5, 100), SpyreTensorLayout([2, 1, 5, 1, 64], [64, -1, 100, 7, 1], FP16)),
    "synthetic": ((5, 100), SpyreTensorLayout([2, 3, 5, 64], [64, -1, 100, 1], FP16)),
    "split in several ways": ((4, 15), SpyreTensorLayout([2, 1, 2, 64], [15, 64, 30, 1], FP16)),
    "half-used sticks": ((3, 64), SpyreTensorLayout([2, 3, 32], [32, 64, 1], FP16)),
}


@pytest.fixture(params=EXPLICIT)
def explicit(request):
    return EXPLICIT[request.param]


def check_memory(tensor, host):
    """The tensor's elements are where its layout says, and read back right."""
    device = oracle.to_device_codes(oracle.host_codes(host), host.dtype, tensor.dtype)
    memory = oracle.device_codes(tensor)
    places = oracle.walk(tensor.device_tensor_layout()).places
    for offset, code in zip(oracle.storage_offsets(tensor), device, strict=True):
        assert (memory[places[int(offset)]] == code).all()
    assert torch.equal(tensor.to("cpu", host.dtype), host)


def test_to_device_layout_puts_elements_where_the_layout_says(explicit):
    shape, layout = explicit
    x = small_numbers(*shape).to("spyre", device_layout=layout)
    assert x.device_tensor_layout() == layout
    assert x.is_contiguous()
    check_memory(x, small_numbers(*shape))


def test_to_device_layout_without_a_device_means_spyre():
    layout = SpyreTensorLayout([5, 100], [100, 1], torch.float16, [1, 0])
    x = small_numbers(5, 100).to(device_layout=layout)
    assert x.device.type == "spyre"
    check_memory(x, small_numbers(5, 100))


def test_to_device_layout_converts_the_dtype_too():
    layout = SpyreTensorLayout([5, 100], [100, 1], torch.float16, [1, 0])
    x = small_numbers(5, 100, dtype=torch.float32).to("spyre", torch.float16, device_layout=layout)
    assert x.dtype == torch.float16
    check_memory(x, small_numbers(5, 100, dtype=torch.float32))


def test_to_device_layout_changes_the_layout_of_a_spyre_tensor(explicit):
    shape, layout = explicit
    x = small_numbers(*shape).to("spyre")
    y = x.to(device_layout=layout)
    assert y.device_tensor_layout() == layout
    assert x.device_tensor_layout() == SpyreTensorLayout(shape, torch.float16)
    check_memory(y, small_numbers(*shape))


def test_to_the_same_device_layout_is_the_tensor_itself():
    x = small_numbers(5, 100).to("spyre")
    assert x.to(device_layout=x.device_tensor_layout()) is x


def test_to_the_same_device_layout_with_copy_is_a_copy():
    x = small_numbers(5, 100).to("spyre")
    y = x.to(device_layout=x.device_tensor_layout(), copy=True)
    assert y.data_ptr() != x.data_ptr()
    assert torch.equal(y.cpu(), x.cpu())


def test_to_device_layout_goes_to_the_named_card():
    layout = SpyreTensorLayout([5, 100], [100, 1], torch.float16, [1, 0])
    x = small_numbers(5, 100).to("spyre:1", device_layout=layout)
    assert x.device == torch.device("spyre:1")
    check_memory(x, small_numbers(5, 100))


def test_device_layout_on_the_cpu_is_refused():
    layout = SpyreTensorLayout([5, 100], torch.float16)
    for move in (
        lambda: torch.empty(5, 100, dtype=torch.float16, device="cpu", device_layout=layout),
        lambda: small_numbers(5, 100).to("spyre").to("cpu", device_layout=layout),
        lambda: small_numbers(5, 100).to("cpu", device_layout=layout),
    ):
        with pytest.raises(ValueError, match="a device layout needs device='spyre', got cpu"):
            move()


def test_device_layout_and_memory_format_exclude_each_other():
    layout = SpyreTensorLayout([5, 100], torch.float16)
    with pytest.raises(ValueError, match="memory_format"):
        small_numbers(5, 100).to(
            "spyre", device_layout=layout, memory_format=torch.contiguous_format
        )


def test_empty_with_device_layout(explicit):
    shape, layout = explicit
    x = torch.empty(*shape, dtype=torch.float16, device_layout=layout)
    assert x.shape == shape
    assert x.device_tensor_layout() == layout
    assert x.device == torch.device("spyre:0")


def test_empty_with_device_layout_takes_the_size_as_one_argument():
    layout = SpyreTensorLayout([5, 100], torch.float16)
    for x in (
        torch.empty((5, 100), dtype=torch.float16, device_layout=layout),
        torch.empty(size=(5, 100), dtype=torch.float16, device_layout=layout, device="spyre:1"),
    ):
        assert x.shape == (5, 100)
    assert x.device == torch.device("spyre:1")


def test_empty_with_layout(explicit):
    shape, layout = explicit
    x = _C.empty_with_layout(list(shape), layout, torch.float16)
    x.copy_(small_numbers(*shape))
    assert x.is_contiguous()
    check_memory(x, small_numbers(*shape))


def test_empty_with_layout_takes_every_argument():
    layout = SpyreTensorLayout([5, 100], torch.float16)
    device = torch.device("spyre:1")
    x = _C.empty_with_layout(
        [5, 100], layout, torch.float16, device, False, torch.contiguous_format
    )
    assert x.device == device


def test_spyre_empty_with_layout_has_the_given_strides():
    layout = SpyreTensorLayout([5, 100], [1, 5], torch.float16, [0, 1])
    x = _C.spyre_empty_with_layout([5, 100], [1, 5], torch.float16, layout)
    x.copy_(small_numbers(5, 100))
    assert x.stride() == (1, 5)
    check_memory(x, small_numbers(5, 100))


def test_pool_of_the_compiler_is_a_uint8_tensor_of_whole_sticks():
    sticks = 300
    layout = SpyreTensorLayout(
        device_size=[sticks, 1, 1], stride_map=[1, 1, 1], device_dtype=DataFormats.SENINT8
    )
    before = torch.spyre.memory_allocated()
    pool = _C.spyre_empty_with_layout((sticks,), (1,), torch.uint8, layout)
    assert torch.spyre.memory_allocated() - before == 128 * sticks
    assert (pool.shape, pool.stride(), pool.dtype) == ((sticks,), (1,), torch.uint8)
    assert pool.device_tensor_layout() == layout
    pool.copy_(torch.arange(sticks).to(torch.uint8))
    assert torch.equal(pool.cpu(), torch.arange(sticks).to(torch.uint8))
    memory = oracle.device_codes(pool).reshape(sticks, 128)
    assert (memory[:, 0] == torch.arange(sticks).to(torch.uint8).numpy()).all()


def test_sparse_layout_takes_a_stick_for_each_element():
    layout = SpyreTensorLayout([5, 7], [7, 1], torch.float16, [0, 1, -1])
    before = torch.spyre.memory_allocated()
    x = torch.empty(5, 7, dtype=torch.float16, device_layout=layout)
    assert layout.device_bytes() == 35 * 128
    assert torch.spyre.memory_allocated() - before == 35 * 128
    del x


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((4, 100), SpyreTensorLayout([4, 99], torch.float16)),
        ((4, 100), SpyreTensorLayout([3, 100], torch.float16)),
        ((4, 100), SpyreTensorLayout([1, 4, 64], [64, 100, 1], FP16)),
        ((4, 100), SpyreTensorLayout([2, 4, 32], [64, 100, 1], FP16)),
        ((4, 100), SpyreTensorLayout([2, 4, 64], [64, 100, 2], FP16)),
        ((2,), SpyreTensorLayout([], torch.float16)),
    ],
)
def test_layout_without_room_for_the_tensor_is_refused(shape, layout):
    with pytest.raises(ValueError, match="Invalid device sizes and stride map for host sizes"):
        torch.empty(*shape, dtype=torch.float16, device_layout=layout)
    with pytest.raises(ValueError, match="Invalid device sizes and stride map for host sizes"):
        small_numbers(*shape).to("spyre", device_layout=layout)


def test_layout_of_another_format_is_refused():
    layout = SpyreTensorLayout([4, 100], torch.float16)
    message = "a float32 tensor has the device format IEEE_FP32, the layout has SEN169_FP16"
    with pytest.raises(ValueError, match=message):
        torch.empty(4, 100, dtype=torch.float32, device_layout=layout)


def test_sizes_and_strides_of_different_length_are_refused():
    layout = SpyreTensorLayout([4, 100], torch.float16)
    with pytest.raises(ValueError, match="mismatch in length of strides and shape"):
        _C.spyre_empty_with_layout([4, 100], [1], torch.float16, layout)


# --------------------------------------------------------------------------------- reinterpretation


def test_as_strided_with_layout_shares_memory_under_another_layout():
    x = small_numbers(2, 128).to("spyre")
    y = _C.as_strided_with_layout(x, [4, 64], [64, 1], 0, flat_layout(4))
    assert y.data_ptr() == x.data_ptr()
    assert y.device_tensor_layout() == flat_layout(4)
    assert torch.equal(y.cpu(), small_numbers(2, 2, 64).transpose(0, 1).reshape(4, 64))
    y.fill_(7)
    assert torch.equal(x.cpu(), torch.full((2, 128), 7, dtype=torch.float16))


def test_as_strided_with_the_same_layout_is_an_ordinary_view():
    x = small_numbers(4, 100).to("spyre")
    y = _C.as_strided_with_layout(x, [2, 50], [200, 2], 1, x.device_tensor_layout())
    assert torch.equal(y.cpu(), small_numbers(4, 100).as_strided((2, 50), (200, 2), 1))


def test_reinterpret_tensor_adds_to_the_offset():
    x = small_numbers(4, 100).to("spyre")
    y = _C.reinterpret_tensor(x[1], [2, 50], [100, 1], 25)
    assert y.storage_offset() == 125
    assert torch.equal(y.cpu(), small_numbers(4, 100).as_strided((2, 50), (100, 1), 125))


def test_reinterpret_tensor_with_layout_adds_to_the_offset():
    x = small_numbers(4, 64).to("spyre")
    y = _C.reinterpret_tensor_with_layout(x[1], [64], [1], 64, flat_layout(4))
    assert y.storage_offset() == 128
    assert torch.equal(y.cpu(), small_numbers(4, 64)[2])


def test_reinterpretation_allocates_nothing():
    x = small_numbers(4, 64).to("spyre")
    before = torch.spyre.memory_allocated()
    kept = [
        _C.as_strided_with_layout(x, [256], [1], 0, flat_layout(4)),
        _C.reinterpret_tensor(x, [256], [1], 0),
        _C.reinterpret_tensor_with_layout(x, [256], [1], 0, flat_layout(4)),
    ]
    assert torch.spyre.memory_allocated() == before
    del kept


def test_reinterpretation_keeps_memory_alive():
    y = _C.as_strided_with_layout(small_numbers(4, 64).to("spyre"), [256], [1], 0, flat_layout(4))
    small_numbers(64, 64).to("spyre")
    assert torch.equal(y.cpu(), small_numbers(256))


@pytest.mark.parametrize(
    ("size", "stride", "offset", "layout"),
    [
        ([4, 101], [100, 1], 0, SpyreTensorLayout([4, 100], torch.float16)),
        ([4, 100], [100, 1], 1, SpyreTensorLayout([4, 100], torch.float16)),
        ([4, 100], [100, 1], -1, SpyreTensorLayout([4, 100], torch.float16)),
        ([4, 100], [100], 0, SpyreTensorLayout([4, 100], torch.float16)),
        ([4, 100], [100, -1], 0, SpyreTensorLayout([4, 100], torch.float16)),
        ([100], [-1], 99, SpyreTensorLayout([4, 100], torch.float16)),
        ([-4, 100], [100, 1], 0, SpyreTensorLayout([4, 100], torch.float16)),
        ([4, 4], [1 << 62, 1 << 62], 0, SpyreTensorLayout([4, 100], torch.float16)),
        ([400], [1], 0, flat_layout(9)),
        ([400], [1], 0, flat_layout(6)),
    ],
)
def test_reinterpretation_outside_of_the_memory_is_refused(size, stride, offset, layout):
    x = torch.empty(4, 100, dtype=torch.float16, device="spyre")
    with pytest.raises((ValueError, RuntimeError)):
        _C.as_strided_with_layout(x, size, stride, offset, layout)
    with pytest.raises((ValueError, RuntimeError)):
        _C.reinterpret_tensor_with_layout(x, size, stride, offset, layout)


def test_reinterpret_tensor_outside_of_the_memory_is_refused():
    x = torch.empty(4, 100, dtype=torch.float16, device="spyre")
    with pytest.raises(RuntimeError, match="out of bounds for storage of size 800"):
        _C.reinterpret_tensor(x, [4, 100], [100, 1], 1)
