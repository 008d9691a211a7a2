"""Attention on a Spyre card: causal, with heads that share keys and values.

Run with ``python examples/attention.py`` in an environment that has torch-spyre; no card is
needed. Scores never leave the cores' scratchpads, so little more is moved than q, k, v and the
result; ``torch_spyre.explain`` shows it.
"""

import torch
import torch.nn.functional as F

import torch_spyre

HEADS, SHARED, SIZE = 8, 2, 64


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def main() -> None:
    torch.manual_seed(0)
    compiled = torch.compile(attention, dynamic=False)
    print("tokens  largest error  on a card  moved / least")
    for tokens in (64, 256):
        host = [torch.randn(1, heads, tokens, SIZE) for heads in (HEADS, SHARED, SHARED)]
        inputs = [tensor.half().to("spyre") for tensor in host]
        report = torch_spyre.explain(compiled, *inputs)
        worst = (compiled(*inputs).cpu().float() - attention(*host)).abs().max().item()
        moved = report.total.device_bytes / report.least_bytes
        print(f"{tokens:6d} {worst:14.1e} {report.modelled_ns / 1e3:7.1f} us {moved:14.2f}")


if __name__ == "__main__":
    main()
