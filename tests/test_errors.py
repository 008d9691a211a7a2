"""Bad input: an exception that says what, why and what to do; the device works on, nothing is lost.

The last part throws several hundred odd calls at the API in one process. None may end it, and
after each the device must still do its work.
"""

import json

import pytest
import torch
from subprocesses import forked, fresh

from torch_spyre import _C
from torch_spyre._C import DataFormats, SpyreTensorLayout, empty_with_layout


@pytest.fixture(autouse=True)
def _the_device_works_before_and_after():
    def check() -> None:
        host = torch.arange(300, dtype=torch.int32).reshape(3, 100)
        assert torch.equal(host.to("spyre").t().contiguous().cpu(), host.t())

    check()
    yield
    check()


# ------------------------------------------------------------------------------------------- dtypes

NOT_ON_THE_CARD = {
    torch.float64: "float32",
    torch.complex64: "real and imaginary",
    torch.complex128: "real and imaginary",
    torch.float8_e5m2: "float8_e4m3fn",
    torch.float8_e4m3fnuz: "float8_e4m3fn",
    torch.uint16: "int32",
    torch.uint32: "int32",
    torch.uint64: "int64",
    torch.float8_e8m0fnu: "supported dtype",
    torch.bits8: "supported dtype",
}


@pytest.mark.parametrize("dtype", NOT_ON_THE_CARD, ids=str)
def test_a_dtype_the_card_has_not_is_refused_with_an_alternative(dtype):
    name = str(dtype)
    for make in (
        lambda: torch.empty(3, dtype=dtype, device="spyre"),
        lambda: torch.empty(3, dtype=dtype).to("spyre"),
        lambda: torch.ones(3, device="spyre").to(dtype),
        lambda: torch.empty_like(torch.ones(3, device="spyre"), dtype=dtype),
        lambda: SpyreTensorLayout([3], dtype),
    ):
        with pytest.raises(TypeError, match=f"does not support dtype {name}: ") as error:
            make()
        assert NOT_ON_THE_CARD[dtype] in str(error.value)
        assert "Supported are float16" in str(error.value)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.bits8, torch.float8_e8m0fnu], ids=str)
def test_a_dtype_no_transfer_can_read_is_refused(dtype):
    card = torch.ones(3, device="spyre")
    for copy in (
        lambda: card.copy_(torch.empty(3, dtype=dtype)),
        lambda: torch.empty(3, dtype=dtype).copy_(card),
    ):
        with pytest.raises(TypeError, match=f"Unsupported CPU tensor dtype .*{dtype}"):
            copy()
    assert card.tolist() == [1.0] * 3


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (torch.int8, 1000),
        (torch.int16, 2**20),
        (torch.int32, 2**40),
        (torch.int32, float("nan")),
        (torch.float16, 1e10),
        (torch.float32, 1j),
        (torch.uint8, 256),
    ],
    ids=str,
)
def test_fill_values_that_do_not_fit_are_refused_as_on_the_cpu(dtype, value):
    card, host = torch.ones(3, dtype=dtype, device="spyre"), torch.ones(3, dtype=dtype)
    for tensor in (card, host):
        with pytest.raises(RuntimeError, match="without overflow"):
            tensor.fill_(value)
    assert card.tolist() == [1] * 3


# ------------------------------------------------------------------------------ formats and layouts


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(1, 2, 3, 4, device="spyre", memory_format=torch.channels_last),
        lambda: torch.ones(1, 2, 3, 4, device="spyre").contiguous(
            memory_format=torch.channels_last
        ),
        lambda: torch.ones(1, 2, 3, 4, device="spyre").to(memory_format=torch.channels_last),
        lambda: torch.ones(1, 2, 3, 4).to("spyre", memory_format=torch.channels_last),
        lambda: torch.ones(1, 2, 3, 4, 5, device="spyre").clone(
            memory_format=torch.channels_last_3d
        ),
        lambda: torch.ones(3, device="spyre").resize_(
            1, 2, 3, 4, memory_format=torch.channels_last
        ),
    ],
)
def test_channels_last_is_an_order_of_strides(make):
    x = make()
    format = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    assert x.is_contiguous(memory_format=format)
    assert x.stride(1) == 1
    x.copy_(torch.arange(float(x.numel())).reshape(x.shape))
    assert torch.equal(x.cpu().flatten(), torch.arange(float(x.numel())))


def test_channels_last_needs_a_matching_rank():
    with pytest.raises(RuntimeError, match="required rank 4"):
        torch.empty(2, 3, device="spyre", memory_format=torch.channels_last)


def test_a_channels_last_host_tensor_is_moved_all_the_same():
    host = torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)
    assert torch.equal(host.to("spyre").cpu(), host)


def test_pinned_device_tensors_are_refused():
    with pytest.raises(RuntimeError, match="Pin memory can only be on CPU"):
        torch.empty(3, device="spyre", pin_memory=True)


SMALL = SpyreTensorLayout([2, 40], torch.float16)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(200, 40, dtype=torch.float16, device_layout=SMALL),
        lambda: torch.ones(200, 40, dtype=torch.float16).to(device_layout=SMALL),
        lambda: torch.ones(200, 40, dtype=torch.float16, device="spyre").to(device_layout=SMALL),
        lambda: empty_with_layout([200, 40], SMALL, torch.float16),
    ],
)
def test_a_layout_that_does_not_fit_the_tensor_is_refused(make):
    with pytest.raises(ValueError, match="has no place for some elements") as error:
        make()
    assert "[200, 40]" in str(error.value)
    assert "SpyreTensorLayout(device_size=[1, 2, 64]" in str(error.value)


def test_a_layout_of_another_format_is_refused():
    with pytest.raises(
        ValueError,
        match="float32 tensor has the device format IEEE_FP32, the layout has SEN169_FP16",
    ):
        torch.empty(2, 40, dtype=torch.float32, device_layout=SMALL)


def test_a_layout_on_another_device_is_refused():
    for device in ("cpu", "meta"):
        with pytest.raises(ValueError, match=f"needs device='spyre', got {device}"):
            torch.empty(2, 40, dtype=torch.float16, device_layout=SMALL, device=device)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([3, 4], [4, 1], torch.float16, [0, 0]), ValueError, "not a permutation"),
        (([3, 4], [4, 1], torch.float16, [0]), ValueError, "Incompatible host_size and dim_order"),
        (([3, 4], [4], torch.float16, [0, 1]), ValueError, "host_strides has 1"),
        (([-3], torch.float16), ValueError, "negative"),
        (([2] * 9, torch.float16), RuntimeError, "Unsupported tensor rank: 9"),
        (([64], [1, 2], DataFormats.SEN169_FP16), ValueError, "stride_map has 2"),
        (([65], [1], DataFormats.SEN169_FP16), ValueError, "at most 64 elements"),
        (([64], [1], DataFormats.INVALID), ValueError, "not a format of device tensors"),
        (([64], [-2], DataFormats.SEN169_FP16), ValueError, r"-1 \(synthetic\)"),
        (([2**32, 2**32, 64], [-1, -1, 1], DataFormats.SEN169_FP16), ValueError, "large|overflow"),
    ],
    ids=str,
)
def test_layouts_that_make_no_sense_are_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        SpyreTensorLayout(*arguments)


