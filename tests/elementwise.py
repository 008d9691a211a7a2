"""What tests of elementwise ops share: inputs, references, and how close a result has to be."""

import torch

FLOATS = [torch.float16, torch.bfloat16, torch.float32]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]


def values(dtype, shape=(5, 70), low=-4.0, high=4.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if not dtype.is_floating_point:
        low, high = (0, 20) if dtype == torch.uint8 else (-20, 20)
        return torch.randint(low, high, shape, generator=generator, dtype=dtype)
    return (torch.rand(shape, generator=generator) * (high - low) + low).to(dtype)


def check(result, expected):
    """One unit in the last place of the format, after one rounding of the fp32 value."""
    assert result.device.type == "spyre"
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    got = result.cpu()
    if not got.dtype.is_floating_point:
        assert torch.equal(got, expected)
        return
    relative, absolute = {
        torch.float32: (2.0**-21, 1e-9),
        torch.bfloat16: (2.0**-7, 1e-9),
        # the spacing of IEEE half's subnormals, on the way back
        torch.float16: (2.0**-9, 2.0**-24),
    }[got.dtype]
    torch.testing.assert_close(
        got.float(), expected.float(), rtol=relative, atol=absolute, equal_nan=True
    )


def reference(function, *inputs):
    """The op on the CPU, in fp64 from the values the card holds, in PyTorch's result dtype."""
    result = function(*inputs)
    if not result.dtype.is_floating_point:
        return result
    wide = [x.double() if torch.is_tensor(x) and x.is_floating_point() else x for x in inputs]
    return function(*wide).to(result.dtype)


def check_gradients(function, *inputs, rtol=1e-5, atol=1e-6):
    """Gradients of float32 inputs on the card against those of float64 on the CPU."""

    def leaf(x, device, dtype):
        if not torch.is_tensor(x) or not x.is_floating_point():
            return x.to(device) if torch.is_tensor(x) else x
        return x.detach().to(device, dtype).requires_grad_()

    card = [leaf(x, "spyre", torch.float32) for x in inputs]
    host = [leaf(x, "cpu", torch.float64) for x in inputs]
    result, expected = function(*card), function(*host)
    weight = torch.linspace(0.5, 1.5, expected.numel()).reshape(expected.shape)
    result.backward(weight.to("spyre"))
    expected.backward(weight.double())
    torch.testing.assert_close(
        result.detach().cpu().double(), expected.detach(), rtol=rtol, atol=atol
    )
    for x, y in zip(card, host, strict=True):
        if torch.is_tensor(x) and x.is_floating_point():
            torch.testing.assert_close(x.grad.cpu().double(), y.grad, rtol=rtol, atol=atol)
