"""Copies that are queued: order, what they keep alive, and the pinned memory they need."""

import ctypes
import gc

import numpy as np
import pytest
import torch
from device_tensors import apply_ops, counting, half
from subprocesses import forked, fresh

pytestmark = pytest.mark.usefixtures("collected")


# --------------------------------------------------------------------------------- queued transfers


def test_queued_transfer_to_the_card_keeps_its_source_alive():
    torch.spyre._sleep(0.2)
    x = torch.empty(200, 65, device="spyre")
    x.copy_(counting(200, 65).pin_memory(), non_blocking=True)  # the only reference is gone
    gc.collect()
    noise = [torch.full((200, 65), -1.0).pin_memory() for _ in range(4)]
    assert torch.equal(x.cpu(), counting(200, 65))
    del noise


def test_queued_transfer_to_the_card_returns_before_it_is_done():
    host = counting(200, 65).pin_memory()
    x = torch.empty(200, 65, device="spyre")
    torch.spyre.synchronize()
    torch.spyre._sleep(0.3)
    x.copy_(host, non_blocking=True)
    assert not torch.spyre.current_stream().query()
    torch.spyre.synchronize()
    assert torch.equal(x.cpu(), counting(200, 65))


def test_queued_transfer_to_the_host_arrives_by_synchronisation():
    x = counting(200, 65).to("spyre")
    host = torch.full((200, 65), -1.0).pin_memory()
    torch.spyre._sleep(0.3)
    host.copy_(x, non_blocking=True)
    assert not torch.spyre.current_stream().query()
    torch.spyre.synchronize()
    assert torch.equal(host, counting(200, 65))


def test_queued_transfer_to_the_host_keeps_both_sides_alive():
    x = counting(200, 65).to("spyre")
    host = torch.empty(200, 65).pin_memory()
    alias = host.numpy()  # sees the memory, and keeps it, but not the tensor
    torch.spyre._sleep(0.2)
    host.copy_(x, non_blocking=True)
    del x, host
    torch.full((200, 65), -1.0, device="spyre")  # would take the freed memory
    torch.spyre.synchronize()
    assert np.array_equal(alias, counting(200, 65).numpy())


def test_target_of_a_queued_transfer_may_be_dropped():
    torch.spyre._sleep(0.1)
    torch.empty(200, 65, device="spyre").copy_(counting(200, 65).pin_memory(), non_blocking=True)
    torch.empty(200, 65).pin_memory().copy_(counting(200, 65).to("spyre"), non_blocking=True)
    gc.collect()
    torch.spyre.synchronize()
    assert torch.equal(counting(200, 65).to("spyre").cpu(), counting(200, 65))


def test_non_blocking_from_pageable_memory_may_change_its_source_at_once():
    host = counting(200, 65)
    x = torch.empty(200, 65, device="spyre")
    torch.spyre._sleep(0.1)
    x.copy_(host, non_blocking=True)
    host.fill_(-1)
    assert torch.equal(x.cpu(), counting(200, 65))


def test_non_blocking_to_pageable_memory_is_done_on_return():
    x = counting(200, 65).to("spyre")
    torch.spyre._sleep(0.1)
    host = torch.empty(200, 65).copy_(x, non_blocking=True)
    assert torch.equal(host, counting(200, 65))


def test_non_blocking_to_the_cpu_is_queued_into_pinned_memory():
    x = counting(200, 65).to("spyre")
    host = x.to("cpu", non_blocking=True)
    assert host.is_pinned()
    torch.spyre.synchronize()
    assert torch.equal(host, counting(200, 65))


@pytest.mark.parametrize("ops", [[("permute", (1, 0))], [("slice", 1, 3, 60, 2)]])
def test_queued_transfer_of_pinned_views(ops):
    view = apply_ops(counting(200, 65).pin_memory(), ops)
    x = view.to("spyre", non_blocking=True)
    y = torch.empty(200, 65, device="spyre")
    apply_ops(y, ops).copy_(view, non_blocking=True)
    torch.spyre.synchronize()
    assert torch.equal(x.cpu(), apply_ops(counting(200, 65), ops))
    assert torch.equal(apply_ops(y, ops).cpu(), apply_ops(counting(200, 65), ops))


def test_queued_transfers_run_in_order():
    x = torch.empty(100, device="spyre")
    hosts = [torch.full((100,), float(i)).pin_memory() for i in range(20)]
    results = [torch.empty(100).pin_memory() for _ in hosts]
    for host, result in zip(hosts, results, strict=True):
        x.copy_(host, non_blocking=True)
        result.copy_(x, non_blocking=True)
    torch.spyre.synchronize()
    assert [result[99].item() for result in results] == list(range(20))


