"""SpyreTensorLayout: where elements lie in device memory, and everything that takes a layout."""

import copy
import itertools
import pickle

import oracle
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torch_spyre import _C
from torch_spyre._C import DataFormats, ElementArrangement, SpyreTensorLayout
from torch_spyre.machine import MACHINE

FP16 = DataFormats.SEN169_FP16


def contiguous_strides(size):
    return list(torch.empty(size, device="meta").stride())


def flat_layout(sticks, format=FP16):
    eps = format.elems_per_stick()
    return SpyreTensorLayout([sticks, eps], [eps, 1], format)


def values(*shape, dtype=torch.float16):
    """Small whole numbers, different in every element and exact in every format."""
    return (torch.arange(torch.Size(shape).numel()).reshape(shape) % 251).to(dtype)


# ------------------------------------------------------------------------------------------ goldens


@pytest.mark.parametrize(
    ("host_size", "device_size", "stride_map"),
    [
        ([], [1, 64], [-1, -1]),
        ([120], [2, 64], [64, 1]),
        ([512, 240], [4, 512, 64], [64, 240, 1]),
        ([512, 256], [4, 512, 64], [64, 256, 1]),
        ([512, 8, 240], [8, 4, 512, 64], [240, 64, 1920, 1]),
        ([5, 100, 150], [100, 3, 5, 64], [150, 64, 15000, 1]),
        ([2, 3, 4, 70], [3, 4, 2, 2, 64], [280, 70, 64, 840, 1]),
        ([1], [1, 64], [-1, -1]),
        ([1, 64], [1, 1, 64], [64, -1, 1]),
        ([64, 1], [1, 64, 64], [-1, 1, -1]),
        ([3, 1, 70], [1, 2, 3, 64], [-1, 64, 70, 1]),
        ([0], [0, 64], [64, 1]),
        ([0, 3], [1, 0, 64], [64, 3, 1]),
    ],
)
def test_default_layout_of_a_contiguous_float16_tensor(host_size, device_size, stride_map):
    layout = SpyreTensorLayout(host_size, torch.float16)
    assert layout.device_size == device_size
    assert layout.stride_map == stride_map
    assert layout.device_dtype == FP16
    assert layout.element_arrangement == ElementArrangement.STANDARD


@pytest.mark.parametrize(
    ("host_size", "dim_order", "device_size", "stride_map"),
    [
        ([512, 256], [1, 0], [8, 256, 64], [16384, 1, 256]),
        ([512, 8, 256], [2, 1, 0], [8, 8, 256, 64], [256, 131072, 1, 2048]),
        ([512, 8, 256], [0, 2, 1], [256, 1, 512, 64], [1, 16384, 2048, 256]),
        ([512, 256], [0, 1, -1], [256, 1, 512, 64], [1, -1, 256, -1]),
        ([512, 8, 256], [0, 1, 2], [8, 4, 512, 64], [256, 64, 2048, 1]),
    ],
)
def test_dim_order_chooses_the_order_of_device_dims(host_size, dim_order, device_size, stride_map):
    layout = SpyreTensorLayout(host_size, contiguous_strides(host_size), torch.float16, dim_order)
    assert layout.device_size == device_size
    assert layout.stride_map == stride_map


