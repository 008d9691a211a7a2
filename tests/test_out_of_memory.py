"""Out of memory: what is said, and that the device works on."""

import pytest
import torch
from device_tensors import half
from subprocesses import forked

pytestmark = pytest.mark.usefixtures("collected")


def test_out_of_memory_says_requested_free_capacity_and_largest_consumer():
    code = """
    import torch
    small = torch.empty(1 << 20, dtype=torch.float16, device="spyre")
    large = torch.empty(1000, 10000, dtype=torch.float16, device="spyre")
    try:
        torch.empty(50 << 20, dtype=torch.float16, device="spyre")
    except torch.OutOfMemoryError as error:
        print(error)
    """
    message = forked(code, SPYRE_CARD_MEMORY="64M").output
    assert f"Tried to allocate 100.00 MiB ({100 << 20} bytes)" in message
    assert "64.00 MiB" in message  # capacity
    free = (64 << 20) - (2 << 20) - 1000 * 157 * 128
    assert f"{free / (1 << 20):.2f} MiB" in message
    assert "largest of 2 live storages" in message
    assert "10000000 elements of float16" in message
    assert f"{1000 * 157 * 128 / (1 << 20):.2f} MiB" in message
    assert "spyre:0" in message
    assert "Free tensors" in message  # what to do


def test_the_device_is_usable_after_out_of_memory():
    code = """
    import json, torch
    def full(value):
        return torch.full((8 << 20,), value, dtype=torch.float16, device="spyre")
    kept = [full(1.0), full(2.0), full(3.0)]
    failures = 0
    for _ in range(5):
        try:
            kept.append(torch.empty(12 << 20, dtype=torch.float16, device="spyre"))
        except torch.OutOfMemoryError:
            failures += 1
    del kept[0]
    kept.append(full(4.0))
    values = [tensor[0].item() for tensor in kept]
    print(json.dumps([failures, torch.spyre.memory_stats()["num_ooms"], values]))
    """
    assert forked(code, SPYRE_CARD_MEMORY="64M").value == [5, 5, [2, 3, 4]]


def test_memory_is_usable_again_after_running_out_and_freeing():
    result = forked(
        """
        import torch
        tensors = []
        try:
            while True:
                tensors.append(torch.ones(256, 1024, dtype=torch.float16, device="spyre"))
        except torch.OutOfMemoryError:
            pass
        assert len(tensors) > 10
        assert all(t[255, 1023].item() == 1 for t in tensors)
        tensors.clear()
        assert torch.ones(2048, 1024, dtype=torch.float16, device="spyre").cpu().sum() == 2**21
        assert torch.spyre.memory_stats()["num_ooms"] == 1
        """,
        SPYRE_CARD_MEMORY="16M",
    )
    assert result.output == ""


def test_out_of_memory_without_any_tensor_says_so():
    code = """
    import torch
    try:
        torch.empty(50 << 20, dtype=torch.float16, device="spyre")
    except RuntimeError as error:  # OutOfMemoryError is one
        print(type(error).__name__, error)
    """
    message = forked(code, SPYRE_CARD_MEMORY="64M").output
    assert message.startswith("OutOfMemoryError")
    assert "No tensor is alive" in message


def test_a_tensor_larger_than_a_segment_is_refused_with_the_reason():
    with pytest.raises(torch.OutOfMemoryError, match=r"larger than a memory segment, 16\.00 GiB"):
        half((8 << 30) + 64)
    tensor = half(8 << 30)  # exactly one segment
    assert tensor.numel() == 8 << 30


@pytest.mark.parametrize(
    "size", [(2**62,), (2**40,), (2**58, 1), (2**57, 2), (2**33, 2**33), (2**63 - 1,)], ids=str
)
@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.uint8], ids=str)
def test_sizes_beyond_all_bounds_are_refused_and_leave_the_device_usable(size, dtype):
    with pytest.raises(RuntimeError, match=r"memory|overflow") as failure:
        torch.empty(size, dtype=dtype, device="spyre")
    assert "negative" not in str(failure.value)
    assert torch.ones(3, device="spyre").cpu().tolist() == [1, 1, 1]


def test_a_failed_allocation_counts_nothing():
    before = torch.spyre.memory_allocated(), torch.spyre.memory_stats()["num_ooms"]
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2**38, dtype=torch.float16, device="spyre")
    assert torch.spyre.memory_allocated() == before[0]
    assert torch.spyre.memory_stats()["num_ooms"] == before[1] + 1


def test_out_of_memory_waits_for_work_that_holds_freed_memory():
    code = """
    import torch
    tensor = torch.empty(20 << 20, dtype=torch.float16, device="spyre")
    host = torch.empty(20 << 20, dtype=torch.float16).pin_memory()
    torch.spyre._sleep(0.2)
    host.copy_(tensor, non_blocking=True)
    del tensor
    other = torch.empty(20 << 20, dtype=torch.float16, device="spyre")
    print(torch.spyre.memory_stats()["num_ooms"])
    """
    assert forked(code, SPYRE_CARD_MEMORY="64M").value == 0
