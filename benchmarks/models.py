"""Granite as `transformers` has it, compiled: a prompt, a token, compiling, memory.

Two threads on each side. The CPU runs the same model through Inductor in float32, bfloat16 and
float16. Prompts and tokens are timed in turn on all of them, several times over, and the medians
are compared. A token is decoded with a static cache. Compiling starts with empty caches, in a
process of its own. Memory is the peak of a process that makes the model on the card and decodes,
less that of one with a model of the same number of layers and next to no weights.

    python benchmarks/models.py
    python benchmarks/models.py --only memory
    python benchmarks/models.py --big      # a model of 2.5 billion parameters as well
"""

import argparse
import copy
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("SPYRE_CARD_THREADS", "2")  # before the card starts
# Virtual machines announce AMX that processes may not use; oneDNN's bfloat16 then dies of it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch
from measuring import in_new_process, over
from timing import seconds

from torch_spyre import zoo

PREFILL_LIMIT = 1.2  # of CPU Inductor's time in float32
DECODE_LIMIT = 0.8
COLD_LIMIT = 1 / 3
MEMORY_LIMIT = 1.25  # of the weights, at two bytes a parameter
ERROR_LIMIT = 0.05  # of the card's logits on the average, over their spread
PROMPT = 256
CACHE = 512
MEDIUM = zoo.SIZES["medium"]
# What is left of a process without weights: as many layers to compile.
EMPTY = zoo.Size("empty", 64, 64, MEDIUM.layers, 1, 1, 64)
# Granite 3.1 2B.
BIG = zoo.Size("big", 2048, 8192, 40, 32, 8, 49155)
BIG_EMPTY = zoo.Size("empty", 64, 64, BIG.layers, 1, 1, 64)
SIZES = {"medium": MEDIUM, "empty": EMPTY, "big": BIG, "big-empty": BIG_EMPTY}


class Side:
    """A model on one device in one dtype, compiled, with a cache that holds a prompt."""

    def __init__(self, model: torch.nn.Module, device: str, dtype: torch.dtype) -> None:
        from transformers import StaticCache

        self.device = device
        self.model = model.to(dtype).to(device)
        self.compiled = torch.compile(self.model, dynamic=False)
        self.prompt = tokens(self.model, PROMPT).to(device)
        self.token = self.prompt[:, :1].clone()
        self.cache = StaticCache(config=self.model.config, max_cache_len=CACHE)
        self.model(self.prompt, past_key_values=self.cache)

    def prefill(self) -> torch.Tensor:
        return self.compiled(self.prompt, use_cache=True).logits

    def decode(self) -> torch.Tensor:
        return self.compiled(self.token, past_key_values=self.cache).logits

    def rewind(self) -> None:
        """The cache forgets all but the prompt."""
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(PROMPT)


