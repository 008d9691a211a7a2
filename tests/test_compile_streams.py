"""Streams and events inside of compiled functions, and calls that have no use for them."""

import time

import pytest
import torch
from compiling import card, same_as_eager


@pytest.fixture(scope="module")
def side():
    return torch.Stream(device="spyre")


def on_a_side_stream(x, side):
    y = x + 1
    with side:
        z = torch.softmax(y * 2, -1)
    return z - x


def with_an_event_of_the_current_stream(x, side):
    y = x * 2
    current = torch.accelerator.current_stream()
    current.record_event().wait(current)
    return y


def from_stream_to_stream(x, side):
    ready, done = torch.Event(device="spyre"), torch.Event(device="spyre")
    y = x * 2
    ready.record()
    with side:
        ready.wait()
        z = y + x.sum(-1, keepdim=True)
        done.record()
    done.wait()
    return z + x


@pytest.mark.parametrize(
    "function",
    [on_a_side_stream, with_an_event_of_the_current_stream, from_stream_to_stream],
)
def test_streams_inside_of_graphs(function, side):
    same_as_eager(function, card(8, 64), side, exact=function is not on_a_side_stream)


def test_calls_ask_for_no_stream_that_nothing_uses(monkeypatch):
    torch._dynamo.reset()
    x = card(8, 64)
    compiled = torch.compile(lambda x: x + 1)
    expected = compiled(x)
    asked = []
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda *args: asked.append(args))
    assert torch.equal(compiled(x).cpu(), expected.cpu())
    assert not asked


def test_large_calls_that_follow_each_other_closely():
    """The stream's thread takes them over: in order, with other work in between, and nothing of
    theirs outlives them."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, y: x + y)
    start = torch.zeros(512, 1024, dtype=torch.float16, device="spyre")
    one = torch.ones_like(start)
    compiled(start, one)
    torch.spyre.synchronize()
    held = torch.spyre.memory_allocated()
    x = start
    for count in range(1, 301):
        x = compiled(x, one)
        if count % 40 == 0:
            x += one  # by the way, and taken back
            x = x - one
        if count % 60 == 0:
            assert x[3, 5].item() == count
    torch.spyre.synchronize()
    assert torch.spyre.memory_allocated() == held + x.untyped_storage().nbytes()
    assert torch.equal(x.cpu(), torch.full((512, 1024), 300, dtype=torch.float16))


def test_nobody_gets_far_ahead_of_long_work():
    """Not even of programs that nobody can help with: what waits in line holds its memory."""
    x = card(1 << 19)
    x.cumsum(0)
    torch.spyre.synchronize()
    before = torch.spyre.memory.card_memory().allocations
    ahead = []
    for _ in range(12):
        x.cumsum(0)
        ahead.append(torch.spyre.memory.card_memory().allocations - before)
        ready = time.perf_counter() + 50e-6
        while time.perf_counter() < ready:
            pass
    assert max(ahead) <= 2
    torch.spyre.synchronize()
    assert torch.spyre.memory.card_memory().allocations == before
