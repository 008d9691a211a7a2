"""Streams: the pool, the current stream, order inside a stream, concurrency across streams.

`torch.spyre._sleep` keeps a stream busy for a while, so that work queued behind it is visibly late.
"""

import itertools
import threading
import time

import pytest
import torch
from streams import NAP
from subprocesses import forked

from torch_spyre import _C

pytestmark = pytest.mark.usefixtures("settled")


def on_card(value: float, device: str = "spyre:0") -> torch.Tensor:
    return torch.full((100,), value, dtype=torch.float16, device=device)


def pinned(value: float) -> torch.Tensor:
    return torch.full((100,), value, dtype=torch.float16).pin_memory()


# ----------------------------------------------------------------------------------------- the pool


def test_pools_start_at_1_and_33_and_go_round():
    code = """
    import torch
    low = [torch.spyre.Stream().id() for _ in range(34)]
    high = [torch.spyre.Stream(priority=-1).id() for _ in range(34)]
    print([low, high])
    """
    low, high = forked(code).value
    assert low == [*range(1, 33), 1, 2]
    assert high == [*range(33, 65), 33, 34]


def test_each_device_has_its_own_pools():
    code = """
    import torch
    print([torch.spyre.Stream(device).id() for device in (0, 1, 0, 0, 1)])
    """
    assert forked(code, SPYRE_SOFT_CARDS=2).value == [1, 1, 2, 3, 2]


@pytest.mark.parametrize(("priority", "expected"), [(0, 0), (1, -1), (-1, -1), (7, -1), (-7, -1)])
def test_any_priority_but_0_is_high(priority, expected):
    stream = torch.spyre.Stream(priority=priority)
    assert stream.priority() == expected
    assert (stream.id() > 32) == (expected == -1)


def test_torch_streams_come_from_the_same_pools():
    first = torch.spyre.Stream().id()
    second = torch.Stream("spyre").stream_id
    assert second == first % 32 + 1
    assert torch.Stream("spyre", priority=-1).stream_id > 32


def test_making_a_stream_does_not_start_the_device():
    code = """
    import json, torch
    torch.spyre.Stream()
    torch.spyre.current_stream(), torch.spyre.default_stream()
    print(json.dumps(torch.spyre.is_initialized()))
    """
    assert forked(code).value is False


def test_the_default_stream_has_id_0():
    stream = torch.spyre.default_stream()
    assert stream.id() == 0
    assert stream.priority() == 0
    assert torch.spyre.current_stream() == stream


# ----------------------------------------------------------------------------------- stream objects


def test_repr_names_device_and_id():
    assert repr(torch.spyre.default_stream(1)) == "<torch_spyre.Stream device=1 id=0>"
    stream = torch.spyre.Stream()
    assert repr(stream) == f"<torch_spyre.Stream device=0 id={stream.id()}>"


def test_device_is_a_method():
    assert torch.spyre.Stream("spyre:1").device() == torch.device("spyre", 1)
    assert torch.spyre.Stream(1).device() == torch.device("spyre", 1)
    assert torch.spyre.Stream(torch.device("spyre")).device() == torch.device("spyre", 0)
    with torch.spyre.device(1):
        assert torch.spyre.Stream().device() == torch.device("spyre", 1)


def test_a_stream_is_a_torch_stream():
    stream = torch.spyre.Stream(1)
    assert isinstance(stream, torch.Stream)
    assert (stream.stream_id, stream.device_index) == (stream.id(), 1)


def test_equal_streams_are_equal_and_hash_alike():
    stream = torch.spyre.Stream()
    with stream:
        current = torch.spyre.current_stream()
        agnostic = torch.accelerator.current_stream()
    assert stream == current == agnostic
    assert hash(stream) == hash(current) == hash(agnostic)
    assert stream != torch.spyre.default_stream()
    assert torch.spyre.default_stream(0) != torch.spyre.default_stream(1)


def test_streams_of_one_pool_slot_are_the_same_stream():
    stream = torch.spyre.Stream()
    twin = next(other for _ in range(32) if (other := torch.spyre.Stream()).id() == stream.id())
    with stream:
        torch.spyre._sleep(NAP)
    assert not twin.query()
    twin.synchronize()
    assert stream.query()


