"""Copies: between host and card, on a card, between cards, with conversion on the way.

The expected value is always PyTorch's own result on the CPU. Where a card format is narrower than
the host's (float16 and bfloat16 are DLFloat16 there), values are used that both hold exactly.
"""

import itertools
import math
import warnings

import numpy
import pytest
import torch
from oracle import DEVICE_DTYPES as DTYPES

FLOATS = [torch.float16, torch.bfloat16, torch.float32]
FLOAT8 = [
    torch.float8_e4m3fn,
    torch.float8_e5m2fnuz,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
]
HOST_ONLY = [
    torch.float64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
]


def values(dtype: torch.dtype, shape: tuple[int, ...] = (3, 70)) -> torch.Tensor:
    """Numbers that every dtype holds, negative ones too if it is signed."""
    pattern = [0, 1, 2, 3, 4, 6, 8, 12]
    unsigned = dtype in (torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
    if not unsigned:
        pattern += [-v for v in pattern[1:]]
    count = math.prod(shape)
    repeated = [pattern[i % len(pattern)] for i in range(count)]
    return torch.tensor(repeated, dtype=torch.float32).to(dtype).reshape(shape)


def same(result: torch.Tensor, expected: torch.Tensor) -> None:
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    torch.testing.assert_close(result.cpu(), expected, rtol=0, atol=0)


def pairs(*dtypes):
    return [pytest.param(a, b, id=f"{a}-{b}".replace("torch.", "")) for a, b in dtypes]


# ------------------------------------------------------------------------------------ host and card


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (64,), (5, 200), (2, 3, 65), (0, 4)], ids=str)
def test_there_and_back(shape, dtype):
    host = values(dtype, shape)
    same(host.to("spyre"), host)


def test_every_way_to_move_a_tensor():
    host = values(torch.float16)
    for device in ("spyre", "spyre:0", torch.device("spyre"), torch.device("spyre", 0), 0):
        moved = host.to(device)
        assert moved.device == torch.device("spyre", 0)
        same(moved, host)
    same(host.spyre(), host)
    same(host.spyre(1), host)
    assert host.spyre(1).device == torch.device("spyre", 1)
    same(host.to(device="spyre", dtype=torch.float32), host.float())
    same(host.to("spyre", torch.float32), host.float())
    same(host.to(torch.zeros(1, dtype=torch.float32, device="spyre")), host.float())
    same(host.type("torch.spyre.FloatTensor"), host.float())
    moved = host.to("spyre")
    for back in (moved.cpu(), moved.to("cpu"), moved.to(torch.zeros(1, dtype=torch.float16))):
        assert back.device.type == "cpu"
        assert torch.equal(back, host)


def test_is_spyre_tells_where_a_tensor_is():
    host = torch.ones(3)
    moved = host.to("spyre")
    assert moved.is_spyre
    assert not host.is_spyre
    assert not moved.is_cpu
    assert not moved.is_cuda
    assert moved.type() == "torch.spyre.FloatTensor"


def test_to_returns_the_same_tensor_if_nothing_changes():
    moved = torch.ones(3, device="spyre")
    assert moved.to("spyre") is moved
    assert moved.to("spyre:0", torch.float32) is moved
    assert moved.spyre() is moved
    assert moved.float() is moved
    assert moved.contiguous() is moved
    copied = moved.to("spyre", copy=True)
    assert copied is not moved
    assert copied.untyped_storage().data_ptr() != moved.untyped_storage().data_ptr()


def test_a_copy_does_not_follow_its_source():
    host = torch.ones(3)
    moved = host.to("spyre")
    clone = moved.clone()
    host.fill_(5)
    moved[0] = 7
    assert moved.tolist() == [7.0, 1.0, 1.0]
    assert clone.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("device", ["spyre:0", "spyre:1"])
def test_between_cards(device):
    host = values(torch.float16)
    first = host.to("spyre:0")
    second = first.to(device)
    assert second.device == torch.device(device)
    same(second, host)
    same(second.to("spyre:1").to("spyre:0"), host)


def test_between_cards_views_and_dtypes_meet():
    host = values(torch.float32, (6, 70))
    target = torch.zeros(70, 12, dtype=torch.float16, device="spyre:1")
    target[:, ::2].copy_(host.to("spyre:0").t())
    expected = torch.zeros(70, 12, dtype=torch.float16)
    expected[:, ::2].copy_(host.t())
    same(target, expected)


# ----------------------------------------------------------------------------- conversion of dtypes


@pytest.mark.parametrize(("source", "target"), pairs(*itertools.product(DTYPES, DTYPES)))
def test_conversion_on_the_card_gives_the_cpus_values(source, target):
    host = values(source)
    same(host.to("spyre").to(target), host.to(target))


