"""Creating tensors on the device: every factory gives what it gives on the CPU.

All values used here are exact in every device format, so results are compared for equality.
"""

import math

import pytest
import torch

from torch_spyre._C import SpyreTensorLayout

FLOATING = [torch.float16, torch.bfloat16, torch.float32]
FLOAT8 = [
    torch.float8_e4m3fn,
    torch.float8_e5m2fnuz,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
DTYPES = [*FLOATING, torch.bool, *INTEGERS, *FLOAT8]
SHAPES = [
    (),
    (1,),
    (5,),
    (64,),
    (65,),
    (3, 70),
    (2, 3, 5),
    (1, 1, 1),
    (2,) * 8,
    (2,) * 10,
    (1,) * 12,
]
EMPTY_SHAPES = [(0,), (0, 3), (3, 0), (2, 0, 64), (0, 0)]


def same(result: torch.Tensor, expected: torch.Tensor) -> None:
    """`result` is on the card and otherwise equals the CPU tensor `expected`."""
    assert result.device.type == "spyre"
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    assert result.stride() == expected.stride()
    assert result.requires_grad == expected.requires_grad
    torch.testing.assert_close(result.detach().cpu(), expected.detach(), rtol=0, atol=0)


# -------------------------------------------------------------------------------- shapes and dtypes


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_empty_has_the_dtype_and_size_asked_for(dtype):
    tensor = torch.empty(3, 70, dtype=dtype, device="spyre")
    assert (tensor.dtype, tensor.shape, tensor.stride()) == (dtype, (3, 70), (70, 1))
    assert tensor.device == torch.device("spyre", 0)
    assert tensor.is_contiguous()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("factory", [torch.zeros, torch.ones])
def test_zeros_and_ones(factory, dtype):
    same(factory(3, 70, dtype=dtype, device="spyre"), factory(3, 70, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_full(dtype):
    value = True if dtype == torch.bool else 6
    same(
        torch.full((5, 3), value, dtype=dtype, device="spyre"),
        torch.full((5, 3), value, dtype=dtype),
    )


@pytest.mark.parametrize("value", [True, 7, -7, 2.5, -0.0, math.inf, -math.inf])
def test_full_infers_the_dtype_from_the_value(value):
    same(torch.full((2, 2), value, device="spyre"), torch.full((2, 2), value))


def test_full_of_nan_is_nan():
    for dtype in (*FLOATING, *FLOAT8):
        assert torch.full((3,), math.nan, dtype=dtype, device="spyre").cpu().float().isnan().all()


@pytest.mark.parametrize("shape", SHAPES + EMPTY_SHAPES, ids=str)
def test_every_rank_and_size_can_be_created_filled_and_read(shape):
    same(torch.zeros(shape, device="spyre"), torch.zeros(shape))
    same(
        torch.full(shape, 3, dtype=torch.float16, device="spyre"),
        torch.full(shape, 3, dtype=torch.float16),
    )
    host = torch.arange(math.prod(shape), dtype=torch.int32).reshape(shape)
    same(host.to("spyre"), host)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", EMPTY_SHAPES, ids=str)
def test_tensors_without_elements_take_no_memory(shape, dtype):
    before = torch.spyre.memory_allocated()
    tensor = torch.empty(shape, dtype=dtype, device="spyre")
    assert torch.spyre.memory_allocated() == before
    assert tensor.cpu().shape == shape


@pytest.mark.parametrize(
    ("size", "stride"),
    [
        ((3, 4), (1, 3)),
        ((3, 4), (8, 2)),
        ((2, 3), (0, 1)),
        ((4,), (7,)),
        ((), ()),
        ((0, 3), (5, 9)),
    ],
)
def test_empty_strided_keeps_the_strides(size, stride):
    tensor = torch.empty_strided(size, stride, dtype=torch.float16, device="spyre")
    assert (tensor.size(), tensor.stride()) == (size, stride)


def test_empty_strided_can_be_written_and_read():
    host = torch.arange(12.0).reshape(3, 4)
    tensor = torch.empty_strided((3, 4), (2, 16), device="spyre")
    assert torch.equal(tensor.copy_(host).cpu(), host)


def test_empty_permuted_has_the_strides_of_the_cpu():
    for order in [(0, 1, 2), (2, 1, 0), (1, 0, 2)]:
        expected = torch.empty_permuted((2, 3, 5), order)
        assert torch.empty_permuted((2, 3, 5), order, device="spyre").stride() == expected.stride()


def test_size_may_be_given_in_every_way():
    for tensor in (
        torch.empty(2, 3, device="spyre"),
        torch.empty((2, 3), device="spyre"),
        torch.empty([2, 3], device="spyre"),
        torch.empty(torch.Size((2, 3)), device="spyre"),
        torch.empty(size=(2, 3), device="spyre"),
    ):
        assert tensor.shape == (2, 3)


# -------------------------------------------------------------------------------------- from values


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensor_from_lists(dtype):
    data = [[0, 1], [1, 0]] if dtype == torch.bool else [[0, 1, 2], [3, 4, 6]]
    same(torch.tensor(data, dtype=dtype, device="spyre"), torch.tensor(data, dtype=dtype))


@pytest.mark.parametrize("data", [5, 2.5, True, [], [[]], [1, 2], [1.5, 2], [[True], [False]]])
def test_tensor_infers_the_dtype_as_the_cpu_does(data):
    same(torch.tensor(data, device="spyre"), torch.tensor(data))


def test_as_tensor_of_a_device_tensor_is_the_tensor_itself():
    tensor = torch.ones(3, device="spyre")
    assert torch.as_tensor(tensor) is tensor
    assert torch.as_tensor(tensor, device="spyre") is tensor


def test_as_tensor_and_asarray_move_host_data():
    host = torch.arange(6, dtype=torch.float16).reshape(2, 3)
    same(torch.as_tensor(host, device="spyre"), host)
    same(torch.asarray(host, device="spyre"), host)
    same(torch.as_tensor(host.numpy(), device="spyre"), host)
    same(torch.as_tensor([1.0, 2.0], device="spyre"), torch.tensor([1.0, 2.0]))


@pytest.mark.parametrize("dtype", [*FLOATING, torch.bool, *INTEGERS], ids=str)
def test_scalar_tensor(dtype):
    same(torch.scalar_tensor(1, dtype=dtype, device="spyre"), torch.scalar_tensor(1, dtype=dtype))


# ---------------------------------------------------------------------------------------- sequences


@pytest.mark.parametrize("dtype", [*FLOATING, *INTEGERS], ids=str)
@pytest.mark.parametrize("arguments", [(100,), (3, 90), (2, 100, 7), (90, 3, -4), (5, 5)], ids=str)
def test_arange(arguments, dtype):
    same(
        torch.arange(*arguments, dtype=dtype, device="spyre"), torch.arange(*arguments, dtype=dtype)
    )


@pytest.mark.parametrize("arguments", [(5,), (5.0,), (0, 1, 0.25)], ids=str)
def test_arange_infers_the_dtype(arguments):
    same(torch.arange(*arguments, device="spyre"), torch.arange(*arguments))


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_linspace_and_logspace(dtype):
    same(
        torch.linspace(0, 4, 17, dtype=dtype, device="spyre"), torch.linspace(0, 4, 17, dtype=dtype)
    )
    same(
        torch.logspace(0, 8, 9, base=2, dtype=dtype, device="spyre"),
        torch.logspace(0, 8, 9, base=2, dtype=dtype),
    )


def test_linspace_of_zero_and_one_step():
    for steps in (0, 1):
        same(torch.linspace(3, 5, steps, device="spyre"), torch.linspace(3, 5, steps))


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
def test_range_includes_the_end():
    same(torch.range(1, 3, 0.5, device="spyre"), torch.range(1, 3, 0.5))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [(3,), (3, 5), (5, 3), (0,), (70, 70)], ids=str)
def test_eye(size, dtype):
    same(torch.eye(*size, dtype=dtype, device="spyre"), torch.eye(*size, dtype=dtype))


def test_out_is_resized_and_filled():
    out = torch.empty(0, device="spyre")
    assert torch.arange(5, out=out) is out
    same(out, torch.arange(5.0))
    same(torch.eye(3, out=out), torch.eye(3))
    same(torch.linspace(0, 1, 3, out=out), torch.linspace(0, 1, 3))
    same(torch.zeros(2, 2, out=out), torch.zeros(2, 2))
    same(torch.full((3,), 5.0, out=out), torch.full((3,), 5.0))


# --------------------------------------------------------------------------------- random factories


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_rand_is_uniform_in_the_unit_interval(dtype):
    values = torch.rand(5000, dtype=dtype, device="spyre").cpu().float()
    assert values.min() >= 0
    assert values.max() <= 1
    assert abs(values.mean() - 0.5) < 0.03


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_randn_is_normal(dtype):
    values = torch.randn(5000, dtype=dtype, device="spyre").cpu().float()
    assert abs(values.mean()) < 0.08
    assert abs(values.std() - 1) < 0.08


@pytest.mark.parametrize("dtype", [*FLOATING, *INTEGERS], ids=str)
def test_randint_stays_in_range_and_reaches_all_of_it(dtype):
    values = torch.randint(2, 7, (500,), dtype=dtype, device="spyre").cpu()
    assert set(values.tolist()) == {2, 3, 4, 5, 6}


def test_randperm_is_a_permutation():
    values = torch.randperm(100, device="spyre")
    assert values.dtype == torch.int64
    assert sorted(values.tolist()) == list(range(100))


# ------------------------------------------------------------------------------ like and new_ forms


@pytest.fixture
def host():
    return torch.arange(12, dtype=torch.float16).reshape(3, 4)


def test_like_factories_take_shape_dtype_and_device(host):
    like = host.to("spyre")
    same(torch.zeros_like(like), torch.zeros_like(host))
    same(torch.ones_like(like), torch.ones_like(host))
    same(torch.full_like(like, 5), torch.full_like(host, 5))
    for factory in (torch.empty_like, torch.rand_like, torch.randn_like):
        result = factory(like)
        assert (result.shape, result.dtype, result.device) == (like.shape, like.dtype, like.device)
    drawn = torch.randint_like(like, 2, 5)
    assert set(drawn.cpu().flatten().tolist()) <= {2.0, 3.0, 4.0}


def test_like_factories_keep_the_strides_of_a_permuted_tensor(host):
    like = host.to("spyre").t()
    assert torch.empty_like(like).stride() == torch.empty_like(host.t()).stride()
    same(torch.zeros_like(like), torch.zeros_like(host.t()))


def test_like_factories_may_change_dtype_and_device(host):
    same(
        torch.ones_like(host, device="spyre", dtype=torch.int32),
        torch.ones(3, 4, dtype=torch.int32),
    )
    assert torch.zeros_like(host.to("spyre"), device="cpu").device.type == "cpu"
    assert torch.zeros_like(host, device="spyre:1").device == torch.device("spyre:1")


def test_new_factories_stay_on_the_device(host):
    like = host.to("spyre:1")
    for result, expected in (
        (like.new_zeros(2, 3), host.new_zeros(2, 3)),
        (like.new_ones((2, 3)), host.new_ones((2, 3))),
        (like.new_full((2,), 4), host.new_full((2,), 4)),
        (like.new_tensor([1, 2]), host.new_tensor([1, 2])),
        (like.new_zeros(3, dtype=torch.int32), host.new_zeros(3, dtype=torch.int32)),
    ):
        same(result, expected)
        assert result.device == like.device
    assert like.new_empty(2, 3).shape == (2, 3)
    assert like.new_empty_strided((2, 3), (1, 2)).stride() == (1, 2)
    same(like.new_tensor([2.5], device="spyre:0"), host.new_tensor([2.5]))


# ----------------------------------------------------------------------------------- where it lands


def test_an_index_chooses_the_card():
    for device in ("spyre:1", torch.device("spyre", 1), torch.device("spyre:1")):
        assert torch.zeros(3, device=device).device == torch.device("spyre", 1)


def test_without_index_the_current_device_is_used():
    with torch.spyre.device(1):
        assert torch.zeros(3, device="spyre").device == torch.device("spyre", 1)
    assert torch.zeros(3, device="spyre").device == torch.device("spyre", 0)


FACTORY_CALLS = {
    "empty": lambda: torch.empty(3, 4),
    "empty_strided": lambda: torch.empty_strided((3, 4), (1, 3)),
    "zeros": lambda: torch.zeros(3),
    "ones": lambda: torch.ones(3),
    "full": lambda: torch.full((3,), 2.0),
    "tensor": lambda: torch.tensor([1.0, 2.0]),
    "as_tensor": lambda: torch.as_tensor([1.0, 2.0]),
    "scalar_tensor": lambda: torch.scalar_tensor(2.0),
    "rand": lambda: torch.rand(3),
    "randn": lambda: torch.randn(3),
    "randint": lambda: torch.randint(5, (3,)),
    "randperm": lambda: torch.randperm(3),
    "arange": lambda: torch.arange(3),
    "linspace": lambda: torch.linspace(0, 1, 3),
    "logspace": lambda: torch.logspace(0, 1, 3),
    "eye": lambda: torch.eye(3),
    "Linear": lambda: torch.nn.Linear(3, 4).weight,
}


@pytest.mark.parametrize("name", FACTORY_CALLS)
def test_the_device_context_applies_to_every_factory(name):
    with torch.device("spyre:1"):
        assert FACTORY_CALLS[name]().device == torch.device("spyre:1")
    assert FACTORY_CALLS[name]().device.type == "cpu"


def test_the_default_device_applies_until_it_is_reset():
    torch.set_default_device("spyre")
    try:
        same(torch.arange(3), torch.arange(3, device="cpu"))
        assert torch.zeros(3, device="cpu").device.type == "cpu"
        same(torch.tensor([1.5]), torch.tensor([1.5], device="cpu"))
    finally:
        torch.set_default_device(None)
    assert torch.zeros(3).device.type == "cpu"


def test_an_explicit_device_wins_over_the_context():
    with torch.device("spyre"):
        assert torch.zeros(3, device="cpu").device.type == "cpu"
    with torch.device("cpu"):
        assert torch.zeros(3, device="spyre").device.type == "spyre"


# -------------------------------------------------------------------------- device_layout= of empty


COLUMNS = SpyreTensorLayout([70, 90], [90, 1], torch.float16, [1, 0])


def test_empty_with_a_device_layout_lands_on_the_card():
    tensor = torch.empty(70, 90, dtype=torch.float16, device_layout=COLUMNS)
    assert tensor.device == torch.device("spyre", 0)
    assert tensor.device_tensor_layout() == COLUMNS
    host = torch.arange(6300).remainder(512).to(torch.float16).reshape(70, 90)
    assert torch.equal(tensor.copy_(host).cpu(), host)


def test_empty_with_a_device_layout_takes_the_size_in_every_way():
    for tensor in (
        torch.empty((70, 90), dtype=torch.float16, device_layout=COLUMNS),
        torch.empty([70, 90], dtype=torch.float16, device_layout=COLUMNS),
        torch.empty(size=(70, 90), dtype=torch.float16, device_layout=COLUMNS),
        torch.empty(
            torch.Size([70, 90]), dtype=torch.float16, device_layout=COLUMNS, device="spyre"
        ),
    ):
        assert tensor.shape == (70, 90)


def test_empty_with_a_device_layout_inside_device_contexts():
    with torch.device("spyre:1"):
        tensor = torch.empty(70, 90, dtype=torch.float16, device_layout=COLUMNS)
    assert tensor.device == torch.device("spyre", 1)
    with torch.device("spyre"):
        tensor = torch.empty(70, 90, dtype=torch.float16, device_layout=COLUMNS, device="spyre:1")
    assert tensor.device == torch.device("spyre", 1)
    with torch.spyre.device(1):
        tensor = torch.empty(70, 90, dtype=torch.float16, device_layout=COLUMNS)
    assert tensor.device == torch.device("spyre", 1)


def test_empty_with_a_device_layout_under_a_default_device():
    torch.set_default_device("spyre:1")
    try:
        tensor = torch.empty(70, 90, dtype=torch.float16, device_layout=COLUMNS)
    finally:
        torch.set_default_device(None)
    assert tensor.device == torch.device("spyre", 1)
    assert tensor.device_tensor_layout() == COLUMNS


def test_empty_with_a_device_layout_uses_the_default_dtype():
    layout = SpyreTensorLayout([5], torch.float32)
    assert torch.empty(5, device_layout=layout).dtype == torch.get_default_dtype()


def test_empty_without_a_device_layout_is_pytorchs_own():
    assert torch.empty(3).device.type == "cpu"
    assert torch.empty(2, 3, memory_format=torch.contiguous_format, device="spyre").shape == (2, 3)
    with torch.device("meta"):
        assert torch.empty(3).is_meta


# ----------------------------------------------------------------------------------------- autograd


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_requires_grad(dtype):
    for tensor in (
        torch.empty(3, dtype=dtype, device="spyre", requires_grad=True),
        torch.zeros(3, dtype=dtype, device="spyre", requires_grad=True),
        torch.tensor([1.0], dtype=dtype, device="spyre", requires_grad=True),
        torch.rand(3, dtype=dtype, device="spyre", requires_grad=True),
        torch.empty(
            3, dtype=dtype, device_layout=SpyreTensorLayout([3], dtype), requires_grad=True
        ),
    ):
        assert tensor.requires_grad
        assert tensor.is_leaf


def test_integers_cannot_require_grad():
    with pytest.raises(RuntimeError, match="floating point"):
        torch.zeros(3, dtype=torch.int32, device="spyre", requires_grad=True)


def test_gradients_flow_through_copies():
    leaf = torch.ones(3, 4, device="spyre", requires_grad=True)
    leaf[1:].cpu().sum().backward()
    assert leaf.grad.device == leaf.device
    assert leaf.grad.cpu().tolist() == [[0.0] * 4, [1.0] * 4, [1.0] * 4]
