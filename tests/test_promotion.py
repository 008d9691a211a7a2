"""Operands are converted to PyTorch's common dtype before an op computes, op by op and compiled.

A tensor without dimensions takes no part in the choice of that dtype if the other operand has
dimensions and is of the same kind: its numbers may not fit.
"""

import pytest
import torch

pytestmark = pytest.mark.usefixtures("native", "no_downcast_warning")

OPS = {
    "minimum": torch.minimum,
    "lt": torch.lt,
    "eq": torch.eq,
    "add": torch.add,
    "mul": torch.mul,
    "rsub": lambda x, y: y - x,
    "remainder": torch.remainder,
    "floor_divide": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "where": lambda x, y: torch.where(x > 2, x, y),
    "lt_": lambda x, y: x.clone().lt_(y),
    "add_": lambda x, y: x.clone().add_(y),
    "clamp": lambda x, y: torch.clamp(x, min=y),
    "gcd": torch.gcd,
    "bitwise_or": torch.bitwise_or,
    "masked_fill": lambda x, y: x.masked_fill(x > 2, y),
    "pow": torch.pow,
}
NARROWER = [
    (torch.uint8, torch.int64),
    (torch.uint8, torch.int16),
    (torch.int8, torch.int32),
    (torch.int16, torch.int64),
    (torch.int32, torch.int64),
]


def outcome(op, *operands):
    try:
        result = op(*operands)
    except (RuntimeError, NotImplementedError) as error:
        return type(error)
    return result.dtype, result.tolist()


def examples(dtype):
    return torch.tensor([0, 1, 3, 5, 7, 100, 200]).to(dtype)


@pytest.mark.parametrize(("dtype", "wider"), NARROWER, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_an_integer_without_dimensions_wraps_around(name, dtype, wider):
    op, x = OPS[name], examples(dtype)
    for number in (-8, 300, 70000, 3):
        y = torch.tensor(number).to(wider)
        expected = outcome(op, x, y)
        assert outcome(op, x.to("spyre"), y.to("spyre")) == expected
        if name != "clamp":  # which PyTorch has of one device only
            assert outcome(op, x.to("spyre"), y) == expected


@pytest.mark.parametrize(("dtype", "wider"), NARROWER[:3], ids=str)
def test_and_in_compiled_graphs(dtype, wider, fresh_compiler):
    names = ("minimum", "lt", "add", "rsub", "remainder", "where", "lt_")

    def every(x, y):
        return [OPS[name](x, y) for name in names]

    compiled, x = torch.compile(every, fullgraph=True), examples(dtype)
    for number in (-8, 300):
        y = torch.tensor(number).to(wider)
        for there in (y.to("spyre"), y):
            for got, expected in zip(compiled(x.to("spyre"), there), every(x, y), strict=True):
                assert (got.dtype, got.tolist()) == (expected.dtype, expected.tolist())


NUMBERS = [0.1, 1 / 3, 1000.7, -2.2, 1e-3, 123.456, 65504.0, -0.7]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_numbers_are_compared_as_the_dtype_holds_them(dtype, fresh_compiler):
    def compared(x):
        return [f(x, n) for f in (torch.eq, torch.lt, torch.ge, torch.remainder) for n in NUMBERS]

    host = torch.tensor(NUMBERS, dtype=dtype)
    expected = [found.tolist() for found in compared(host)[: -len(NUMBERS)]]
    filled = [torch.full((), number, dtype=dtype, device="spyre") for number in NUMBERS]
    for x in (host.to("spyre"), torch.stack(filled)):
        for function in (compared, torch.compile(compared, fullgraph=True)):
            found = [result.tolist() for result in function(x)]
            assert found[: -len(NUMBERS)] == expected
            for i, rest in enumerate(found[-len(NUMBERS) :]):
                assert rest[i] == 0


UINT8 = {
    "sum": lambda x: x + x,
    "conversion": lambda x: (x.long() * 100 - 8).to(torch.uint8),
    "negation": lambda x: -x,
    "between": lambda x: (x.long() - 300).to(torch.uint8).long() + 1,
    "compared": lambda x: (x + x) == 144,
    "as float": lambda x: (x * 3).float() + 0.5,
    "reduced": lambda x: (x + x).amax(0),
}


@pytest.mark.parametrize("name", UINT8)
def test_uint8_has_8_bits_inside_of_kernels(name, fresh_compiler):
    function, x = UINT8[name], examples(torch.uint8)
    got = torch.compile(function, fullgraph=True)(x.to("spyre"))
    expected = function(x)
    assert (got.dtype, got.tolist()) == (expected.dtype, expected.tolist())
    # What lies in memory is what later ops read.
    assert got.to(torch.float32).tolist() == expected.to(torch.float32).tolist()


HOST_NUMBERS = [
    lambda x, n: x + n,
    lambda x, n: n - x,
    lambda x, n: n * 2 - x,
    lambda x, n: torch.minimum(n, x),
    lambda x, n: torch.where(x > 1, n, x),
    lambda x, n: torch.addcmul(n, x, x),
    lambda x, n: torch.stack([x, x * n]) / n,
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
def test_numbers_of_the_host_in_compiled_graphs(dtype, fresh_compiler):
    """Inductor made loops of the host that read the card's memory, if the number came first."""
    x, number = torch.arange(5.0), torch.tensor(2.0).to(dtype)

    def every(x, n):
        return [function(x, n) for function in HOST_NUMBERS]

    compiled = torch.compile(every, fullgraph=True)
    for got, expected in zip(compiled(x.to("spyre"), number), every(x, number), strict=True):
        assert got.device.type == "spyre"
        torch.testing.assert_close(got.cpu(), expected)