# ------------------------------------------------------------------------------------------ devices


@pytest.mark.parametrize("index", [2, 9, 127])
@pytest.mark.parametrize(
    "use",
    [
        lambda i: torch.empty(3, device=f"spyre:{i}"),
        lambda i: torch.ones(3).to(f"spyre:{i}"),
        lambda i: torch.ones(3, device="spyre").to(torch.device("spyre", i)),
        lambda i: torch.spyre.set_device(i),
        lambda i: torch.spyre.get_device_properties(i),
        lambda i: torch.spyre.synchronize(i),
        lambda i: torch.spyre.Stream(i),
        lambda i: torch.spyre.memory_allocated(i),
        lambda i: torch.spyre.mem_get_info(i),
        lambda i: torch.accelerator.set_device_index(i),
        lambda i: torch.Generator(device=f"spyre:{i}"),
        lambda i: torch.spyre.device(i).__enter__(),
    ],
)
def test_a_device_index_out_of_range_is_refused(use, index):
    with pytest.raises(IndexError, match=rf"{index}.*\b2\b"):
        use(index)
    assert torch.spyre.current_device() == 0


def test_the_device_index_message_says_what_chooses_devices():
    with pytest.raises(IndexError, match="SPYRE_SOFT_CARDS"):
        torch.empty(3, device="spyre:9")


def test_other_device_types_are_refused_by_name():
    for use in (torch.spyre.set_device, torch.spyre.get_device_name, torch.spyre.Stream):
        with pytest.raises(ValueError, match="expected a spyre device, got 'cpu'"):
            use("cpu")


# ------------------------------------------------------------------------------------ out of memory


def test_out_of_memory_says_requested_free_capacity_and_the_largest_consumer():
    text = forked(
        """
        import torch
        keep = torch.zeros(1000, 1000, dtype=torch.float16, device="spyre")
        small = torch.zeros(10, device="spyre")
        try:
            torch.empty(4096, 4096, dtype=torch.float16, device="spyre")
        except torch.OutOfMemoryError as error:
            print(error)
        assert keep.cpu().sum() == 0
        assert torch.ones(3, device="spyre").tolist() == [1.0] * 3
        """,
        SPYRE_CARD_MEMORY="16M",
    ).output
    assert "Tried to allocate 32.00 MiB (33554432 bytes)" in text
    assert " MiB of " in text
    assert " are free" in text
    assert "largest of 2 live storages" in text
    assert "1000000 elements of float16" in text
    assert "Free tensors" in text


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


def test_a_tensor_larger_than_a_segment_says_so():
    with pytest.raises(torch.OutOfMemoryError, match="segment"):
        torch.empty(2**34, dtype=torch.float16, device="spyre")


@pytest.mark.parametrize(
    "size", [(2**62,), (2**40,), (2**58, 1), (2**57, 2), (2**33, 2**33), (2**63 - 1,)], ids=str
)
@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.uint8], ids=str)
def test_sizes_beyond_all_bounds_are_refused(size, dtype):
    with pytest.raises(RuntimeError, match=r"memory|overflow"):
        torch.empty(size, dtype=dtype, device="spyre")


def test_a_failed_allocation_counts_nothing():
    before = torch.spyre.memory_allocated(), torch.spyre.memory_stats()["num_ooms"]
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2**38, dtype=torch.float16, device="spyre")
    assert torch.spyre.memory_allocated() == before[0]
    assert torch.spyre.memory_stats()["num_ooms"] == before[1] + 1


# ------------------------------------------------------------------------------ copies, numpy, fork


def test_copies_of_mismatched_sizes_name_both():
    with pytest.raises(RuntimeError, match=r"\[5\].*\[3, 4\]"):
        torch.ones(3, 4, device="spyre").copy_(torch.ones(5))


def test_meta_tensors_cannot_be_copied_to_the_card():
    with pytest.raises(NotImplementedError, match="no data"):
        torch.ones(3, device="meta").to("spyre")


def test_numpy_says_to_go_through_the_cpu():
    with pytest.raises(TypeError, match=r"Use Tensor\.cpu\(\)"):
        torch.ones(3, device="spyre").numpy()


def test_reinterpreting_bits_the_card_does_not_hold_is_refused():
    with pytest.raises(NotImplementedError, match=r"x\.cpu\(\)\.view\(dtype\)"):
        torch.ones(4, dtype=torch.float16, device="spyre").view(torch.int16)


def test_use_after_fork_is_an_error_in_the_child_and_not_in_the_parent():
    text = forked("""
        import os, torch
        card = torch.ones(3, device="spyre")
        read, write = os.pipe()
        if os.fork() == 0:
            for use in (lambda: card.cpu(), lambda: torch.empty(3, device="spyre"),
                        lambda: card.fill_(2), lambda: torch.spyre.synchronize()):
                try:
                    use()
                    os.write(write, b"no error\\n")
                except RuntimeError as error:
                    os.write(write, str(error).splitlines()[0].encode() + b"\\n")
            os._exit(0)
        os.wait()
        os.close(write)
        print(os.read(read, 10000).decode(), card.tolist())
    """).output
    *errors, _, last = text.replace(" [", "\n[").splitlines()
    assert last == "[1.0, 1.0, 1.0]"
    assert len(errors) == 4
    for line in errors:
        assert "forked" in line
        assert "spawn" in line


def test_a_failing_set_leaves_the_tensor_as_it_was():
    card = torch.arange(12, dtype=torch.float16, device="spyre").reshape(3, 4)
    for attempt in (
        lambda: card.set_(torch.UntypedStorage(2, device="spyre"), 0, (1000,), (1,)),
        lambda: card.set_(torch.ones(3, device="spyre").untyped_storage(), 0, (3,), (1,)),
        lambda: card.set_(torch.ones(3)),
        lambda: card.set_(card.untyped_storage(), 0, (5,), (-1,)),
        lambda: card.resize_(-1),
        lambda: card.resize_(2**62),
    ):
        with pytest.raises(RuntimeError):
            attempt()
        assert card.tolist() == torch.arange(12.0).reshape(3, 4).tolist()


# ---------------------------------------------------------------------------------------- odd calls

