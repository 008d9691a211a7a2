"""What the package costs before it is used, and what the first use costs.

`import torch` with the package and without it (autoload switched off) run in turn, each in a new
process; the medians are compared. First use is the time to the first tensor on the card.

    python benchmarks/startup.py
"""

import argparse
import os
import statistics
import subprocess
import sys

IMPORT_LIMIT, FIRST_USE_LIMIT = 0.2, 0.3  # seconds

IMPORT = """
import time
start = time.perf_counter()
import torch
print(time.perf_counter() - start)
"""
FIRST_USE = """
import time
import torch
host = torch.ones(64, 64, dtype=torch.float16)
start = time.perf_counter()
card = host.to("spyre")
torch.spyre.synchronize()
print(time.perf_counter() - start)
"""


def seconds(code: str, autoload: bool) -> float:
    environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "1" if autoload else "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--repeats", type=int, default=7, help="processes of each kind (default: 7)"
    )
    options = parser.parse_args()

    for autoload in (False, True):  # fills the file cache
        seconds(IMPORT, autoload)
    without, loaded, first = [], [], []
    for _ in range(options.repeats):
        without.append(seconds(IMPORT, autoload=False))
        loaded.append(seconds(IMPORT, autoload=True))
        first.append(seconds(FIRST_USE, autoload=True))

    cost = statistics.median(loaded) - statistics.median(without)
    use = statistics.median(first)
    print(f"seconds, median of {options.repeats} processes each, in turn")
    print(f"import torch, without the package {statistics.median(without):7.3f}")
    print(f"import torch, with the package    {statistics.median(loaded):7.3f}")
    print(f"cost of the package               {cost:7.3f}  (at most {IMPORT_LIMIT})")
    print(f"first tensor on the card          {use:7.3f}  (at most {FIRST_USE_LIMIT})")
    return 0 if cost <= IMPORT_LIMIT and use <= FIRST_USE_LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