@pytest.mark.parametrize("dtype", oracle.DEVICE_DTYPES)
def test_stick_holds_128_bytes_of_elements(dtype):
    layout = SpyreTensorLayout([3, 200], dtype)
    eps = layout.elems_per_stick()
    assert eps * oracle.FORMATS[oracle.DTYPES[dtype].device].bits == 1024
    assert layout.device_size == [-(-200 // eps), 3, eps]
    assert layout.device_dtype == _C.get_device_dtype(dtype)
    assert layout.device_bytes() == 128 * layout.device_size[0] * 3


@pytest.mark.parametrize("rank", range(9))
def test_rank_0_to_8_has_one_device_dim_more_than_the_host(rank):
    layout = SpyreTensorLayout([2] * rank, torch.float16)
    assert len(layout.device_size) == max(rank, 1) + 1
    x = values(*[2] * rank)
    assert torch.equal(x.to("spyre").cpu(), x)


def test_layout_of_rank_9_is_refused():
    with pytest.raises(RuntimeError, match="Unsupported tensor rank: 9"):
        SpyreTensorLayout([2] * 9, torch.float16)


def test_tensor_of_rank_9_lies_flat():
    x = values(*[2] * 9)
    y = x.to("spyre")
    assert torch.equal(y.cpu(), x)
    assert y.device_tensor_layout() == flat_layout(8)


def test_strides_of_the_host_are_kept():
    layout = SpyreTensorLayout([4, 100], [128, 1], torch.float16, [0, 1])
    assert layout.stride_map == [64, 128, 1]


def test_repr_can_be_evaluated():
    layout = SpyreTensorLayout([512, 256], torch.float16)
    assert (
        repr(layout)
        == str(layout)
        == (
            "SpyreTensorLayout(device_size=[4, 512, 64], stride_map =[64, 256, 1], "
            "device_dtype=DataFormats.SEN169_FP16)"
        )
    )
    assert eval(repr(layout)) == layout


def test_repr_of_a_scalar_layout():
    assert repr(SpyreTensorLayout([], torch.float32)) == (
        "SpyreTensorLayout(device_size=[1, 32], stride_map =[-1, -1], "
        "device_dtype=DataFormats.IEEE_FP32)"
    )


def test_constructors_take_keywords():
    first = SpyreTensorLayout(host_size=[4, 70], dtype=torch.float16)
    second = SpyreTensorLayout(
        host_size=[4, 70], host_strides=[70, 1], dtype=torch.float16, dim_order=[0, 1]
    )
    third = SpyreTensorLayout(device_size=[2, 4, 64], stride_map=[64, 70, 1], device_dtype=FP16)
    assert first == second == third


# ---------------------------------------------------------------------------------------- as values


def variants():
    base = [4, 70], [70, 1], torch.float16, [0, 1]
    return [
        SpyreTensorLayout(*base),
        SpyreTensorLayout([4, 70], [70, 1], torch.float16, [1, 0]),
        SpyreTensorLayout([4, 71], torch.float16),
        SpyreTensorLayout([4, 70], [128, 1], torch.float16, [0, 1]),
        SpyreTensorLayout([2, 4, 64], [64, 70, 1], DataFormats.SENINT16),
        SpyreTensorLayout(*base, ElementArrangement.EXX2),
    ]


def test_layouts_are_equal_if_all_four_fields_are():
    for (i, a), (j, b) in itertools.product(enumerate(variants()), enumerate(variants())):
        assert (a == b) == (i == j)
        assert (a != b) == (i != j)


def test_layout_differs_from_other_things():
    assert SpyreTensorLayout([3], torch.float16) != "layout"


def test_hash_follows_equality():
    assert [hash(layout) for layout in variants()] == [hash(layout) for layout in variants()]
    assert len({hash(layout) for layout in variants()}) == len(variants())
    assert len({*variants(), *variants()}) == len(variants())


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_layout_survives_pickling(protocol):
    for layout in variants():
        assert pickle.loads(pickle.dumps(layout, protocol)) == layout


def test_layout_is_pickled_as_version_3():
    layout = SpyreTensorLayout([4, 70], torch.float16)
    state = (3, [2, 4, 64], [64, 70, 1], FP16, ElementArrangement.STANDARD)
    assert layout.__getstate__() == state


@pytest.mark.parametrize(
    "state",
    [
        (1, [2, 4, 64], [1, 0, 1], [64, 70, 1], FP16),
        (2, [2, 4, 64], [64, 70, 1], FP16),
        (3, [2, 4, 64], [64, 70, 1], FP16, ElementArrangement.STANDARD),
    ],
)
def test_pickle_of_every_version_is_read(state):
    layout = SpyreTensorLayout.__new__(SpyreTensorLayout)
    layout.__setstate__(state)
    assert layout == SpyreTensorLayout([4, 70], torch.float16)


def test_pickle_of_an_unknown_version_is_refused():
    layout = SpyreTensorLayout.__new__(SpyreTensorLayout)
    with pytest.raises(ValueError, match="pickled with version 4"):
        layout.__setstate__((4, [2, 64], [64, 1], FP16))


@pytest.mark.parametrize("state", [(), (3,), (3, [2, 64]), ("3", [2, 64], [64, 1], FP16, 0)])
def test_broken_pickle_is_refused(state):
    layout = SpyreTensorLayout.__new__(SpyreTensorLayout)
    with pytest.raises((ValueError, TypeError, IndexError, RuntimeError)):
        layout.__setstate__(state)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_layout_can_be_copied(duplicate):
    for layout in variants():
        assert duplicate(layout) == layout


@pytest.mark.parametrize(
    "field", ["device_size", "stride_map", "device_dtype", "element_arrangement"]
)
def test_fields_are_read_only(field):
    layout = SpyreTensorLayout([4, 70], torch.float16)
    with pytest.raises(AttributeError):
        setattr(layout, field, getattr(layout, field))


def test_changing_a_returned_list_leaves_the_layout_alone():
    layout = SpyreTensorLayout([4, 70], torch.float16)
    layout.device_size.append(3)
    assert layout.device_size == [2, 4, 64]


def test_with_element_arrangement_changes_nothing_else():
    layout = SpyreTensorLayout([4, 70], torch.float16)
    other = layout.with_element_arrangement(ElementArrangement.DL16_TO_FP32)
    assert other.element_arrangement == ElementArrangement.DL16_TO_FP32
    assert layout.element_arrangement == ElementArrangement.STANDARD
    assert other.with_element_arrangement(ElementArrangement.STANDARD) == layout


def test_repr_leaves_the_arrangement_out():
    layout = SpyreTensorLayout([4, 70], torch.float16)
    assert repr(layout.with_element_arrangement(ElementArrangement.EXX2)) == repr(layout)


# ------------------------------------------------------------------------------------- enumerations

PUBLIC_FORMATS = {
    "SEN169_FP16": (0, 64),
    "IEEE_FP32": (1, 32),
    "INVALID": (2, 0),
    "SEN143_FP8": (3, 128),
    "SEN152_FP8": (4, 128),
    "SEN153_FP9": (5, 0),
    "SENINT2": (6, 0),
    "SENINT4": (7, 0),
    "SENINT8": (8, 128),
    "SENINT16": (9, 64),
    "SENINT24": (10, 0),
    "IEEE_INT64": (11, 16),
    "IEEE_INT32": (12, 32),
    "SENUINT32": (13, 32),
    "SENUINT2": (14, 0),
    "IEEE_FP16": (15, 64),
    "BOOL": (16, 128),
    "BFLOAT16": (17, 64),
    "SEN18F_FP24": (18, 0),
}


@pytest.mark.parametrize("name", PUBLIC_FORMATS)
def test_data_format_has_its_public_number_and_stick_size(name):
    number, elements = PUBLIC_FORMATS[name]
    format = getattr(DataFormats, name)
    assert (int(format.value), format.name) == (number, name)
    assert format.elems_per_stick() == elements


def test_data_formats_are_those_of_the_machine_description():
    described = {name: format.id for name, format in MACHINE.formats.items()}
    assert {
        name: int(member.value) for name, member in DataFormats.__members__.items()
    } == described
    for name, format in MACHINE.formats.items():
        assert getattr(DataFormats, name).elems_per_stick() == format.elems_per_stick


def test_machine_description_is_consistent():
    stick = MACHINE.value("memory.stick_bytes")
    for format in MACHINE.formats.values():
        if format.elems_per_stick:
            assert format.elems_per_stick * format.bits == stick * 8
    segments = MACHINE.value("memory.tensor_segments") * MACHINE.value("memory.segment_bytes")
    assert MACHINE.value("memory.program_segment_base") == segments == 120_259_084_288


def test_usable_formats_are_those_of_the_oracle():
    usable = {name: format.bits for name, format in MACHINE.formats.items() if format.bits}
    assert usable == {name: format.bits for name, format in oracle.FORMATS.items()}


def test_element_arrangements_have_their_public_numbers():
    numbers = {name: int(member.value) for name, member in ElementArrangement.__members__.items()}
    assert numbers == {"STANDARD": 0, "DL16_TO_FP32": 1, "QFP8CH": 2, "EXX2": 3}


@pytest.mark.parametrize("name", ["DataFormats", "ElementArrangement", "SpyreTensorLayout"])
def test_native_names_are_reached_through_torch_spyre(name):
    assert getattr(torch.spyre, name) is getattr(_C, name)


# ------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("order", [[0], [0, 1, 1], [0, 1, -1, -1], [-1], []])
def test_dim_order_of_wrong_length_is_refused(order):
    with pytest.raises(ValueError, match="Incompatible host_size and dim_order"):
        SpyreTensorLayout([2, 3], [3, 1], torch.float16, order)


@pytest.mark.parametrize("order", [[0, 0], [0, 2], [-1, 0], [0, -1], [1, 1, -1]])
def test_dim_order_that_is_no_permutation_is_refused(order):
    with pytest.raises(ValueError, match="is not a permutation of the 2 host dimensions"):
        SpyreTensorLayout([2, 3], [3, 1], torch.float16, order)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([2, 3], [3], torch.float16, [0, 1]), "host_size has 2 entries, host_strides has 1"),
        (([2, -3], torch.float16), "negative"),
        (([2, 64], [64], FP16), "device_size has 2 entries, stride_map has 1"),
        (([], [], FP16), "device_size has 0 entries"),
        (([-2, 64], [64, 1], FP16), "negative"),
        (([2, 64], [64, -2], FP16), r"strides are positive, 0 \(replicated\) or -1"),
        (([2, 65], [64, 1], FP16), "at most 64 elements in DataFormats.SEN169_FP16"),
        (([2, 64], [64, 1], DataFormats.IEEE_FP32), "at most 32 elements"),
        (([2, 64], [64, 1], DataFormats.SENINT4), "SENINT4 is not a format of device tensors"),
        (([2, 64], [64, 1], DataFormats.INVALID), "INVALID is not a format of device tensors"),
    ],
)
def test_inconsistent_layout_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        SpyreTensorLayout(*arguments)


