"""Events, the modelled clock and the counters."""

import gc
import time

import pytest
import torch
from subprocesses import forked

NAP = 0.4  # seconds a stream is kept busy


@pytest.fixture(autouse=True)
def settled():
    torch.spyre.set_device(0)
    torch.spyre.synchronize()
    yield
    torch.spyre.synchronize()
    torch.spyre.set_device(0)


@pytest.fixture
def stopped_clock():
    """Both cards' counters and modelled clocks at zero."""
    torch.spyre.reset(0)
    torch.spyre.reset(1)


def timed() -> torch.Event:
    return torch.spyre.Event(enable_timing=True)


def half(count: int, device: str = "spyre:0") -> torch.Tensor:
    return torch.empty(count, dtype=torch.float16, device=device)


# ---------------------------------------------------------------------------------- record and wait


def test_an_event_that_was_never_recorded_has_passed():
    event = torch.spyre.Event()
    assert event.query()
    event.synchronize()
    torch.spyre.Stream().wait_event(event)


def test_an_event_passes_with_the_work_before_it():
    event = torch.spyre.Event()
    with torch.spyre.Stream() as stream:
        torch.spyre._sleep(NAP)
        event.record()
        torch.spyre._sleep(2 * NAP)
    assert not event.query()
    event.synchronize()
    assert event.query()
    assert not stream.query()  # work after the event does not matter


def test_record_takes_a_stream():
    stream, event = torch.spyre.Stream(), torch.spyre.Event()
    with stream:
        torch.spyre._sleep(NAP)
    event.record(stream)
    assert not event.query()
    stream.synchronize()
    assert event.query()


def test_record_uses_the_current_stream():
    event = torch.spyre.Event()
    with torch.spyre.Stream() as stream:
        torch.spyre._sleep(NAP)
        event.record()
    other = torch.spyre.Event()
    other.record()  # the default stream is idle
    other.synchronize()
    assert not event.query()
    stream.synchronize()


def test_record_event_of_a_stream_makes_or_takes_an_event():
    stream, event = torch.spyre.Stream(), torch.spyre.Event()
    assert stream.record_event(event) is event
    new = stream.record_event()
    assert isinstance(new, torch.spyre.Event)
    new.synchronize()


def test_recording_again_moves_the_event():
    event, stream = torch.spyre.Event(), torch.spyre.Stream()
    event.record(stream)
    event.synchronize()
    with stream:
        torch.spyre._sleep(NAP)
        event.record()
    assert not event.query()
    event.synchronize()
    assert event.query()
    stream.synchronize()


def test_who_waits_already_waits_for_the_old_point():
    first, second, event = torch.spyre.Stream(), torch.spyre.Stream(), torch.spyre.Event()
    with first:
        torch.spyre._sleep(0.1)
        event.record()
    second.wait_event(event)
    with first:
        torch.spyre._sleep(3 * NAP)
        event.record()
    second.synchronize()
    assert not event.query()
    assert not first.query()


def test_wait_makes_another_stream_wait():
    first, second, event = torch.spyre.Stream(), torch.spyre.Stream(), torch.spyre.Event()
    with first:
        torch.spyre._sleep(NAP)
        event.record()
    event.wait(second)
    assert not second.query()
    second.synchronize()
    assert event.query()


def test_wait_without_a_stream_means_the_current_one():
    first, second, event = torch.spyre.Stream(), torch.spyre.Stream(), torch.spyre.Event()
    with first:
        torch.spyre._sleep(NAP)
        event.record()
    with second:
        event.wait()
    assert not second.query()
    second.synchronize()
    assert event.query()


def test_streams_of_another_card_can_wait():
    event, other = torch.spyre.Event(), torch.spyre.Stream(1)
    with torch.spyre.Stream(0):
        torch.spyre._sleep(NAP)
        event.record()
    other.wait_event(event)
    assert not other.query()
    other.synchronize()
    assert event.query()


def test_waiting_for_a_passed_event_does_not_block():
    event, stream = torch.spyre.Event(), torch.spyre.Stream()
    event.record()
    event.synchronize()
    stream.wait_event(event)
    stream.synchronize()


