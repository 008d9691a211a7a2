"""How much each solver keeps in the scratchpad, on the patterns of the tests.

Bytes moved by the uses of what stays, in percent of those of all buffers; the time the card would
take for the ops with the plan; then the time that plans take. The default solver may stay 5 percent
behind the best plan, which the exact solver proves, in both.

    python benchmarks/lx_solvers.py
"""

import argparse
import importlib.util
import sys
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from lx_patterns import MODEL, PATTERNS, Pattern, model, modelled_us

from torch_spyre._inductor.scratchpad import SOLVERS

ALLOWED = 0.95  # of the best plan's value, and as much more of its time
TIGHT_MODEL = Pattern("40 layers, too large", lambda: model(inner=900 * 1024))


class Plan(NamedTuple):
    """What a solver makes of a pattern."""

    value: float  # of all, what it keeps
    evicted: int
    modelled_us: float  # of the ops
    seconds: float  # of the processor, to find it


def planned(pattern: Pattern, name: str) -> Plan:
    buffers = pattern.buffers()
    everything = sum(buffer.worth for buffer in buffers)
    start = time.process_time()
    SOLVERS[name](pattern.limit()).plan_layout(buffers)
    seconds = time.process_time() - start
    stays = [buffer for buffer in buffers if buffer.address is not None]
    value = sum(buffer.worth for buffer in stays) / everything
    return Plan(value, len(buffers) - len(stays), modelled_us(buffers), seconds)


def main() -> int:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    names = ["greedy", "firstfit", "bestfit", "default"]
    exact = importlib.util.find_spec("ortools") is not None
    columns = [*names, *(["exact"] if exact else [])]
    print("percent of the value kept (buffers evicted); modelled microseconds")
    print(f"{'pattern':22}{'buffers':>8}" + "".join(f"{name:>22}" for name in columns))
    failed = []
    for pattern in PATTERNS:
        found = {name: planned(pattern, name) for name in columns}
        cells = [f"{p.value:6.1%} ({p.evicted}) {p.modelled_us:9.1f}" for p in found.values()]
        count = len(pattern.buffers())
        print(f"{pattern.name:22}{count:8}" + "".join(f"{cell:>22}" for cell in cells), flush=True)
        if exact:
            ours, best = found["default"], found["exact"]
            slow = ours.modelled_us > (2 - ALLOWED) * best.modelled_us
            if slow or ours.value < ALLOWED * best.value:
                failed.append(pattern.name)
    print("\nprocessor seconds of a plan")
    for pattern in (MODEL, TIGHT_MODEL):
        cells = [f"{planned(pattern, name).seconds:.2f}" for name in names]
        count = len(pattern.buffers())
        print(f"{pattern.name:22}{count:8}" + "".join(f"{cell:>22}" for cell in cells), flush=True)
    if not exact:
        print("OR-Tools is not installed: nothing to compare the default with")
    for name in failed:
        print(f"{name}: the default is more than {1 - ALLOWED:.0%} behind the best plan")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
