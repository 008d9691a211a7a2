"""What ``torch.compile`` costs on the card: compiling, compiling again, and launching.

A Granite decoder is compiled by a process of its own each time: cold, with an empty cache
directory, on the card and by Inductor for the CPU in turn; then warm, in a new process that finds
what the cold one left. Counted is the time from ``torch.compile`` to the first result; what it
takes to import the compiler is shown beside it. Then decoders of 2, 8 and 32 layers, and the
host's share of launching a kernel of one op.

    python benchmarks/compile.py
    python benchmarks/compile.py --repeats 1 --only launch
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

from measuring import in_new_process, over

COLD_LIMIT = 1 / 3  # of CPU Inductor's cold time
WARM_LIMIT = 1 / 2  # of our own cold time
LAUNCH_LIMIT_US = 20
GROWTH_LIMIT = 1.25  # seconds a layer from 8 to 32 layers, over those from 2 to 8
LAYERS = (2, 8, 32)


def compile_once(device: str, layers: int, hidden: int) -> dict[str, float]:
    """In this process: seconds of importing the compiler, and of compiling and running once."""
    import torch
    from granite import Granite, GraniteConfig

    torch.set_num_threads(2)
    config = GraniteConfig(layers=layers, hidden=hidden, intermediate=3 * hidden)
    dtype = torch.float32 if device == "cpu" else torch.float16
    model = Granite(config).to(dtype).to(device).eval()
    numbers = torch.randint(config.vocabulary, (1, 64)).to(device)
    with torch.no_grad():
        model(numbers).cpu()
        start = time.perf_counter()
        import torch._inductor.compile_fx

        if device == "spyre":
            from torch_spyre import _inductor

            _inductor.load()
        loaded = time.perf_counter()
        before = time.process_time()
        torch.compile(model)(numbers).cpu()
        return {
            "import": loaded - start,
            "compile": time.perf_counter() - loaded,
            "processor": time.process_time() - before,
        }


def cold_and_warm(repeats: int) -> bool:
    """Granite of 4 layers; True if a limit was missed."""
    runs: dict[str, list[dict[str, float]]] = {"CPU cold": [], "card cold": [], "card warm": []}
    for _ in range(repeats):
        for device, name in (("cpu", "CPU"), ("spyre", "card")):
            with tempfile.TemporaryDirectory() as folder:
                runs[f"{name} cold"].append(in_new_process(__file__, folder, device, 4, 1024))
                if device == "spyre":
                    runs["card warm"].append(in_new_process(__file__, folder, device, 4, 1024))
    print(f"Granite of 4 layers, hidden size 1024: seconds, median of {repeats} processes")
    print(f"{'':12}{'import':>10}{'compile':>10}")
    compiled = {}
    for name, results in runs.items():
        imported = statistics.median(result["import"] for result in results)
        compiled[name] = statistics.median(result["compile"] for result in results)
        print(f"{name:12}{imported:10.2f}{compiled[name]:10.2f}")
    return any(
        [
            over("card cold / CPU cold", compiled["card cold"] / compiled["CPU cold"], COLD_LIMIT),
            over(
                "card warm / card cold", compiled["card warm"] / compiled["card cold"], WARM_LIMIT
            ),
        ]
    )


def growth(repeats: int) -> bool:
    """Seconds for each layer; True if they grow with the number of layers."""
    # Of the processor: the processes follow one another, and neighbours come and go.
    print(f"\nGranite of hidden size 256, cold: processor seconds, median of {repeats} processes")
    print(f"{'':12}{'compile':>10}{'a layer':>10}")
    times = []
    for layers in LAYERS:
        results = []
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as folder:
                results.append(in_new_process(__file__, folder, "spyre", layers, 256)["processor"])
        times.append(statistics.median(results))
        print(f"{f'{layers} layers':12}{times[-1]:10.2f}{times[-1] / layers:10.3f}")
    early, late = (
        (times[i + 1] - times[i]) / (LAYERS[i + 1] - LAYERS[i]) for i in range(len(LAYERS) - 1)
    )
    return over("a layer from 8 to 32 / from 2 to 8", late / early, GROWTH_LIMIT)


def launch() -> bool:
    """Host time of launching a compiled kernel of one op; True if it is too long."""
    import torch
    from torch._inductor.codecache import PyCodeCache

    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        compiled = torch.compile(lambda x, y: x + y)
        x, y = (torch.randn(64, 64).half().to("spyre") for _ in range(2))
        out = compiled(x, y)
        kernel = next(
            value
            for module in PyCodeCache.modules
            for name, value in vars(module).items()
            if name.startswith("sdsc_fused_")
        )
        calls = {
            "kernel.run": lambda: kernel.run(x, y, out),
            "compiled(x, y)": lambda: compiled(x, y),
            "eager x + y": lambda: x + y,
        }
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(50):
            for name, call in calls.items():
                call()
                torch.spyre.synchronize()
                start = time.perf_counter()
                for _ in range(20):
                    call()
                times[name].append((time.perf_counter() - start) / 20)
                torch.spyre.synchronize()
    print("\nadd of 64 x 64, not synchronised: microseconds of host time, median of 50")
    for name, seconds in times.items():
        print(f"{name:20}{statistics.median(seconds) * 1e6:10.2f}")
    host = statistics.median(times["kernel.run"]) * 1e6
    return over("kernel.run, microseconds", host, LAUNCH_LIMIT_US)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=("cold", "growth", "launch"), help="one of the parts")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        device, layers, hidden = arguments.one
        print(json.dumps(compile_once(device, int(layers), int(hidden))))
        return 0
    parts = {
        "cold": lambda: cold_and_warm(arguments.repeats),
        "growth": lambda: growth(arguments.repeats),
        "launch": launch,
    }
    missed = [part() for name, part in parts.items() if arguments.only in (None, name)]
    return int(any(missed))


if __name__ == "__main__":
    sys.exit(main())