def test_torch_events_work_too():
    event = torch.Event("spyre", enable_timing=True)
    with torch.spyre.Stream() as stream:
        torch.spyre._sleep(NAP)
        event.record()
    assert not event.query()
    event.synchronize()
    assert event.query()
    stream.synchronize()
    assert event.device.type == "spyre"
    assert not isinstance(event, torch.spyre.Event)
    assert isinstance(torch.spyre.Event(), torch.Event)


def test_torch_event_without_device_is_one_of_the_accelerator():
    event = torch.Event()
    event.record()
    event.synchronize()
    assert event.device.type == "spyre"


def test_an_event_belongs_to_the_device_of_its_first_record():
    event = torch.spyre.Event()
    event.record(torch.spyre.default_stream(1))
    with pytest.raises(RuntimeError, match=r"(?s)event.*spyre:1"):
        event.record(torch.spyre.default_stream(0))
    event.record(torch.spyre.Stream(1))
    event.synchronize()


def test_recording_on_a_foreign_stream_is_refused():
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        torch.spyre.Event().record(torch.Stream("cpu"))


def test_events_between_processes_are_refused():
    with pytest.raises(NotImplementedError, match="between processes"):
        torch.spyre.Event(interprocess=True)


def test_events_may_be_destroyed_in_any_order():
    stream, other = torch.spyre.Stream(), torch.spyre.Stream()
    with stream:
        torch.spyre._sleep(NAP)
        events = [stream.record_event(timed()) for _ in range(20)]
    for event in events:
        other.wait_event(event)
    del event
    del events[::2]  # before they pass, while another stream waits
    assert not other.query()
    other.synchronize()
    assert all(event.query() for event in events)
    del stream, other, events
    gc.collect()
    torch.spyre.synchronize()


def test_an_event_outlives_its_stream_object():
    event = torch.spyre.Event()
    stream = torch.spyre.Stream()
    with stream:
        torch.spyre._sleep(0.1)
        event.record()
    del stream
    gc.collect()
    event.synchronize()
    assert event.query()


# ------------------------------------------------------------------------------------- elapsed time


def test_elapsed_time_is_wall_time():
    start, end = timed(), timed()
    with torch.spyre.Stream():
        start.record()
        torch.spyre._sleep(NAP)
        end.record()
    assert NAP * 0.9 <= start.elapsed_time(end) / 1000 < NAP * 10  # waits for the events


def test_elapsed_time_is_negative_backwards():
    start, end = timed(), timed()
    start.record()
    start.synchronize()
    time.sleep(0.02)
    end.record()
    assert end.elapsed_time(start) == pytest.approx(-start.elapsed_time(end))
    assert start.elapsed_time(end) >= 20


def test_elapsed_time_of_torch_events():
    start, end = (torch.Event("spyre", enable_timing=True) for _ in range(2))
    start.record()
    torch.spyre._sleep(0.1)
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 90


def test_elapsed_time_needs_timing():
    start, end = torch.spyre.Event(), torch.spyre.Event(enable_timing=True)
    start.record()
    end.record()
    torch.spyre.synchronize()
    for first, last in ((start, end), (end, start)):
        with pytest.raises((ValueError, RuntimeError), match="enable_timing=True"):
            first.elapsed_time(last)
        with pytest.raises((ValueError, RuntimeError), match="enable_timing=True"):
            first.modelled_elapsed_time(last)


def test_elapsed_time_needs_recorded_events():
    start, end = timed(), timed()
    start.record()
    torch.spyre.synchronize()
    for first, last in ((start, end), (end, start)):
        with pytest.raises((ValueError, RuntimeError), match="recorded"):
            first.elapsed_time(last)
        with pytest.raises((ValueError, RuntimeError), match="recorded"):
            first.modelled_elapsed_time(last)


@pytest.mark.parametrize("other", [None, 3, "event", torch.Event("cpu")], ids=str)
def test_elapsed_time_to_something_else_is_refused(other):
    event = timed()
    event.record()
    with pytest.raises((TypeError, ValueError, RuntimeError, NotImplementedError)):
        event.elapsed_time(other)
    with pytest.raises((TypeError, ValueError, RuntimeError, NotImplementedError)):
        event.modelled_elapsed_time(other)


# ------------------------------------------------------------------------------------ modelled time


