"""set_ and resize_: other memory behind a tensor, and another size over its memory."""

import pytest
import torch
from device_tensors import counting


def host():
    return counting(4, 3, 65)


@pytest.fixture
def base():
    return host().to("spyre")


# --------------------------------------------------------------------------------------------- set_


def test_set_makes_a_tensor_show_another_ones_memory(base):
    x = torch.empty(0, device="spyre")
    x.set_(base[1:, :, 5:])
    assert x.is_set_to(base[1:, :, 5:])
    assert torch.equal(x.cpu(), host()[1:, :, 5:])


def test_set_to_a_storage_shows_all_of_it(base):
    x = torch.empty(0, device="spyre").set_(base.untyped_storage())
    assert torch.equal(x.cpu(), host().view(-1))


@pytest.mark.parametrize(
    ("offset", "size", "stride"),
    [(0, (780,), (1,)), (7, (3, 20), (65, 2)), (779, (), ()), (5, (4, 3), (0, 0))],
)
def test_set_to_a_storage_with_geometry(offset, size, stride, base):
    x = torch.empty(0, device="spyre").set_(base.untyped_storage(), offset, size, stride)
    assert torch.equal(x.cpu(), host().as_strided(size, stride, offset))


def test_set_with_a_size_alone_is_contiguous(base):
    x = torch.empty(0, device="spyre").set_(base.untyped_storage(), 65, (3, 65))
    assert torch.equal(x.cpu(), host().view(12, 65)[1:4])


def test_set_to_nothing_empties_the_tensor():
    before = torch.spyre.memory_allocated()
    x = host().to("spyre")
    x.set_()
    assert x.shape == (0,)
    assert torch.spyre.memory_allocated() == before


def test_set_carries_the_layout_along(base):
    x = torch.empty(0, device="spyre").set_(base)
    assert x.device_tensor_layout() == base.device_tensor_layout()


def test_data_can_be_exchanged():
    x, y = torch.zeros(3, device="spyre"), torch.arange(6.0).to("spyre")
    x.data = y.view(2, 3)
    assert torch.equal(x.cpu(), torch.arange(6.0).view(2, 3))


@pytest.mark.parametrize(
    "arguments",
    [
        (0, (781,), (1,)),
        (1, (780,), (1,)),
        (-1, (3,), (1,)),
        (0, (3,), (-1,)),
        (1 << 62, (2,), (1,)),
    ],
)
def test_set_outside_of_the_storage_is_refused_and_changes_nothing(arguments, base):
    x = torch.arange(5.0).to("spyre")
    with pytest.raises(RuntimeError):
        x.set_(base.untyped_storage(), *arguments)
    assert torch.equal(x.cpu(), torch.arange(5.0))


def test_set_to_a_storage_of_another_dtype_is_refused_and_changes_nothing(base):
    x = torch.arange(5).to("spyre", torch.float16)
    with pytest.raises(RuntimeError, match="holds float32 elements"):
        x.set_(base.untyped_storage(), 0, (4,), (1,))
    with pytest.raises(RuntimeError):
        x.set_(base)
    assert torch.equal(x.cpu(), torch.arange(5).half())


def test_set_to_a_host_storage_is_refused():
    x = torch.arange(5.0).to("spyre")
    with pytest.raises(RuntimeError):
        x.set_(torch.zeros(3).untyped_storage(), 0, (3,), (1,))
    with pytest.raises(RuntimeError):
        torch.zeros(3).set_(x.untyped_storage(), 0, (3,), (1,))
    assert torch.equal(x.cpu(), torch.arange(5.0))


def test_is_set_to_compares_storage_and_geometry(base):
    assert base.is_set_to(base.view(4, 3, 65))
    assert not base.is_set_to(base.view(12, 65))
    assert not base.is_set_to(base[1:])
    assert not base.is_set_to(base.clone())


# ------------------------------------------------------------------------------------------ resize_


@pytest.mark.parametrize(
    "size", [(780,), (2, 3, 65), (12, 65), (4, 3, 60), (5,), (1, 1, 1), (), (0,), (3, 0)]
)
def test_resize_within_the_storage_keeps_elements_in_storage_order(size, base):
    expected = host().resize_(size)
    base.resize_(size)
    assert base.shape == size
    assert base.stride() == expected.stride()
    assert torch.equal(base.cpu(), expected)


@pytest.mark.parametrize("size", [(781,), (5, 3, 65), (8, 3, 65), (4, 3, 70), (2000,), (1, 1000)])
def test_resize_beyond_the_storage_keeps_what_was_there(size, base):
    base.resize_(size)
    assert base.shape == size
    assert base.is_contiguous()
    assert torch.equal(base.view(-1)[:780].cpu(), host().view(-1))
    values = torch.randn(size)
    assert torch.equal(base.copy_(values).cpu(), values)


def test_resize_to_the_same_size_does_nothing(base):
    pointer, before = base.data_ptr(), torch.spyre.counters()
    base.resize_(4, 3, 65)
    assert base.data_ptr() == pointer
    assert torch.spyre.counters() == before


def test_resize_smaller_and_back_brings_the_elements_back(base):
    base.resize_(7)
    base.resize_(4, 3, 65)
    assert torch.equal(base.cpu(), host())


def test_view_of_a_resized_base_still_shares_its_memory(base):
    viewed = base[1]
    base.resize_(8, 3, 65)
    viewed.fill_(-1)
    assert torch.equal(base[1].cpu(), torch.full((3, 65), -1.0))
    assert torch.equal(base[0].cpu(), host()[0])


def test_resize_of_a_view_with_an_offset(base):
    expected = host()
    viewed, expected_view = base[2], expected[2]
    viewed.resize_(100)
    assert torch.equal(viewed.cpu(), expected_view.resize_(100))
    viewed.resize_(1000)
    assert torch.equal(viewed[:390].cpu(), host().view(-1)[390:])
    assert torch.equal(base.cpu(), host())


def test_resize_as_takes_the_size_of_another_tensor(base):
    base.resize_as_(torch.empty(2, 5, device="spyre"))
    assert torch.equal(base.cpu(), host().view(-1)[:10].view(2, 5))


def test_resize_of_an_empty_tensor():
    x = torch.empty(0, dtype=torch.float16, device="spyre").resize_(3, 100)
    assert x.device_tensor_layout() == torch.spyre.SpyreTensorLayout([3, 100], torch.float16)
    assert torch.equal(x.fill_(2).cpu(), torch.full((3, 100), 2, dtype=torch.float16))


@pytest.mark.parametrize(
    "size", [(-1,), (1 << 62, 1 << 62), (1 << 45,), (1 << 61, 4), (1 << 40, 1 << 40, 0, -1)]
)
def test_impossible_resize_is_refused_and_changes_nothing(size, base):
    layout = base.device_tensor_layout()
    with pytest.raises(RuntimeError):
        base.resize_(size)
    assert (base.shape, base.stride()) == ((4, 3, 65), (195, 65, 1))
    assert base.device_tensor_layout() == layout
    assert torch.equal(base.cpu(), host())


def test_resize_to_channels_last():
    x = torch.zeros(2, 3, 4, 5, device="spyre")
    x.resize_((2, 3, 4, 4), memory_format=torch.channels_last)
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_resize_cannot_preserve_a_memory_format():
    x = torch.zeros(2, 3, 4, 5, device="spyre")
    with pytest.raises(RuntimeError, match="Unsupported memory format"):
        x.resize_((2, 3, 4, 4), memory_format=torch.preserve_format)
    assert x.shape == (2, 3, 4, 5)