# Expressions over the names made in RUNNER. Each must raise.
REFUSED = r"""
# devices, streams, memory
torch.spyre.set_stream(torch.Stream(stream_id=0, device_index=-1, device_type=20))
torch.spyre.set_stream(torch.Stream(stream_id=999, device_index=0, device_type=20))
torch.spyre.set_stream(torch.Stream(stream_id=1, device_index=77, device_type=20))
torch.Stream(stream_id=999, device_index=0, device_type=20).synchronize()
torch.Stream(stream_id=1, device_index=-1, device_type=20).synchronize()
torch.Stream(stream_id=1, device_index=100, device_type=20).query()
torch.Stream(stream_id=-5, device_index=0, device_type=20).query()
torch.spyre.Event().modelled_elapsed_time(torch.spyre.Event())
torch.spyre.Event(enable_timing=True).elapsed_time(torch.spyre.Event(enable_timing=True))
torch.spyre.Event().modelled_elapsed_time(types.SimpleNamespace(event_id=4096))
torch.spyre.Event().modelled_elapsed_time(torch.Event("cpu"))
torch.spyre.set_device(99)
torch.spyre.set_device(-1)
torch.spyre.set_device("cpu")
torch.spyre.set_device("spyre:9")
torch.spyre.set_device(1.5)
torch.spyre.device("x")
torch.spyre.get_device_properties(9)
torch.spyre.get_device_properties("cpu")
torch.spyre.get_device_name(-7)
torch.spyre.counters("spyre:3")
torch.spyre.reset(5)
torch.spyre.synchronize(9)
torch.spyre.synchronize("cpu")
torch.spyre.synchronize([])
torch.spyre.current_stream(9)
torch.spyre.default_stream("cpu:0")
torch.spyre.Stream(9)
torch.spyre.Stream(device="cpu")
torch.spyre.Stream(priority="high")
torch.spyre.Stream(priority=2**40)
torch.spyre.Event(interprocess=True)
torch.spyre.memory_allocated(9)
torch.spyre.memory_allocated("cpu")
torch.spyre.memory_stats(-9)
torch.spyre.memory_stats("spyre:9")
torch.spyre.reset_peak_memory_stats(9)
torch.spyre.mem_get_info(9)
torch.spyre.memory.card_memory(9)
torch.spyre.memory.get_memory_info(9)
torch.accelerator.set_device_index(99)
torch.accelerator.synchronize(99)
torch.accelerator.current_stream(99)
torch.accelerator.set_stream(torch.Stream(stream_id=999, device_index=0, device_type=20))
torch.accelerator.memory.memory_stats(99)
torch.accelerator.device_index(99).__enter__()
torch.spyre._C
x.type("torch.spyre.DoubleTensor")
# the native module
C._modelled_elapsed_ms(1, 2)
C._modelled_elapsed_ms(-1, 2)
C._modelled_elapsed_ms(0, 0)
C._properties(300)
C._properties(256)
C._counters(99)
C._reset_card(-3)
C._memory_info(64)
C._spyre_get_allocator_stats(65)
C.get_rng_state(63)
C.get_rng_state(-100)
C.manual_seed(-1)
C.manual_seed(2**64)
C.manual_seed(1.5)
C.manual_seed(1, 127)
C.set_rng_state(torch.ones(3))
C.set_rng_state(None)
C.set_rng_state(torch.zeros(5056, dtype=torch.uint8))
C.set_rng_state(torch.full((5056, ), 255, dtype=torch.uint8))
C.set_rng_state(C.get_rng_state()[::2])
C.set_rng_state(C.get_rng_state().repeat(2)[::2])
C.set_rng_state(x)
C.set_rng_state(C.get_rng_state().to("spyre"))
C.set_device(10**6)
C.set_device(None)
C._convert(b"abc", Formats(99), Formats.IEEE_FP32)
C._convert(b"abc", Formats.IEEE_FP32, Formats(99))
C._convert(b"abc", Formats.INVALID, Formats.IEEE_FP32)
C._convert(b"abcde", Formats.IEEE_FP16, Formats.IEEE_FP32, 99)
C._convert(b"", Formats.IEEE_FP16, Formats.IEEE_FP32, -5)
C._convert("abc", Formats.IEEE_FP16, Formats.IEEE_FP32)
Layout([3], Formats.SENINT8)
Layout([64], [1], Formats(99))
Layout([2**32, 2**32, 64], [-1, -1, 1], Formats.SEN169_FP16).device_bytes()
C.empty_with_layout([64], Layout([2**32, 2**32, 64], [-1, -1, 1], Formats.SEN169_FP16), half).cpu()
C.empty_with_layout([64], Layout([2**32, 2**32, 64], [0, 0, 1], Formats.SEN169_FP16), half).fill_(1)
C.empty_with_layout([64], Layout([2**62, 64], [0, 1], Formats.SEN169_FP16), half).fill_(1)
C.empty_with_layout([64], Layout([0, 64], [64, 1], Formats.SEN169_FP16), half).fill_(1)
C.empty_with_layout([1], Layout([0], [1], Formats.SEN169_FP16), half)
C.empty_with_layout([2**63-1], Layout([64], [1], Formats.SEN169_FP16), half)
C.empty_with_layout([-1], Layout([64], [1], Formats.SEN169_FP16), half)
C.empty_with_layout([2**33, 2**33], Layout([64], [1], Formats.SEN169_FP16), half)
C.empty_with_layout([3], None, half)
C.empty_with_layout([3], Layout([3], half), None)
C.empty_with_layout([3], Layout([3], half), half, device("cpu"))
C.empty_with_layout([3], Layout([3], half), half, device("spyre:9"))
C.empty_with_layout([3], Layout([3], half), half, None, True)
C.empty_with_layout([3], Layout([3], half), half, None, False, torch.channels_last)
C.empty_with_layout([3], Layout([3], half), half, None, False, 5)
C.spyre_empty_with_layout([3, 3], [1], half, Layout([3], half))
C.spyre_empty_with_layout([3], [-1], half, Layout([3], half))
C.spyre_empty_with_layout([2, 2], [2**62, 2**62], half, Layout([3], half))
C.spyre_empty_with_layout([2, 2], [2**62, 2**62], half, Layout([2, 2, 64], [2**62, 2**61, 1], Formats.SEN169_FP16)).fill_(1)
Layout([3, 4], [4, 1], half, [0, 0])
Layout([3, 4], [4, 1], half, [0, 5])
Layout([3, 4], [4, 1], half, [-1, -1, -1])
Layout([3, 4], [4], half, [0, 1])
Layout([2]*9, half)
Layout([2**62, 2**62], half)
Layout([2**63-1], half)
Layout([2**63-1], half).device_bytes()
Layout([2**64], half)
Layout([3, 4], [-4, -1], half, [0, 1])
C.empty_with_layout([3, 4], Layout([3, 4], [-4, -1], half, [0, 1]), half)
Layout([], [], Formats.SEN169_FP16)
Layout.__new__(Layout).device_size
repr(Layout.__new__(Layout))
hash(Layout.__new__(Layout))
C.set_spyre_tensor_layout(x, Layout.__new__(Layout))
Layout.__new__(Layout).__setstate__((3, ))
Layout.__new__(Layout).__setstate__((3, [1], [2, 3], Formats(0), C.ElementArrangement(0)))
Layout.__new__(Layout).__setstate__((9, [1], [2], Formats(0), C.ElementArrangement(0)))
Layout.__new__(Layout).__setstate__(None)
Layout([3], half).with_element_arrangement(None)
C.set_spyre_tensor_layout(x, Layout([2**20], half))
C.set_spyre_tensor_layout(x, Layout([12], torch.float32))
C.set_spyre_tensor_layout(x.clone(), Layout([1, 12], torch.int8))
C.set_spyre_tensor_layout(cpu, Layout([3, 4], half))
C.set_spyre_tensor_layout(None, Layout([3, 4], half))
C.set_spyre_tensor_layout(torch.empty(0, device=SPYRE), Layout([5], torch.float32))
C.get_spyre_tensor_layout(cpu)
C.get_spyre_tensor_layout(None)
C.get_spyre_tensor_layout(5)
C.get_spyre_tensor_layout(torch.empty(3, device="meta"))
C.get_spyre_tensor_layout(fake)
C.copy_tensor(fake, x)
C.copy_tensor(x, fake)
C.copy_tensor(cpu, cpu)
C.copy_tensor(None, x)
C.copy_tensor(x, None)
C.copy_tensor(torch.empty(3, 4, device="meta"), x)
C.copy_tensor(x, torch.empty(3, 4, device="meta"))
C.copy_tensor(torch.ones(3, 4, dtype=torch.complex64), x)
C.copy_tensor(x, torch.ones(3, 4, dtype=torch.complex64))
C._data_conversion_info(cpu, cpu)
C._data_conversion_info(x, x)
C._data_conversion_info(None, x)
C._data_conversion_info(cpu[0], x)
C._data_conversion_info(torch.ones(3, 4, dtype=torch.complex64), x)
C._data_conversion_info(torch.empty(3, 4, device="meta"), x)
C._data_conversion_info(torch.ones(3, 4).to_sparse(), x)
C._data_conversion_info(torch.empty(3, 4).to_mkldnn(), x)
C.as_strided_with_layout(x, [2**62], [2**62], 2**62, lay)
C.as_strided_with_layout(x, [2], [-1], 0, lay)
C.as_strided_with_layout(x, [2, 2], [1], 0, lay)
C.as_strided_with_layout(x, [2], [1], -1, lay)
C.as_strided_with_layout(x, [-2], [1], 0, lay).cpu()
C.as_strided_with_layout(x, [4], [1], 2**63-1, lay).cpu()
C.as_strided_with_layout(cpu, [2], [1], 0, lay)
C.as_strided_with_layout(x, [64], [1], 0, Layout([1, 64], [0, 1], Formats.IEEE_FP32)).cpu()
C.as_strided_with_layout(x, [12], [1], 0, Layout([12], torch.int8)).cpu()
C.reinterpret_tensor(x, [2**62], [2**62], 0)
C.reinterpret_tensor(x, [2], [1], 2**63-1)
C.reinterpret_tensor(x, [2], [1], -2**63)
C.reinterpret_tensor(x, [-2], [1], 0)
C.reinterpret_tensor(x, [100], [1], 0)
C.reinterpret_tensor(cpu, [2], [1], 0)
C.reinterpret_tensor_with_layout(x, [100], [1], 0, lay)
C.reinterpret_tensor_with_layout(x, [2], [1], 2**63-1, lay)
C.get_stream_from_pool(device("cpu"))
C.get_stream_from_pool(device("spyre:9"))
C.get_stream_from_pool("spyre")
C.get_stream_from_pool(None, 2**31)
C.current_stream(device("cpu"))
C.current_stream(device("meta:3"))
C.default_stream(device("spyre:9"))
C.set_current_stream(None)
C.set_current_stream(torch.Stream("cpu"))
C.synchronize(device("spyre:9"))
C.synchronize(device("cpu"))
C.synchronize("spyre")
C._sleep("x")
C.get_device_dtype(None)
C.get_device_dtype(torch.complex64)
C.get_elem_in_stick(torch.float64)
C.get_elem_in_stick("float16")
C.get_spyre_tensor_layout(wrapper)
C.copy_tensor(wrapper, x)
C.copy_tensor(x, wrapper)
# everything else
(lambda y: (C.set_spyre_tensor_layout(y, Layout([12], torch.float32)), y.cpu()))(x.clone())
(lambda y: (C.set_spyre_tensor_layout(y, Layout([2**32, 2**32, 64], [-1, -1, 1], Formats.SEN169_FP16)), y.cpu()))(x.clone())
x.clone().__setattr__("data", cpu)
x.clone().__setattr__("data", torch.empty(3, device="meta"))
cpu.clone().__setattr__("data", x)
x.clone().__setattr__("grad", cpu)
x.clone().__setattr__("grad", x.to("spyre:1"))
x._conj().cpu()
x.to(device("spyre", 5))
x.to("cuda")
x.to("nonsense")
x.numpy()
np.asarray(x)
np.array(x)
np.from_dlpack(x)
x.__dlpack_device__()
torch.utils.dlpack.from_dlpack(x[1:].__dlpack__()).cpu()
torch.from_dlpack(x)
x.__cuda_array_interface__
x[0, 10]
x[100]
x["a"]
x[0, 0, 0]
x.double()
x.cfloat()
x.to(torch.complex64)
x.to(dtype="float16")
x.cpu().to("spyre", "spyre")
x.type("torch.nonsense.FloatTensor")
torch.Tensor(3, device=SPYRE)
torch.FloatTensor(x)
torch.HalfTensor(x)
torch.asarray(x, device="cpu", copy=False)
torch.asarray(cpu, device=SPYRE, copy=False)
x.record_stream(None)
x.pin_memory()
cpu.pin_memory("cuda")
cpu.pin_memory("cpu")
wrapper.cpu()
x.clone().requires_grad_().backward()
x.int().requires_grad_()
torch.autograd.grad(x.clone().requires_grad_().cpu().sum(), x)
# views, set_, resize_
x.as_strided((2, ), (2**62, ), 2**62)
x.as_strided((3, ), (2**62, ), 0)
x.as_strided((5, ), (2**62, ), 0)
x.as_strided((2, ), (1, ), 2**63-1)
x.as_strided((2, ), (1, ), 2**63-1).cpu()
x.as_strided((5, ), (2**62, ), 0).cpu()
x.as_strided((2**33, 2**33), (1, 1)).cpu()
x.as_strided((2**32, 2**32), (0, 0)).cpu()
x.as_strided((100, ), (1, ))
x.as_strided((2, ), (-1, ))
x.as_strided((-2, ), (1, ))
x.as_strided((-2, ), (1, )).cpu()
x.as_strided((2, ), (1, ), -1)
x.as_strided((2, 2), (1, ))
x.set_(cpu)
x.set_(torch.empty(3, device="meta", dtype=half))
cpu.set_(x)
torch.empty(0, device="meta", dtype=half).set_(x)
torch.empty(0, device="spyre:1", dtype=half).set_(x)
x.resize_(-1)
x.clone().resize_(2**62)
x.clone().resize_(2**33, 2**33)
x.clone().resize_(2, 2, memory_format=torch.channels_last)
x.clone().resize_(2, memory_format=torch.preserve_format)
x.unfold(0, 5, 1)
x.unfold(0, 2, 0)
x.unfold(5, 2, 1)
x.unfold(0, -1, 1)
x.view(5)
x.view(-1, -1)
x.view(torch.float64)
x.view(torch.complex64)
x.view(torch.int8)
x.int().view(torch.uint8)
x.to(torch.uint8).view(torch.int8)
x.to(torch.uint8).view(torch.bool)
torch.view_as_real(x)
x.view(-1)[1:].copy_(x.view(-1)[:-1])
memoryview(x)
# factories
torch.empty_strided((2, 2), (2**62, 2**62), device=SPYRE)
torch.empty_strided((3, ), (2**62, ), device=SPYRE).cpu()
torch.empty_strided((2, ), (-1, ), device=SPYRE)
torch.empty_strided((2, ), (1, 2), device=SPYRE)
torch.empty_strided((2**31, 2**31), (0, 0), device=SPYRE).cpu()
torch.empty(2**62, device=SPYRE)
torch.empty(2**61, 4, device=SPYRE)
torch.empty(2**63-1, device=SPYRE, dtype=torch.int8)
torch.empty(2**63-64, device=SPYRE, dtype=torch.int8)
torch.empty(2**62, 1, 1, device=SPYRE, dtype=torch.int8)
torch.empty(1, 2**57, 1, device=SPYRE, dtype=torch.int8)
torch.empty(2**57, 1, device=SPYRE, dtype=half)
torch.empty(2**57, 1, device=SPYRE, dtype=torch.uint8)
torch.empty(3, device=SPYRE, pin_memory=True)
torch.empty(3, dtype=torch.uint16, device=SPYRE)
torch.empty(3, dtype=torch.float8_e5m2, device=SPYRE)
torch.empty(3, dtype=torch.complex128, device=SPYRE)
torch.empty(3, dtype=torch.bits8, device=SPYRE)
torch.empty(3, dtype=torch.float4_e2m1fn_x2, device=SPYRE)
torch.empty(3, dtype=torch.float8_e8m0fnu, device=SPYRE)
torch.empty(3, dtype=torch.uint4, device=SPYRE)
torch.empty(3, 4, dtype=torch.uint4).to("spyre")
torch.empty(3, device="spyre:9")
torch.empty(3, device="spyre:-1")
torch.empty(3, device="spyre:127")
torch.empty(3, device="spyre:128")
torch.empty(3, device="spyre:1000000")
torch.ones(3).to("spyre:9")
torch.ones(3).to(7)
torch.ones(3, device=99)
torch.arange(0, 1, 0, device=SPYRE)
torch.arange(0, -1, 1, device=SPYRE)
torch.arange(0, 2**40, device=SPYRE)
torch.arange(0, float("nan"), device=SPYRE)
torch.arange(0, float("inf"), device=SPYRE)
torch.linspace(0, 1, -1, device=SPYRE)
torch.linspace(0, 1, 3, device=SPYRE, dtype=torch.bool)
torch.eye(-1, device=SPYRE)
torch.eye(3, -1, device=SPYRE)
torch.full((2, ), 1j, device=SPYRE)
torch.full((2, ), "a", device=SPYRE)
torch.full((2, ), 1000, dtype=torch.int8, device=SPYRE)
torch.full((2, ), 1e10, dtype=half, device=SPYRE)
torch.tensor([1j], device=SPYRE)
torch.tensor([[1], [1, 2]], device=SPYRE)
torch.tensor(None, device=SPYRE)
torch.tensor("a", device=SPYRE)
torch.eye(3, out=torch.empty(1, device=SPYRE).expand(3, 3))
torch.empty(2, 2, device=SPYRE).__index__()
# copies and fills
torch.empty_strided((5, ), (2**62, ), device=SPYRE).fill_(1)
torch.empty_strided((2**62, ), (0, ), device=SPYRE).fill_(1)
torch.empty_strided((4, ), (0, ), device=SPYRE).fill_(1)
torch.empty(2**58, 1, device=SPYRE, dtype=torch.uint8).fill_(1)
torch.empty(2**57, 2, device=SPYRE, dtype=half).fill_(1)
x.clone().copy_(torch.empty(3, 4, dtype=torch.bits8))
x.clone().copy_(torch.empty(3, 4, dtype=torch.float8_e8m0fnu))
torch.empty(3, 4, dtype=torch.float8_e8m0fnu).copy_(x)
torch.empty(3, 4, dtype=torch.uint4).copy_(x)
torch.empty(3, 4, dtype=torch.complex64).copy_(x)
x.clone().copy_(torch.ones(3, 4, dtype=torch.complex64))
x.clone().copy_(None)
x.clone().copy_([1, 2])
x.clone().fill_(None)
x.clone().fill_("a")
x.clone().fill_(1j)
x.clone().fill_(10**400)
x.clone().fill_(1e300)
x.char().fill_(1000)
x.int().fill_(2**40)
x.int().fill_(float("nan"))
x.long().fill_(2**63)
x.clone().fill_(cpu)
x.expand(2, 3, 4).fill_(1)
x.expand(2, 3, 4).copy_(cpu)
x.expand(2, 3, 4).zero_()
x[1:].copy_(x[:-1])
x.t().copy_(x)
torch.equal(x, cpu)
torch.equal(cpu, x)
torch.equal(x, x.float())
torch.equal(x, x.to("spyre:1"))
torch.equal(x, None)
torch.equal(x, torch.empty(3, 4, device="meta", dtype=half))
x.item()
x.tolist()[5]
torch.empty(0, device=SPYRE).item()
x.__setitem__(0, cpu)
x.__setitem__(slice(0, 2), torch.ones(3))
x.clone().copy_(wrapper)
# storages
(lambda y: (y.untyped_storage().resize_(0), y.cpu()))(x.clone())
(lambda y: (y.untyped_storage().resize_(0), y.fill_(1)))(x.clone())
(lambda y: (y.untyped_storage().resize_(0), y.copy_(cpu)))(x.clone())
(lambda y: (y.untyped_storage().resize_(0), y.clone()))(x.clone())
(lambda y: (y.untyped_storage().resize_(0), x.copy_(y)))(x.clone())
(lambda y: (y.untyped_storage().resize_(0), y.to("spyre:1")))(x.clone())
(lambda y: (y.untyped_storage().resize_(0), y.view(-1)[0].item()))(x.clone())
(lambda y: (y.untyped_storage().resize_(0), repr(y)))(x.clone())
(lambda y: (y.untyped_storage().resize_(0), copy.deepcopy(y)))(x.clone())
(lambda y: (y.untyped_storage().resize_(1), y.cpu()))(x.clone())
(lambda y: (y.untyped_storage().resize_(6), y.cpu()))(x.clone())
(lambda y: y.untyped_storage().resize_(-1))(x.clone())
(lambda y: y.untyped_storage().resize_(2**62))(x.clone())
(lambda y: y.untyped_storage().resize_("a"))(x.clone())
UntypedStorage(-1, device=SPYRE)
UntypedStorage(2**62, device=SPYRE)
UntypedStorage(10, device="spyre:9")
UntypedStorage(10, device=SPYRE)[20]
UntypedStorage(10, device=SPYRE).copy_(UntypedStorage(20))
UntypedStorage(10, device=SPYRE).copy_(UntypedStorage(10, device="meta"))
UntypedStorage(10, device=SPYRE).pin_memory()
UntypedStorage(10, device=SPYRE).cuda()
UntypedStorage(10, device=SPYRE).byteswap(half)
UntypedStorage(16, device=SPYRE).double()
UntypedStorage(16, device=SPYRE).complex_double()
UntypedStorage(16, device=SPYRE)._share_fd_cpu_()
UntypedStorage(16, device=SPYRE)._share_filename_cpu_()
UntypedStorage(16, device=SPYRE)._share_cuda_()
UntypedStorage(16, device=SPYRE)[2:5]
x.untyped_storage()[2:5]
x.untyped_storage()[2:5].cpu()
x.untyped_storage()[2:5].fill_(1)
x.untyped_storage()[10**9]
torch.TypedStorage(10, dtype=torch.float64, device=SPYRE)
x.storage()[100]
x.set_(cpu.untyped_storage())
x.set_(UntypedStorage(10, device="meta"))
cpu.set_(x.untyped_storage())
torch.empty(0, device="meta", dtype=half).set_(x.untyped_storage()).cpu()
torch.empty(0, device=SPYRE).set_(x.untyped_storage())
torch.empty(0, device=SPYRE, dtype=half).set_(x.untyped_storage(), 0, (1000, ), (1, ))
torch.empty(0, device=SPYRE, dtype=half).set_(x.untyped_storage(), 2**62, (4, ), (2**62, ))
torch.empty(0, device=SPYRE, dtype=half).set_(x.untyped_storage(), -1, (4, ), (1, ))
torch.empty(0, device=SPYRE, dtype=half).set_(x.untyped_storage(), 0, (-4, ), (1, ))
torch.empty(0, device=SPYRE, dtype=half).set_(x.untyped_storage(), 0, (4, ), (1, 2))
torch.empty(0, device=SPYRE, dtype=half).set_(x.untyped_storage(), 0, (4, ), (-1, ))
torch.empty(0, device="spyre:1", dtype=half).set_(x.untyped_storage(), 0, (4, ), (1, )).device
pickle.loads(pickle.dumps(x.untyped_storage()))
# random numbers
torch.spyre.manual_seed("a")
torch.spyre.manual_seed(None)
torch.spyre.get_rng_state("cpu")
torch.spyre.get_rng_state(9)
torch.spyre.set_rng_state(torch.zeros(3, dtype=torch.uint8))
torch.spyre.set_rng_state("x")
torch.spyre.set_rng_state_all([torch.spyre.get_rng_state()]*5)
torch.spyre.initial_seed(9)
torch.Generator(device="spyre:9")
torch.Generator(device=SPYRE).set_offset(4)
torch.Generator(device=SPYRE).get_offset()
torch.Generator(device=SPYRE).set_state(torch.zeros(3))
torch.Generator(device=SPYRE).set_state(x)
torch.Generator(device=SPYRE).manual_seed(2**64)
torch.Generator(device=SPYRE).graphsafe_get_state()
torch.Generator(device=SPYRE).graphsafe_set_state(torch.Generator(device=SPYRE))
torch.rand(3, device=SPYRE, generator=torch.Generator())
torch.rand(3, generator=torch.Generator(device=SPYRE))
torch.rand(3, device=SPYRE, generator=torch.Generator(device="spyre:1"))
torch.rand(3, device=SPYRE, dtype=torch.float64)
torch.randint(5, 2, (3, ), device=SPYRE)
torch.randint(0, 300, (3, ), dtype=torch.uint8, device=SPYRE)
torch.randperm(-1, device=SPYRE)
torch.randperm(300, dtype=torch.uint8, device=SPYRE)
torch.empty(3, device=SPYRE).normal_(0, -1)
torch.empty(3, device=SPYRE).uniform_(3, 1)
torch.empty(3, device=SPYRE).bernoulli_(2.0)
torch.empty(3, device=SPYRE).bernoulli_(torch.full((3, ), 9., device=SPYRE))
torch.empty(3, device=SPYRE).bernoulli_(torch.full((5, ), .5, device=SPYRE))
torch.empty(3, device=SPYRE).exponential_(-1)
torch.empty(3, device=SPYRE).geometric_(5)
torch.empty(3, device=SPYRE).cauchy_(0, -1)
torch.empty(3, device=SPYRE).log_normal_(0, -1)
torch.empty(3, device=SPYRE, dtype=torch.bool).random_(0, 5)
torch.empty(3, device=SPYRE, dtype=torch.int8).random_(0, 500)
torch.empty(1, device=SPYRE).expand(4).normal_()
torch.bernoulli(torch.full((3, ), .5, device=SPYRE, dtype=torch.float8_e4m3fn))
# device_layout=
torch.empty(3, device_layout=5)
torch.empty(3, device_layout=lay)
torch.empty(3, 4, device_layout=lay, device="cpu")
torch.empty(3, 4, device_layout=lay, dtype=torch.float64)
torch.empty(3, 4, device_layout=lay, dtype=half, bogus=1)
torch.empty(3, 4, device_layout=lay, dtype=half, out=x)
torch.empty("a", device_layout=lay, dtype=half)
torch.empty(3, 4, device_layout=lay, dtype=half, pin_memory=True)
x.to(device_layout=5)
x.to("cpu", device_layout=lay)
cpu.to(device_layout=lay, memory_format=torch.channels_last)
cpu.to(device_layout=lay, dtype=torch.float64)
cpu.to("meta", device_layout=lay)
torch.empty(3, 4, device="meta", dtype=half).to(device_layout=lay)
fake.to(device_layout=lay)
# modules
torch.nn.Linear(3, 4).to("spyre", torch.float64)
torch.nn.Linear(3, 4).to("spyre:9")
torch.nn.Linear(3, 4).spyre("cpu")
torch.nn.Linear(3, 4).spyre(9)
torch.nn.Linear(3, 4).double().to("spyre")
torch.nn.Linear(3, 4).to("spyre").double()
torch.nn.Linear(3, 4).to("spyre").to(torch.complex64)
torch.nn.Linear(3, 4).to("spyre", torch.int8)
torch.nn.Linear(3, 4, device="meta").to("spyre")
torch.nn.Linear(3, 4, device=SPYRE, dtype=torch.float64)
torch.nn.Linear(3, 4).to_empty(device="spyre:9")
# saving and copying
torch.load(saved(x), map_location="spyre:9")
torch.load(saved(cpu.double()), map_location="spyre")
torch.load(saved(cpu.cfloat()), map_location="spyre")
torch.load(saved(cpu), map_location=lambda s, l: 5)
"""  # noqa: E501

