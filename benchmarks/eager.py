"""Eager ops on the card beside the same ops of PyTorch on the CPU, in one run.

Both sides use two threads. Every case is timed in turn with its counterparts, several times over,
and the medians are compared, so that a busy moment of the machine touches all. Times include
everything a user waits for: the call through PyTorch, the launch and the synchronisation. Then the
first call of each of some ops, each in a process of its own that has just brought the device up.

    python benchmarks/eager.py
    python benchmarks/eager.py --repeats 3 --only matmul
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

os.environ.setdefault("SPYRE_CARD_THREADS", "2")  # before the card starts

import torch
from timing import seconds


@dataclass
class Case:
    """An op on the card, one on the CPU, and how they have to compare."""

    name: str
    card: Callable[[], object]
    cpu: Callable[[], object]
    limit: float | None  # card time / CPU time, at most; None: only reported
    calls: int = 5  # of the op in one timing


def cpu_flags() -> set[str]:
    """What the host's processor can do, as Linux names it."""
    with open("/proc/cpuinfo") as file:
        return {flag for line in file if line.startswith("flags") for flag in line.split()}


FIRST_CALL_LIMIT_MS = 20
FIRST_CALLS = {
    "add": "x + x",
    "exp": "x.exp()",
    "where": "torch.where(x > 0, x, 0)",
    "sum": "x.sum(-1)",
    "softmax": "x.softmax(-1)",
    "layer_norm": "F.layer_norm(x, (256,))",
    "cumsum": "x.cumsum(-1)",
    "matmul": "x @ x",
    "attention": "F.scaled_dot_product_attention(*3 * (x[None, None],))",
    "cat": "torch.cat([x, x])",
    "gather": "x.gather(0, i)",
    "index": "x[i[0]]",
    "embedding": "F.embedding(i, x)",
    "topk": "x.topk(5)",
    "sort": "x.sort()",
    "conv1d": "F.conv1d(x[None], w)",
    "dropout": "F.dropout(x)",
}
FIRST_CALL_PROGRAM = """
import sys, time, torch, torch.nn.functional as F
x = torch.randn(256, 256).half().to("spyre")
w = torch.randn(8, 256, 3).half().to("spyre")
i = torch.randint(256, (4, 256)).to("spyre")
torch.spyre.synchronize()
call = compile(sys.argv[1], "call", "eval")
start = time.perf_counter()
eval(call)
torch.spyre.synchronize()
print(time.perf_counter() - start)
"""


def first_call_seconds(expression: str) -> float:
    environment = os.environ | {"TORCH_SPYRE_FALLBACK": "error", "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-W", "ignore", "-c", FIRST_CALL_PROGRAM, expression]
    return float(subprocess.check_output(command, env=environment, text=True))


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
            # A CPU that multiplies float16 itself is another machine to be compared with.
            None if "avx512_fp16" in cpu_flags() else 1 / 30,
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
    parser.add_argument("--repeats", type=int, default=15)
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
        over = case.limit is not None and card > case.limit * cpu
        missed |= over
        verdict = "no limit here" if case.limit is None else f"at most {case.limit:.3g}"
        verdict += ", MISSED" if over else ""
        print(f"{case.name:34}{card * 1e3:10.4f}{cpu * 1e3:10.4f}{card / cpu:10.3f}  ({verdict})")
    print(f"\nfirst call in a fresh process, milliseconds (at most {FIRST_CALL_LIMIT_MS})")
    for name, expression in FIRST_CALLS.items():
        if arguments.only not in name:
            continue
        first = first_call_seconds(expression) * 1e3
        missed |= first > FIRST_CALL_LIMIT_MS
        print(f"{name:34}{first:10.4f}{'  MISSED' if first > FIRST_CALL_LIMIT_MS else ''}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
