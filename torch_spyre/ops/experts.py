"""Products of mixture-of-experts layers: every token with the matrices of its own experts.

`moe::moe_mm` is the Foundation Model Stack's op for them. Its kernels for other devices want the
tokens sorted into padded blocks; ours does not, so a compiled graph drops what prepares them.
"""

from __future__ import annotations

import torch

_SPYRE = torch.library.Library("spyre", "FRAGMENT")
# The stack defines this op when it is imported, which may be later.
_MOE = torch.library.Library("moe", "IMPL")

_SPYRE.define("experts_mm(Tensor tokens, Tensor matrices, Tensor experts, int repeats) -> Tensor")


def experts_mm(
    tokens: torch.Tensor, matrices: torch.Tensor, experts: torch.Tensor, repeats: int
) -> torch.Tensor:
    """Rows of `experts` (token, choice) as products [token, choice, n] with `matrices` [e, n, k].

    Row `i` of the flat result is of `tokens[i // repeats]`. The choices are read on the host, once:
    an expert that nobody chose costs nothing, and no matrix is copied.
    """
    chosen = experts.reshape(-1).cpu()
    order = chosen.argsort(stable=True)
    gathered = tokens.index_select(0, (order // repeats).to(tokens.device))
    products = tokens.new_empty(len(chosen), matrices.shape[1])
    end = 0
    for expert, rows in enumerate(chosen.bincount(minlength=len(matrices)).tolist()):
        start, end = end, end + rows
        if rows:
            torch.mm(gathered[start:end], matrices[expert].T, out=products[start:end])
    return products.index_select(0, order.argsort().to(tokens.device)).view(*experts.shape, -1)


def _shape(
    tokens: torch.Tensor, matrices: torch.Tensor, experts: torch.Tensor, repeats: int
) -> torch.Tensor:
    return tokens.new_empty(*experts.shape, matrices.shape[1])


def moe_mm(
    input: torch.Tensor,
    moe_matrix: torch.Tensor,
    token_expert_mapping: torch.Tensor,
    padded_token_ids_per_block: torch.Tensor,
    expert_block_mapping: torch.Tensor,
    total_padded_tokens: torch.Tensor,
    topk: int,
    padding_size: int,
) -> torch.Tensor:
    """The stack's op; the names are its own."""
    return torch.ops.spyre.experts_mm(input, moe_matrix, token_expert_mapping, topk)


_SPYRE.impl("experts_mm", experts_mm, "CompositeExplicitAutograd")
_SPYRE.impl("experts_mm", _shape, "Meta")
_MOE.impl("moe_mm", moe_mm, "PrivateUse1")