# ------------------------------------------------------------------------------- the current stream


def test_with_blocks_nest_and_restore():
    outer, inner = torch.spyre.Stream(), torch.spyre.Stream()
    with torch.spyre.stream(outer):
        assert torch.spyre.current_stream() == outer
        with inner:
            assert torch.spyre.current_stream() == inner
            with outer:
                assert torch.spyre.current_stream() == outer
            assert torch.spyre.current_stream() == inner
        assert torch.spyre.current_stream() == outer
    assert torch.spyre.current_stream().id() == 0


def test_a_with_block_restores_after_an_exception():
    with pytest.raises(KeyError), torch.spyre.Stream():
        raise KeyError
    assert torch.spyre.current_stream().id() == 0


def test_stream_returns_its_argument():
    stream = torch.spyre.Stream()
    assert torch.spyre.stream(stream) is stream


def test_a_stream_of_another_device_makes_that_device_current():
    stream = torch.spyre.Stream(1)
    with stream:
        assert torch.spyre.current_device() == 1
        assert torch.spyre.current_stream(1) == stream
        assert torch.spyre.current_stream(0).id() == 0
    assert torch.spyre.current_device() == 0
    assert torch.spyre.current_stream(1).id() == 0


def test_set_stream_and_accelerator_agree():
    stream = torch.spyre.Stream()
    torch.accelerator.set_stream(stream)
    assert torch.spyre.current_stream() == stream
    torch.spyre.set_stream(torch.spyre.default_stream())
    assert torch.accelerator.current_stream().stream_id == 0


def test_torch_streams_work_as_context():
    stream = torch.Stream("spyre")
    with stream:
        assert torch.spyre.current_stream() == stream
        torch.spyre._sleep(NAP)
    assert not stream.query()
    stream.synchronize()
    assert stream.query()


def test_native_set_current_stream_returns_the_previous_one():
    stream = torch.spyre.Stream()
    assert _C.set_current_stream(stream) == torch.spyre.default_stream()
    assert _C.set_current_stream(torch.spyre.default_stream()) == stream
    assert _C.current_stream() == _C.default_stream()


def test_the_native_module_has_the_same_streams():
    taken = _C.get_stream_from_pool(torch.device("spyre:0"), 1)
    for stream in (taken, _C.current_stream(0), _C.default_stream("spyre")):
        assert type(stream) is _C._SpyreStreamBase is torch.spyre.Stream
        assert stream.device() == torch.device("spyre:0")
    assert taken.priority() == -1
    for device in (None, 0, "spyre", torch.device("spyre:0")):
        _C.synchronize(device)


def test_each_thread_has_its_own_current_stream():
    stream, seen = torch.spyre.Stream(), []

    def other():
        seen.append(torch.spyre.current_stream().id())
        torch.spyre.set_stream(torch.spyre.Stream())
        seen.append(torch.spyre.current_stream().id())

    with stream:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert torch.spyre.current_stream() == stream
    assert seen[0] == 0
    assert seen[1] not in (0, stream.id())


# -------------------------------------------------------------------------------------------- order


def test_a_copy_to_the_host_behind_a_sleep_is_late():
    source, host, stream = on_card(7), pinned(0), torch.spyre.Stream()
    with stream:
        torch.spyre._sleep(NAP)
        host.copy_(source, non_blocking=True)
    assert (host == 0).all()
    assert not stream.query()
    stream.synchronize()
    assert (host == 7).all()
    assert stream.query()


def test_a_copy_to_the_card_behind_a_sleep_is_late():
    target, host, stream = on_card(0), pinned(7), torch.spyre.Stream()
    with stream:
        torch.spyre._sleep(NAP)
        target.copy_(host, non_blocking=True)
    assert (target.cpu() == 0).all()  # the default stream does not wait for others
    stream.synchronize()
    assert (target.cpu() == 7).all()


def test_work_of_one_stream_runs_in_order():
    target, results = on_card(0), [pinned(-1) for _ in range(10)]
    with torch.spyre.Stream() as stream:
        torch.spyre._sleep(NAP)
        for value, result in enumerate(results):
            if value % 2:
                target.fill_(value)
            else:
                target.copy_(pinned(value), non_blocking=True)
            result.copy_(target, non_blocking=True)
    assert all((result == -1).all() for result in results)
    stream.synchronize()
    assert [result[0].item() for result in results] == list(range(10))