# ----------------------------------------------------------------------------- pinned, non_blocking


def test_non_blocking_copies_arrive():
    host = counting(100, 200).pin_memory()
    assert host.is_pinned()
    card = host.to("spyre", non_blocking=True)
    back = torch.empty_like(host, pin_memory=True).copy_(card, non_blocking=True)
    torch.spyre.synchronize()
    assert torch.equal(back, host)


def test_the_host_buffer_of_a_non_blocking_copy_may_be_forgotten():
    expected = counting(300, 400)
    torch.spyre._sleep(0.02)
    card = expected.clone().pin_memory().to("spyre", non_blocking=True)
    junk = [torch.zeros(300, 400).pin_memory() for _ in range(3)]
    assert torch.equal(card.cpu(), expected)
    del junk


def test_non_blocking_from_pageable_memory_has_read_it_when_it_returns():
    host = counting(100, 200)
    expected = host.clone()
    torch.spyre._sleep(0.02)
    card = host.to("spyre", non_blocking=True)
    host.zero_()
    assert torch.equal(card.cpu(), expected)


# -------------------------------------------------------------------------------- lifetimes of work


def test_queued_work_keeps_device_memory_until_it_is_done():
    tensor = torch.full((64, 64), 7.0, dtype=torch.float16, device="spyre")
    host = torch.zeros(64, 64, dtype=torch.float16).pin_memory()
    card_before = torch.spyre.memory.card_memory().allocations
    before = torch.spyre.memory_allocated()
    stream = torch.spyre.Stream()
    with stream:
        torch.spyre._sleep(0.3)
        host.copy_(tensor, non_blocking=True)
    del tensor
    assert torch.spyre.memory_allocated() == before - 8192  # visible at once
    assert torch.spyre.memory.card_memory().allocations == card_before  # but not reused
    others = [torch.full((64, 64), 9.0, dtype=torch.float16, device="spyre") for _ in range(8)]
    stream.synchronize()
    assert (host == 7).all()
    del others
    assert torch.spyre.memory.card_memory().allocations == card_before - 1


def test_queued_work_keeps_pinned_source_memory():
    target = torch.zeros(64, 64, dtype=torch.float16, device="spyre")
    source = torch.full((64, 64), 5.0, dtype=torch.float16).pin_memory()
    stream = torch.spyre.Stream()
    with stream:
        torch.spyre._sleep(0.3)
        target.copy_(source, non_blocking=True)
    del source
    others = [torch.full((64, 64), 1.0, dtype=torch.float16).pin_memory() for _ in range(8)]
    stream.synchronize()
    assert (target.cpu() == 5).all()
    del others


def test_queued_work_keeps_pinned_memory_that_numpy_owns():
    target = torch.zeros(64, dtype=torch.float16, device="spyre")
    source = torch.from_numpy(torch.full((64,), 3.0, dtype=torch.float16).pin_memory().numpy())
    assert source.is_pinned()
    stream = torch.spyre.Stream()
    with stream:
        torch.spyre._sleep(0.3)
        target.copy_(source, non_blocking=True)
    del source  # the worker releases it, which needs the interpreter lock
    stream.synchronize()
    assert (target.cpu() == 3).all()


def test_unpinned_memory_may_change_after_a_non_blocking_copy():
    source = torch.full((64,), 5.0, dtype=torch.float16)
    target = torch.empty(64, dtype=torch.float16, device="spyre")
    with torch.spyre.Stream():
        torch.spyre._sleep(0.1)
        target.copy_(source, non_blocking=True)
        source.zero_()
        assert (target.cpu() == 5).all()


# ------------------------------------------------------------------------------------ pinned memory


def test_pin_memory_gives_a_pinned_copy():
    source = torch.randn(100)
    pinned = source.pin_memory()
    assert pinned.is_pinned()
    assert not source.is_pinned()
    assert pinned.device.type == "cpu"
    assert torch.equal(source, pinned)
    assert pinned.pin_memory() is pinned


def test_factories_make_pinned_memory():
    assert torch.empty(10, pin_memory=True).is_pinned()
    assert torch.zeros(10, pin_memory=True).tolist() == [0] * 10
    assert torch.randn(10, pin_memory=True).is_pinned()


def test_views_of_pinned_memory_are_pinned():
    pinned = torch.empty(10, 10, pin_memory=True)
    assert pinned[9:].is_pinned()
    assert pinned.t().is_pinned()
    assert not pinned.clone().is_pinned()


def test_device_tensors_are_not_pinned_and_cannot_be():
    tensor = half(10)
    assert not tensor.is_pinned()
    with pytest.raises(RuntimeError, match="pin"):
        tensor.pin_memory()


