"""What planning does for the blocks of models: traffic, modelled time, and time on this machine.

Every block is compiled three times: without the scratchpads, with what fits into them, and with
everything (copies of inputs, loops over tiles). The traffic is held against the least there can
be: every input and weight read once, every result written once.

    python benchmarks/plans.py
    python benchmarks/plans.py --only attention --no-wall
"""

import argparse
import copy
import functools
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("SPYRE_CARD_THREADS", "2")  # before the card starts

import blocks
import granite
import torch
from timing import seconds
from torch import nn

from torch_spyre._inductor import config, scheduling
from torch_spyre._inductor.planning import plan_kernels, settle
from torch_spyre.patches.replacing import replaced

LIMIT = 1.25  # traffic / the least there can be
LAYERS = 40
LAYER_SECONDS = 0.5  # of the processor, to plan
MODES = {
    "off": {"lx_planning": False},
    "LX": {"lx_boundary_clones": False, "auto_tiling": False},
    "all": {},
}


# Softmax down the columns of 512 x 1024 on one core, and what was published of a real card.
ONE_CORE = {"sencores": 1, "auto_tiling": False, "lx_boundary_clones": False}
STAGES = {
    "all in device memory": ({"lx_planning": False}, 32.5),
    "reductions in LX": ({"lx_in_place": False}, 27.7),
    "and in place": ({}, 23.9),
    "and the input copied": ({"lx_boundary_clones": True}, 23.7),
}


@dataclass
class Case:
    name: str
    block: nn.Module
    inputs: list[torch.Tensor]


def cases() -> list[Case]:
    r = torch.randn

    def attention(length: int) -> Case:
        query, key = r(1, 16, length, 64), r(1, 4, length, 64)
        return Case(f"attention 16/4 heads, {length}", blocks.Attention(), [query, key, key + 1])

    layer = granite.Layer(granite.GraniteConfig())
    cos, sin = r(128, 64), r(128, 64)
    return [
        Case("softmax 512x1024", blocks.Softmax(), [r(512, 1024)]),
        Case("softmax 4096x4096", blocks.Softmax(), [r(4096, 4096)]),
        Case("layer norm 512x1024", nn.LayerNorm(1024), [r(512, 1024)]),
        Case("layer norm 4096x4096", nn.LayerNorm(4096), [r(4096, 4096)]),
        Case("RMS norm 512x1024", blocks.RMSNorm(), [r(512, 1024)]),
        Case("SwiGLU MLP, 256 tokens", blocks.MLP(), [r(256, 1024)]),
        Case("SwiGLU MLP, 1 token", blocks.MLP(), [r(1, 1024)]),
        *map(attention, (128, 512, 1024, 2048)),
        Case("Granite layer, 128 tokens", layer, [r(1, 128, 1024), cos, sin]),
    ]


@dataclass
class Result:
    """Of one block in one mode."""

    traffic: int  # bytes of device memory
    modelled_us: float
    wall_ms: float


def on_card(block: nn.Module, inputs: list[torch.Tensor]) -> tuple[nn.Module, list[torch.Tensor]]:
    return copy.deepcopy(block).half().to("spyre"), [x.half().to("spyre") for x in inputs]


def least_bytes(block: nn.Module, inputs: list[torch.Tensor], output: torch.Tensor) -> int:
    """Every tensor once, as it lies on the card."""
    tensors = {id(t): t for t in (*block.parameters(), *block.buffers(), *inputs, output)}
    return sum(t.untyped_storage().nbytes() for t in tensors.values())


def measured(call: Callable[[], torch.Tensor]) -> tuple[int, float]:
    """Bytes of device memory and modelled microseconds of a call."""
    torch.spyre.synchronize()
    before = torch.spyre.counters()
    call()
    torch.spyre.synchronize()
    after = torch.spyre.counters()
    read = after.device_bytes_read - before.device_bytes_read
    written = after.device_bytes_written - before.device_bytes_written
    return read + written, (after.modelled_ns - before.modelled_ns) / 1e3


