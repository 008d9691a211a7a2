"""Throughput of transfers between host and card, beside a plain memcpy of the same host bytes.

Every case is timed in turn with its memcpy, several times over, and the medians are compared, so
that a busy moment of the machine touches both. Times include everything a user waits for: the call
through PyTorch, the data-conversion descriptor, the conversion of formats and the synchronisation.

    python benchmarks/transfer.py              # 4096 x 4096, contiguous float16 checked against 3x
    python benchmarks/transfer.py --size 1024 --repeats 5
"""

import argparse
import ctypes
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

DTYPES = {"float16": torch.float16, "float32": torch.float32, "int64": torch.int64}
LIMIT = 3.0  # contiguous float16: at most this many times a memcpy, each way


@dataclass
class Case:
    """One thing to time, and the memcpy it stands beside."""

    name: str
    nbytes: int
    run: Callable[[], object]
    memcpy: Callable[[], object]
    checked: bool = False


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def memcpy_of(nbytes: int) -> Callable[[], object]:
    """One memmove between two buffers that have been written before."""
    source, target = (torch.ones(nbytes, dtype=torch.uint8) for _ in range(2))
    return lambda: ctypes.memmove(target.data_ptr(), source.data_ptr(), nbytes)


def cases(size: int) -> list[Case]:
    found = []
    for name, dtype in DTYPES.items():
        host = torch.arange(size * size).remainder(1000).to(dtype).reshape(size, size)
        card, other = host.to("spyre"), torch.empty_like(host, device="spyre")
        back = torch.ones_like(host)
        memcpy = memcpy_of(host.nbytes)
        for shape, source, target, landing in (
            ("contiguous", host, card, back),
            ("transposed", host.t(), card, back.t()),
        ):
            checked = name == "float16" and shape == "contiguous"
            found.append(
                Case(
                    f"{name} {shape} to card",
                    host.nbytes,
                    lambda t=target, s=source: t.copy_(s),
                    memcpy,
                    checked,
                )
            )
            found.append(
                Case(
                    f"{name} {shape} to host",
                    host.nbytes,
                    lambda t=landing, s=target: t.copy_(s),
                    memcpy,
                    checked,
                )
            )
        found.append(
            Case(
                f"{name} contiguous on card",
                host.nbytes,
                lambda t=other, s=card: (t.copy_(s), torch.spyre.synchronize()),
                memcpy,
            )
        )
        found.append(
            Case(
                f"{name} transposed on card",
                host.nbytes,
                lambda t=other, s=card: (t.copy_(s.t()), torch.spyre.synchronize()),
                memcpy,
            )
        )
    return found


def measure(case: Case, repeats: int) -> tuple[float, float]:
    """Median seconds of the transfer and of its memcpy."""
    for call in (case.run, case.memcpy):  # touch all memory, start all threads
        call()
    pairs = [(seconds(case.run), seconds(case.memcpy)) for _ in range(repeats)]
    transfer, plain = zip(*pairs, strict=True)
    return statistics.median(transfer), statistics.median(plain)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=4096, help="rows and columns (default: 4096)")
    parser.add_argument("--repeats", type=int, default=9, help="timings a case (default: 9)")
    options = parser.parse_args()
    torch.spyre.set_downcast_warning(False)

    print(f"{options.size} x {options.size}, GB/s of host bytes, median of {options.repeats}")
    print(f"{'':27} {'transfer':>9} {'memcpy':>9} {'time / memcpy':>14}")
    too_slow = []
    for case in cases(options.size):
        transfer, plain = measure(case, options.repeats)
        ratio = transfer / plain
        rates = (case.nbytes / t / 1e9 for t in (transfer, plain))
        mark = f"  (at most {LIMIT:g})" if case.checked else ""
        print("{:27} {:9.2f} {:9.2f} {:14.2f}{}".format(case.name, *rates, ratio, mark))
        if case.checked and ratio > LIMIT:
            too_slow.append(case.name)
    for name in too_slow:
        print(f"too slow: {name}", file=sys.stderr)
    return 1 if too_slow else 0


if __name__ == "__main__":
    sys.exit(main())
