"""Training steps on the card: `loss.backward()` and an optimizer's step, against the CPU.

The references are the same model in float64, from the values the card holds. A float32 model must
agree to float32's error; a float16 one to DLFloat16's: each op rounds to 9 fraction bits, and the
errors of the ops between a weight and the loss add up like a random walk.
"""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torch_spyre.ops.fallbacks import fallback_counts, reset_fallback_counts

FLOATS = [torch.float16, torch.float32]


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(70, 130), nn.GELU(), nn.LayerNorm(130), nn.Linear(130, 65), nn.ReLU(),
            nn.Linear(65, 10),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.pow(2).mean(-1, keepdim=True)
        return x * torch.rsqrt(mean + 1e-5) * self.weight


class Attention(nn.Module):
    """Grouped queries, causal, rotary positions; written out in plain PyTorch."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, groups * self.size, bias=False)
        self.v = nn.Linear(width, groups * self.size, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        angles = torch.outer(torch.arange(12.0), 10.0 ** -torch.linspace(0, 3, self.size // 2))
        self.register_buffer("cos", torch.cat([angles.cos()] * 2, -1))
        self.register_buffer("sin", torch.cat([angles.sin()] * 2, -1))

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return x * self.cos + torch.cat([-second, first], -1) * self.sin

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape

        def split(t: torch.Tensor, heads: int) -> torch.Tensor:
            return t.view(batch, length, heads, self.size).transpose(1, 2)

        q = self.rotated(split(self.q(x), self.heads))
        k = self.rotated(split(self.k(x), self.groups))
        v = split(self.v(x), self.groups)
        k, v = (t.repeat_interleave(self.heads // self.groups, 1) for t in (k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.size)
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = F.softmax(scores.masked_fill(future, float("-inf")), -1)
        return self.o((weights @ v).transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    """A decoder's block: attention and SwiGLU, each behind an RMS norm."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.before, self.between = RMSNorm(width), RMSNorm(width)
        self.attention = Attention(width, heads=4, groups=2)
        self.gate = nn.Linear(width, 160, bias=False)
        self.up = nn.Linear(width, 160, bias=False)
        self.down = nn.Linear(160, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before(x))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class FusedAttention(Attention):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            f(x).view(batch, length, -1, self.size).transpose(1, 2)
            for f in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(
            self.rotated(q), self.rotated(k), v, is_causal=True, enable_gqa=True
        )
        return self.o(y.transpose(1, 2).reshape(batch, length, -1))


class FusedBlock(Block):
    """The same through PyTorch's own attention and norm."""

    def __init__(self, width: int = 96) -> None:
        super().__init__(width)
        self.before, self.between = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.attention.__class__ = FusedAttention


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, eps=1e-4),
}


def held(module: nn.Module, dtype: torch.dtype) -> tuple[nn.Module, nn.Module]:
    """The module on the card, and in float64 with the values that the card holds."""
    card = copy.deepcopy(module).to("spyre", dtype)
    reference = copy.deepcopy(module).double()
    with torch.no_grad():
        for ours, exact in zip(
            card.state_dict().values(), reference.state_dict().values(), strict=True
        ):
            exact.copy_(ours.cpu())
    return card, reference


def distance(ours: torch.Tensor, exact: torch.Tensor) -> float:
    """Error relative to the size of the whole tensor."""
    ours, exact = ours.detach().cpu().double(), exact.detach()
    return float((ours - exact).norm() / exact.norm().clamp(min=1e-12))


def step(module, x, loss_of, make_optimizer):
    optimizer = make_optimizer(module.parameters())
    loss = loss_of(module(x))
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in module.named_parameters()}
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    optimizer.step()
    moved = {name: p.detach() - before[name] for name, p in module.named_parameters()}
    return loss, gradients, moved