# These may succeed or raise.
ODD = r"""
# devices, streams, memory
torch.Stream(stream_id=0, device_index=-1, device_type=20)
(C._sleep(float("-inf")), torch.spyre.synchronize())
torch.spyre.set_device(None)
torch.spyre.Event().record(torch.spyre.Stream(1))
torch.accelerator.set_device_index(-1)
torch.accelerator.memory.empty_cache()
torch.accelerator.get_device_capability(99)
x.record_stream(torch.spyre.Stream())
x.record_stream(torch.Stream("cpu"))
# the native module
C._properties(-1)
C._spyre_get_allocator_stats(-1)
C._spyre_reset_peak_stats(-1)
C.set_device(-1)
C.encode_constant(1.0, Formats(99))
C.encode_constant(1.0, Formats.INVALID)
C.encode_constant(float("nan"), Formats.SENINT8)
C.empty_with_layout([0], Layout([1, 0], [64, 1], Formats.SEN169_FP16), half)
C.empty_with_layout([1], Layout([64], [2**63-1], Formats.SEN169_FP16), half)
Layout([], half).device_bytes()
Layout([3], half).__setstate__(())
Layout([3], half) == 5
Layout([3], half) == None
Layout([3], half).with_element_arrangement(C.ElementArrangement(77))
C.set_spyre_tensor_layout(torch.empty(0, device=SPYRE), Layout([0], torch.float32))
C._data_conversion_info(torch.empty(0), torch.empty(0, device=SPYRE))
C._sleep(-1.0)
C.set_downcast_warning(None)
x.to(device_layout=Layout([99], half))
cpu.to(device_layout=Layout([2], half))
C.copy_tensor(torch.ones(3, 4).to_sparse(), x)
C.copy_tensor(x, torch.ones(3, 4).to_sparse())
C.copy_tensor(torch.ones(3, 4).to_mkldnn(), x)
C.copy_tensor(x, torch.ones(3, 4).to_mkldnn())
C.get_spyre_tensor_layout(torch._efficientzerotensor(3, device=SPYRE))
C.copy_tensor(torch._efficientzerotensor((3, 4), device=SPYRE), x)
C.copy_tensor(x, torch._efficientzerotensor((3, 4), device=SPYRE))
C.copy_tensor(torch._efficientzerotensor((3, 4)), x)
C.copy_tensor(x, torch._efficientzerotensor((3, 4)))
# everything else
Formats(99)
Formats(99).elems_per_stick()
torch._efficientzerotensor(3).to("spyre").cpu()
x.__dlpack__()
torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))
torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x)).cpu()
torch.utils.dlpack.from_dlpack(x.clone().__dlpack__()).cpu()
x.int()[0, 0].__index__()
[1, 2, 3][x.int()[0, 1]]
torch.Tensor(x)
torch.as_tensor(x, device="cpu")
x.is_set_to(cpu)
x.is_set_to(x)
x.is_shared()
x.share_memory_()
cpu.is_pinned("spyre")
torch.func.vmap(lambda t: t.clone())(x)
torch.func.vmap(lambda t: t.cpu())(x)
torch.func.grad(lambda t: t.clone()[0])(x[0])
x.__reduce_ex__(2)
subclass(x)
(lambda l: (l.__setstate__(()), repr(l), hash(l)))(Layout([3], half))
torch._efficientzerotensor(3, device=SPYRE).cpu()
torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device=SPYRE)
x.to_mkldnn()
torch.sparse_coo_tensor([[0], [1]], [1.], (2, 2), device=SPYRE)
torch.sparse_coo_tensor(torch.tensor([[0], [1]], device=SPYRE), torch.tensor([1.], device=SPYRE), (2, 2))
torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8).to("spyre")
torch.multinomial(x, 2)
torch.dropout(x, 0.5, True)
x[torch.tensor([0])]
x[x.bool()]
torch.where(x, x, x)
x @ x
x + 1
x.sum()
x.sort()
x == x
x.abs_()
x.masked_fill(x.bool(), 0)
# factories
torch.empty(0, 2**62, device=SPYRE)
torch.empty(2**62, 0, device=SPYRE).cpu()
torch.empty([1]*70, device=SPYRE).cpu()
torch.empty([1]*64+[0], device=SPYRE).cpu()
torch.ones(1, 2, 3, 4).to(memory_format=torch.channels_last).to("spyre").cpu()
torch.empty(1, 2, 3, 4, device=SPYRE, memory_format=torch.channels_last)
torch.empty(1, 2, 3, 4, 5, device=SPYRE, memory_format=torch.channels_last_3d)
torch.ones(1, 2, 3, 4, device=SPYRE).contiguous(memory_format=torch.channels_last)
torch.ones(1, 2, 3, 4, device=SPYRE).clone(memory_format=torch.channels_last)
torch.ones(1, 2, 3, 4, device=SPYRE).to(memory_format=torch.channels_last)
torch.ones(1, 2, 3, 4).to("spyre", memory_format=torch.channels_last)
torch.empty_like(torch.ones(1, 2, 3, 4, device=SPYRE), memory_format=torch.channels_last)
torch.nn.Conv2d(3, 4, 3).to("spyre", memory_format=torch.channels_last)
torch.tensor(1e300, device=SPYRE, dtype=half)
torch.arange(5, out=torch.empty(5, device=SPYRE, dtype=half)[::2])
torch.eye(3, out=torch.empty(0, device=SPYRE))
torch.arange(5, out=torch.empty(3, device=SPYRE))
torch.ones(3).to_mkldnn().to("spyre")
torch.ones(3, 4).to_sparse_csr().to("spyre")
torch.empty(3, 3, layout=torch.sparse_csr, device=SPYRE)
torch.empty(3, dtype=torch.qint8, device=SPYRE)
torch.empty(3, dtype=torch.quint4x2, device=SPYRE)
# storages
(lambda y: (y.untyped_storage().resize_(0), torch.save(y, io.BytesIO())))(x.clone())
(lambda y: (y.untyped_storage().resize_(0), y.untyped_storage().resize_(24), y.cpu()))(x.clone())
UntypedStorage(10, device=SPYRE)
UntypedStorage(0, device=SPYRE)
UntypedStorage(10, device="spyre:1").cpu().tolist()
UntypedStorage([1, 2, 3], device=SPYRE)
UntypedStorage(10, device=SPYRE).__setitem__(3, 7)
UntypedStorage(0, device=SPYRE).fill_(1)
UntypedStorage(0, device=SPYRE).tolist()
UntypedStorage(0, device=SPYRE).resize_(10).fill_(1).tolist()
UntypedStorage(10, device=SPYRE).share_memory_()
UntypedStorage(10, device=SPYRE).is_shared()
UntypedStorage(10, device=SPYRE).is_pinned()
UntypedStorage(16, device=SPYRE).float()
UntypedStorage(16, device=SPYRE).type()
UntypedStorage(16, device=SPYRE).__setitem__(slice(2, 5), 3)
x.untyped_storage()[-1]
x.untyped_storage().new()
x.untyped_storage()._weak_ref()
x.untyped_storage().data_ptr()
torch.TypedStorage(10, dtype=half, device=SPYRE)
torch.TypedStorage(10, dtype=half, device=SPYRE).fill_(1).tolist()
x.storage().tolist()
str(x.storage())
torch.empty(0, device=SPYRE, dtype=torch.uint8).set_(x.untyped_storage()).cpu()
(lambda y: (try_(lambda: y.set_(UntypedStorage(2, device=SPYRE), 0, (1000, ), (1, ))), y.cpu()))(x.clone())
torch.empty(0, device=SPYRE, dtype=half).set_(UntypedStorage(3, device=SPYRE))
torch.empty(0, device=SPYRE, dtype=half).set_(UntypedStorage(3, device=SPYRE), 0, (1, ), (1, )).cpu()
torch.empty(0, device=SPYRE, dtype=torch.int64).set_(UntypedStorage(64, device=SPYRE), 0, (8, ), (1, )).cpu()
bytes(x.untyped_storage())
# views, set_, resize_
x.clone().data.set_()
x.clone().resize_(0).resize_(5).cpu()
x.clone()[1:].resize_(100).cpu()
x.expand(2, 3, 4).resize_(100)
torch.empty(0, device=SPYRE).resize_(5).cpu()
torch.empty((), device=SPYRE).resize_(5).cpu()
x.clone().resize_as_(cpu)
torch.empty((), device=SPYRE).unfold(0, 1, 1).cpu()
torch.empty((), device=SPYRE).unfold(0, 0, 1).cpu()
x.float().view(torch.int32).cpu()
x.char().view(torch.float8_e4m3fn).cpu()
x._neg_view().cpu()
cpu._neg_view().to("spyre").cpu()
x.clone().copy_(cpu._neg_view()).cpu()
torch.func.functionalize(lambda t: t.view(-1).fill_(1))(x.clone())
torch.view_as_complex(x.float().view(6, 2))
# copies and fills
x.to(torch.uint8).fill_(-1)
x.bool().fill_(7).cpu()
x.int().fill_(1.5)
x.clone().fill_(cpu[0, 0])
x.clone().fill_(torch.ones((), device="meta"))
x.__setitem__((0, 0), 5)
x.__setitem__(0, cpu[0])
x.__deepcopy__({})
x.clone().copy_(torch._efficientzerotensor((3, 4), device=SPYRE))
x.clone().copy_(torch.ones(3, 4).to_mkldnn())
torch.ones(3, 4).to_mkldnn().copy_(x)
torch.ones(3, 4).to_sparse().copy_(x)
x.clone().copy_(torch.ones(3, 4).to_sparse())
x.clone().copy_(torch.ones(3, 4).to_sparse_csr())
torch._empty_affine_quantized((3, ), scale=0.1, zero_point=0, dtype=torch.qint8, device=SPYRE)
x.clone().copy_(torch.quantize_per_tensor(torch.ones(3, 4), 0.1, 0, torch.qint8))
x.__setitem__(torch.tensor([0]), 1)
x.__setitem__(x.bool(), 1)
# random numbers
torch.spyre.manual_seed(-2**70)
torch.Generator(device=SPYRE).manual_seed(-2**63)
torch.Generator(device=SPYRE).clone_state()
# device_layout=
torch.empty(device_layout=lay, dtype=half)
torch.empty((3, 4), device_layout=lay, dtype=half, requires_grad=True)
torch.empty(3, 4, device_layout=lay, dtype=half, layout=torch.sparse_coo)
# modules
torch.nn.Linear(3, 4, device="meta").to_empty(device=SPYRE).weight.cpu()
torch.nn.Linear(3, 4).to("spyre").share_memory()
# saving and copying
copy.copy(x)
torch.load(saved(x), map_location="meta")
torch.load(saved(cpu), map_location="spyre:1").device
"""  # noqa: E501

