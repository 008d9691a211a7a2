"""Ops of PyTorch's database that are native in eager, compiled: against eager and the CPU.

A sample is one graph. Nothing of it runs on the CPU or op by op, unless `opinfo_refused.toml` says
why, under `compiled`. Graphs end only where the content of a tensor decides what comes next.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import opinfo
import pytest
import torch
from compiling import content
from proof import DEVICE, Verdict, WrongResult, check, convert, judge, name_of, seed_all, tensors
from refusals import (
    check_differences,
    check_listed,
    differences,
    groups,
    small_and_quiet,  # noqa: F401  (a fixture)
)
from torch._inductor import config as inductor_config
from torch._inductor.utils import run_and_get_code
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_spyre._inductor import config
from torch_spyre.ops import fallbacks

SAMPLES = 2  # of each entry, of different dtypes if it takes several
TRIED = 4  # of each dtype, to find some that are native in eager
ORDER = (torch.float16, torch.int64, torch.float32, torch.bool)
DECIDING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class Compiled:
    """A function: compiled where its arguments are on the card, else as it is."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.ends = False  # the graph, before the function does
        self.eager_calls: list[str] = []
        self.kernels = 0
        self.compiled: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = tree_leaves((args, kwargs))
        if not any(leaf == DEVICE or getattr(leaf, "device", None) == DEVICE for leaf in leaves):
            with Decisions() as decisions:
                result = self.function(*args, **kwargs)
            self.ends |= decisions.found
            return result
        if self.compiled is None:
            torch._dynamo.reset()
            self.compiled = torch.compile(
                lambda args, kwargs: self.function(*args, **kwargs),
                fullgraph=not self.ends,
                dynamic=False,
            )
        with (
            fallbacks.refused(),
            config.patch(compile_fallback="error"),
            inductor_config.patch(force_disable_caches=True),
        ):
            result, wrappers = run_and_get_code(self.compiled, args, kwargs)
        if wrappers:  # else it was compiled before
            self.eager_calls, self.kernels = content("\n".join(wrappers))
        return result


class Decisions(TorchDispatchMode):
    """Finds ops whose results Python needs to know before it can go on."""

    found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found |= not DECIDING.isdisjoint(func.tags)
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge sets seeds; entries that set their own would end a graph to do so."""
    monkeypatch.setattr(
        common_methods_invocations,
        "wrapper_set_seed",
        lambda op, *args, **kwargs: op(*args, **kwargs),
    )


def candidates(op: OpInfo) -> Iterator[tuple[torch.dtype, SampleInput]]:
    """Samples worth compiling: those with something to compute first, dtypes in turn."""
    columns = []
    for dtype in sorted(opinfo.dtypes(op), key=ORDER.index):
        if f"{opinfo.identifier(op)} {name_of(dtype)}" not in differences("ops"):
            found = sorted(opinfo.samples(op, dtype), key=_is_trivial)
            columns.append([(dtype, sample) for sample in found[:TRIED]])
    for row in itertools.zip_longest(*columns):
        yield from filter(None, row)


def _is_trivial(sample: SampleInput) -> bool:
    return any(t.dim() == 0 or t.numel() == 0 for t in tensors([sample.input, *sample.args]))


@dataclasses.dataclass
class Outcome:
    """How one sample did."""

    entry: str  # "name dtype"
    function: Compiled
    verdict: Verdict
    wrong: str = ""

    @property
    def word(self) -> str:
        if self.wrong or self.verdict.refused:
            return "differs" if self.wrong else "refused"
        if self.function.ends:
            return "several graphs"
        return "with eager kernels" if self.function.eager_calls else "compiled"


def compile_sample(op: OpInfo, dtype: torch.dtype, sample: SampleInput) -> Outcome | None:
    """Run a sample in eager, then compiled; None if eager is not native."""
    arguments = ((sample.input, *sample.args), dict(sample.kwargs))
    options = opinfo.how_to_judge(op, dtype, sample)
    eager = Verdict()
    want = judge(op.op, arguments, eager, **options)
    if not eager.native:
        return None
    entry = f"{opinfo.identifier(op)} {name_of(dtype)}"
    outcome = Outcome(entry, Compiled(op.op), Verdict())
    try:
        got = judge(outcome.function, arguments, outcome.verdict, **options, steps=eager.steps)
        if outcome.verdict.native and not options["uninitialised"]:
            want = convert(want, _to_host)
            check(got, want, want, options["tolerance"], 2 * eager.steps)
    except WrongResult as error:
        outcome.wrong = str(error)
    return outcome


def _to_host(leaf: Any) -> Any:
    return leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # samples use what PyTorch deprecates
@pytest.mark.parametrize("name", opinfo.OPS)
def test_compiled_op(name: str, record_property: Any) -> None:
    op = opinfo.OPS[name]
    seed_all(0)  # of samples
    tried = (compile_sample(op, *candidate) for candidate in candidates(op))
    outcomes = list(itertools.islice(filter(None, tried), SAMPLES))
    if not outcomes:
        pytest.skip("no sample is native in eager")

    words = {outcome.entry.rsplit(" ", 1)[1]: outcome.word for outcome in outcomes}
    calls = {call for outcome in outcomes for call in outcome.function.eager_calls}
    record_property("compiled", (name, words, sorted(calls)))
    wrong = {outcome.entry: outcome.wrong for outcome in outcomes if outcome.wrong}
    check_differences("compiled", name, wrong)
    check_listed("compiled", name, [outcome.verdict for outcome in outcomes])


def test_the_list_names_ops_that_there_are() -> None:
    named = {name for group in groups("compiled") for name in group.entries}
    named |= {entry.rsplit(" ", 1)[0] for entry in differences("compiled")}
    assert named <= set(opinfo.OPS)
