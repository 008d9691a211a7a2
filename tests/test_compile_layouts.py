"""Compiled code finds the elements of tensors in layouts given by hand."""

import math

import oracle
import pytest
import torch
from device_tensors import contiguous_strides, layouts
from hypothesis import assume, given
from hypothesis import strategies as st

from torch_spyre import _C
from torch_spyre._C import DataFormats, SpyreTensorLayout
from torch_spyre._inductor.views import LinearIndex, device_coordinates

# A row of 31 has one stick; the layout has room for two, which lie farther apart than rows.
WIDE = SpyreTensorLayout([2, 64, 64], [64, 31, 1], DataFormats.SEN169_FP16)


def in_wide_rows():
    """The tensor, and the same on the host."""
    host = torch.arange(64 * 31).reshape(64, 31).remainder(7).bfloat16()
    ours = torch.empty((64, 31), dtype=torch.bfloat16, device="spyre", device_layout=WIDE)
    return ours.copy_(host), host


@pytest.mark.parametrize("dynamic", [None, True])
def test_rows_closer_together_than_sticks(dynamic):
    def product(t):
        return t.as_strided((5,), (2,), 648) * t.as_strided((5,), (1,), 633)

    ours, host = in_wide_rows()
    views = [ours.as_strided((5,), (2,), 648), ours.as_strided((5,), (1,), 633)]
    compiled = torch.compile(lambda x, y: x * y, dynamic=dynamic, fullgraph=True)
    assert torch.equal(compiled(*views).cpu(), product(host))
    whole = torch.compile(lambda x: x.sum(0) + x[3], dynamic=dynamic, fullgraph=True)
    assert torch.equal(whole(ours).cpu(), host.sum(0) + host[3])


@pytest.mark.parametrize("dynamic", [None, True])
def test_writes_to_rows_closer_together_than_sticks(dynamic):
    def change(x):
        x[3:, ::2].add_(1)
        return x.relu()

    ours, host = in_wide_rows()
    compiled = torch.compile(change, dynamic=dynamic, fullgraph=True)
    assert torch.equal(compiled(ours).cpu(), change(host))
    assert torch.equal(ours.cpu(), host)


@given(st.data())
def test_coordinates_lead_to_the_places_of_the_card(data):
    """What the compiler plans with, against the oracle of device memory."""
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 5, 31, 33, 64, 65, 130]), max_size=4))
    assume(math.prod(shape) <= 3000)
    layout = data.draw(layouts(shape, torch.float16))
    assume(_C._follows_strides(layout))
    walk, elems = oracle.walk(layout), layout.elems_per_stick()
    sizes = [*layout.device_size[:-1], elems]
    for _ in range(5):
        index = [data.draw(st.integers(0, extent - 1)) for extent in shape]
        strides = contiguous_strides(shape)
        offset = sum(i * step for i, step in zip(index, strides, strict=True))
        coordinates = device_coordinates(layout, LinearIndex(offset, {}), {})
        position = 0
        for size, coordinate in zip(sizes, coordinates, strict=True):
            position = position * size + coordinate.offset
        assert position == walk.place(offset)


@pytest.mark.parametrize("dynamic", [False, None])
@pytest.mark.parametrize("places", [(2, 10, 5, 0, 3), (3, 10, 1, 5)])
def test_views_that_begin_elsewhere_at_the_next_call(places, dynamic, fresh_compiler):
    """Those that cross sticks are copied around the launch, from where that call's begins."""

    def change(x, y):
        x.add_(y)
        return x.neg() + y

    compiled = torch.compile(change, dynamic=dynamic, fullgraph=True)
    for place in places:
        host = [(torch.arange(15.0) % 17 - 8).reshape(3, 5) + n for n in (0, 20)]
        ours = [tensor.to("spyre") for tensor in host]
        for first, second in ((place, place), (place, 10)):
            views = [
                [x.as_strided((5,), (1,), first), y.as_strided((5,), (1,), second)]
                for x, y in (ours, host)
            ]
            assert torch.equal(compiled(*views[0]).cpu(), change(*views[1]))
            for x, y in zip(ours, host, strict=True):
                assert torch.equal(x.cpu(), y)