def test_copies_on_the_card_keep_their_place():
    a, b, host = on_card(1), on_card(2), pinned(0)
    with torch.spyre.Stream() as stream:
        torch.spyre._sleep(NAP)
        a.fill_(5)
        b.copy_(a)
        a.fill_(6)
        host.copy_(b, non_blocking=True)
    stream.synchronize()
    assert (host == 5).all()
    assert (a.cpu() == 6).all()


def test_a_blocking_copy_waits_for_its_own_stream():
    source = on_card(1)
    with torch.spyre.Stream():
        start = time.perf_counter()
        torch.spyre._sleep(NAP)
        source.fill_(2)
        assert (source.cpu() == 2).all()
        assert time.perf_counter() - start >= NAP * 0.9


def test_item_waits_for_its_own_stream():
    source = on_card(1)
    with torch.spyre.Stream():
        torch.spyre._sleep(NAP)
        source.fill_(2)
        assert source[3].item() == 2


def test_other_streams_run_meanwhile():
    slow, fast = torch.spyre.Stream(), torch.spyre.Stream()
    source, host = on_card(7), pinned(0)
    with slow:
        torch.spyre._sleep(2 * NAP)
    with fast:
        host.copy_(source, non_blocking=True)
    fast.synchronize()
    assert (host == 7).all()
    assert not slow.query()
    slow.synchronize()


def test_sleeping_streams_overlap():
    streams = [torch.spyre.Stream() for _ in range(8)]
    start = time.perf_counter()
    for stream in streams:
        with stream:
            torch.spyre._sleep(NAP)
    torch.spyre.synchronize()
    assert NAP * 0.9 <= time.perf_counter() - start < 4 * NAP


def test_the_interpreter_runs_while_a_thread_waits_for_a_stream():
    ticks, done = 0, threading.Event()

    def wait():
        torch.spyre.synchronize()
        done.set()

    torch.spyre._sleep(NAP)
    thread = threading.Thread(target=wait)
    thread.start()
    while not done.is_set():
        ticks += 1
        time.sleep(0.01)
    thread.join()
    assert ticks >= 3


# -------------------------------------------------------------------------- waiting between streams


def test_wait_event_orders_two_streams():
    first, second = torch.spyre.Stream(), torch.spyre.Stream()
    tensor, early, late = on_card(0), pinned(-1), pinned(-1)
    with first:
        torch.spyre._sleep(NAP)
        tensor.fill_(1)
        event = first.record_event()
    with second:
        early.copy_(tensor, non_blocking=True)  # does not wait: sees the old value
        second.synchronize()
        second.wait_event(event)
        late.copy_(tensor, non_blocking=True)
    assert (early == 0).all()
    assert (late == -1).all()
    second.synchronize()
    assert (late == 1).all()


def test_wait_stream_waits_for_what_is_queued_so_far():
    first, second = torch.spyre.Stream(), torch.spyre.Stream()
    tensor, host = on_card(0), pinned(-1)
    with first:
        torch.spyre._sleep(NAP)
        tensor.fill_(1)
    second.wait_stream(first)
    with first:
        torch.spyre._sleep(3 * NAP)
    with second:
        host.copy_(tensor, non_blocking=True)
    second.synchronize()
    assert (host == 1).all()
    assert not first.query()


def test_wait_stream_works_across_cards():
    first, second = torch.spyre.Stream(0), torch.spyre.Stream(1)
    host, target = pinned(0), on_card(0, "spyre:1")
    source = on_card(3)
    with first:
        torch.spyre._sleep(NAP)
        host.copy_(source, non_blocking=True)
    second.wait_stream(first)
    with second:
        target.copy_(host, non_blocking=True)
    second.synchronize()
    assert (target.cpu() == 3).all()


def test_a_chain_of_waits_over_many_streams():
    streams = [torch.spyre.Stream() for _ in range(6)]
    tensor, host = on_card(0), pinned(-1)
    with streams[0]:
        torch.spyre._sleep(NAP)
        tensor.fill_(1)
    for before, after in itertools.pairwise(streams):
        after.wait_stream(before)
    with streams[-1]:
        host.copy_(tensor, non_blocking=True)
    streams[-1].synchronize()
    assert (host == 1).all()