def test_dtype_without_device_format_is_refused():
    with pytest.raises(TypeError, match=r"does not support dtype torch\.float64"):
        SpyreTensorLayout([3], torch.float64)


@pytest.mark.parametrize(
    "arguments",
    [
        ([1 << 62, 1 << 62], torch.float16),
        ([1 << 40, 1 << 40, 64], [1 << 20, 64, 1], FP16),
        ([4], [1 << 62], torch.float16, [0]),
    ],
)
def test_layout_larger_than_any_memory_never_becomes_a_tensor(arguments):
    with pytest.raises((ValueError, RuntimeError)):
        torch.empty(4, device_layout=SpyreTensorLayout(*arguments), dtype=torch.float16)


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
    x = values(2, 128).to("spyre")
    _C.set_spyre_tensor_layout(x, SpyreTensorLayout([2, 2, 64], [128, 64, 1], FP16))
    # Sticks in order of memory: the first of row 0, the first of row 1, then the second ones.
    expected = values(2, 2, 64).transpose(0, 1).reshape(2, 128)
    assert torch.equal(x.cpu(), expected)


def test_set_layout_does_not_touch_other_views():
    x = values(2, 128).to("spyre")
    alias = x.view(2, 128)
    _C.set_spyre_tensor_layout(alias, SpyreTensorLayout([2, 2, 64], [128, 64, 1], FP16))
    assert torch.equal(x.cpu(), values(2, 128))


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
    x = values(*shape).to("spyre", device_layout=layout)
    assert x.device_tensor_layout() == layout
    assert x.is_contiguous()
    check_memory(x, values(*shape))


