"""What it costs to check every access: processor time of a call with and without.

The checker works in one thread and the card in several, so that time of the wall would say less.
With the checker off, nothing is to be seen; docs/performance.md counts instructions.

    python benchmarks/checker.py
"""

import argparse
import time
from collections.abc import Callable

import torch


def milliseconds(call: Callable[[], object], repeats: int) -> float:
    """Of one call, of all threads; the best of some."""
    call()
    best = float("inf")
    for _ in range(repeats):
        start, calls = time.process_time(), 0
        while calls == 0 or time.process_time() - start < 0.02:
            call()
            calls += 1
        torch.spyre.synchronize()
        best = min(best, (time.process_time() - start) / calls)
    return best * 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each (default: 3)")
    repeats = parser.parse_args().repeats

    small, large = torch.ones(64, device="spyre"), torch.ones(1 << 20, device="spyre")
    matrix = torch.ones(512, 512, dtype=torch.float16, device="spyre")
    rows = torch.ones(256, 1024, dtype=torch.float16, device="spyre")
    compiled = torch.compile(lambda x: torch.softmax(x, -1))
    host = torch.ones(1 << 20)
    calls: dict[str, Callable[[], object]] = {
        "add 64": lambda: small + small,
        "add 1M": lambda: large + large,
        "matmul 512^3, float16": lambda: matrix @ matrix,
        "softmax 256x1024, float16": lambda: torch.softmax(rows, -1),
        "the same, compiled": lambda: compiled(rows),
        "1M to the card": lambda: host.to("spyre"),
        "1M to the host": lambda: large.cpu(),
    }
    print(f"processor milliseconds, best of {repeats}")
    print(f"{'':28}{'off':>10}{'on':>10}{'on / off':>10}")
    for name, call in calls.items():
        off = milliseconds(call, repeats)
        with torch.spyre.checked():
            on = milliseconds(call, repeats)
        print(f"{name:28}{off:10.4f}{on:10.4f}{on / off:10.1f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
