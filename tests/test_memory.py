"""Device memory: statistics, freeing, and what host code may see of it."""

import gc
import weakref

import pytest
import torch
from device_tensors import half
from subprocesses import forked

from torch_spyre import _C

pytestmark = pytest.mark.usefixtures("collected")


# --------------------------------------------------------------------------------------- statistics


def test_64x64_float16_takes_8192_bytes():
    before = torch.spyre.memory_allocated()
    tensor = half(64, 64)
    assert torch.spyre.memory_allocated() - before == 8192
    del tensor


@pytest.mark.parametrize(
    ("size", "dtype", "expected"),
    [
        ((1,), torch.float16, 128),  # one stick
        ((64,), torch.float16, 128),
        ((65,), torch.float16, 256),
        ((32,), torch.float32, 128),
        ((32,), torch.int64, 128),  # 32 bits on the card
        ((128,), torch.int8, 128),
        ((3, 65), torch.float16, 768),  # two sticks a row
        ((), torch.float16, 128),
    ],
)
@pytest.mark.filterwarnings("ignore:Backend Spyre does not support int64")
def test_memory_counts_sticks_of_the_device_format(size, dtype, expected):
    before = torch.spyre.memory_allocated()
    tensor = torch.empty(size, dtype=dtype, device="spyre")
    assert torch.spyre.memory_allocated() - before == expected
    del tensor


def test_accelerator_and_spyre_report_the_same():
    tensor = half(100, 100)
    assert torch.accelerator.memory_allocated() == torch.spyre.memory_allocated() > 0
    assert torch.accelerator.memory_reserved() == torch.spyre.memory_reserved()
    assert torch.accelerator.memory.memory_stats() == torch.spyre.memory.memory_stats()
    assert torch.accelerator.get_memory_info() == torch.spyre.mem_get_info()
    del tensor


def test_statistics_take_an_index_a_device_or_a_string():
    tensor = half(64, 64, device="spyre:1")
    expected = torch.spyre.memory_allocated(1)
    assert expected >= 8192
    assert torch.spyre.memory_allocated("spyre:1") == expected
    assert torch.spyre.memory_allocated(torch.device("spyre", 1)) == expected
    assert torch.accelerator.memory_allocated("spyre:1") == expected
    del tensor


def test_statistics_are_per_device():
    before = [torch.spyre.memory_allocated(device) for device in (0, 1)]
    tensor = half(64, 64, device="spyre:1")
    after = [torch.spyre.memory_allocated(device) for device in (0, 1)]
    assert [b - a for a, b in zip(before, after, strict=True)] == [0, 8192]
    del tensor


def test_statistics_default_to_the_current_device():
    tensor = half(64, 64, device="spyre:1")
    with torch.spyre.device(1):
        assert torch.spyre.memory_allocated() == torch.spyre.memory_allocated(1)
        assert torch.accelerator.memory_allocated() == torch.spyre.memory_allocated(1)
    del tensor


def test_peak_stays_after_the_tensor_is_gone():
    torch.spyre.reset_peak_memory_stats()
    start = torch.spyre.max_memory_allocated()
    tensor = half(1024, 1024)
    del tensor
    assert torch.spyre.max_memory_allocated() - start == 2 << 20
    assert torch.accelerator.max_memory_allocated() == torch.spyre.max_memory_allocated()
    assert torch.spyre.max_memory_reserved() >= torch.spyre.max_memory_allocated()


def test_reset_peak_starts_from_what_is_allocated():
    kept = half(64, 64)
    big = half(1024, 1024)
    del big
    torch.spyre.reset_peak_memory_stats()
    assert torch.spyre.max_memory_allocated() == torch.spyre.memory_allocated() >= 8192
    del kept


def test_reset_peak_of_one_device_leaves_the_other():
    tensor = half(1024, 1024, device="spyre:1")
    del tensor
    peak = torch.spyre.max_memory_allocated(1)
    torch.accelerator.reset_peak_memory_stats(0)
    assert torch.spyre.max_memory_allocated(1) == peak
    torch.accelerator.reset_peak_memory_stats(1)
    assert torch.spyre.max_memory_allocated(1) < peak