def measure(case: Case, repeats: int) -> tuple[int, dict[str, Result]]:
    block, inputs = on_card(case.block, case.inputs)
    results, outputs = {}, []
    for mode, knobs in MODES.items():
        torch._dynamo.reset()  # which knows nothing of our knobs
        with config.patch(knobs):
            run = torch.compile(block, fullgraph=True, dynamic=False)
            outputs.append(run(*inputs))
            call = functools.partial(run, *inputs)
            wall = [seconds(call, 3) for _ in range(repeats)]
            results[mode] = Result(*measured(call), 1e3 * statistics.median(wall or [0]))
    for other in outputs[1:]:
        if not torch.equal(other.cpu(), outputs[0].cpu()):
            difference = (other - outputs[0]).abs().max().item()
            print(f"{case.name}: planning changes results by up to {difference:.2g}")
    return least_bytes(block, inputs, outputs[0]), results


def softmax_of_columns(x: torch.Tensor) -> torch.Tensor:
    """As it was measured: every op rounds to 16 bits."""
    e = torch.exp(x - x.amax(0, keepdim=True))
    return e / e.sum(0, keepdim=True)


def published_stages() -> None:
    """The features of planning, one after the other, beside times of a real card."""
    x = torch.randn(512, 1024).half().to("spyre")
    print("\nsoftmax along dim 0 of 512x1024, one core")
    print(f"{'':28}{'MiB':>10}{'modelled us':>14}{'published us':>14}")
    for stage, (knobs, published) in STAGES.items():
        torch._dynamo.reset()
        with config.patch(ONE_CORE | knobs):
            run = torch.compile(softmax_of_columns, dynamic=False)
            run(x)
            traffic, modelled = measured(lambda run=run: run(x))
        print(f"{stage:28}{traffic / 2**20:10.2f}{modelled:14.1f}{published:14.1f}")


def planning_seconds(layers: int) -> float:
    """Of the processor, for the plans of a Granite of so many layers, while it is compiled."""
    spent = 0.0

    def timed(plan: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            nonlocal spent
            start = time.process_time()
            try:
                return plan(*args)
            finally:
                spent += time.process_time() - start

        return run

    torch._dynamo.reset()
    sizes = granite.GraniteConfig(layers=layers, hidden=256, intermediate=768, vocabulary=256)
    model = granite.Granite(sizes).half().to("spyre")
    with (
        replaced(scheduling, "settle", timed(settle)),
        replaced(scheduling, "plan_kernels", timed(plan_kernels)),
    ):
        torch.compile(model, dynamic=False)(torch.zeros(1, 128, dtype=torch.int64, device="spyre"))
    return spent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="blocks whose name contains this")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--no-wall", action="store_true", help="only what is modelled")
    args = parser.parse_args()
    torch.set_num_threads(2)
    head = f"{'':28}" + "".join(f"{mode:>10}" for mode in MODES)
    print(f"{'':28}{'traffic / least':>30}{'modelled us':>30}{'ms here':>30}")
    print(head + "".join(f"{mode:>10}" for mode in MODES) * 2)
    missed = False
    with torch.inference_mode():
        for case in cases():
            if args.only not in case.name:
                continue
            least, results = measure(case, 0 if args.no_wall else args.repeats)
            ratios = {mode: result.traffic / least for mode, result in results.items()}
            times = {mode: result.modelled_us for mode, result in results.items()}
            bad = ratios["all"] > LIMIT or max(times["LX"], times["all"]) > times["off"]
            missed |= bad
            print(
                f"{case.name:28}"
                + "".join(f"{ratio:10.2f}" for ratio in ratios.values())
                + "".join(f"{time:10.1f}" for time in times.values())
                + "".join(f"{result.wall_ms:10.2f}" for result in results.values())
                + ("  MISSED" if bad else ""),
                flush=True,
            )
        if not args.only:
            published_stages()
            spent = planning_seconds(LAYERS)
            print(f"plans of a Granite of {LAYERS} layers: {spent:.1f} s of the processor")
            missed |= spent > LAYERS * LAYER_SECONDS
    print(f"limits: traffic {LIMIT} of the least, no plan slower than none")
    print(f"        {LAYER_SECONDS} s to plan a layer")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
