"""``python -m torch_spyre models``: every model of the zoo on the card, against the CPU."""

import argparse
import dataclasses
import json
import logging
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_spyre.tools.tables import Table, duration

if TYPE_CHECKING:  # torch takes seconds to import, and the parser needs none of it
    from torch_spyre.zoo.measure import Measurement


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="models (default: all)")
    parser.add_argument("--list", action="store_true", help="only list the models")
    parser.add_argument("--size", default="tiny", help="tiny, small or medium (default: tiny)")
    parser.add_argument("--batch", type=int, default=4, help="sequences (default: 4)")
    parser.add_argument("--length", type=int, default=128, help="tokens of each (default: 128)")
    parser.add_argument(
        "--untrained",
        action="store_true",
        help="random weights for decoders: no training, and no meaning in the top-1 column",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all numbers")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from torch_spyre import zoo

    if options.size not in zoo.SIZES:
        parser.error(f"no size {options.size!r}; there are {', '.join(zoo.SIZES)}")
    try:
        models = [zoo.get(name) for name in options.names] or zoo.models()
    except KeyError as error:
        parser.error(error.args[0])
    if options.list:
        table = Table(["model", "library", "kind"], title="Models")
        for model in models:
            table.add(model.name, model.library, model.kind)
        table.show()
        return 0

    done: list[Measurement] = []
    failures: dict[str, str] = {}
    for place, model in enumerate(models, start=1):
        progress = _Progress(f"[{place}/{len(models)}] {model.name}")
        try:
            done.append(_measured(model, options, progress))
        except Exception as error:  # the others still run
            failures[model.name] = f"{type(error).__name__}: {error}"
        progress.end(failures.get(model.name, ""))
    for table in (_runs(done), _accuracy(done)) if done else ():
        print(f"{table.markdown()}\n" if options.markdown else table.text())
    if options.json is not None:
        _write_json(options.json, done, failures)
        print(f"wrote {options.json}", file=sys.stderr)
    return _verdict(done, failures)


def _measured(model: Any, options: argparse.Namespace, progress: "_Progress") -> "Measurement":
    from torch_spyre import zoo
    from torch_spyre.zoo.measure import measure

    logging.getLogger("transformers").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what matters is counted
        return measure(
            model,
            zoo.SIZES[options.size],
            options.batch,
            options.length,
            train=not options.untrained,
            progress=progress.step,
        )


class _Progress:
    """One line on stderr; on a terminal it says what is being done."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.live = sys.stderr.isatty()
        self.started = time.perf_counter()

    def step(self, what: str) -> None:
        if self.live:
            print(f"\r\033[K{self.title} {what} ...", end="", file=sys.stderr, flush=True)

    def end(self, error: str) -> None:
        seconds = time.perf_counter() - self.started
        start = "\r\033[K" if self.live else ""
        outcome = f"failed: {error}" if error else "done"
        print(f"{start}{self.title} {outcome}, {seconds:.1f} s", file=sys.stderr, flush=True)


def _runs(done: "list[Measurement]") -> Table:
    table = Table(
        ["model", "ops", "launches", "native", "fallbacks", "breaks", "compile"]
        + ["wall", "compiled", "modelled", "compiled"],
        title="Runs: eager ops, launches of the compiled model; wall and modelled time of both",
        numbers=frozenset(range(1, 11)),
    )
    for each in done:
        eager, compiled = each.eager, each.compiled
        table.add(
            each.name,
            str(eager.ops),
            str(compiled.ops),
            f"{min(eager.percent_native, compiled.percent_native):.4g} %",
            str(sum(eager.fallbacks.values()) + sum(compiled.fallbacks.values())),
            str(each.graph_breaks + each.op_by_op),
            f"{each.compile_seconds:.1f} s",
            f"{eager.wall_ms:.1f} ms",
            f"{compiled.wall_ms:.1f} ms",
            duration(eager.modelled_us * 1e3),
            duration(compiled.modelled_us * 1e3),
        )
    return table


def _accuracy(done: "list[Measurement]") -> Table:
    table = Table(
        ["model", "largest", "from fp32", "from fp16", "fp16 on CPU", "DL16 on CPU"]
        + ["rms", "rms of DL16", "top-1"],
        title="Accuracy: largest value, largest and rms differences from the CPU",
        numbers=frozenset(range(1, 9)),
    )
    for each in done:
        worst = max(each.eager, each.compiled, key=lambda run: run.error_fp32)
        agreements = [run.top1_agreement for run in (each.eager, each.compiled)]
        agreement = min(a or 0.0 for a in agreements) if each.trained else None
        table.add(
            each.name,
            f"{each.largest:.3g}",
            f"{worst.error_fp32:.2g}",
            f"{worst.error_fp16:.2g}",
            f"{each.fp16_error:.2g}",
            f"{each.dl16_error:.2g}",
            f"{worst.rms_error_fp32:.2g}",
            f"{each.dl16_rms_error:.2g}",
            "" if agreement is None else f"{100 * agreement:.1f} %",
        )
    return table


def _write_json(path: Path, done: "list[Measurement]", failures: dict[str, str]) -> None:
    models = [dataclasses.asdict(each) for each in done]
    for each, numbers in zip(done, models, strict=True):  # properties are no fields
        numbers["eager"]["percent_native"] = each.eager.percent_native
        numbers["compiled"]["percent_native"] = each.compiled.percent_native
    path.write_text(json.dumps({"models": models, "failures": failures}, indent=1) + "\n")


def _verdict(done: "list[Measurement]", failures: dict[str, str]) -> int:
    """Not 0 if a model failed, or is not as it should be."""
    complaints = {each.name: "; ".join(each.complaints()) for each in done if each.complaints()}
    for name, complaint in (failures | complaints).items():
        print(f"error: {name}: {complaint}", file=sys.stderr)
    return 1 if failures or complaints else 0
