"""Random ops beyond the fills: dropout, multinomial, distributions. Reproducible from the device's
generator, and without a fallback.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from subprocesses import fresh

pytestmark = pytest.mark.usefixtures("native")


def ones(*shape, dtype=torch.float32):
    return torch.ones(*shape, dtype=dtype, device="spyre")


DRAWS = {
    "rand": lambda: torch.rand(3, 70, device="spyre"),
    "randn": lambda: torch.randn(3, 70, device="spyre"),
    "randint": lambda: torch.randint(5, 900, (3, 70), device="spyre"),
    "randperm": lambda: torch.randperm(70, device="spyre"),
    "rand_like": lambda: torch.rand_like(ones(3, 70)),
    "randn_like": lambda: torch.randn_like(ones(3, 70)),
    "randint_like": lambda: torch.randint_like(ones(3, 70), 900),
    "normal": lambda: torch.normal(0.5, 2.0, (3, 70), device="spyre"),
    "normal of means": lambda: torch.normal(ones(3, 70), 2.0),
    "normal of deviations": lambda: torch.normal(0.5, ones(3, 70)),
    "normal of both": lambda: torch.normal(ones(3, 70), ones(70)),
    "uniform_": lambda: ones(3, 70).uniform_(-1, 1),
    "normal_": lambda: ones(3, 70).normal_(),
    "random_": lambda: ones(3, 70).random_(0, 100),
    "bernoulli": lambda: torch.bernoulli(ones(3, 70) / 2),
    "bernoulli with p": lambda: torch.bernoulli(ones(3, 70), 0.5),
    "bernoulli_": lambda: ones(3, 70).bernoulli_(0.5),
    "bernoulli_ of a tensor": lambda: ones(3, 70).bernoulli_(ones(3, 70) / 2),
    "bernoulli out": lambda: torch.bernoulli(ones(3, 70) / 2, out=ones(0)),
    "exponential_": lambda: ones(3, 70).exponential_(2),
    "geometric_": lambda: ones(3, 70).geometric_(0.3),
    "cauchy_": lambda: ones(3, 70).cauchy_(),
    "log_normal_": lambda: ones(3, 70).log_normal_(),
    "multinomial": lambda: torch.multinomial(ones(3, 70), 20),
    "multinomial with replacement": lambda: torch.multinomial(ones(70), 90, replacement=True),
    "poisson": lambda: torch.poisson(ones(3, 70) * 9),
    "binomial": lambda: torch.binomial(ones(3, 70) * 9, ones(3, 70) / 2),
    "gamma": lambda: torch._standard_gamma(ones(3, 70) * 2),
    "dirichlet": lambda: torch._sample_dirichlet(ones(3, 70)),
    "dropout": lambda: F.dropout(ones(3, 70)),
    "dropout of halves": lambda: F.dropout(ones(3, 70, dtype=torch.float16)),
    "feature_dropout": lambda: F.dropout2d(ones(9, 11, 3, 4)),
    "alpha_dropout": lambda: F.alpha_dropout(ones(3, 70), training=True),
    "feature_alpha_dropout": lambda: F.feature_alpha_dropout(ones(9, 11, 3), training=True),
    "rrelu": lambda: F.rrelu(-ones(3, 70), training=True),
    "gumbel_softmax": lambda: F.gumbel_softmax(ones(3, 70)),
    "dropout layer": lambda: torch.nn.Dropout(0.3)(ones(3, 70)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_seed_and_a_state_repeat_the_numbers(name):
    draw = DRAWS[name]
    torch.manual_seed(11)
    first, second = draw(), draw()
    assert first.device.type == "spyre"
    assert not torch.equal(first, second)
    torch.spyre.manual_seed(11)
    assert torch.equal(draw(), first)
    state = torch.spyre.get_rng_state()
    third = draw()
    assert torch.equal(third, second)
    torch.spyre.set_rng_state(state)
    assert torch.equal(draw(), second)
    torch.manual_seed(12)
    assert not torch.equal(draw(), first)


@pytest.mark.parametrize(
    "draw",
    [
        lambda g: torch.bernoulli(ones(70) / 2, generator=g),
        lambda g: torch.multinomial(ones(70), 30, generator=g),
        lambda g: torch.normal(ones(70), 1.0, generator=g),
        lambda g: torch.normal(ones(70), ones(70), generator=g),
        lambda g: torch.poisson(ones(70) * 9, generator=g),
        lambda g: torch.rand(70, generator=g, device="spyre"),
        lambda g: ones(70).exponential_(generator=g),
    ],
)
def test_a_generator_of_ones_own(draw):
    generator = torch.Generator("spyre").manual_seed(5)
    before = torch.spyre.get_rng_state()
    first = draw(generator)
    assert torch.equal(torch.spyre.get_rng_state(), before)
    assert torch.equal(draw(generator.manual_seed(5)), first)
    with pytest.raises(RuntimeError, match="generator"):
        draw(torch.Generator())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_dropout_keeps_its_share_and_scales_it(p, dtype):
    x = torch.linspace(1, 2, 40000).to(dtype).to("spyre").reshape(200, 200)
    result = F.dropout(x, p)
    assert result.dtype == dtype
    kept = (result != 0).cpu()
    share = kept.float().mean().item()
    assert abs(share - (1 - p)) < 5 * math.sqrt(p * (1 - p) / 40000) + 1e-9
    expected = x.cpu().double() / (1 - p) if p < 1 else x.cpu().double() * 0
    unit = 2.0**-7 if dtype == torch.bfloat16 else 2.0**-9
    torch.testing.assert_close(result.cpu().double()[kept], expected[kept], rtol=unit, atol=0)
    # Neighbours, in both directions, are independent.
    if p == 0.5:
        for shift in (1, 2, 200):
            flat = kept.flatten()
            agreement = (flat[shift:] == flat[:-shift]).float().mean().item()
            assert abs(agreement - 0.5) < 0.0125


def test_gradients_of_dropout_use_the_same_mask():
    x = torch.randn(30, 70, device="spyre", requires_grad=True)
    result = F.dropout(x, 0.3)
    result.backward(torch.ones_like(x))
    torch.testing.assert_close(x.grad.cpu(), (result != 0).cpu() / 0.7)


def test_the_mask_of_dropout_lies_as_its_input_does():
    x = torch.randn(3, 4, 5, device="spyre").permute(2, 0, 1)
    for train in (True, False):
        result, mask = torch.native_dropout(x, 0.5, train)
        assert result.stride() == mask.stride() == x.stride()


def test_dropout_in_evaluation_is_nothing():
    x = torch.randn(3, 70, device="spyre")
    assert torch.equal(F.dropout(x, 0.5, training=False), x)
    result, mask = torch.native_dropout(x, 0.5, False)
    assert torch.equal(result, x)
    assert mask.all()


def test_dropout_of_a_view_and_of_nothing():
    x = torch.ones(70, 9, device="spyre")
    result = F.dropout(x.t()[:, 3:], 0.5)
    assert result.shape == (9, 67)
    assert set(result.cpu().unique().tolist()) == {0.0, 2.0}
    assert F.dropout(torch.empty(0, 3, device="spyre")).shape == (0, 3)
    y = torch.ones(9, 70, device="spyre")
    F.dropout(y, 0.5, inplace=True)
    assert set(y.cpu().unique().tolist()) == {0.0, 2.0}


def test_wrong_probabilities_are_refused():
    x = torch.ones(5, device="spyre")
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        torch.native_dropout(x, 1.5, True)
    with pytest.raises(RuntimeError, match="std"):
        torch.normal(x, -1.0)
    with pytest.raises(RuntimeError, match="probability"):
        torch.multinomial(-x, 2)
    with pytest.raises(RuntimeError, match="n_sample"):
        torch.multinomial(x, 9)


def test_multinomial_follows_its_weights():
    weights = torch.tensor([0.0, 1.0, 3.0, 0.0], device="spyre")
    drawn = torch.multinomial(weights, 4000, replacement=True).cpu()
    assert drawn.dtype == torch.int64
    assert set(drawn.tolist()) == {1, 2}
    assert abs((drawn == 2).float().mean().item() - 0.75) < 0.05
    assert sorted(torch.multinomial(weights, 2).tolist()) == [1, 2]
    out = torch.empty(0, dtype=torch.int64, device="spyre")
    assert torch.multinomial(weights, 2, out=out) is out
    assert out.shape == (2,)


def test_normal_follows_its_parameters():
    mean = torch.tensor([[-100.0], [0.0], [100.0]], device="spyre").expand(3, 4000)
    drawn = torch.normal(mean, torch.tensor([2.0], device="spyre")).cpu()
    assert ((drawn.mean(1) - torch.tensor([-100.0, 0, 100])).abs() < 0.2).all()
    assert ((drawn.std(1) - 2).abs() < 0.1).all()
    out = torch.empty(0, device="spyre")
    assert torch.normal(mean, 1.0, out=out).shape == (3, 4000)


def test_rrelu_draws_a_slope_for_every_negative_element():
    x = torch.randn(30, 70, device="spyre", requires_grad=True)
    result = F.rrelu(x, 0.2, 0.4, training=True)
    slopes = (result / x).detach().cpu()
    negative = (x < 0).cpu()
    assert (slopes[~negative] == 1).all()
    assert ((slopes[negative] > 0.199) & (slopes[negative] < 0.401)).all()
    assert slopes[negative].std() > 0.04
    result.backward(torch.ones_like(x))
    torch.testing.assert_close(x.grad.cpu(), slopes, rtol=1e-4, atol=1e-5)


def test_masks_do_not_depend_on_the_number_of_threads():
    code = (
        "import torch\n"
        "torch.manual_seed(3)\n"
        "x = torch.nn.functional.dropout(torch.ones(300, 700, device='spyre'))\n"
        "print('sum', x.cpu().flatten().nonzero().sum().item())\n"
    )
    sums = {
        str(fresh(code, OMP_NUM_THREADS=threads)).split("sum")[1][:20] for threads in ("1", "2")
    }
    assert len(sums) == 1


def test_distributions():
    loc, scale = torch.zeros(5, device="spyre"), torch.ones(5, device="spyre")
    normal = torch.distributions.Normal(loc, scale)
    sample = normal.sample((100,))
    assert sample.device.type == "spyre"
    torch.testing.assert_close(
        normal.log_prob(sample).cpu(),
        torch.distributions.Normal(loc.cpu(), scale.cpu()).log_prob(sample.cpu()),
    )
    gamma = torch.distributions.Gamma(scale * 2, scale)
    value = gamma.sample((10,))
    torch.testing.assert_close(
        gamma.log_prob(value).cpu(),
        torch.distributions.Gamma(scale.cpu() * 2, scale.cpu()).log_prob(value.cpu()),
    )