RUNNER = """
import copy, io, json, os, pickle, sys, types, warnings
warnings.simplefilter("ignore")
import numpy as np
import torch, torch.nested, torch.utils.dlpack
from torch import UntypedStorage, device
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_spyre import _C as C
from torch_spyre._C import DataFormats as Formats, SpyreTensorLayout as Layout

SPYRE, half = "spyre", torch.float16

def saved(thing):
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return file

def try_(call):
    try:
        return call()
    except Exception as error:
        return error

class subclass(torch.Tensor):
    def __new__(cls, tensor):
        return tensor.as_subclass(cls)

class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls):
        return torch.Tensor._make_wrapper_subclass(cls, (3, 4), dtype=half, device="spyre")
    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise RuntimeError("not implemented")

calls = json.load(open(CALLS))
for number, call in enumerate(calls):
    cpu = torch.arange(12, dtype=half).reshape(3, 4)
    x = cpu.to("spyre")
    lay = Layout([3, 4], half)
    with FakeTensorMode():
        fake = torch.empty(3, 4, device="spyre", dtype=half)
    wrapper = Wrapper()
    print("started", number, flush=True)
    try:
        str(eval(call))
        outcome = "returned"
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"
    print("ended", json.dumps([number, outcome[:300]]), flush=True)
    torch.spyre.set_device(0)
    torch.spyre.set_stream(torch.spyre.default_stream())
    check = torch.arange(70, dtype=torch.int32)
    assert torch.equal(check.to("spyre").cpu(), check), f"the device is broken after {call}"
print("all done")
"""


