"""Blocks of models, written as users write them, with inputs of small and unaligned sizes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from compiling import card
from torch import nn


@dataclass
class Block:
    function: Callable[..., torch.Tensor]
    args: Sequence[torch.Tensor]
    eager_calls: Sequence[str] = ()  # that stay between the kernels


def turned(x):
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


def rotated(q, k, cos, sin):
    return q * cos + turned(q) * sin, k * cos + turned(k) * sin


def gated_mlp(x, gate, up, down):
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


class Model(nn.Module):
    """Embedding to logits, with a rotated, grouped attention and a gated MLP."""

    def __init__(self, words=50, hidden=128, heads=2, layers=1):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(words, hidden)
        self.norms = nn.ModuleList(nn.RMSNorm(hidden) for _ in range(2 * layers + 1))
        self.qkv = nn.ModuleList(nn.Linear(hidden, 2 * hidden, bias=False) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(hidden, 200) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(200, hidden) for _ in range(layers))

    def forward(self, words):
        x = self.embed(words)
        batch, length, hidden = x.shape
        for i in range(len(self.qkv)):
            q, k, v = self.qkv[i](self.norms[2 * i](x)).split(
                [hidden, hidden // 2, hidden // 2], -1
            )
            q, k, v = (t.view(batch, length, -1, 64).transpose(1, 2) for t in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.out[i](y.transpose(1, 2).reshape(batch, length, hidden))
            x = x + self.down[i](F.silu(self.up[i](self.norms[2 * i + 1](x))))
        return F.linear(self.norms[-1](x), self.embed.weight)


def model_on_card(**sizes):
    torch.manual_seed(0)
    return Model(**sizes).half().requires_grad_(False).to("spyre")


# ---------------------------------------------------------------------------- one kernel each


def softmax():
    return Block(lambda x: torch.softmax(x, -1), [card(3, 70)])


def layer_norm():
    def norm(x, weight, bias):
        return F.layer_norm(x, weight.shape, weight, bias)

    return Block(norm, [card(3, 70), card(70, seed=1), card(70, seed=2)])


def rms_norm():
    def norm(x, weight):
        return F.rms_norm(x, weight.shape, weight, 1e-5)

    return Block(norm, [card(3, 70), card(70, seed=1)])


def swiglu_mlp():
    weights = [card(130, 64, seed=1), card(130, 64, seed=2), card(64, 130, seed=3)]
    return Block(gated_mlp, [card(3, 64), *weights])


def causal_attention():
    """Four heads of queries share two of keys and values."""

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    return Block(attend, [card(1, 4, 9, 64), card(1, 2, 9, 64, seed=1), card(1, 2, 9, 64, seed=2)])


def rope():
    angles = [card(9, 32, seed=seed) for seed in (1, 2)]
    return Block(rotated, [card(1, 4, 9, 32), card(1, 2, 9, 32, seed=3), *angles])


def embedding_to_logits():
    words = torch.tensor([[3, 49, 0]]).to("spyre")
    return Block(model_on_card(hidden=64, layers=0), [words], ["aten.embedding"])


BLOCKS: dict[str, Callable[[], Block]] = {
    builder.__name__: builder
    for builder in (
        softmax,
        layer_norm,
        rms_norm,
        swiglu_mlp,
        causal_attention,
        rope,
        embedding_to_logits,
    )
}