def test_reset_accumulated_clears_the_totals_only():
    kept = half(64, 64)
    torch.spyre.reset_accumulated_memory_stats()
    stats = torch.spyre.memory_stats()
    assert stats["allocated_bytes.all.allocated"] == 0
    assert stats["allocated_bytes.all.freed"] == 0
    assert stats["num_device_alloc"] == 0
    assert stats["allocated_bytes.all.current"] == torch.spyre.memory_allocated() >= 8192
    del kept
    assert torch.spyre.memory_stats()["allocated_bytes.all.freed"] == 8192


def test_memory_stats_have_the_keys_of_the_accelerator_api():
    tensor = half(64, 64)
    stats = torch.accelerator.memory_stats()
    kinds = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes")
    for kind in (*kinds, "allocation", "segment", "active"):
        for what in ("current", "peak", "allocated", "freed"):
            assert f"{kind}.all.{what}" in stats
    for counter in ("num_ooms", "num_alloc_retries", "num_device_alloc", "num_device_free"):
        assert counter in stats
    del tensor


def test_memory_stats_count_allocations_and_frees():
    torch.spyre.reset_accumulated_memory_stats()
    before = torch.spyre.memory_stats()
    tensors = [half(64, 64) for _ in range(5)]
    del tensors[:2]
    stats = torch.spyre.memory_stats()
    assert stats["allocation.all.allocated"] == 5
    assert stats["allocation.all.freed"] == 2
    assert stats["allocation.all.current"] - before["allocation.all.current"] == 3
    assert stats["allocated_bytes.all.allocated"] == 5 * 8192
    assert stats["allocated_bytes.all.freed"] == 2 * 8192


def test_native_statistics_have_the_public_keys():
    tensor = half(64, 64)
    stats = _C._spyre_get_allocator_stats(0)
    assert set(stats) >= {"allocated_bytes.all.current", "allocation.all.current"}
    assert stats["allocated_bytes.all.current"] == torch.spyre.memory_allocated()
    del tensor


def test_native_resets_work_per_device():
    tensor = half(1024, 1024)
    del tensor
    _C._spyre_reset_peak_stats(0)
    assert torch.spyre.max_memory_allocated(0) == torch.spyre.memory_allocated(0)
    _C._spyre_reset_accumulated_stats(0)
    assert torch.spyre.memory_stats(0)["allocation.all.allocated"] == 0


def test_memory_info_shows_free_and_total():
    free, total = torch.spyre.mem_get_info()
    assert total == 7 * 16 << 30  # the tensor segments of a 128 GiB card
    tensor = half(1024, 1024)
    assert torch.spyre.mem_get_info() == (free - (2 << 20), total)
    assert torch.accelerator.get_memory_info("spyre:0") == (free - (2 << 20), total)
    del tensor
    assert torch.spyre.mem_get_info() == (free, total)


def test_card_memory_agrees_with_the_allocator():
    tensors = [half(64, 64), half(100)]
    card = torch.spyre.memory.card_memory()
    assert card.capacity - card.free == torch.spyre.memory_allocated()
    assert card.allocations == torch.spyre.memory_stats()["allocation.all.current"]
    assert 0 < card.largest_free_block <= card.free
    del tensors


def test_a_failed_lookup_names_the_range():
    for query in (torch.spyre.memory_allocated, torch.spyre.memory_stats, torch.spyre.mem_get_info):
        with pytest.raises((IndexError, RuntimeError), match=r"out of range \[0, 2\)"):
            query(2)


# ------------------------------------------------------------------------------------------ freeing


def test_memory_is_freed_when_the_last_reference_goes():
    gc.disable()
    try:
        before = torch.spyre.memory_allocated(), torch.spyre.mem_get_info()
        tensor = half(64, 64)
        alias = tensor
        del tensor
        assert torch.spyre.memory_allocated() - before[0] == 8192
        del alias
        assert (torch.spyre.memory_allocated(), torch.spyre.mem_get_info()) == before
    finally:
        gc.enable()