def test_to_device_layout_without_a_device_means_spyre():
    layout = SpyreTensorLayout([5, 100], [100, 1], torch.float16, [1, 0])
    x = values(5, 100).to(device_layout=layout)
    assert x.device.type == "spyre"
    check_memory(x, values(5, 100))


def test_to_device_layout_converts_the_dtype_too():
    layout = SpyreTensorLayout([5, 100], [100, 1], torch.float16, [1, 0])
    x = values(5, 100, dtype=torch.float32).to("spyre", torch.float16, device_layout=layout)
    assert x.dtype == torch.float16
    check_memory(x, values(5, 100, dtype=torch.float32))


def test_to_device_layout_changes_the_layout_of_a_spyre_tensor(explicit):
    shape, layout = explicit
    x = values(*shape).to("spyre")
    y = x.to(device_layout=layout)
    assert y.device_tensor_layout() == layout
    assert x.device_tensor_layout() == SpyreTensorLayout(shape, torch.float16)
    check_memory(y, values(*shape))


def test_to_the_same_device_layout_is_the_tensor_itself():
    x = values(5, 100).to("spyre")
    assert x.to(device_layout=x.device_tensor_layout()) is x


def test_to_the_same_device_layout_with_copy_is_a_copy():
    x = values(5, 100).to("spyre")
    y = x.to(device_layout=x.device_tensor_layout(), copy=True)
    assert y.data_ptr() != x.data_ptr()
    assert torch.equal(y.cpu(), x.cpu())


