"""Programs found again: only by calls that they are right for, so that no neighbour changes.

An eager op keeps its program for the next call of the same geometry. What a program does may also
depend on what lies around a tensor: one that is all of its storage is walked to the end of its last
stick, padding included, where a part of a larger one has neighbours. Values are whole numbers that
every format holds exactly.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.usefixtures("native", "no_downcast_warning")

DTYPES = [
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.uint8,
    torch.bool,
]


def numbers(count, dtype):
    return (torch.arange(count) % 7).to(dtype)


def add(x, out):
    return torch.add(x, x, out=out)


def flip_bits(x, out):
    return torch.logical_not(x, out=out)


def copy(x, out):
    return out.copy_(x + 0 if x.dtype != torch.bool else x)


def total(x, out):
    return torch.cumsum(x, 0, dtype=x.dtype, out=out)


def ordered(x, out):
    indices = torch.empty(x.shape, dtype=torch.int64, device=x.device)
    return torch.sort(x, 0, descending=True, out=(out, indices))[0]


def rolled(x, out):
    return out.copy_(torch.roll(x, 1, 0))


OPS = [add, flip_bits, copy, total, ordered, rolled]
CALLS = [(op, dtype) for op in OPS for dtype in DTYPES if (op, dtype) != (total, torch.bool)]


@pytest.mark.parametrize(("op", "dtype"), CALLS)
def test_a_part_of_a_tensor_after_a_whole_one(op, dtype):
    """In place and with ``out=``: elements behind the part stay as they are."""
    for in_place in (True, False):
        for length in (5, 6):  # first as all of a storage, then as a part of one
            host = numbers(length, dtype)
            card = host.to("spyre")
            for base in (host, card):
                part = base[:5]
                op(part, part if in_place else torch.zeros_like(base)[:5])
            assert torch.equal(card.cpu(), host)
        target = torch.zeros(6, dtype=dtype)
        on_card = target.to("spyre")
        op(numbers(5, dtype), target[:5])
        op(numbers(5, dtype).to("spyre"), on_card[:5])
        assert torch.equal(on_card.cpu(), target)


def test_in_place_on_the_first_elements():
    whole = torch.arange(5.0, device="spyre")
    whole.add_(1)
    larger = torch.arange(6.0, device="spyre")
    larger[:5].add_(1)
    assert larger.tolist() == [1, 2, 3, 4, 5, 5]


@given(
    st.lists(
        st.tuples(st.sampled_from([3, 31, 32, 33, 64, 65]), st.integers(0, 3), st.integers(0, 2)),
        min_size=2,
        max_size=8,
    ),
    st.sampled_from([torch.float32, torch.float16, torch.int64]),
)
def test_parts_of_any_storage(calls, dtype):
    """The same view of storages of several sizes, in any order."""
    for length, more, before in calls:
        host = numbers(length + more + before, dtype)
        card = host.to("spyre")
        for base in (host, card):
            base[before : before + length].mul_(2).add_(base[before : before + length])
        assert torch.equal(card.cpu(), host)
