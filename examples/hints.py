"""A block computed in tiles: the intermediates of a loop are as small as a tile."""

import re
import warnings

import torch
from torch._inductor.utils import run_and_get_code

from torch_spyre import declare_tensor_dim, name_tensor_dims, spyre_hint
from torch_spyre._inductor import config

SIZES = {"rows": 512, "model": 256, "hidden": 512}
for name, size in SIZES.items():
    declare_tensor_dim(name, size)


def tensor(*names: str) -> torch.Tensor:
    """Numbers on the card, with names for the dimensions."""
    made = torch.randn([SIZES[name] for name in names]).mul(0.1).half().to("spyre")
    name_tensor_dims(made, names)
    return made


def mlp(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    # Eight times 64 rows: nobody ever holds all of the hidden layer.
    with spyre_hint(num_tiles_per_dim={"rows": 8}):
        hidden = torch.nn.functional.silu(x @ up)
        # On top of that, the second product in sums over two halves of the hidden layer.
        with spyre_hint(num_tiles_per_dim={"hidden": 2}):
            return hidden @ down


def main() -> None:
    warnings.filterwarnings("ignore", message="a dimension of .* has no name")
    args = tensor("rows", "model"), tensor("model", "hidden"), tensor("hidden", "model")
    for title, ignored in (("as hinted", False), ("without hints", True)):
        torch._dynamo.reset()
        with config.patch(ignore_work_division_hints=ignored):
            result, (code, *_) = run_and_get_code(torch.compile(mlp), *args)
        pool = re.search(r"pool_bytes=(\d+)", code)
        print(
            f"{title}: {code.count('LoopSpec(')} loops, {pool[1] if pool else 0} bytes between ops"
        )
        right = mlp(*(arg.cpu().float() for arg in args))
        print(f"  largest error {(result.cpu().float() - right).abs().max().item():.4f}")


if __name__ == "__main__":
    main()