@pytest.mark.parametrize(
    ("source", "target"), pairs(*itertools.product(DTYPES + HOST_ONLY, DTYPES))
)
def test_conversion_on_the_way_to_the_card(source, target):
    host = values(source)
    result = torch.empty(host.shape, dtype=target, device="spyre").copy_(host)
    same(result, host.to(target))


@pytest.mark.parametrize(
    ("source", "target"), pairs(*itertools.product(DTYPES, DTYPES + HOST_ONLY))
)
def test_conversion_on_the_way_back(source, target):
    if target in (torch.uint16, torch.uint32, torch.uint64, torch.uint8):
        host = values(source).float().abs().to(source)  # negative numbers have no place there
    else:
        host = values(source)
    result = torch.empty(host.shape, dtype=target).copy_(host.to("spyre"))
    torch.testing.assert_close(result, host.to(target), rtol=0, atol=0)


def test_the_named_conversions():
    host = values(torch.float32)
    card = host.to("spyre")
    for name in ("half", "bfloat16", "float", "int", "long", "short", "char", "bool"):
        same(getattr(card, name)(), getattr(host, name)())


def test_type_as_and_to_other():
    card = values(torch.float32).to("spyre")
    like = torch.zeros(1, dtype=torch.int16, device="spyre")
    same(card.type_as(like), values(torch.float32).to(torch.int16))
    same(card.to(like), values(torch.float32).to(torch.int16))


def test_floats_are_truncated_towards_zero():
    host = torch.tensor([1.5, -1.5, 2.75, -0.25, 100.5])
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        same(host.to("spyre").to(dtype), host.to(dtype))
        same(host.to("spyre", dtype), host.to(dtype))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.uint8], ids=str)
def test_integers_that_do_not_fit_wrap_as_on_the_cpu(dtype):
    host = torch.tensor(
        [127, 128, 255, 256, 300, -1, -129, 32767, 32768, 65536 + 5], dtype=torch.int32
    )
    same(host.to("spyre").to(dtype), host.to(dtype))
    same(host.to("spyre", dtype), host.to(dtype))


@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("target", [torch.int32, torch.int16, torch.int8, torch.uint8], ids=str)
def test_floats_beyond_the_integers_become_what_they_do_on_the_cpu(source, target):
    beyond = [2.0**31, -(2.0**31), -(2.0**31) - 2**24, 2.0**32, 1e10, -1e10]
    inside = [2.0**31 - 2**23, 65535.0, 65536.0, 32768.0, -32769.0, 255.0, 256.0, -1.5, 1.9]
    # Of 8 elements and more the CPU's vectors convert; one way of theirs is the rule.
    host = torch.tensor([*beyond, *inside, math.inf, -math.inf, math.nan]).to(source)
    same(host.to("spyre").to(target), host.to("spyre").cpu().to(target))


def test_a_uint8_tensor_holds_only_bytes_though_its_format_is_wider():
    card = torch.tensor([300, -1, 256], dtype=torch.int32, device="spyre").to(torch.uint8)
    same(card.to(torch.int32), torch.tensor([44, 255, 0], dtype=torch.int32))
    same(card.float(), torch.tensor([44.0, 255.0, 0.0]))


def test_a_bool_tensor_holds_only_0_and_1_though_its_format_is_wider():
    host = torch.tensor([0.0, -0.0, 0.25, -3.0, math.inf, math.nan])
    card = host.to("spyre").bool()
    same(card, host.bool())
    same(card.float(), host.bool().float())
    same(card.int(), host.bool().int())
    same(torch.tensor([5, 0, -5], device="spyre").to(torch.bool).long(), torch.tensor([1, 0, 1]))


def test_float8_cannot_hold_more_than_the_cpus():
    host = torch.tensor([448.0, 449.0, 1e9, -1e9, 0.001, 17.0])
    same(host.to("spyre").to(torch.float8_e4m3fn), host.to(torch.float8_e4m3fn))


def test_special_values_survive_in_every_floating_dtype():
    host = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0])
    for dtype in FLOATS:
        back = host.to(dtype).to("spyre").cpu()
        torch.testing.assert_close(back, host.to(dtype), equal_nan=True, rtol=0, atol=0)
        assert back.signbit().tolist()[3:] == [False, True]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sixteen_bit_floats_change_by_at_most_half_a_step_of_dlfloat16(dtype):
    host = torch.randn(4096, generator=torch.Generator().manual_seed(1)).to(dtype)
    back = host.to("spyre").cpu()
    error = (back.double() - host.double()).abs()
    assert (error <= host.double().abs() * 2**-10).all()


