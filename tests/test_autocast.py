"""``torch.autocast("spyre")``: which dtype ops run in, nesting, gradients, the weight cache."""

import warnings

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.usefixtures("native")


LOWER = [torch.float16, torch.bfloat16]


def matrix(dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(8, 8, generator=generator) + 0.1).to(dtype).to("spyre")


LOWER_PRECISION = {
    "mm": torch.mm,
    "matmul": torch.matmul,
    "linear": F.linear,
    "addmm": lambda x, y: torch.addmm(x, x, y),
    "bmm": lambda x, y: torch.bmm(x[None], y[None]),
    "baddbmm": lambda x, y: torch.baddbmm(x[None], x[None], y[None]),
    "mv": lambda x, y: torch.mv(x, y[0]),
    "einsum": lambda x, y: torch.einsum("ij,jk->ik", x, y),
    "attention": lambda x, y: F.scaled_dot_product_attention(*(t[None, None] for t in (x, y, y))),
    "prelu": lambda x, y: F.prelu(x, y[0]),
}

FP32 = {
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "pow": lambda x: x**2.5,
    "rsqrt": lambda x: x.rsqrt(),
    "reciprocal": lambda x: x.reciprocal(),
    "softplus": F.softplus,
    "layer_norm": lambda x: F.layer_norm(x, (8,)),
    "rms_norm": lambda x: F.rms_norm(x, (8,)),
    "logsumexp": lambda x: x.logsumexp(1),
    "mse_loss": lambda x: F.mse_loss(x, x * 2),
    "l1_loss": lambda x: F.l1_loss(x, x * 2),
    "erfinv": lambda x: (x / 4).erfinv(),
    "binary_cross_entropy_with_logits": lambda x: F.binary_cross_entropy_with_logits(x, x / 4),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x + 1),
}


@pytest.mark.parametrize("dtype", LOWER)
@pytest.mark.parametrize("name", LOWER_PRECISION)
def test_matrix_products_run_in_the_chosen_dtype(name, dtype):
    x, y = matrix(), matrix(seed=1)
    with torch.autocast("spyre", dtype=dtype):
        result = LOWER_PRECISION[name](x, y)
    assert result.dtype == dtype
    expected = LOWER_PRECISION[name](x.cpu(), y.cpu())
    torch.testing.assert_close(result.cpu().float(), expected, rtol=2e-2, atol=2e-2)
    assert LOWER_PRECISION[name](x, y).dtype == torch.float32


@pytest.mark.parametrize("dtype", LOWER)
@pytest.mark.parametrize("name", FP32)
def test_delicate_ops_run_in_float32(name, dtype):
    x = matrix(dtype)
    with torch.autocast("spyre", dtype=dtype):
        result = FP32[name](x)
    assert result.dtype == torch.float32
    assert FP32[name](x).dtype == dtype


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.addcmul(x, x, y),
        lambda x, y: torch.addcdiv(x, x, y),
        torch.atan2,
        lambda x, y: torch.dot(x[0], y[0]),
    ],
)
def test_mixed_operands_are_promoted_to_the_widest(function):
    half, single = matrix(torch.float16), matrix(seed=1)
    with torch.autocast("spyre"):
        assert function(half, single).dtype == torch.float32
        assert function(half, half).dtype == torch.float16


def test_other_ops_keep_the_dtype_they_are_given():
    x = matrix(torch.float16)
    with torch.autocast("spyre"):
        assert (x + x).dtype == torch.float16
        assert x.relu().dtype == torch.float16
        assert x.sum().dtype == torch.float16
        assert x.softmax(1).dtype == torch.float16
        assert (matrix() + matrix()).dtype == torch.float32
        assert torch.mm(matrix(), matrix()).relu().dtype == torch.float16


def test_what_it_is_without_arguments():
    assert torch.get_autocast_dtype("spyre") == torch.float16
    assert torch.spyre.get_amp_supported_dtype() == LOWER
    assert torch.amp.is_autocast_available("spyre")
    assert not torch.is_autocast_enabled("spyre")
    with torch.autocast("spyre"):
        assert torch.is_autocast_enabled("spyre")
        assert not torch.is_autocast_enabled("cpu")
        assert torch.mm(matrix(), matrix()).dtype == torch.float16
    assert not torch.is_autocast_enabled("spyre")


def test_nesting_and_disabling():
    x = matrix()
    with torch.autocast("spyre", dtype=torch.bfloat16):
        assert torch.mm(x, x).dtype == torch.bfloat16
        with torch.autocast("spyre", enabled=False):
            assert torch.mm(x, x).dtype == torch.float32
            with torch.autocast("spyre", dtype=torch.float16):
                assert torch.mm(x, x).dtype == torch.float16
        assert torch.mm(x, x).dtype == torch.bfloat16
        with torch.autocast("cpu"):
            assert torch.mm(x, x).dtype == torch.bfloat16
            assert torch.mm(x.cpu(), x.cpu()).dtype == torch.bfloat16
    with torch.autocast("spyre", enabled=False):
        assert torch.mm(x, x).dtype == torch.float32


