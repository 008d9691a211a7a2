"""A gated MLP on a Spyre card: a module moved with ``.to``, run op by op and compiled.

Run with ``python examples/mlp.py`` in an environment that has torch-spyre; no card is needed.
"""

import time

import torch
from torch import nn

import torch_spyre


class GatedMLP(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def milliseconds(model: nn.Module, x: torch.Tensor) -> float:
    begin = time.perf_counter()
    model(x)
    torch.spyre.synchronize()  # calls return before the card is done
    return (time.perf_counter() - begin) * 1e3


@torch.inference_mode()
def main() -> None:
    torch.manual_seed(0)
    mlp, x = GatedMLP(512, 1024), torch.randn(64, 512)
    right = mlp(x)

    # Linear weights are laid out on the card as its matrix units read them.
    mlp, x = mlp.to("spyre", torch.float16), x.half().to("spyre")
    compiled = torch.compile(mlp)
    for name, model in (("op by op", mlp), ("compiled", compiled)):
        worst = (model(x).cpu().float() - right).abs().max().item()
        print(f"{name}: {milliseconds(model, x):.2f} ms here, largest error {worst:.1e}")

    report = torch_spyre.explain(compiled, x)
    print(f"on a card: {report.modelled_ns / 1e3:.1f} us in {report.launches} launch")
    print(f"device memory: {report.total.device_bytes} bytes moved, {report.least_bytes} needed")


if __name__ == "__main__":
    main()