def test_record_stream_is_accepted():
    tensor = on_card(1)
    tensor.record_stream(torch.spyre.Stream())
    assert (tensor.cpu() == 1).all()


# ------------------------------------------------------------------------------------ synchronising


@pytest.mark.parametrize("device", [0, "spyre:0", torch.device("spyre", 0), torch.device("spyre")])
def test_synchronize_of_one_device_waits_for_all_its_streams_only(device):
    streams = [torch.spyre.Stream(0), torch.spyre.Stream(0, priority=1), torch.spyre.Stream(1)]
    for stream, nap in zip(streams, (0.1, 0.15, 0.8), strict=True):
        with stream:
            torch.spyre._sleep(nap)
    torch.spyre.synchronize(device)
    assert [stream.query() for stream in streams] == [True, True, False]


def test_synchronize_waits_for_all_devices():
    streams = [torch.spyre.Stream(device) for device in (0, 1)]
    for stream in streams:
        with stream:
            torch.spyre._sleep(NAP)
    torch.spyre.synchronize()
    assert all(stream.query() for stream in streams)


def test_accelerator_synchronize_waits_for_the_current_or_given_device():
    streams = [torch.spyre.Stream(device) for device in (0, 1)]
    for stream, nap in zip(streams, (0.1, 0.5), strict=True):
        with stream:
            torch.spyre._sleep(nap)
    torch.accelerator.synchronize()
    assert streams[0].query()
    torch.accelerator.synchronize("spyre:1")
    assert streams[1].query()


def test_synchronize_of_one_stream_leaves_the_others():
    slow, fast = torch.spyre.Stream(), torch.spyre.Stream()
    for stream, nap in ((slow, 3 * NAP), (fast, 0.05)):
        with stream:
            torch.spyre._sleep(nap)
    fast.synchronize()
    assert fast.query()
    assert not slow.query()


def test_an_unused_stream_is_idle():
    stream = torch.spyre.Stream()
    assert stream.query()
    stream.synchronize()


# ------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "use",
    [
        lambda device: torch.spyre.Stream(device),
        lambda device: torch.spyre.current_stream(device),
        lambda device: torch.spyre.default_stream(device),
        lambda device: torch.spyre.synchronize(device),
    ],
    ids=["Stream", "current_stream", "default_stream", "synchronize"],
)
def test_streams_of_a_foreign_or_missing_device_are_refused(use):
    with pytest.raises(ValueError, match="expected a spyre device, got 'cpu'"):
        use("cpu")
    with pytest.raises(IndexError, match=r"Device index 2 out of range \[0, 2\)"):
        use("spyre:2")
    with pytest.raises(IndexError, match=r"Device index 2 out of range \[0, 2\)"):
        use(2)


def test_a_stream_of_another_device_type_cannot_be_current():
    with pytest.raises((RuntimeError, ValueError, TypeError), match="spyre"):
        torch.spyre.set_stream(torch.Stream("cpu"))


def test_stream_ids_outside_the_pools_are_refused():
    kind = torch.spyre.default_stream().device_type
    for number in (-1, 65, 1 << 40):
        stream = torch.Stream(stream_id=number, device_index=0, device_type=kind)
        with pytest.raises(IndexError, match=r"out of range \[0, 65\)"):
            torch.spyre.set_stream(stream)
        with pytest.raises(IndexError, match=r"out of range \[0, 65\)"):
            stream.synchronize()


def test_stream_objects_of_a_missing_device_do_no_harm():
    code = """
    import torch
    kind = torch.spyre.default_stream().device_type
    for index in (-1, 1, 63, 64, 100, 127):
        stream = torch.Stream(stream_id=3, device_index=index, device_type=kind)
        for use in (torch.spyre.set_stream, torch.accelerator.set_stream, torch.Stream.query,
                    torch.Stream.synchronize, torch.spyre.default_stream().wait_stream):
            try:
                use(stream)
            except (IndexError, RuntimeError):
                pass
    torch.spyre.set_stream(torch.spyre.default_stream())
    print(torch.ones(3, device="spyre").cpu().tolist())
    """
    assert forked(code).value == [1, 1, 1]