def check_step(module, x, dtype, optimizer, loss_of=None):
    card, reference = held(module, dtype)
    card_x = x.to(dtype).to("spyre")
    exact_x = card_x.cpu().double()
    target = torch.Generator().manual_seed(1)
    target = torch.randn(reference(exact_x).shape, generator=target).to(dtype).to("spyre")

    def loss(y: torch.Tensor) -> torch.Tensor:
        if loss_of is not None:
            return loss_of(y)
        difference = y - (target if y.device.type == "spyre" else target.cpu().double())
        # A sum and no mean: Adam squares gradients, and what is below 2**-31 is 0 in DLFloat16.
        return (difference * difference).sum()

    make = OPTIMIZERS[optimizer]
    ours, gradients, _ = step(card, card_x, loss, make)
    exact, exact_gradients, exact_moved = step(reference, exact_x, loss, make)
    # Errors of about 30 roundings in a row, relative to the norm of a whole tensor.
    allowed = {torch.float32: 2e-5, torch.float16: math.sqrt(30) * 2.0**-10}[dtype]
    assert distance(ours, exact) < allowed
    for name, gradient in exact_gradients.items():
        assert gradients[name].device.type == "spyre"
        assert gradients[name].dtype == dtype
        assert distance(gradients[name], gradient) < 3 * allowed, name
    # A step changes float16 weights by few units in the last place: what is kept of it is the
    # rounded sum. Adam moves weights by as much where the gradient is below the format's error.
    noise = 0.2 if (optimizer, dtype) == ("AdamW", torch.float16) else 6 * allowed
    for (name, ours), exact in zip(card.named_parameters(), reference.parameters(), strict=True):
        spacing = {torch.float32: 2.0**-23, torch.float16: 2.0**-9}[dtype]
        largest = float(exact_moved[name].abs().max())
        error = (ours.detach().cpu().double() - exact.detach()).norm() / math.sqrt(exact.numel())
        rounding = spacing * float(exact.detach().abs().max())
        assert float(error) < rounding + noise * largest, name


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


pytestmark = pytest.mark.filterwarnings("ignore::torch_spyre.ops.fallbacks.FallbackWarning")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_an_mlp_takes_a_step(dtype, optimizer):
    check_step(MLP(), numbers(9, 70), dtype, optimizer)


@pytest.mark.parametrize("dtype", FLOATS)
def test_an_mlp_with_cross_entropy(dtype):
    target = torch.tensor([1, 0, 9, 3, 3, 7, 2, 5, 8])
    check_step(
        MLP(), numbers(9, 70), dtype, "SGD", lambda y: F.cross_entropy(y, target.to(y.device))
    )


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("block", [Block, FusedBlock])
def test_a_transformer_block_takes_a_step(block, dtype, optimizer):
    check_step(block(), numbers(2, 12, 96), dtype, optimizer)


@pytest.mark.parametrize("dtype", FLOATS)
def test_both_blocks_are_the_same_function(dtype):
    torch.manual_seed(0)
    plain = Block().to("spyre", dtype)
    torch.manual_seed(0)
    fused = FusedBlock().to("spyre", dtype)
    x = numbers(2, 12, 96).to("spyre", dtype)
    allowed = {torch.float32: 1e-5, torch.float16: 2.0**-7}[dtype]
    assert distance(fused(x), plain(x).detach().cpu().double()) < allowed


def test_several_steps_bring_the_loss_down():
    module, x = MLP().to("spyre"), numbers(32, 70).to("spyre")
    target = torch.sin(x[:, :10])
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = F.mse_loss(module(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4


def test_gradients_accumulate_and_checkpointing_recomputes():
    module, x = Block().to("spyre"), numbers(2, 12, 96).to("spyre")
    module(x).sum().backward()
    once = {name: p.grad.clone() for name, p in module.named_parameters()}
    torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False).sum().backward()
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(parameter.grad.cpu(), 2 * once[name].cpu())


def test_a_block_trains_without_the_cpu():
    reset_fallback_counts()
    module, x = Block().to("spyre", torch.float16), numbers(2, 12, 96).to("spyre", torch.float16)
    module(x).sum().backward()
    torch.optim.AdamW(module.parameters(), eps=1e-4).step()
    assert fallback_counts() == {}


def test_a_stock_encoder_layer_with_dropout_compiles(fresh_compiler):
    layer = torch.nn.TransformerEncoderLayer(64, 2, 128, batch_first=True).to("spyre")
    x = torch.randn(2, 8, 64, device="spyre", requires_grad=True)
    torch.compile(layer)(x).sum().backward()
    assert all(p.grad.isfinite().all() for p in [x, *layer.parameters()])
