"""NaN and Infinity in every operand of every op of PyTorch's database: where they come out.

One element of one operand at a time is replaced, and the card's results are compared with the
CPU's of the same dtype. What differs is in `opinfo_refused.toml`, as `special_values`, with the
reason.
"""

import itertools
import random
from collections.abc import Iterator
from typing import Any

import opinfo
import pytest
import torch
from proof import Verdict, WrongResult, convert, judge, name_of, seed_all, tensors, varies
from refusals import (
    check_differences,
    differences,
    group_of,
    small_and_quiet,  # noqa: F401  (a fixture)
)

VALUES = (float("nan"), float("inf"), -float("inf"))
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# The CPU's LAPACK crashes on NaN.
CRASHES = {"linalg.eigvals"}
# Of each op and dtype, unless all are asked for.
SAMPLES, SEEN, PLANTS = 2, 24, 12


def places(operand: torch.Tensor) -> list[tuple[int, ...]]:
    """The first element, one in the middle, and the last."""
    found = [tuple(int(size * part) for size in operand.shape) for part in (0, 0.5)]
    return list(dict.fromkeys([*found, tuple(size - 1 for size in operand.shape)]))


def planted(arguments: Any, everywhere: bool) -> Iterator[tuple[str, Any]]:
    """The arguments with one element replaced: by each value, in all places or in turn."""
    operands = [t for t in tensors(arguments) if t.is_floating_point() and t.numel() > 0]
    for number, operand in enumerate(operands):
        for turn, value in enumerate(VALUES, start=number):
            found = places(operand)
            for place in found if everywhere else [found[turn % len(found)]]:
                changed = operand.detach().clone(memory_format=torch.preserve_format)
                changed[place] = value

                def leaf(entry: Any, old: Any = operand, new: Any = changed) -> Any:
                    return new if entry is old else entry

                yield f"{value} in operand {number} at {place}", convert(arguments, leaf)


def dtypes(op: Any) -> list[torch.dtype]:
    taken = {*opinfo.dtypes(op), *op.supported_dtypes("cpu")}
    return [dtype for dtype in DTYPES if dtype in taken]


def comparable(op: Any, dtype: torch.dtype, sample: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The arguments of the sample and how to judge them, unless its results are random.

    That is asked before NaN hides it; the judge sees by itself which other ops are random.
    """
    arguments = ((sample.input, *sample.args), dict(sample.kwargs))
    options = opinfo.how_to_judge(op, dtype, sample)
    if not (options.pop("seeds_itself") and varies(op.op, arguments)):
        yield arguments, options


def find(name: str, dtype: torch.dtype, everything: bool) -> Iterator[str]:
    """Differences from the CPU."""
    op = opinfo.OPS[name]
    limits = (None, None) if everything else (SAMPLES, SEEN)
    seed_all(0)  # the same samples in every run: some differences depend on their values
    random.seed(0)
    calls = (
        (f"sample {number}, {what}", changed, options)
        for number, sample in enumerate(opinfo.samples(op, dtype, *limits))
        for arguments, options in comparable(op, dtype, sample)
        for what, changed in planted(arguments, everything)
    )
    for what, changed, options in itertools.islice(calls, None if everything else PLANTS):
        verdict = Verdict()
        try:
            judge(op.op, changed, verdict, **options, strict=True)
        except WrongResult as error:
            yield f"{what}: {error}"
        for refusal in verdict.refusals:
            if group_of("ops", name, refusal) is None:
                yield f"{what}: {refusal}"


@pytest.mark.filterwarnings("ignore")  # samples use what PyTorch deprecates
@pytest.mark.parametrize("name", [name for name in opinfo.OPS if name not in CRASHES])
def test_special_values(name, request):
    op = opinfo.OPS[name]
    if not dtypes(op):
        pytest.skip("takes no floats on the CPU")
    everything = request.config.getoption("--all-samples")
    wrong = {}
    for dtype in dtypes(op):
        text = next(find(name, dtype, everything), None)
        if text:
            wrong[f"{name} {name_of(dtype)}"] = text
    check_differences("special_values", name, wrong, complete=everything)


def test_the_list_names_ops_that_there_are():
    named = {entry.rsplit(" ", 1)[0] for entry in differences("special_values")}
    assert named <= set(opinfo.OPS)


def finite_on_the_card(x):
    return x if x.is_cpu else torch.ones_like(x)


def refused_by_the_cpu(x):
    if x.is_cpu:
        raise ValueError("no")
    return x


@pytest.mark.parametrize("function", [finite_on_the_card, refused_by_the_cpu])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_judge_is_strict(function, dtype):
    x = torch.tensor([1.0, float("inf")], dtype=dtype)
    with pytest.raises(WrongResult):
        judge(function, ((x,), {}), Verdict(), strict=True)
