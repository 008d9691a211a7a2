"""Several cards in one process, the current device, and PyTorch's device-agnostic interface."""

import threading

import pytest
import torch

from torch_spyre import _C

pytestmark = pytest.mark.usefixtures("settled")


# ----------------------------------------------------------------------------------- current device


def test_device_0_is_current_at_first():
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.spyre.current_device()))
    thread.start()
    thread.join()
    assert seen == [0]


@pytest.mark.parametrize("device", [1, "spyre:1", torch.device("spyre", 1)], ids=str)
def test_set_device_takes_an_index_a_string_or_a_device(device):
    torch.spyre.set_device(device)
    assert torch.spyre.current_device() == 1
    assert torch.accelerator.current_device_index() == 1


def test_new_tensors_go_to_the_current_device():
    torch.spyre.set_device(1)
    assert torch.zeros(3, device="spyre").device == torch.device("spyre", 1)
    assert torch.zeros(3).to("spyre").device == torch.device("spyre", 1)
    assert torch.zeros(3).spyre().device == torch.device("spyre", 1)


def test_the_device_context_nests_and_restores():
    with torch.spyre.device(1):
        assert torch.spyre.current_device() == 1
        with torch.spyre.device("spyre:0"):
            assert torch.spyre.current_device() == 0
        assert torch.spyre.current_device() == 1
    assert torch.spyre.current_device() == 0


def test_the_device_context_restores_after_an_exception():
    with pytest.raises(KeyError), torch.spyre.device(1):
        raise KeyError
    assert torch.spyre.current_device() == 0


def test_the_torch_device_context_sets_the_default_of_factories():
    with torch.device("spyre:1"):
        assert torch.zeros(2).device == torch.device("spyre", 1)
        assert torch.spyre.current_device() == 0
    assert torch.zeros(2).device.type == "cpu"


def test_each_thread_has_its_own_current_device():
    seen = []

    def other():
        torch.spyre.set_device(1)
        seen.append(torch.zeros(1, device="spyre").device.index)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [1]
    assert torch.spyre.current_device() == 0


def test_an_operation_leaves_the_current_device_alone():
    tensor = torch.zeros(3, device="spyre:1")
    tensor.fill_(2)
    tensor.clone().cpu()
    assert torch.spyre.current_device() == 0


# ------------------------------------------------------------------------------------- out of range


@pytest.mark.parametrize(
    "use",
    [
        torch.spyre.set_device,
        torch.spyre.get_device_properties,
        torch.spyre.get_device_name,
        torch.spyre.counters,
        torch.spyre.reset,
        torch.spyre.mem_get_info,
        torch.spyre.memory_allocated,
        torch.spyre.memory.card_memory,
        torch.spyre.current_stream,
        torch.spyre.synchronize,
        torch.accelerator.set_device_index,
        torch.accelerator.synchronize,
        torch.accelerator.memory_allocated,
        lambda index: torch.zeros(2, device=f"spyre:{index}"),
        lambda index: torch.zeros(2).to(f"spyre:{index}"),
        lambda index: torch.empty(2, device=torch.device("spyre", index)),
    ],
)
def test_an_index_out_of_range_says_the_range_and_what_to_do(use):
    with pytest.raises(IndexError) as failure:
        use(2)
    message = str(failure.value)
    assert "Device index 2 out of range [0, 2)" in message
    assert "torch.spyre.device_count()" in message
    assert "SPYRE_SOFT_CARDS" in message
    assert torch.spyre.current_device() == 0


@pytest.mark.parametrize("index", [-1, 64, 100, 127, 128, 255, 256, 1000, 2**31, 2**40])
@pytest.mark.parametrize(
    "use",
    [
        torch.spyre.set_device,
        torch.spyre.get_device_properties,
        torch.spyre.counters,
        torch.spyre.memory.card_memory,
        torch.spyre.Stream,
        torch.spyre.current_stream,
        torch.spyre.synchronize,
        torch.spyre.device,
    ],
    ids=lambda use: use.__name__,
)
def test_absurd_indices_are_refused(use, index):
    with pytest.raises((IndexError, RuntimeError, ValueError, TypeError, OverflowError)):
        with torch.spyre.device(index) if use is torch.spyre.device else torch.spyre.device(0):
            use(index)
    assert torch.spyre.current_device() == 0


