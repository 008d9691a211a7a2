"""SpyreTensorLayout: where elements lie in device memory, and layouts as values."""

import copy
import itertools
import pickle

import oracle
import pytest
import torch
from device_tensors import FP16, contiguous_strides, flat_layout, small_numbers
from hypothesis import given
from hypothesis import strategies as st

from torch_spyre import _C
from torch_spyre._C import DataFormats, ElementArrangement, SpyreTensorLayout
from torch_spyre.machine import MACHINE

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
    x = small_numbers(*[2] * rank)
    assert torch.equal(x.to("spyre").cpu(), x)


def test_layout_of_rank_9_is_refused():
    with pytest.raises(RuntimeError, match="Unsupported tensor rank: 9"):
        SpyreTensorLayout([2] * 9, torch.float16)


def test_tensor_of_rank_9_lies_flat():
    x = small_numbers(*[2] * 9)
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