def tokens(model: torch.nn.Module, length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(3, model.config.vocab_size, (1, length), generator=generator)


# ----------------------------------------------------------------------------------------- speed


@dataclass
class Timing:
    name: str
    call: Callable[[Side], Any]
    calls: int  # in one timing
    limit: float


TIMINGS = [
    Timing(f"prompt of {PROMPT} tokens", Side.prefill, 1, PREFILL_LIMIT),
    Timing("one token", Side.decode, 10, DECODE_LIMIT),
]


def modelled_seconds(call: Callable[[], object]) -> float:
    torch.spyre.synchronize()
    before = torch.spyre.counters().modelled_ns
    call()
    torch.spyre.synchronize()
    return (torch.spyre.counters().modelled_ns - before) / 1e9


def speed(repeats: int) -> bool:
    """Prompt and token beside the CPU; True if a limit was missed."""
    torch._dynamo.config.recompile_limit = 16  # all sides compile the same function
    model = zoo.get("granite").build(MEDIUM)
    sides = {
        "card": Side(copy.deepcopy(model), "spyre", torch.float16),
        **{
            str(dtype).removeprefix("torch."): Side(copy.deepcopy(model), "cpu", dtype)
            for dtype in (torch.float32, torch.bfloat16, torch.float16)
        },
    }
    print(f"Granite, hidden {MEDIUM.hidden}, {MEDIUM.layers} layers: ", end="")
    print(f"milliseconds, median of {repeats}, two threads each")
    print(f"{'':24}" + "".join(f"{name:>10}" for name in sides), end="")
    print(f"{'modelled':>10}" + "".join(f"{'/ ' + name:>11}" for name in list(sides)[1:]))
    missed = []
    for timing in TIMINGS:
        results = {name: timing.call(side).cpu().float() for name, side in sides.items()}
        expected = results["float32"]
        error = (results["card"] - expected).abs().mean() / expected.std()
        assert error < ERROR_LIMIT, f"the card computes something else, by {error:.2g}"
        times: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(repeats):
            for name, side in sides.items():
                side.rewind()
                times[name].append(seconds(partial(timing.call, side), timing.calls))
        modelled = modelled_seconds(partial(timing.call, sides["card"]))
        medians = [statistics.median(found) for found in times.values()]
        over_limit = medians[0] > timing.limit * medians[1]
        missed.append(over_limit)
        print(
            f"{timing.name:24}"
            + "".join(f"{1e3 * median:10.2f}" for median in medians)
            + f"{1e3 * modelled:10.3f}"
            + "".join(f"{medians[0] / median:11.2f}" for median in medians[1:])
            + ("  MISSED" if over_limit else ""),
            flush=True,
        )
        if timing.call is Side.decode:
            rates = zip([*sides, "modelled"], [*medians, modelled], strict=True)
            print("tokens/s: " + ", ".join(f"{name} {1 / time:.0f}" for name, time in rates))
    print(f"limits: {PREFILL_LIMIT} and {DECODE_LIMIT} of CPU Inductor in float32")
    return any(missed)


# ----------------------------------------------------------------------- what takes new processes


def compile_once(device: str) -> dict[str, float]:
    """In this process: seconds to the first result of a prompt, and of a token."""
    import torch._inductor.compile_fx

    if device == "spyre":
        from torch_spyre import _inductor

        _inductor.load()
    dtype = torch.float32 if device == "cpu" else torch.float16
    side = Side(zoo.get("granite").build(MEDIUM), device, dtype)
    start = time.perf_counter()
    side.prefill().cpu()
    middle = time.perf_counter()
    side.decode().cpu()
    return {"prompt": middle - start, "token": time.perf_counter() - middle}


def decode_once(size_name: str, new_tokens: int = 8) -> dict[str, float]:
    """In this process: a model made on the card in float16, and what decoding with it takes."""
    # The library imports models when asked for them; that is not loading.
    from transformers import GraniteForCausalLM as GraniteForCausalLM
    from transformers import StaticCache

    start = time.perf_counter()
    torch.set_default_dtype(torch.float16)
    with torch.device("spyre"):
        model = zoo.get("granite").build(SIZES[size_name])
    torch.set_default_dtype(torch.float32)
    torch.spyre.synchronize()
    loaded = time.perf_counter()
    cache = StaticCache(config=model.config, max_cache_len=CACHE)
    token = tokens(model, 32).to("spyre")
    token = model(token, past_key_values=cache).logits[:, -1:].argmax(-1)
    compiled = torch.compile(model, dynamic=False)
    token = compiled(token, past_key_values=cache).logits.argmax(-1)
    token.cpu()
    ready = time.perf_counter()
    for _ in range(new_tokens):
        token = compiled(token, past_key_values=cache).logits.argmax(-1)
    token.cpu()
    decoded = time.perf_counter()
    status = Path("/proc/self/status").read_text()
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "load": loaded - start,
        "compile": ready - loaded,
        "token": (decoded - ready) / new_tokens,
        "peak": 1024 * int(status.split("VmHWM:")[1].split()[0]),
    }


def in_empty_process(*what: str) -> dict[str, float]:
    """What one of the functions above finds, with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        return in_new_process(__file__, folder, *what)


def cold_compile() -> bool:
    print("\ncompiling with empty caches: seconds to the first result")
    print(f"{'':12}{'prompt':>10}{'token':>10}")
    totals = {}
    for name, device in (("CPU", "cpu"), ("card", "spyre")):
        found = in_empty_process("compile", device)
        totals[name] = sum(found.values())
        print(f"{name:12}{found['prompt']:10.2f}{found['token']:10.2f}", flush=True)
    return over("card / CPU", totals["card"] / totals["CPU"], COLD_LIMIT)


def memory(size: str = "medium", empty: str = "empty") -> bool:
    found, without = in_empty_process("decode", size), in_empty_process("decode", empty)
    weights = 2 * found["parameters"]
    used = found["peak"] - without["peak"]
    print(f"\n{found['parameters'] / 1e6:.0f} million parameters made on the card, in float16:")
    print(
        f"loaded in {found['load']:.1f} s, compiled in {found['compile']:.1f} s,"
        f" {1 / found['token']:.2f} tokens/s"
    )
    mebibytes = (number / 2**20 for number in (weights, used, without["peak"]))
    print("MiB: weights {:.0f}, peak {:.0f}, and {:.0f} without weights".format(*mebibytes))
    return over("peak / weights", used / weights, MEMORY_LIMIT)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only", choices=("speed", "compile", "memory"), help="one of the parts")
    parser.add_argument("--big", action="store_true", help="a model of 2.5 billion parameters, too")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    with torch.inference_mode():
        if arguments.one:
            part, argument = arguments.one
            found = compile_once(argument) if part == "compile" else decode_once(argument)
            print(json.dumps(found))
            return 0
        parts = {
            "speed": lambda: speed(arguments.repeats),
            "compile": cold_compile,
            "memory": memory,
        }
        missed = [part() for name, part in parts.items() if arguments.only in (None, name)]
        if arguments.big:
            missed.append(memory("big", "big-empty"))
    return int(any(missed))


if __name__ == "__main__":
    sys.exit(main())