def modelled_ms(work) -> float:
    """Modelled milliseconds of some work on the current stream."""
    start, end = timed(), timed()
    torch.spyre.synchronize()
    start.record()
    work()
    end.record()
    return start.modelled_elapsed_time(end)


def test_modelled_time_is_the_same_every_time():
    source, target = torch.randn(1000).half(), half(1000)
    times = {modelled_ms(lambda: target.copy_(source)) for _ in range(20)}
    assert len(times) == 1
    assert times.pop() > 0


def test_modelled_time_does_not_depend_on_the_wall_clock():
    source, target = torch.randn(1000).half().pin_memory(), half(1000)

    def work():
        target.copy_(source, non_blocking=True)

    def slow_work():
        time.sleep(0.05)
        torch.spyre._sleep(0.1)
        work()

    assert modelled_ms(slow_work) == modelled_ms(work)


def test_modelled_time_grows_with_the_bytes():
    def transfer(count):
        source, target = torch.zeros(count, dtype=torch.float16), half(count)
        return modelled_ms(lambda: target.copy_(source))

    small, double, fourfold = transfer(1 << 20), transfer(2 << 20), transfer(4 << 20)
    assert small < double < fourfold
    assert fourfold - double == pytest.approx(2 * (double - small), rel=0.01)


@pytest.mark.filterwarnings("ignore:Backend Spyre does not support int64")
def test_modelled_time_counts_device_bytes():
    """float32 takes twice the bytes of float16 on the link; int64 has 32 bits on the card."""

    def transfer(dtype):
        target = torch.empty(1 << 20, dtype=dtype, device="spyre")
        source = torch.zeros(1 << 20, dtype=dtype)
        return modelled_ms(lambda: target.copy_(source))

    assert transfer(torch.float32) > 1.5 * transfer(torch.float16)
    assert transfer(torch.int64) == transfer(torch.float32)


def test_modelled_time_of_both_directions_is_alike():
    host, card = torch.zeros(1 << 20, dtype=torch.float16), half(1 << 20)
    assert modelled_ms(lambda: card.copy_(host)) == modelled_ms(lambda: host.copy_(card))


def test_modelled_work_of_different_engines_overlaps():
    """A transfer each way on two streams takes less than one after the other."""
    host, card = torch.zeros(1 << 20, dtype=torch.float16).pin_memory(), half(1 << 20)
    other_host, other_card = host.clone().pin_memory(), half(1 << 20)
    streams = torch.spyre.Stream(), torch.spyre.Stream()

    def both(first, second):
        with first:
            card.copy_(host, non_blocking=True)
        with second:
            other_host.copy_(other_card, non_blocking=True)
        torch.spyre.current_stream().wait_stream(first)
        torch.spyre.current_stream().wait_stream(second)

    together = modelled_ms(lambda: both(*streams))
    in_turn = modelled_ms(lambda: both(streams[0], streams[0]))
    assert together < 0.6 * in_turn


def test_modelled_time_of_an_event_is_known_before_it_passes():
    start, end = timed(), timed()
    card, host = half(1000), torch.zeros(1000, dtype=torch.float16).pin_memory()
    with torch.spyre.Stream():
        torch.spyre._sleep(NAP)
        start.record()
        card.copy_(host, non_blocking=True)
        end.record()
        assert start.modelled_elapsed_time(end) > 0
        assert not end.query()


# ----------------------------------------------------------------------------------------- counters