def test_rebinding_a_name_frees_the_old_tensor():
    tensor = half(64, 64)
    before = torch.spyre.memory_allocated()
    tensor = half(128, 64)
    assert torch.spyre.memory_allocated() - before == 8192
    del tensor


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t[3],
        lambda t: t.t(),
        lambda t: t.view(-1)[100:],
        lambda t: t.expand(2, 64, 64),
        lambda t: t.detach(),
        lambda t: t.untyped_storage(),
    ],
    ids=["row", "transpose", "slice", "expand", "detach", "storage"],
)
def test_a_view_keeps_the_memory_alive(view):
    before = torch.spyre.memory_allocated()
    tensor = torch.zeros(64, 64, dtype=torch.float16, device="spyre")
    part = view(tensor)
    assert torch.spyre.memory_allocated() - before == 8192  # no copy
    del tensor
    assert torch.spyre.memory_allocated() - before == 8192
    del part
    assert torch.spyre.memory_allocated() == before


def test_autograd_releases_device_memory_with_the_graph():
    before = torch.spyre.memory_allocated()
    leaf = torch.zeros(64, 64, dtype=torch.float16, device="spyre", requires_grad=True)
    out = leaf.cpu().sum()
    watched = weakref.ref(leaf)
    del leaf, out
    assert watched() is None
    assert torch.spyre.memory_allocated() == before


def test_an_exception_during_a_copy_leaks_nothing():
    before = torch.spyre.memory_allocated()
    tensor = half(64, 64)
    with pytest.raises(RuntimeError):
        tensor.copy_(torch.zeros(3, 3, dtype=torch.float16))
    del tensor
    assert torch.spyre.memory_allocated() == before


def test_zero_byte_tensors_take_no_memory():
    before = torch.spyre.memory_stats()["allocation.all.current"]
    tensors = [half(0), half(0, 64), half(3, 0, 5)]
    assert torch.spyre.memory_stats()["allocation.all.current"] == before
    assert [tensor.data_ptr() for tensor in tensors] == [0, 0, 0]
    assert [tensor.cpu().shape for tensor in tensors] == [(0,), (0, 64), (3, 0, 5)]


def test_zero_byte_tensors_of_a_missing_device_are_refused():
    with pytest.raises((IndexError, RuntimeError), match=r"out of range \[0, 2\)"):
        half(0, device="spyre:2")


def test_empty_cache_gives_freed_memory_back_to_the_host():
    tensor = torch.ones(4 << 20, dtype=torch.float16, device="spyre")
    backed = torch.spyre.memory.card_memory().backed
    assert backed >= 8 << 20
    del tensor
    torch.spyre.empty_cache()
    assert torch.spyre.memory.card_memory().backed <= backed - (8 << 20)


def test_empty_cache_leaves_live_tensors_alone():
    tensor = torch.ones(1000, dtype=torch.float16, device="spyre")
    torch.accelerator.empty_cache()
    assert torch.equal(tensor.cpu(), torch.ones(1000, dtype=torch.float16))


def test_reused_memory_of_a_freed_tensor_does_not_disturb_others():
    keep = [torch.full((64, 64), float(i), dtype=torch.float16, device="spyre") for i in range(20)]
    for victim in range(0, 20, 2):
        keep[victim] = None
    new = [torch.full((64, 64), 100.0, dtype=torch.float16, device="spyre") for _ in range(30)]
    for i in range(1, 20, 2):
        assert (keep[i].cpu() == i).all()
    assert all((tensor.cpu() == 100).all() for tensor in new)


HOST_MEMORY = """
    import torch
    def resident():
        with open("/proc/self/status") as status:
            line = next(line for line in status if line.startswith("RssAnon"))
        return int(line.split()[1]) // 1024  # MiB
    torch.ones(8, device="spyre").cpu()
    start = resident()
"""