def test_to_device_layout_goes_to_the_named_card():
    layout = SpyreTensorLayout([5, 100], [100, 1], torch.float16, [1, 0])
    x = values(5, 100).to("spyre:1", device_layout=layout)
    assert x.device == torch.device("spyre:1")
    check_memory(x, values(5, 100))


def test_device_layout_on_the_cpu_is_refused():
    layout = SpyreTensorLayout([5, 100], torch.float16)
    for move in (
        lambda: torch.empty(5, 100, dtype=torch.float16, device="cpu", device_layout=layout),
        lambda: values(5, 100).to("spyre").to("cpu", device_layout=layout),
        lambda: values(5, 100).to("cpu", device_layout=layout),
    ):
        with pytest.raises(ValueError, match="a device layout needs device='spyre', got cpu"):
            move()


def test_device_layout_and_memory_format_exclude_each_other():
    layout = SpyreTensorLayout([5, 100], torch.float16)
    with pytest.raises(ValueError, match="memory_format"):
        values(5, 100).to("spyre", device_layout=layout, memory_format=torch.contiguous_format)


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
    x.copy_(values(*shape))
    assert x.is_contiguous()
    check_memory(x, values(*shape))


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
    x.copy_(values(5, 100))
    assert x.stride() == (1, 5)
    check_memory(x, values(5, 100))


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
        values(*shape).to("spyre", device_layout=layout)


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
    x = values(2, 128).to("spyre")
    y = _C.as_strided_with_layout(x, [4, 64], [64, 1], 0, flat_layout(4))
    assert y.data_ptr() == x.data_ptr()
    assert y.device_tensor_layout() == flat_layout(4)
    assert torch.equal(y.cpu(), values(2, 2, 64).transpose(0, 1).reshape(4, 64))
    y.fill_(7)
    assert torch.equal(x.cpu(), torch.full((2, 128), 7, dtype=torch.float16))


def test_as_strided_with_the_same_layout_is_an_ordinary_view():
    x = values(4, 100).to("spyre")
    y = _C.as_strided_with_layout(x, [2, 50], [200, 2], 1, x.device_tensor_layout())
    assert torch.equal(y.cpu(), values(4, 100).as_strided((2, 50), (200, 2), 1))


