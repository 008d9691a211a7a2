"""Events: recorded, waited for, and the wall time between them."""

import gc
import time

import pytest
import torch
from streams import NAP, timed

pytestmark = pytest.mark.usefixtures("settled")


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
