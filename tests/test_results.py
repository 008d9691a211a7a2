"""Results as they lie in memory: sizes, strides and dtypes of new tensors and of `out=`."""

import pytest
import torch

pytestmark = pytest.mark.usefixtures("native", "no_downcast_warning")

# Inputs that are not contiguous, of 3 x 4 x 5 x 6 elements.
VIEWS = {
    "transposed": lambda x: x.transpose(0, 2),
    "strided": lambda x: x.permute(3, 1, 0, 2)[::2],
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "expanded": lambda x: x[:, :1].mT.expand(-1, 4, -1, -1),
}
OPS = {
    "abs": torch.abs,
    "logical_not": torch.logical_not,
    "logical_and": lambda x: torch.logical_and(x, x.mT[..., :1, :1]),
    "logical_or with a number": lambda x: torch.logical_or(torch.tensor(1), x),
    "where": lambda x: torch.where(x > 0, x, 1),
    "where of a broadcast": lambda x: torch.where(x[:1] > 0, x, x[..., :1]),
    "floor_divide": lambda x: torch.floor_divide(x, 2),
    "roll": lambda x: x.roll(2, 1),
    "roll of two dimensions": lambda x: x.roll((1, -1), (0, 3)),
    "one index": lambda x: x[:, torch.tensor([2, 0], device=x.device)],
    "two indices": lambda x: x[torch.tensor([[1], [0]], device=x.device), :, [0, 1]],
    "a transposed index": lambda x: x[torch.tensor([[1, 0], [0, 1]], device=x.device).mT],
    "a mask": lambda x: x[:, x[0, :, 0, 0] > 0],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("op", OPS)
def test_new_tensors_lie_as_on_the_cpu(op, view):
    numbers = (torch.arange(360.0) % 11 - 5).view(3, 4, 5, 6)
    expected = OPS[op](VIEWS[view](numbers))
    result = OPS[op](VIEWS[view](numbers.to("spyre")))
    assert result.stride() == expected.stride()
    torch.testing.assert_close(result.cpu(), expected, rtol=0, atol=0)


def equals_two(x):
    return torch.eq(x, 2, out=torch.empty(0, dtype=torch.bool, device=x.device))


@pytest.mark.parametrize("op", [torch.logical_not, torch.abs, torch.isnan, equals_two])
def test_strides_of_one_element_are_the_cpus(op):
    def result(x):
        return op(x[:, :, :1, :1].clone().permute(3, 0, 1, 2)).stride()

    x = torch.ones(3, 4, 5, 6)
    assert result(x.to("spyre")) == result(x)


OUTS = {
    "neg": torch.neg,
    "add": lambda x, out: torch.add(x, x[:1], out=out),
    "mul": lambda x, out: torch.mul(x, 2, out=out),
    "gt": lambda x, out: torch.gt(x, 0, out=out),
    "clamp": lambda x, out: torch.clamp(x, -1, 2, out=out),
    "where": lambda x, out: torch.where(x > 0, x, x + 1, out=out),
    "amax": lambda x, out: torch.amax(x, 1, out=out),
    "cat": lambda x, out: torch.cat([x, x], 1, out=out),
    "index_select": lambda x, out: torch.index_select(
        x, 1, torch.tensor([0, 0], device=x.device), out=out
    ),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("op", OUTS)
def test_an_empty_out_is_resized_and_lies_as_on_the_cpu(op, view):
    numbers = (torch.arange(360.0) % 11 - 5).view(3, 4, 5, 6)
    dtype = torch.bool if op == "gt" else torch.float32
    results = []
    for device in ("cpu", "spyre"):
        out = torch.empty(0, dtype=dtype, device=device)
        OUTS[op](VIEWS[view](numbers.to(device)), out=out)
        results.append(out)
    assert results[1].stride() == results[0].stride()
    torch.testing.assert_close(results[1].cpu(), results[0], rtol=0, atol=0)


WRAPPING = {
    "add": lambda x, out: torch.add(x, x, out=out),
    "add of a multiple": lambda x, out: torch.add(x, x, alpha=2, out=out),
    "sub": lambda x, out: torch.sub(x * 0, x, out=out),
    "mul": lambda x, out: torch.mul(x, x, out=out),
    "square": torch.square,
    "addcmul": lambda x, out: torch.addcmul(x, x, x, out=out),
}


@pytest.mark.parametrize("out_dtype", [torch.int64, torch.int32, torch.float32, torch.int16])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16])
@pytest.mark.parametrize("op", WRAPPING)
def test_integers_wrap_in_their_own_dtype_before_they_go_to_out(op, dtype, out_dtype):
    x = torch.arange(0, 127).to(dtype) * (300 if dtype == torch.int16 else 1)
    expected = WRAPPING[op](x, out=torch.empty(127, dtype=out_dtype))
    result = WRAPPING[op](x.to("spyre"), out=torch.empty(127, dtype=out_dtype, device="spyre"))
    assert result.tolist() == expected.tolist()


def test_the_sum_of_bools_is_true_whatever_out_is():
    yes = torch.tensor([True], device="spyre")
    out = torch.empty(1, dtype=torch.int64, device="spyre")
    assert torch.add(yes, yes, out=out).tolist() == [1]


REFUSED = {
    "add to integers": lambda x: torch.add(x, 0.5, out=x.int()),
    "sub of bools": lambda x: torch.sub(x > 0, x > 1, out=x.clone()),
    "sub of a bool": lambda x: torch.sub(x, x > 1, out=x.clone()),
    "neg of bools": lambda x: torch.neg(x > 0, out=x.clone()),
    "neg of another dtype": lambda x: torch.neg(x, out=x.half()),
    "relu of bools": lambda x: torch.relu(x > 0),
    "relu_ of bools": lambda x: (x > 0).relu_(),
    "clamp of integers to a fraction": lambda x: torch.clamp(x.int(), 0.5, out=x.int()),
    "addcmul to integers": lambda x: torch.addcmul(x, x, x, out=x.int()),
    "a multiple that is no integer": lambda x: torch.add(x.int(), x.int(), alpha=0.5, out=x.int()),
}


@pytest.mark.parametrize("call", REFUSED)
def test_what_the_cpu_refuses_is_refused(call):
    for device in ("cpu", "spyre"):
        with pytest.raises(RuntimeError):
            REFUSED[call](torch.arange(-2.0, 3.0, device=device))