def test_reinterpret_tensor_adds_to_the_offset():
    x = values(4, 100).to("spyre")
    y = _C.reinterpret_tensor(x[1], [2, 50], [100, 1], 25)
    assert y.storage_offset() == 125
    assert torch.equal(y.cpu(), values(4, 100).as_strided((2, 50), (100, 1), 125))


def test_reinterpret_tensor_with_layout_adds_to_the_offset():
    x = values(4, 64).to("spyre")
    y = _C.reinterpret_tensor_with_layout(x[1], [64], [1], 64, flat_layout(4))
    assert y.storage_offset() == 128
    assert torch.equal(y.cpu(), values(4, 64)[2])


def test_reinterpretation_allocates_nothing():
    x = values(4, 64).to("spyre")
    before = torch.spyre.memory_allocated()
    kept = [
        _C.as_strided_with_layout(x, [256], [1], 0, flat_layout(4)),
        _C.reinterpret_tensor(x, [256], [1], 0),
        _C.reinterpret_tensor_with_layout(x, [256], [1], 0, flat_layout(4)),
    ]
    assert torch.spyre.memory_allocated() == before
    del kept


def test_reinterpretation_keeps_memory_alive():
    y = _C.as_strided_with_layout(values(4, 64).to("spyre"), [256], [1], 0, flat_layout(4))
    values(64, 64).to("spyre")
    assert torch.equal(y.cpu(), values(256))


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
    with pytest.raises(RuntimeError, match="out of bounds for a storage of 400 elements"):
        _C.reinterpret_tensor(x, [4, 100], [100, 1], 1)


# -------------------------------------------------------------------------------------- descriptors


def loop(size, host, device, host_offset=0, device_offset=0, *, to_card=True):
    """A descriptor loop, outermost dimension first as people write it."""
    source, target = ("src", "dst") if to_card else ("dst", "src")
    return {
        "size_": size[::-1],
        f"stride_{source}_": host[::-1],
        f"stride_{target}_": device[::-1],
        f"offset_{source}_": host_offset,
        f"offset_{target}_": device_offset,
    }


def loops_by_device_stride(descriptor, to_card=True):
    """Loops with their dimensions in the order of device memory: nesting order is free."""
    sorted_loops = []
    for info in descriptor["dcsi_"]:
        side = "stride_dst_" if to_card else "stride_src_"
        order = sorted(range(len(info["size_"])), key=lambda i, d=info[side]: d[i])
        sorted_loops.append(
            {
                name: [values[i] for i in order] if isinstance(values, list) else values
                for name, values in info.items()
            }
        )
    return sorted_loops


def test_descriptor_of_the_documented_example():
    host = torch.empty(1024, 256, dtype=torch.float16)
    descriptor = _C._data_conversion_info(host, torch.empty_like(host, device="spyre"))
    expected = loop([4, 1024, 64], host=[64, 256, 1], device=[65536, 64, 1])
    assert loops_by_device_stride(descriptor) == [expected]
    del descriptor["dcsi_"]
    assert descriptor == {
        "dci_dsName_": "DCI-Tensor-0",
        "isHostToSen_": True,
        "dataformat_src_": DataFormats.IEEE_FP16,
        "dataformat_dst_": FP16,
        "input_shape_": [256, 1024],
        "output_shape_": [64, 1024, 4],
    }


def test_descriptor_to_the_host_has_the_sides_exchanged():
    host = torch.empty(1024, 256, dtype=torch.float32)
    device = torch.empty(1024, 256, dtype=torch.float16, device="spyre")
    descriptor = _C._data_conversion_info(device, host)
    expected = loop([4, 1024, 64], host=[64, 256, 1], device=[65536, 64, 1], to_card=False)
    assert loops_by_device_stride(descriptor, to_card=False) == [expected]
    assert not descriptor["isHostToSen_"]
    assert descriptor["dataformat_src_"] == FP16
    assert descriptor["dataformat_dst_"] == DataFormats.IEEE_FP32
    assert descriptor["input_shape_"] == [64, 1024, 4]
    assert descriptor["output_shape_"] == [256, 1024]