def outcomes(calls: list[str], path) -> dict[str, str]:
    """What became of each call; fails, naming the call, if the process died."""
    path.write_text(json.dumps(calls))
    result = fresh(f"CALLS = {str(path)!r}\n{RUNNER}", timeout=120, SPYRE_SOFT_CARDS=2)
    lines = result.stdout.splitlines()
    started = [int(line.split()[1]) for line in lines if line.startswith("started ")]
    assert lines[-1:] == ["all done"], (
        f"the process died (code {result.returncode}) in or after:\n  {calls[started[-1]]}\n"
        f"{result.stderr[-2000:]}"
    )
    ended = [json.loads(line[6:]) for line in lines if line.startswith("ended ")]
    return {calls[number]: outcome for number, outcome in ended}


def expressions(text: str) -> list[str]:
    return [line for line in text.strip().splitlines() if line and not line.startswith("#")]


def test_no_odd_call_ends_the_process_and_bad_ones_raise(tmp_path):
    refused, odd = expressions(REFUSED), expressions(ODD)
    found = outcomes(refused + odd, tmp_path / "calls.json")
    assert [call for call in refused if found[call] == "returned"] == []
    systematic = ("SystemError", "MemoryError", "UnicodeDecodeError")
    assert [call for call, outcome in found.items() if outcome.startswith(systematic)] == []