@pytest.mark.parametrize(
    ("dtype", "device_bytes"),
    [
        (torch.float16, 2),
        (torch.bfloat16, 2),
        (torch.bool, 2),
        (torch.float32, 4),
        (torch.int64, 4),
        (torch.int32, 4),
        (torch.uint8, 4),
        (torch.int16, 2),
        (torch.int8, 1),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:Backend Spyre does not support int64")
def test_counters_count_bytes_of_the_device_format(stopped_clock, dtype, device_bytes):
    host = torch.zeros(64, 100, dtype=dtype)
    card = torch.empty(64, 100, dtype=dtype, device="spyre")
    card.copy_(host)
    card.copy_(host)
    card.cpu()
    counters = torch.spyre.counters()
    assert (counters.transfers_to_card, counters.transfers_to_host) == (2, 1)
    assert counters.bytes_to_card == 2 * 6400 * device_bytes
    assert counters.bytes_to_host == 6400 * device_bytes
    assert counters.launches == 0


def test_counters_count_only_the_elements_of_a_view(stopped_clock):
    card = half(64 * 64).view(64, 64)
    card[3:5, 1:11].copy_(torch.zeros(2, 10))
    card.t()[0].cpu()
    counters = torch.spyre.counters()
    assert counters.bytes_to_card == 20 * 2
    assert counters.bytes_to_host == 64 * 2


def test_counters_count_launches_and_their_memory_traffic(stopped_clock):
    source, target = half(4096), half(4096)
    source.fill_(1)
    target.copy_(source)
    counters = torch.spyre.counters()
    assert counters.launches == 2
    assert counters.device_bytes_written == 2 * 8192
    assert counters.device_bytes_read == 8192
    assert (counters.bytes_to_card, counters.bytes_to_host) == (0, 0)


def test_counters_count_work_when_it_is_submitted(stopped_clock):
    card, host = half(1000), torch.zeros(1000, dtype=torch.float16).pin_memory()
    with torch.spyre.Stream() as stream:
        torch.spyre._sleep(NAP)
        card.copy_(host, non_blocking=True)
        assert torch.spyre.counters().bytes_to_card == 2000
        assert not stream.query()


def test_counters_are_per_card(stopped_clock):
    card = half(1000, "spyre:1")
    card.copy_(torch.zeros(1000, dtype=torch.float16))
    assert torch.spyre.counters(0).bytes_to_card == 0
    assert torch.spyre.counters(0).modelled_ns == 0
    assert torch.spyre.counters("spyre:1").bytes_to_card == 2000
    assert torch.spyre.counters(1).modelled_ns > 0


def test_a_copy_between_cards_counts_on_both(stopped_clock):
    source, target = half(1000, "spyre:0"), half(1000, "spyre:1")
    target.copy_(source)
    assert torch.spyre.counters(0).bytes_to_host == 2000
    assert torch.spyre.counters(1).bytes_to_card == 2000
    assert torch.spyre.counters(0).bytes_to_card == torch.spyre.counters(1).bytes_to_host == 0


def test_reset_zeroes_counters_and_clock_and_keeps_tensors():
    card = torch.full((100,), 3.0, dtype=torch.float16, device="spyre")
    torch.spyre.reset()
    counters = torch.spyre.counters()
    assert all(value == 0 for value in vars(counters).values())
    assert (card.cpu() == 3).all()


def test_reset_waits_for_queued_work():
    with torch.spyre.Stream() as stream:
        torch.spyre._sleep(NAP)
    torch.spyre.reset()
    assert stream.query()


def test_reset_of_one_card_leaves_the_other():
    half(1000, "spyre:1").zero_()
    launches = torch.spyre.counters(1).launches
    torch.spyre.reset(0)
    assert torch.spyre.counters(1).launches == launches > 0


def test_the_modelled_clock_never_goes_back(stopped_clock):
    card, times = half(1000), [0]
    for _ in range(5):
        card.fill_(1)
        card.cpu()
        times.append(torch.spyre.counters().modelled_ns)
    assert times == sorted(set(times))


def test_the_same_program_has_the_same_modelled_time_in_every_process():
    code = """
    import json, torch
    a, b = torch.spyre.Stream(), torch.spyre.Stream(priority=1)
    host = torch.randn(300, 1000).half().pin_memory()
    start, end = (torch.spyre.Event(enable_timing=True) for _ in range(2))
    with a:
        card = torch.empty(300, 1000, dtype=torch.float16, device="spyre")
        start.record()
        card.copy_(host, non_blocking=True)
        card.t()[7:].fill_(3)
    b.wait_stream(a)
    with b:
        other = card.clone()
        torch.spyre._sleep({nap})
        end.record()
    host.copy_(other, non_blocking=True)
    torch.spyre.synchronize()
    print(json.dumps([vars(torch.spyre.counters()), start.modelled_elapsed_time(end)]))
    """
    runs = [
        forked(code.format(nap=nap), SPYRE_CARD_THREADS=threads).value
        for nap, threads in ((0, 1), (0.1, 1), (0, 2), (0.05, 5))
    ]
    assert runs[0][0]["modelled_ns"] > 0
    assert all(run == runs[0] for run in runs)
