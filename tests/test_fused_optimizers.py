"""Adam, AdamW and SGD with `fused=True`: one program a step, the CPU's numbers."""

import pytest
import torch

SIZES = [(3, 70), (5,), (), (2, 3, 4), (0, 4)]

ADAM = {
    "plain": {},
    "decay": {"weight_decay": 0.1},
    "amsgrad": {"amsgrad": True, "maximize": True},
    "betas": {"betas": (0.5, 0.9), "eps": 1e-3},
    "tensor lr": {"lr": torch.tensor(0.02)},
}
SGD = {
    "plain": {},
    "momentum": {"momentum": 0.9, "dampening": 0.2, "weight_decay": 0.1},
    "nesterov": {"momentum": 0.5, "nesterov": True, "maximize": True},
}
CASES = [
    pytest.param(kind, options, id=f"{kind.__name__} {name}")
    for kind, cases in ((torch.optim.Adam, ADAM), (torch.optim.AdamW, ADAM), (torch.optim.SGD, SGD))
    for name, options in cases.items()
]


def train(kind, options, device, dtype=torch.float32, rounded=torch.float32, steps=3):
    """The parameters after some steps, with gradients that do not depend on them."""
    generator = torch.Generator().manual_seed(0)

    def values(size):
        return torch.randn(size, generator=generator).to(rounded).to(device, dtype)

    weights = [torch.nn.Parameter(values(size)) for size in SIZES]
    optimizer = kind(weights, fused=True, **{"lr": 0.01, **options})
    for _ in range(steps):
        for weight in weights:
            weight.grad = values(weight.shape)
        optimizer.step()
    return weights, optimizer


@pytest.mark.parametrize(("kind", "options"), CASES)
def test_the_numbers_are_those_of_the_cpu(kind, options, native):
    ours, optimizer = train(kind, options, "spyre")
    theirs, reference = train(kind, options, "cpu")
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.detach().cpu(), other.detach())
        state, expected = optimizer.state[mine], reference.state[other]
        assert state.keys() == expected.keys()
        for name, value in expected.items():
            if isinstance(value, torch.Tensor):
                assert state[name].is_spyre
                torch.testing.assert_close(state[name].cpu(), value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_short_floats_are_computed_in_float32(kind, dtype, native):
    ours, _ = train(kind, {"lr": 0.125}, "spyre", dtype, dtype, steps=1)
    # In float16 itself Adam divides by 0: small squares and eps vanish.
    theirs, _ = train(kind, {"lr": 0.125}, "cpu", rounded=dtype, steps=1)
    for mine, other in zip(ours, theirs, strict=True):
        expected = other.detach().to(dtype)
        torch.testing.assert_close(mine.detach().cpu(), expected, rtol=2**-7, atol=2**-9)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_a_step_is_one_program_however_many_parameters_there_are(kind):
    weights = [torch.nn.Parameter(torch.ones(4, 3, device="spyre")) for _ in range(20)]
    optimizer = kind(weights, lr=torch.tensor(0.1, device="spyre"), fused=True)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer.step()  # makes its state
    before = torch.spyre.counters().launches
    optimizer.step()
    counts_steps = kind is torch.optim.Adam  # for all parameters in one more
    assert torch.spyre.counters().launches - before == 1 + counts_steps
    steps = {state["step"].item() for state in optimizer.state.values() if "step" in state}
    assert steps == ({2.0} if counts_steps else set())


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_a_gradient_scaler_unscales_inside_of_the_step_and_skips_overflows(kind, native):
    def run(device: str) -> list[torch.Tensor]:
        weight = torch.nn.Parameter(torch.linspace(-1, 1, 6, device=device))
        optimizer = kind([weight], lr=0.1, fused=True)
        scaler = torch.amp.GradScaler(device, init_scale=8.0)
        seen = []
        for factor in (1.0, float("inf"), 3.0):
            optimizer.zero_grad()
            scaler.scale((weight * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            seen.append(weight.detach().cpu().clone())
        return seen

    for ours, theirs in zip(run("spyre"), run("cpu"), strict=True):
        torch.testing.assert_close(ours, theirs)
    first, second, _ = run("spyre")
    assert torch.equal(first, second)


def test_views_and_other_layouts_are_updated_in_place(native):
    base = torch.zeros(6, 8, device="spyre")
    weight = base.t()[2:5]
    gradient = torch.arange(18.0).reshape(3, 6).to("spyre")
    torch._fused_sgd_(
        [weight], [gradient], [], weight_decay=0.0, momentum=0.0, lr=0.5, dampening=0.0,
        nesterov=False, maximize=False, is_first_step=False,
    )  # fmt: skip
    expected = torch.zeros(6, 8)
    expected.t()[2:5] -= 0.5 * torch.arange(18.0).reshape(3, 6)
    assert torch.equal(base.cpu(), expected)


def test_lists_that_do_not_fit_together_are_refused():
    one = torch.ones(3, device="spyre")
    options = {
        "weight_decay": 0.0, "momentum": 0.0, "lr": 0.5, "dampening": 0.0, "nesterov": False,
        "maximize": False, "is_first_step": False,
    }  # fmt: skip
    with pytest.raises(RuntimeError, match=r"size \[3\] on spyre:0 has a gradient or state of"):
        torch._fused_sgd_([one], [torch.ones(4, device="spyre")], [], **options)
    with pytest.raises(RuntimeError, match="expected lists of 1 tensors"):
        torch._fused_sgd_([one], [one, one], [], **options)
    weight = torch.nn.Parameter(one)
    weight.grad = one
    with pytest.raises(NotImplementedError, match="Adagrad has no fused kernel"):
        torch.optim.Adagrad([weight], fused=True).step()
