"""Bad input: an exception that says what, why and what to do; the device works on."""

import pytest
import torch
from subprocesses import forked

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


# ------------------------------------------------------------- memory in common, shapes that differ


def overlapping(device: str) -> dict[str, torch.Tensor]:
    return {
        "x": torch.arange(6.0).to(device),
        "one": torch.zeros(1).to(device).expand(6),
        "where": torch.tensor([2, 1, 0]).to(device),
        "mask": torch.tensor([True, False, True, True, False, True]).to(device),
    }


REFUSED_CALLS = [
    "x.index_put_((where,), x[0])",
    "x.index_put_((where,), x[:3])",
    "where.index_put_((where,), where.clone())",
    "where.index_put_((where.clone(),), where)",
    "x.index_put_((where,), x[:2].clone())",
    "where.index_fill_(0, where, 0)",
    "x.index_fill_(0, where[None], 1.0)",
    "x.index_fill_(1, where, 1.0)",
    "mask[1:].masked_fill_(mask[:-1], False)",
    "x.masked_fill_(mask[:3], 0.0)",
    "x.masked_fill_(mask[None], 0.0)",
    "x.masked_fill_(mask, x[:2])",
    "x.addcdiv_(where.expand(6, 3).sum(1), where[0])",
    "torch.addcdiv(x.long(), x.long(), x.long(), out=x)",
    "torch.addcmul(x, x, x, out=x.int())",
    "torch.add(x, x, out=one)",
    "torch.add(x[1:], 1, out=x[:-1])",
    "torch.kthvalue(x, 2, out=(x, where))",
    # Numbers that a dtype cannot hold, and dtypes that an op does not have.
    "where.to(torch.int8).masked_fill_(where > 1, 300)",
    "where.masked_fill_(where > 1, float('nan'))",
    "where.to(torch.uint8).clamp_(max=256)",
    "where.int().clamp(-(2**31) - 1, 5)",
    "torch.nn.functional.threshold(where.int(), 1, 2**31)",
    "torch.add(where.to(torch.int16), where.to(torch.int16), alpha=40000)",
    "where.to(torch.int8) ** 300",
    "x.bitwise_and(x)",
    "where & 1.5",
    "x.cumsum(0, dtype=torch.bool)",
    "torch.cumprod(x, 0, out=mask)",
    "where.logcumsumexp(0)",
    "torch.cumsum(x[1:], 0, out=x[:-1])",
    "torch.max(x.view(2, 3), 0, out=(x[:3], where.clone()))",
    "torch.softmax(where, 0)",
    "torch.log_softmax(mask, 0)",
    "torch.nn.functional.gelu(where)",
    "torch.nn.functional.leaky_relu(mask)",
    "torch.nn.functional.silu(where)",
    "torch.lerp(where, where, 0.5)",
    "torch.logaddexp(where, where)",
    "torch.cdist(where[None], where[None])",
    "torch.nn.functional.dropout(where, 0.5)",
    "torch.nansum(x, 0, out=where.new_empty(()))",
    "torch.normal(x, 1.0, out=where.new_empty(6))",
]


@pytest.mark.parametrize("call", REFUSED_CALLS)
def test_a_call_that_the_cpu_refuses_is_refused_and_changes_nothing(call, no_downcast_warning):
    errors = []
    for device in ("cpu", "spyre"):
        tensors = overlapping(device)
        with pytest.raises(Exception) as caught:
            eval(call, {"torch": torch}, tensors)
        errors.append(caught.type)
        for name, value in overlapping("cpu").items():
            assert torch.equal(tensors[name].cpu(), value)
    assert errors[0] is errors[1]


@pytest.mark.parametrize(
    "call",
    [
        "one.index_put_((where,), x[:3].clone().fill_(4))",
        "one.index_fill_(0, where, 3.0)",
        "one.masked_fill_(mask, 2.0)",
    ],
)
def test_writing_to_expanded_tensors_warns_as_on_the_cpu(call, no_downcast_warning):
    results = []
    for device in ("cpu", "spyre"):
        tensors = overlapping(device)
        with pytest.warns(UserWarning, match="on expanded tensors is deprecated"):
            eval(call, {"torch": torch}, tensors)
        results.append(tensors["one"].tolist())
    assert results[0] == results[1]


OUT_ON_THE_CPU = {
    "nonzero": lambda x: torch.nonzero(x, out=torch.empty(0, dtype=torch.int64)),
    "mse_loss": lambda x: torch.ops.aten.mse_loss.out(x, x, out=torch.empty(())),
    "multinomial": lambda x: torch.multinomial(x, 2, out=torch.empty(0, dtype=torch.int64)),
    "linalg.det": lambda x: torch.linalg.det(x.expand(6, 6), out=torch.empty(())),
    "add": lambda x: torch.add(x, 1, out=torch.empty(6)),
    "sum": lambda x: torch.sum(x, 0, out=torch.empty(())),
}


@pytest.mark.parametrize("name", OUT_ON_THE_CPU)
def test_an_out_tensor_on_the_cpu_is_refused(name, no_downcast_warning):
    with pytest.raises(RuntimeError, match="device"):
        OUT_ON_THE_CPU[name](torch.arange(1.0, 7.0, device="spyre"))