def test_descriptor_has_a_second_loop_for_the_partial_stick():
    host = torch.empty(3, 100, dtype=torch.float16)
    descriptor = _C._data_conversion_info(host, torch.empty_like(host, device="spyre"))
    assert loops_by_device_stride(descriptor) == [
        loop([3, 64], host=[100, 1], device=[64, 1]),
        loop([3, 36], host=[100, 1], device=[64, 1], host_offset=64, device_offset=192),
    ]


def test_descriptor_repeats_over_replicated_dims():
    host = torch.empty(5, 64, dtype=torch.float16)
    layout = SpyreTensorLayout([3, 5, 64], [0, 64, 1], FP16)
    target = torch.empty(5, 64, dtype=torch.float16, device_layout=layout)
    descriptor = _C._data_conversion_info(host, target)
    (info,) = descriptor["dcsi_"]
    by_host_stride = dict(zip(info["stride_src_"], info["size_"], strict=True))
    assert by_host_stride[0] == 3


def test_descriptor_of_tensors_of_different_size_is_refused():
    with pytest.raises(ValueError, match="sizes differ"):
        _C._data_conversion_info(torch.empty(3), torch.empty(4, device="spyre"))


def test_descriptor_of_tensors_on_one_side_is_refused():
    with pytest.raises(ValueError, match="must be on the CPU"):
        _C._data_conversion_info(torch.empty(3), torch.empty(3))


# -------------------------------------------------------------------------------------- every place

SIZES = st.lists(st.sampled_from([1, 2, 3, 7, 31, 33, 63, 64, 65, 130]), max_size=4).filter(
    lambda sizes: torch.Size(sizes).numel() <= 6000
)


@st.composite
def ordered_sizes(draw):
    sizes = draw(SIZES)
    order = draw(st.permutations(range(len(sizes))))
    sparse = bool(sizes) and torch.Size(sizes).numel() <= 300 and draw(st.booleans())
    return sizes, [*order, -1] if sparse else order


@given(ordered_sizes(), st.sampled_from(oracle.DEVICE_DTYPES))
def test_every_element_has_exactly_one_place(ordered, dtype):
    sizes, order = ordered
    layout = SpyreTensorLayout(sizes, contiguous_strides(sizes), dtype, order)
    places = oracle.Walk(layout).places
    taken = [places[offset] for offset in range(torch.Size(sizes).numel())]
    assert all(len(positions) == 1 for positions in taken)
    assert len({positions[0] for positions in taken}) == len(taken)
    assert max(positions[0] for positions in taken) < (
        layout.device_bytes() * layout.elems_per_stick() // 128
    )


@given(ordered_sizes(), st.integers(0, 2**32 - 1))
def test_elements_are_where_any_dim_order_says(ordered, seed):
    sizes, order = ordered
    layout = SpyreTensorLayout(sizes, contiguous_strides(sizes), torch.int16, order)
    host = oracle.random_host(tuple(sizes), torch.int16, seed)
    x = torch.empty(sizes, dtype=torch.int16, device_layout=layout)
    before = oracle.scramble(x, seed)
    x.copy_(host)
    expected = oracle.written(before, x, oracle.host_codes(host))
    assert (oracle.device_codes(x) == expected).all()
    assert torch.equal(x.cpu(), host)


@given(st.lists(st.sampled_from([1, 2, 3, 4, 8, 16, 32, 64, 65, 128]), max_size=8))
def test_new_tensor_of_any_size_has_its_default_layout(sizes):
    if torch.Size(sizes).numel() <= 1 << 20:
        x = torch.empty(sizes, dtype=torch.float16, device="spyre")
        assert x.device_tensor_layout() == SpyreTensorLayout(sizes, torch.float16)


@given(SIZES)
def test_default_layout_is_the_identity_dim_order(sizes):
    identity = list(range(len(sizes)))
    ordered = SpyreTensorLayout(sizes, contiguous_strides(sizes), torch.float16, identity)
    assert SpyreTensorLayout(sizes, torch.float16) == ordered