def test_float32_int32_and_float8_are_exact():
    generator = torch.Generator().manual_seed(2)
    same_float = torch.randn(1000, generator=generator)
    assert torch.equal(same_float.to("spyre").cpu(), same_float)
    integers = torch.randint(-(2**31), 2**31 - 1, (1000,), dtype=torch.int32, generator=generator)
    assert torch.equal(integers.to("spyre").cpu(), integers)
    for dtype in FLOAT8:
        codes = torch.arange(256, dtype=torch.uint8).view(dtype)
        back = codes.to("spyre").cpu()
        torch.testing.assert_close(back.float(), codes.float(), equal_nan=True, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:Backend Spyre does not support int64")
def test_int64_wraps_to_32_bits():
    host = torch.tensor([2**31 - 1, -(2**31), 2**31, 2**40 + 5, -(2**33) - 1])
    same(host.to("spyre"), host.to(torch.int32).to(torch.int64))


# ---------------------------------------------------------------------------------- copy_ and views


def test_copy_broadcasts_the_source():
    target = torch.zeros(3, 4, 70, device="spyre")
    for shape in [(), (1,), (70,), (4, 1), (3, 1, 1), (1, 4, 70)]:
        host = values(torch.float32, shape)
        expected = torch.zeros(3, 4, 70).copy_(host)
        same(target.copy_(host), expected)
        same(target.zero_().copy_(host.to("spyre")), expected)
        same(target.zero_().copy_(host.to("spyre:1")), expected)


def test_copy_to_the_host_broadcasts_too():
    source = values(torch.float32, (70,))
    assert torch.equal(
        torch.zeros(3, 70).copy_(source.to("spyre")), torch.zeros(3, 70).copy_(source)
    )


def test_copy_returns_its_target_and_keeps_its_dtype():
    target = torch.zeros(3, dtype=torch.float16, device="spyre")
    assert target.copy_(torch.ones(3, dtype=torch.int32)) is target
    assert target.dtype == torch.float16


@pytest.mark.parametrize("target", ["cpu", "spyre"])
@pytest.mark.parametrize("source", ["cpu", "spyre", "spyre:1"])
def test_copy_between_strided_views(source, target):
    host = values(torch.float16, (10, 140))
    result = torch.zeros(12, 150, dtype=torch.float16, device=target)
    result[1:11:2, 3:73].copy_(host.to(source)[::2, 1::2])
    expected = torch.zeros(12, 150, dtype=torch.float16)
    expected[1:11:2, 3:73].copy_(host[::2, 1::2])
    same(result, expected)


def test_copying_a_tensor_to_itself_does_nothing():
    card = values(torch.float16).to("spyre")
    before = torch.spyre.counters()
    assert card.copy_(card) is card
    after = torch.spyre.counters()
    assert (after.launches, after.bytes_to_card) == (before.launches, before.bytes_to_card)
    same(card, values(torch.float16))


@pytest.mark.parametrize("size", [(4,), (3, 3), (71,), (2, 70), (3, 70, 1), (0,)], ids=str)
def test_copy_of_another_size_is_refused_and_changes_nothing(size):
    card = values(torch.float16).to("spyre")
    for source in (torch.zeros(size), torch.zeros(size, device="spyre")):
        with pytest.raises(RuntimeError, match="size") as error:
            card.copy_(source)
        assert "[3, 70]" in str(error.value)
    same(card, values(torch.float16))


def test_a_partly_overlapping_copy_is_refused_and_changes_nothing():
    card = torch.arange(200, dtype=torch.float32, device="spyre")
    with pytest.raises(RuntimeError, match="single memory location"):
        card[1:].copy_(card[:-1])
    same(card, torch.arange(200, dtype=torch.float32))


def test_writing_into_an_expanded_tensor_is_refused():
    card = torch.zeros(1, 5, device="spyre").expand(4, 5)
    with pytest.raises(RuntimeError, match="single memory location"):
        card.copy_(torch.ones(4, 5))


def test_indexed_assignment_writes_views():
    card, host = torch.zeros(5, 70, device="spyre"), torch.zeros(5, 70)
    for tensor in (card, host):
        tensor[1] = 3
        tensor[2, 5:9] = torch.tensor([1.0, 2.0, 3.0, 4.0])
        tensor[:, -1] = tensor[1, 0]
        tensor[3:, ::7] = 5
        tensor[4] = tensor[2].clone()
    same(card, host)


# -------------------------------------------------------------------------------- clone, contiguous


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_clone_and_contiguous_of_views(dtype):
    host = values(dtype, (6, 130))
    card = host.to("spyre")
    for view in (lambda t: t, lambda t: t.t(), lambda t: t[1:5, 7:99], lambda t: t[::3, ::2]):
        clone, expected = view(card).clone(), view(host).clone()
        same(clone, expected)
        assert clone.stride() == expected.stride()
        assert clone.untyped_storage().data_ptr() != card.untyped_storage().data_ptr()
        packed = view(card).contiguous()
        same(packed, view(host).contiguous())
        assert packed.is_contiguous()


def test_clone_of_an_expanded_tensor_is_written_out():
    host = values(torch.float16, (1, 70))
    same(host.to("spyre").expand(4, 70).clone(), host.expand(4, 70).clone())


def test_detach_and_alias_share_memory():
    card = torch.zeros(3, device="spyre", requires_grad=True)
    detached = card.detach()
    detached.fill_(2)
    assert card.tolist() == [2.0] * 3
    assert not detached.requires_grad


# --------------------------------------------------------------------------------- to Python values


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_item_and_tolist(dtype):
    host = values(dtype)
    card = host.to("spyre")
    assert card.tolist() == host.tolist()
    assert card[1, 65].item() == host[1, 65].item()
    assert type(card[1, 65].item()) is type(host[1, 65].item())
    assert card.to("spyre")[:0].tolist() == []


def test_python_numbers_from_tensors():
    card = torch.tensor([2.5, 3.0], device="spyre")
    assert float(card[0]) == 2.5
    assert int(card[1]) == 3
    assert bool(card[0])
    assert [10, 20, 30, 40][card[1].int()] == 40
    assert f"{card[0]:.1f}" == "2.5"
    assert len(card) == 2
    assert [t.item() for t in card] == [2.5, 3.0]
    assert torch.tensor([[4]], device="spyre").item() == 4


def test_item_of_several_elements_is_refused():
    for size in (0, 2):
        with pytest.raises(RuntimeError, match=f"{size} elements cannot be converted to Scalar"):
            torch.zeros(size, device="spyre").item()


@pytest.mark.filterwarnings("ignore:__array__ implementation")
def test_numpy_is_refused_with_the_way_to_do_it():
    card = torch.ones(3, device="spyre")
    for convert in (lambda: card.numpy(), lambda: numpy.asarray(card), lambda: numpy.array(card)):
        with pytest.raises(TypeError, match=r"Tensor\.cpu\(\)"):
            convert()
    assert card.numpy(force=True).tolist() == [1.0, 1.0, 1.0]
    assert card.cpu().numpy().tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equal(dtype):
    host = values(dtype)
    card = host.to("spyre")
    assert torch.equal(card, host.to("spyre"))
    assert torch.equal(card[:, 1:], host.to("spyre")[:, 1:])
    assert not torch.equal(card, card[:2])
    other = host.to("spyre")
    other[2, 69] = 0 if host[2, 69].item() else 1
    assert not torch.equal(card, other)


def test_equal_of_nan_is_false():
    card = torch.tensor([math.nan], device="spyre")
    assert not torch.equal(card, card.clone())


def test_equal_wants_one_device():
    card = torch.ones(3, device="spyre")
    for other in (torch.ones(3), torch.ones(3, device="spyre:1")):
        with pytest.raises(RuntimeError, match="same device"):
            torch.equal(card, other)


# ----------------------------------------------------------------------------------------- warnings


def test_the_int64_warning_comes_once_and_can_be_switched_off():
    from subprocesses import forked

    code = """
        import json, warnings, torch
        seen = []
        for switch in ({switch}, None):
            if switch is not None:
                torch.spyre.set_downcast_warning(switch)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                torch.zeros(3, dtype=torch.int32, device="spyre")
                torch.zeros(3, dtype=torch.int64, device="spyre")
                torch.arange(3).to("spyre")
            seen.append([str(w.message) for w in caught])
        print(json.dumps(seen))
    """
    first, second = forked(code.format(switch=True)).value
    assert len(first) == 1
    assert "does not support int64" in first[0]
    assert "TORCH_SPYRE_DOWNCAST_WARN" in first[0]
    assert second == []
    assert forked(code.format(switch=False)).value == [[], []]
    assert forked(code.format(switch=None), TORCH_SPYRE_DOWNCAST_WARN="off").value == [[], []]


def test_other_copies_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        card = values(torch.float32).to("spyre")
        card.half().to("spyre:1", non_blocking=True).cpu()


# --------------------------------------------------------------------------------- lazy clones


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int32, torch.bool], ids=str)
def test_a_lazy_clone_is_a_tensor_of_its_own(dtype):
    host = torch.arange(30).reshape(5, 6).to(dtype)
    card = host.to("spyre")
    for view in (lambda t: t, lambda t: t.t(), lambda t: t[1:4, ::2], lambda t: t[2]):
        source = view(card)
        clone = torch._lazy_clone(source)
        assert clone.device == source.device
        assert (clone.stride(), clone.storage_offset()) == (
            source.stride(),
            source.storage_offset(),
        )
        assert torch.equal(clone.cpu(), view(host))
        clone.zero_()
        assert torch.equal(card.cpu(), host)


def test_a_lazy_clone_has_a_gradient():
    x = torch.ones(3, device="spyre", requires_grad=True)
    torch._lazy_clone(x).mul(2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