@pytest.mark.parametrize("index", [-2, 2, 64, 127, 128, 256, 1000])
@pytest.mark.parametrize(
    "name",
    [
        "set_device",
        "_properties",
        "_counters",
        "_reset_card",
        "_memory_info",
        "_spyre_get_allocator_stats",
        "_spyre_reset_peak_stats",
        "_spyre_reset_accumulated_stats",
    ],
)
def test_native_functions_refuse_indices_out_of_range(name, index):
    with pytest.raises((IndexError, RuntimeError)):
        getattr(_C, name)(index)


@pytest.mark.parametrize("index", [2, 64, 127, 128, 255, 256, 1000])
@pytest.mark.parametrize("name", ["get_rng_state", "initial_seed", "_get_default_generator"])
def test_native_generators_refuse_indices_out_of_range(name, index):
    with pytest.raises((IndexError, RuntimeError)):
        getattr(_C, name)(index)


def test_another_device_type_is_refused():
    for use in (torch.spyre.set_device, torch.spyre.counters, torch.spyre.get_device_properties):
        with pytest.raises(ValueError, match="expected a spyre device, got 'cpu'"):
            use("cpu")


# --------------------------------------------------------------------------------------- properties


def test_properties_describe_the_card():
    card = torch.spyre.get_device_properties(1)
    assert card.type == "dd2"
    assert card.index == 1
    assert card.multi_processor_count == 32
    assert card.total_memory == 128 << 30
    assert card.lx_bytes_per_core == 2 << 20
    assert "Spyre" in card.name


def test_properties_default_to_the_current_device():
    assert torch.spyre.get_device_properties().index == 0
    with torch.spyre.device(1):
        assert torch.spyre.get_device_properties().index == 1
        assert torch.spyre.get_device_properties("spyre").index == 1


def test_device_name_is_that_of_the_properties():
    assert torch.spyre.get_device_name(1) == torch.spyre.get_device_properties(1).name


def test_amp_dtypes_are_the_16_bit_floats():
    assert set(torch.spyre.get_amp_supported_dtype()) == {torch.float16, torch.bfloat16}


# -------------------------------------------------------------------------------------- accelerator


def test_spyre_is_the_accelerator():
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("spyre")
    assert torch.accelerator.device_count() == torch.spyre.device_count() == 2
    assert torch._C._get_privateuse1_backend_name() == "spyre"


def test_accelerator_index_is_the_current_device():
    torch.accelerator.set_device_index(1)
    assert torch.spyre.current_device() == torch.accelerator.current_device_index() == 1
    torch.accelerator.set_device_index("spyre:0")
    assert torch.spyre.current_device() == 0


def test_accelerator_device_index_context_restores():
    with torch.accelerator.device_index(1):
        assert torch.spyre.current_device() == 1
    assert torch.spyre.current_device() == 0
    with torch.accelerator.device_index(None):
        assert torch.spyre.current_device() == 0


def test_accelerator_memory_and_synchronize_take_a_device():
    torch.accelerator.synchronize(1)
    torch.accelerator.synchronize(torch.device("spyre:1"))
    assert torch.accelerator.memory_allocated(1) == torch.spyre.memory_allocated(1)


def test_accelerator_capability_lists_dtypes_of_the_card():
    dtypes = torch.accelerator.get_device_capability()["supported_dtypes"]
    assert dtypes >= {torch.float16, torch.bfloat16, torch.float32, torch.int64, torch.bool}
    assert torch.float64 not in dtypes
    assert torch.complex64 not in dtypes


