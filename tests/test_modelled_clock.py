"""The modelled clock and the counters of a card."""

import time

import pytest
import torch
from device_tensors import half
from streams import NAP, timed
from subprocesses import forked

pytestmark = pytest.mark.usefixtures("settled")


@pytest.fixture
def stopped_clock():
    """Both cards' counters and modelled clocks at zero."""
    torch.spyre.reset(0)
    torch.spyre.reset(1)


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
    other_host, other_card = host.clone().pin_memory(), half(1 << 20).zero_()
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
    card = half(64 * 64).zero_().view(64, 64)
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
    card = half(1000, device="spyre:1")
    card.copy_(torch.zeros(1000, dtype=torch.float16))
    assert torch.spyre.counters(0).bytes_to_card == 0
    assert torch.spyre.counters(0).modelled_ns == 0
    assert torch.spyre.counters("spyre:1").bytes_to_card == 2000
    assert torch.spyre.counters(1).modelled_ns > 0


def test_a_copy_between_cards_counts_on_both(stopped_clock):
    source, target = half(1000, device="spyre:0").zero_(), half(1000, device="spyre:1")
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
    half(1000, device="spyre:1").zero_()
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
