"""Compiled building blocks of models: beside CPU Inductor, and beside our own eager ops.

Both sides use two threads. The CPU computes in float32, the card in float16. Every block is timed
in turn on all three, several times over and short ones more often, and the fastest are compared:
what else the machine does only ever adds. Times include what a user waits for: guards, the calls,
the synchronisation.

    python benchmarks/blocks.py
    python benchmarks/blocks.py --repeats 3 --only softmax
"""

import argparse
import copy
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass

os.environ.setdefault("SPYRE_CARD_THREADS", "2")  # before the card starts

import torch
import torch.nn.functional as F
from timing import seconds
from torch import nn

CPU_LIMIT = 1.3  # compiled on the card / compiled on the CPU, at most
EAGER_LIMIT = 1.0  # compiled / eager on the card, at most
# Between runs of the same code, times differ by so much on a machine that is not ours alone.
NOISE = 1.03
LEAST_SECONDS = 0.4  # of calls on the card


class MLP(nn.Module):
    """As in Granite and Llama: SwiGLU."""

    def __init__(self, hidden: int = 1024, intermediate: int = 3072) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, intermediate, bias=False)
        self.up = nn.Linear(hidden, intermediate, bias=False)
        self.down = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class RMSNorm(nn.Module):
    """As models write it: in float32."""

    def __init__(self, hidden: int = 1024) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class Softmax(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softmax(x, -1)


class Attention(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


@dataclass
class Case:
    name: str
    block: nn.Module
    inputs: list[torch.Tensor]
    calls: int = 5  # in one timing


def cases() -> list[Case]:
    r = torch.randn
    return [
        Case("softmax 512x1024", Softmax(), [r(512, 1024)], 20),
        Case("softmax 4096x4096", Softmax(), [r(4096, 4096)], 2),
        Case("layer norm 512x1024", nn.LayerNorm(1024), [r(512, 1024)], 20),
        Case("layer norm 4096x4096", nn.LayerNorm(4096), [r(4096, 4096)], 2),
        Case("RMS norm 512x1024", RMSNorm(), [r(512, 1024)], 20),
        Case("MLP 256 tokens", MLP(), [r(256, 1024)]),
        Case("MLP 1 token", MLP(), [r(1, 1024)], 20),
        Case("attention 16 heads, 256", Attention(), [r(1, 16, 256, 64) for _ in range(3)]),
        Case(
            "attention 16/4 heads, 512",
            Attention(),
            [r(1, 16, 512, 64), r(1, 4, 512, 64), r(1, 4, 512, 64)],
        ),
    ]


def measure(case: Case, repeats: int) -> list[float]:
    """Seconds compiled on the CPU, eager on the card, compiled on the card."""
    torch._dynamo.reset()
    on_cpu = torch.compile(case.block)
    block = copy.deepcopy(case.block).half().to("spyre")
    compiled = torch.compile(block)
    inputs = [x.half().to("spyre") for x in case.inputs]
    expected, result = on_cpu(*case.inputs), compiled(*inputs)
    torch.testing.assert_close(result.cpu().float(), expected, atol=5e-2, rtol=5e-2)
    sides: list[Callable[[], object]] = [
        lambda: on_cpu(*case.inputs),
        lambda: block(*inputs),
        lambda: compiled(*inputs),
    ]
    times: list[list[float]] = [[], [], []]
    while len(times[2]) < repeats or sum(times[2]) * case.calls < LEAST_SECONDS:
        for side, found in zip(sides, times, strict=True):
            found.append(seconds(side, case.calls))
    return [min(found) for found in times]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15, help="at least")
    parser.add_argument("--only", default="", help="blocks whose name contains this")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    print(f"milliseconds, fastest of {arguments.repeats} or more, two threads each")
    print(f"{'':28}{'CPU':>9}{'eager':>9}{'compiled':>10}{'/ CPU':>8}{'/ eager':>9}")
    missed = False
    with torch.inference_mode():
        for case in cases():
            if arguments.only not in case.name:
                continue
            cpu, eager, compiled = measure(case, arguments.repeats)
            over = compiled > CPU_LIMIT * cpu or compiled > EAGER_LIMIT * NOISE * eager
            missed |= over
            print(
                f"{case.name:28}{cpu * 1e3:9.3f}{eager * 1e3:9.3f}{compiled * 1e3:10.3f}"
                f"{compiled / cpu:8.2f}{compiled / eager:9.2f}{'  MISSED' if over else ''}",
                flush=True,
            )
    print(f"limits: {CPU_LIMIT} of CPU Inductor in float32, {EAGER_LIMIT} of eager on the card")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