def test_pinned_memory_is_forgotten_when_freed():
    for _ in range(50):
        pinned = torch.empty(1 << 16, pin_memory=True)
        del pinned
    assert not any(torch.empty(1 << 16).is_pinned() for _ in range(50))


def test_pinned_memory_transfers_both_ways():
    source = torch.arange(1000, dtype=torch.float32).pin_memory()
    back = torch.empty(1000, pin_memory=True)
    tensor = source.to("spyre", non_blocking=True)
    back.copy_(tensor, non_blocking=True)
    torch.spyre.synchronize()
    assert torch.equal(source, back)


def test_the_data_loader_pins_for_spyre():
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True)
    assert [batch[0].is_pinned() for batch in loader] == [True, True]


# ------------------------------------------------------------------------- pinned memory is kept


@pytest.fixture
def no_pinned_memory():
    """None that is kept for reuse."""
    gc.collect()
    torch.spyre.synchronize()
    torch.accelerator.empty_host_cache()
    torch.spyre.reset_accumulated_host_memory_stats()
    torch.spyre.reset_peak_host_memory_stats()


def pinned(name):
    return torch.spyre.host_memory_stats()[name]


@pytest.mark.usefixtures("no_pinned_memory")
def test_pinned_memory_is_kept_for_the_next_of_its_size():
    before = pinned("allocated_bytes.current"), pinned("active_bytes.current")
    first = torch.ones(50_000).pin_memory()
    size = pinned("active_bytes.current") - before[1]
    assert 200_000 <= size < 200_000 + 65_536  # a page more, at most
    address = first.data_ptr()
    del first
    assert pinned("active_bytes.current") == before[1]
    assert pinned("allocated_bytes.current") == before[0] + size
    again = torch.ones(50_000).pin_memory()
    assert again.data_ptr() == address
    assert again.is_pinned()
    assert (pinned("num_host_alloc"), pinned("num_host_free")) == (1, 0)
    assert pinned("active_bytes.peak") == before[1] + size
    del again
    torch.accelerator.empty_host_cache()
    assert pinned("allocated_bytes.current") == before[0]
    assert pinned("num_host_free") == 1
    assert pinned("host_free_time.count") == 1


@pytest.mark.usefixtures("no_pinned_memory")
def test_what_is_kept_is_not_pinned_for_anybody():
    address = torch.ones(1000).pin_memory().data_ptr()
    other = torch.from_numpy(np.ctypeslib.as_array((ctypes.c_float * 4).from_address(address)))
    assert not other.is_pinned()


@pytest.mark.usefixtures("no_pinned_memory")
def test_memory_of_work_in_flight_is_not_given_to_others():
    x = torch.empty(1000, device="spyre")
    torch.spyre._sleep(0.2)
    x.copy_(torch.full((1000,), 3.0).pin_memory(), non_blocking=True)
    torch.full((1000,), 4.0).pin_memory()
    assert x.cpu().unique().tolist() == [3]


@pytest.mark.usefixtures("no_pinned_memory")
def test_not_all_that_is_freed_is_kept():
    before = pinned("allocated_bytes.current")
    tensors = [torch.empty(24 << 20, dtype=torch.uint8, pin_memory=True) for _ in range(12)]
    assert len({tensor.data_ptr() for tensor in tensors}) == 12
    del tensors
    assert pinned("allocated_bytes.current") - before == 240 << 20
    torch.spyre.memory.empty_host_cache()
    assert pinned("allocated_bytes.current") == before


def test_emptying_the_cache_of_the_host_needs_no_device():
    code = """
        import torch
        torch.accelerator.empty_host_cache()
        kept = torch.spyre.host_memory_stats()["allocations.current"]
        print([torch.spyre.is_initialized(), kept])
    """
    assert forked(code).output == "[False, 0]"


def test_a_forked_child_may_free_its_parents_memory_while_threads_pin():
    code = """
        import os, threading, torch
        kept = [torch.ones(10 + i).pin_memory() for i in range(20)]
        ended = threading.Event()

        def pin():
            while not ended.is_set():
                torch.empty(100, pin_memory=True)

        threads = [threading.Thread(target=pin) for _ in range(3)]
        for thread in threads:
            thread.start()
        statuses = []
        for _ in range(20):
            child = os.fork()
            if child == 0:
                kept.clear()
                os._exit(0)
            statuses.append(os.waitpid(child, 0)[1])
        ended.set()
        for thread in threads:
            thread.join()
        print(statuses)
    """
    assert fresh(code).value == [0] * 20
