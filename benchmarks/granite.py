"""A decoder of the Granite family, from PyTorch's own parts: what the benchmarks compile.

The arithmetic is that of Granite 3: norms in float32, rotary embeddings, grouped queries, SwiGLU,
and the multipliers of embeddings, attention, residuals and logits. Weights are random.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class GraniteConfig:
    """Sizes and multipliers."""

    layers: int = 4
    hidden: int = 1024
    intermediate: int = 3072
    vocabulary: int = 8192
    heads: int = 16
    key_value_heads: int = 4
    epsilon: float = 1e-5
    rope_theta: float = 10_000.0
    embedding_multiplier: float = 12.0
    attention_multiplier: float = 1 / 64
    residual_multiplier: float = 0.22
    logits_scaling: float = 8.0

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads


class RMSNorm(nn.Module):
    """Root mean square norm, computed in float32."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return self.weight * wide.to(x.dtype)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of (batch, heads, tokens, head size)."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Attention(nn.Module):
    def __init__(self, config: GraniteConfig) -> None:
        super().__init__()
        self.config = config
        narrow = config.key_value_heads * config.head_size
        self.q = nn.Linear(config.hidden, config.hidden, bias=False)
        self.k = nn.Linear(config.hidden, narrow, bias=False)
        self.v = nn.Linear(config.hidden, narrow, bias=False)
        self.o = nn.Linear(config.hidden, config.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, tokens, _ = x.shape

        def heads(projected: Tensor) -> Tensor:
            return projected.view(batch, tokens, -1, self.config.head_size).transpose(1, 2)

        q = rotated(heads(self.q(x)), cos, sin)
        k = rotated(heads(self.k(x)), cos, sin)
        attended = F.scaled_dot_product_attention(
            q,
            k,
            heads(self.v(x)),
            is_causal=True,
            scale=self.config.attention_multiplier,
            enable_gqa=True,
        )
        return self.o(attended.transpose(1, 2).reshape(batch, tokens, -1))


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: GraniteConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.up = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.down = nn.Linear(config.intermediate, config.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self, config: GraniteConfig) -> None:
        super().__init__()
        self.multiplier = config.residual_multiplier
        self.before_attention = RMSNorm(config.hidden, config.epsilon)
        self.attention = Attention(config)
        self.before_mlp = RMSNorm(config.hidden, config.epsilon)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.before_attention(x), cos, sin) * self.multiplier
        return x + self.mlp(self.before_mlp(x)) * self.multiplier


class Granite(nn.Module):
    """Token numbers (batch, tokens) to logits (batch, tokens, vocabulary)."""

    def __init__(self, config: GraniteConfig, max_tokens: int = 128) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden, config.epsilon)
        self.head = nn.Linear(config.hidden, config.vocabulary, bias=False)
        pairs = torch.arange(0, config.head_size, 2) / config.head_size
        angles = torch.outer(torch.arange(max_tokens), config.rope_theta**-pairs).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, numbers: Tensor) -> Tensor:
        x = self.embedding(numbers) * self.config.embedding_multiplier
        cos, sin = self.cos[: numbers.shape[1]], self.sin[: numbers.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x)) / self.config.logits_scaling
