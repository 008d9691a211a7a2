"""Descriptors of transfers: the loops, strides and formats that a copy to or from a card has."""

import pytest
import torch
from device_tensors import FP16

from torch_spyre import _C
from torch_spyre._C import DataFormats, SpyreTensorLayout


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
