"""One process of the fuzzer: runs of one variant for a while, with warm caches."""

import json
import os
import random
import time
import traceback
import warnings
from pathlib import Path
from unittest import mock

from hypothesis import HealthCheck, Phase, given, reporting, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import engine
from hypothesis.stateful import run_state_machine_as_test

from fuzzing import bundles, draws, machine
from fuzzing.draws import Draw
from fuzzing.prelude import Difference, run_together
from fuzzing.scripts import History, script
from fuzzing.world import World

VARIANT_NAMES = [*machine.VARIANTS, "threads", "bundles"]
STEPS = 40
BATCH = 30  # runs hypothesis plans at once


def options(runs):
    return settings(
        max_examples=runs,
        stateful_step_count=STEPS,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        report_multiple_bugs=False,
    )


def work(variant, seed, seconds, history, finding):
    """Runs until time is up: 0, or 1 and a file with what was found."""
    warnings.simplefilter("ignore")
    engine.MAX_SHRINKING_SECONDS = 60
    kept, end, started = History(history), time.monotonic() + seconds, time.monotonic()
    if variant == "bundles":
        return work_on_bundles(seed, end, kept, finding)
    failed = Failures(kept)
    try:
        with reporting.with_reporter(lambda text: None):
            for batch in range(1_000_000):
                if time.monotonic() > end:
                    return 0
                one_batch(variant, seed * 1_000_003 + batch, failed)
    except BaseException as error:
        if not failed.runs:
            raise
        Path(finding).write_text(json.dumps({
            "what": failed.said[-1],
            "small": failed.runs[-1],
            "runs": failed.first,
            "seconds": time.monotonic() - started,
        }))  # fmt: skip
        traceback.print_exception(error)
        return 1


def sample(variant, runs=30):
    """A few runs, as tests do them: always the same ones if CI is set."""
    failed = Failures(History())
    number = 0 if os.environ.get("CI") else random.randrange(1 << 30)
    try:
        with mock.patch.object(engine, "MAX_SHRINKING_SECONDS", 10):
            one_batch(variant, number, failed, runs)
    finally:
        if failed.runs:
            print(script(failed.runs[-1:], failed.said[-1]))


class Failures:
    """Which runs failed, with what was said."""

    def __init__(self, history):
        self.history = history
        self.runs: list[list[list[str]]] = []
        self.said: list[str] = []
        self.first = 0  # how many runs there were, the first that failed included

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is Difference:
            self.first = self.first or len(self.history.runs)
            self.runs.append(self.history.runs[-1])
            self.said.append(f"{kind.__name__}: {error}")


def one_batch(variant, number, failed, runs=BATCH):
    """Some runs of a variant, the same ones for the same number."""
    if variant == "threads":
        test = given(data=st.data())(lambda data: in_threads(data, failed))
        seed(number)(options(runs)(test))()
        return
    factory = machine.machine(machine.VARIANTS[variant], failed)
    run_state_machine_as_test(seed(number)(factory), settings=options(runs))


def in_threads(data, failed):
    """Two programs, drawn with the CPU alone, run at the same time on the card."""
    history = failed.history
    history.begin(programs=2)
    programs = []
    for number in range(2):
        world = World(None, lambda text, n=number: history.add(text, n), card=False)
        d = Draw(data)
        world.choose = d.choose
        draws.new_base(d, world)
        for _ in range(d.integer(1, STEPS)):
            work = d.choose([*machine.STEPS.values(), draws.new_base, draws.new_view])
            if world.device:
                work(d, world)
        programs.append("\n".join(world.statements))
    with failed:
        run_together(programs)


BUNDLE_SCRIPT = """\
# {what}
import json

import torch

from torch_spyre._C import _Program
from torch_spyre.backend.bundle import BundleFiles
from torch_spyre.backend.compiler import compile_files

mlir = {mlir!r}
superdscs = json.loads({superdscs!r})
program = _Program(compile_files(BundleFiles("bundle", mlir, superdscs)))
program.launch([torch.zeros(1 << 18, device="spyre:0") for _ in range(8)])
"""


def work_on_bundles(seed, end, history, finding):
    """Changes bundles until time is up: 0, or 1 and a file with what was found."""
    fuzzer = bundles.Fuzzer(seed)
    history.begin()
    while time.monotonic() < end:
        history.add(f"bundle {history.steps} of seed {seed}")
        files = fuzzer.next()
        try:
            fuzzer.accepted(files)
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            text = BUNDLE_SCRIPT.format(
                what=what, mlir=files.mlir, superdscs=json.dumps(files.superdscs)
            )
            Path(finding).write_text(json.dumps({"what": what, "script": text}))
            traceback.print_exc()
            return 1
    return 0