NATIVE_ARGUMENTS = """
None, -1, 0, 1, 2**31, 2**63, 1.5, "x", b"x", [], [1, 2], (), {}, object(), torch.ones(2),
torch.ones(2, device="spyre"), torch.empty(2, device="meta"), half, torch.float64,
torch.device("spyre"), torch.device("cpu"), lay, Formats.IEEE_FP32, Formats(99),
torch.Stream("cpu"), torch.Event("spyre"), torch.Generator(), print,
"""


# Called by nobody but the package itself: these end the use of the device or occupy it for long.
NOT_TRIED = {"_mark_bad_fork", "_shutdown", "_sleep"}


def test_no_native_function_can_be_crashed_by_arguments_of_wrong_types(tmp_path):
    """Every function and class of _C, with every kind of argument in every place."""
    names = [name for name in dir(_C) if not name.startswith("__") and callable(getattr(_C, name))]
    places = (
        "(v,), (v, v), (v, v, v), (v, v, v, v), (v, v, v, v, v), (x, v), (v, x), (x, [3], [1], v), "
        "(v, lay, half), ([3], v, half), ([3], lay, v), ([3], [1], half, v), (v, [1], half, lay), "
        "(x, [3], [1], 0, v), (x, [3], v, 0, lay), (x, v, [1], 0, lay), (v, [3], [1], 0, lay)"
    )
    values = " ".join(NATIVE_ARGUMENTS.split())
    calls = [
        f"[try_(lambda: C.{name}(*a)) for v in [{values}] for a in [(), {places}]] and None"
        for name in names
        if name not in NOT_TRIED
    ]
    assert len(calls) > 40
    outcomes(calls, tmp_path / "calls.json")
