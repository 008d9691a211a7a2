"""An op and its gradients, on the card and in float64 on the CPU, from the same values."""

from collections.abc import Callable, Sequence

import pytest
import torch

# A DLFloat16 result has 9 fraction bits and is rounded once, half a unit off at most; everything
# before that is fp32.
RELATIVE = {torch.float16: 2**-10, torch.bfloat16: 2**-10, torch.float32: 2e-6}
FLOATS = [torch.float16, torch.bfloat16, torch.float32]

# Views of a tensor that has been given room for them: how to make room, and the view.
VIEWS: dict[str, tuple[Callable, Callable]] = {
    "whole": (lambda x: x, lambda x: x),
    "channels_last": (lambda x: x.movedim(1, -1), lambda x: x.movedim(-1, 1)),
    "offset": (lambda x: torch.cat([x[..., :1], x], -1), lambda x: x[..., 1:]),
    "stepped": (lambda x: x.repeat_interleave(2, -1), lambda x: x[..., ::2]),
}


def wide(x: torch.Tensor) -> torch.Tensor:
    """The values on the card, exactly."""
    if not x.is_floating_point():
        return x.cpu()
    return x.detach().float().cpu().double()


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def on_card(x: torch.Tensor, dtype: torch.dtype, view: str = "whole") -> torch.Tensor:
    room, look = VIEWS[view]
    return look(room(x).contiguous().to(dtype).to("spyre"))


def check(
    actual: torch.Tensor, expected: torch.Tensor, scale: float = 1.0, roundings: int = 1
) -> None:
    """`scale`: of what was added up, for sums that nearly cancel."""
    assert actual.device.type == "spyre"
    assert actual.shape == expected.shape
    if not actual.is_floating_point():
        torch.testing.assert_close(wide(actual), expected, rtol=0, atol=0)
        return
    torch.testing.assert_close(
        wide(actual),
        expected.detach().double(),
        rtol=1.01 * roundings * RELATIVE[actual.dtype],
        atol=2e-6 * scale + (roundings - 1) * scale * RELATIVE[actual.dtype],
        equal_nan=True,
    )


def agree(
    op: Callable,
    inputs: Sequence[torch.Tensor],
    dtype: torch.dtype = torch.float32,
    view: str = "whole",
    scale: float = 1.0,
    roundings: int = 1,
    gradients: bool = True,
) -> None:
    """`op` of the inputs, the first of them as `view`, has the same result and gradients."""
    card = [on_card(x, dtype, view if i == 0 else "whole") for i, x in enumerate(inputs)]
    host = [wide(x) for x in card]
    if gradients:
        card = [x.detach().requires_grad_() for x in card]
        host = [x.detach().requires_grad_() for x in host]
    actual, expected = op(*card), op(*host)
    assert actual.dtype == dtype
    check(actual, expected, scale, roundings)
    if not gradients:
        return
    # Gradients of few bits: products with them stay exact, so float64 sees the same terms.
    gradient = torch.randint(-4, 5, expected.shape, generator=torch.Generator().manual_seed(9)) / 4
    actual.backward(gradient.to(dtype).to("spyre"))
    expected.backward(gradient.double())
    for x, y in zip(card, host, strict=True):
        assert x.grad.dtype == dtype
        check(x.grad, y.grad, scale, roundings)


def refused_as_on_the_cpu(call: Callable[[str], object]) -> None:
    """``call`` of a device raises on the card what it raises on the CPU."""
    with pytest.raises(Exception) as expected:
        call("cpu")
    with pytest.raises(expected.type):
        call("spyre")