def test_freed_memory_is_returned_to_the_host():
    code = (
        HOST_MEMORY
        + """
    tensor = torch.empty(256 << 20, dtype=torch.float16, device="spyre")
    tensor.fill_(1)
    full = resident()
    del tensor
    freed = resident()
    print([start, full, freed])
    """
    )
    start, full, freed = forked(code).value
    assert full - start >= 512
    assert freed - start <= 32


def test_small_freed_tensors_are_returned_beyond_a_bounded_rest():
    code = (
        HOST_MEMORY
        + """
    tensors = [torch.ones(2 << 20, dtype=torch.float16, device="spyre") for _ in range(64)]
    torch.spyre.synchronize()  # memory is backed when it is written
    full = resident()
    del tensors
    freed = resident()
    torch.spyre.empty_cache()
    print([start, full, freed, resident()])
    """
    )
    start, full, freed, trimmed = forked(code, SPYRE_CARD_WARM_BYTES="16M").value
    assert full - start >= 256
    assert freed - start <= 16 + 16
    assert trimmed - start <= 16


def test_a_10_gib_tensor_is_not_backed_until_touched():
    code = (
        HOST_MEMORY
        + """
    tensor = torch.empty(5 << 30, dtype=torch.float16, device="spyre")
    allocated = torch.spyre.memory_allocated()
    tensor[-3:].fill_(7)
    print([resident() - start, allocated, tensor[-4:].cpu()[1:].tolist()])
    """
    )
    grown, allocated, values = forked(code).value
    assert grown <= 64
    assert allocated >= 10 << 30
    assert values == [7, 7, 7]


def test_the_whole_address_space_can_be_allocated():
    code = (
        HOST_MEMORY
        + """
    tensors = [torch.empty(8 << 30, dtype=torch.float16, device="spyre") for _ in range(7)]
    print([resident() - start, torch.spyre.mem_get_info()[0]])
    """
    )
    grown, free = forked(code).value
    assert grown <= 64
    assert free < 1 << 20  # only the small tensor of the start is missing


def test_ten_thousand_iterations_leak_nothing():
    code = (
        HOST_MEMORY
        + """
    source = torch.randn(64, 64).half()
    pinned = source.pin_memory()
    back = torch.empty_like(source)
    def loop(count):
        for _ in range(count):
            tensor = source.to("spyre")
            back.copy_(tensor)
            tensor.copy_(pinned, non_blocking=True)
            tensor[3:].zero_()
            del tensor
        torch.spyre.synchronize()
    loop(1000)
    start, allocated = resident(), torch.spyre.memory_allocated()
    loop(10_000)
    card = torch.spyre.memory.card_memory()
    print([resident() - start, torch.spyre.memory_allocated() - allocated, card.allocations])
    """
    )
    grown, allocated, allocations = forked(code).value
    assert (allocated, allocations) == (0, 0)
    assert grown <= 8


# ---------------------------------------------------------------------------- what the host may see


def test_no_device_address_is_shown_to_python():
    """But for data_ptr(), which faults, and the handle of a stream: PyTorch has both."""
    names = {
        f"{owner}.{name}"
        for owner in dir(_C)
        for name in set(dir(getattr(_C, owner))) - set(dir(torch.Stream))
    }
    assert not [name for name in names | set(dir(_C)) if "address" in name or "handle" in name]


def test_host_code_that_dereferences_a_device_pointer_faults():
    code = """
    import ctypes, torch
    tensor = torch.ones(64, dtype=torch.float16, device="spyre")
    {access}(tensor.data_ptr(), {argument})
    """
    read = forked(code.format(access="ctypes.string_at", argument="2"))
    assert read.returncode == -11, read
    write = forked(code.format(access="ctypes.memset", argument="0, 2"))
    assert write.returncode == -11, write


def test_different_tensors_have_different_pointers():
    tensors = [half(64) for _ in range(100)] + [half(64, device="spyre:1") for _ in range(100)]
    assert len({tensor.data_ptr() for tensor in tensors}) == 200
    assert all(tensor.data_ptr() % 128 == 0 for tensor in tensors)
