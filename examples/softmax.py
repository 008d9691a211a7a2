"""A compiled softmax on a Spyre card: the same numbers, and what the card does for them.

Run with ``python examples/softmax.py`` in an environment that has torch-spyre; no card is needed.
``python -m torch_spyre explain examples/softmax.py --html softmax.html`` shows charts, too.
"""

import torch

import torch_spyre


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=0)


def main() -> None:
    x = torch.rand(512, 1024, dtype=torch.float16)
    on_card = x.to("spyre")
    compiled = torch.compile(softmax)
    print(torch_spyre.explain(compiled, on_card))
    worst = (compiled(on_card).cpu().float() - softmax(x.float())).abs().max().item()
    print(f"\nlargest difference to float32 on the CPU: {worst:.1e}")


if __name__ == "__main__":
    main()