def test_an_exception_leaves_it():
    with pytest.raises(ZeroDivisionError), torch.autocast("spyre"):
        1 / 0  # noqa: B018
    assert torch.mm(matrix(), matrix()).dtype == torch.float32


def test_a_dtype_that_is_not_supported_warns_and_disables():
    x = matrix()
    with pytest.warns(UserWarning, match="target dtype is not supported"):
        context = torch.autocast("spyre", dtype=torch.float32)
    with context:
        assert torch.mm(x, x).dtype == torch.float32
        assert not torch.is_autocast_enabled("spyre")


def test_as_a_decorator():
    @torch.autocast("spyre", dtype=torch.bfloat16)
    def product(x):
        return x @ x

    assert product(matrix()).dtype == torch.bfloat16


def test_weights_are_converted_once():
    layer = torch.nn.Linear(8, 8, bias=False).to("spyre")
    x = matrix(torch.float16)

    def launches(cache):
        with torch.autocast("spyre", cache_enabled=cache):
            layer(x)  # programs are made
            before = torch.spyre.counters().launches
            for _ in range(5):
                layer(x)
            return torch.spyre.counters().launches - before

    cached, anew = launches(True), launches(False)
    assert anew == cached + 5
    with torch.autocast("spyre"):
        first = layer(x)
        with torch.no_grad():
            layer.weight.mul_(2)
    with torch.autocast("spyre"):  # the cache is emptied on the way out
        torch.testing.assert_close(layer(x).cpu(), (first * 2).cpu(), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", LOWER)
def test_gradients_come_in_the_dtype_of_the_parameters(dtype):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 4)
    )
    card = torch.nn.Sequential(*model).to("spyre")
    x, y = matrix(), matrix(seed=1)[:, :4]
    with torch.autocast("spyre", dtype=dtype):
        output = card(x)
        loss = F.mse_loss(output, y)
    assert output.dtype == dtype
    assert loss.dtype == torch.float32
    loss.backward()
    grads = [p.grad.cpu() for p in card.parameters()]
    assert all(p.grad.dtype == torch.float32 for p in card.parameters())
    card.zero_grad()
    F.mse_loss(card(x), y).backward()
    for got, p in zip(grads, card.parameters(), strict=True):
        torch.testing.assert_close(got, p.grad.cpu(), rtol=5e-2, atol=2e-2)


def test_custom_functions():
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="spyre", cast_inputs=torch.float32)
        def forward(ctx, x):
            assert not torch.is_autocast_enabled("spyre")
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="spyre")
        def backward(ctx, grad):
            return grad * 2

    x = matrix(torch.float16).requires_grad_()
    with torch.autocast("spyre"):
        result = Double.apply(x)
    assert result.dtype == torch.float32
    result.sum().backward()
    assert x.grad.dtype == torch.float16


def test_threads_have_their_own_state():
    from concurrent.futures import ThreadPoolExecutor

    with torch.autocast("spyre"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: torch.mm(matrix(), matrix()).dtype).result() == torch.float32


def test_no_warning_in_ordinary_use():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.autocast("spyre"):
            torch.mm(matrix(), matrix())


def test_scaled_gradients_train_as_unscaled_ones():
    torch.manual_seed(0)
    weight = torch.randn(8, 8)
    x, y = matrix(), matrix(seed=1)
    results = []
    for enabled in (True, False):
        p = weight.to("spyre").requires_grad_()
        optimizer = torch.optim.SGD([p], 0.1)
        scaler = torch.amp.GradScaler("spyre", init_scale=256.0, enabled=enabled)
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale(F.mse_loss(x @ p, y)).backward()
            scaler.step(optimizer)
            scaler.update()
        results.append(p.detach().cpu())
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)


def test_an_overflow_skips_the_step_and_halves_the_scale():
    p = torch.ones(70, device="spyre", requires_grad=True)
    optimizer = torch.optim.SGD([p], 1.0)
    scaler = torch.amp.GradScaler("spyre", init_scale=8.0, growth_interval=2)

    def step(factor):
        optimizer.zero_grad()
        scaler.scale((p * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        return scaler.get_scale()

    factor = torch.ones(70, device="spyre")
    factor[66] = float("inf")
    assert step(factor) == 4
    assert (p == 1).all()
    assert step(1.0) == 4
    assert (p == 0).all()
    assert step(1.0) == 8  # the second success in a row
    assert step(float("nan")) == 4


def test_pytorch_still_needs_the_patch_of_the_scaler():
    original = torch.amp.GradScaler.unscale_.__wrapped__
    p = torch.ones(3, device="spyre", requires_grad=True)
    optimizer = torch.optim.SGD([p], 1.0)
    scaler = torch.amp.GradScaler("spyre")
    scaler.scale(p.sum()).backward()
    with pytest.raises(TypeError, match="float64"):
        original(scaler, optimizer)
    scaler.unscale_(optimizer)
    assert (p.grad == 1).all()