def test_get_device_module_is_torch_spyre():
    assert torch.get_device_module("spyre") is torch.spyre
    assert torch.get_device_module() is torch.spyre
    assert torch.utils.backend_registration._get_custom_mod_func("device_count")() == 2


# ------------------------------------------------------------------------------------ several cards


def test_cards_hold_different_data():
    tensors = [
        torch.full((100,), float(index), dtype=torch.float16, device=f"spyre:{index}")
        for index in (0, 1)
    ]
    assert [tensor.cpu()[0].item() for tensor in tensors] == [0, 1]
    assert [tensor.device.index for tensor in tensors] == [0, 1]
    assert [tensor.get_device() for tensor in tensors] == [0, 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int32, torch.bool], ids=str)
def test_copies_between_cards_are_exact(dtype):
    source = (torch.randn(7, 65) * 100).to(dtype)
    first = source.to("spyre:0")
    second = first.to("spyre:1")
    assert second.device.index == 1
    assert torch.equal(second.cpu(), first.cpu())
    back = torch.empty_like(first)
    back.copy_(second)
    assert torch.equal(back.cpu(), first.cpu())


def test_copies_between_cards_honour_views_and_dtypes():
    first = torch.arange(60, dtype=torch.float16).view(6, 10).to("spyre:0")
    second = torch.zeros(12, 6, dtype=torch.float32, device="spyre:1")
    second[1:11].copy_(first.t())
    expected = torch.zeros(12, 6)
    expected[1:11] = torch.arange(60.0).view(6, 10).t()
    assert torch.equal(second.cpu(), expected)


def test_a_copy_between_cards_is_ordered_after_the_source_stream():
    source = torch.zeros(100, dtype=torch.float16, device="spyre:0")
    with torch.spyre.Stream(0):
        torch.spyre._sleep(0.2)
        source.fill_(4)
        copy = source.to("spyre:1")
    assert (copy.cpu() == 4).all()


def test_a_copy_between_cards_is_ordered_after_the_target_stream():
    source = torch.full((100,), 4.0, dtype=torch.float16, device="spyre:0")
    target = torch.zeros(100, dtype=torch.float16, device="spyre:1")
    with torch.spyre.Stream(1):
        torch.spyre._sleep(0.2)
        target.fill_(1)
        target.copy_(source)
    torch.spyre.synchronize()
    assert (target.cpu() == 4).all()


def test_cards_have_separate_memory_and_clocks():
    torch.spyre.synchronize()
    torch.spyre.reset(0)
    torch.spyre.reset(1)
    free = torch.spyre.mem_get_info(0)
    tensor = torch.ones(1000, dtype=torch.float16, device="spyre:1")
    assert torch.spyre.mem_get_info(0) == free
    assert torch.spyre.counters(0).modelled_ns == 0 < torch.spyre.counters(1).modelled_ns
    del tensor


def test_streams_of_different_cards_run_at_the_same_time():
    slow, fast = torch.spyre.Stream(0), torch.spyre.Stream(1)
    with slow:
        torch.spyre._sleep(0.5)
    with fast:
        assert torch.ones(10, device="spyre:1").cpu().sum() == 10
    assert not slow.query()
    slow.synchronize()


def test_device_guards_protect_against_mixed_devices():
    first, second = torch.zeros(3, device="spyre:0"), torch.zeros(3, device="spyre:1")
    assert first.device != second.device
    assert not first.is_set_to(second)
    with pytest.raises(RuntimeError):
        first.set_(second.untyped_storage())
    assert first.cpu().tolist() == second.cpu().tolist() == [0, 0, 0]


def test_is_spyre_and_the_spyre_method_name_the_device():
    tensor = torch.zeros(3).spyre(1)
    assert tensor.is_spyre
    assert tensor.device == torch.device("spyre", 1)
    assert not torch.zeros(3).is_spyre
    assert tensor.spyre(1) is tensor
    assert tensor.untyped_storage().device == torch.device("spyre", 1)
