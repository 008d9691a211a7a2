"""Eager ops on the card beside the same ops of PyTorch on the CPU, in one run.

Both sides use two threads. Every case is timed in turn with its counterparts, several times over,
and the medians are compared, so that a busy moment of the machine touches all. Times include
everything a user waits for: the call through PyTorch, the launch and the synchronisation.

    python benchmarks/eager.py
    python benchmarks/eager.py --repeats 3 --only matmul
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

os.environ.setdefault("SPYRE_CARD_THREADS", "2")  # before the card starts

import torch


@dataclass
class Case:
    """An op on the card, one on the CPU, and how they have to compare."""

    name: str
    card: Callable[[], object]
    cpu: Callable[[], object]
    limit: float  # card time / CPU time, at most
    calls: int = 1  # of the op in one timing


def seconds(call: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    torch.spyre.synchronize()
    return (time.perf_counter() - start) / calls


def cases() -> list[Case]:
    def pair(*size: int, dtype: torch.dtype = torch.float16) -> tuple[torch.Tensor, torch.Tensor]:
        host = torch.randn(size).to(dtype)
        return host, host.to("spyre")

    small, small_card = pair(64, 64)
    large, large_card = pair(4096, 4096)
    square, square_card = pair(1024, 1024)
    square32 = square.float()
    row, row_card = pair(1, 4096)
    wide, wide_card = pair(4096, 12800)
    row32, wide32 = row.float(), wide.float()
    return [
        Case(
            "add 64x64, CPU float16", lambda: small_card + small_card, lambda: small + small, 5, 200
        ),
        Case(
            "add 4096x4096, CPU float16",
            lambda: large_card + large_card,
            lambda: large + large,
            1.5,
        ),
        Case(
            "softmax 4096x4096, CPU float16",
            lambda: large_card.softmax(-1),
            lambda: large.softmax(-1),
            1.5,
        ),
        Case(
            "matmul 1024^3, CPU float32",
            lambda: square_card @ square_card,
            lambda: square32 @ square32,
            1 / 0.7,
        ),
        Case(
            "matmul 1024^3, CPU float16",
            lambda: square_card @ square_card,
            lambda: square @ square,
            1 / 30,
        ),
        Case(
            "matmul 1x4096x12800, CPU float32",
            lambda: row_card @ wide_card,
            lambda: row32 @ wide32,
            0.7,
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    print(f"milliseconds, median of {arguments.repeats}, two threads each")
    print(f"{'':34}{'card':>10}{'CPU':>10}  card / CPU")
    missed = False
    for case in cases():
        if arguments.only not in case.name:
            continue
        case.card(), case.cpu()
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(arguments.repeats):
            times[0].append(seconds(case.card, case.calls))
            times[1].append(seconds(case.cpu, case.calls))
        card, cpu = map(statistics.median, times)
        missed |= card > case.limit * cpu
        verdict = f"at most {case.limit:.3g}" + (", MISSED" if card > case.limit * cpu else "")
        print(f"{case.name:34}{card * 1e3:10.4f}{cpu * 1e3:10.4f}{card / cpu:10.3f}  ({verdict})")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
