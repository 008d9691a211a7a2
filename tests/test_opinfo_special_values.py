"""NaN and Infinity in every operand of every op of PyTorch's database: where they come out.

One element of one operand at a time is replaced, and the card's results are compared with the
CPU's. What differs is in `opinfo_refused.toml`, as `special_values`, with the reason.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import opinfo
import pytest
import torch
from proof import Verdict, WrongResult, convert, judge, name_of, tensors
from refusals import check_differences, differences, small_and_quiet  # noqa: F401  (a fixture)

VALUES = (float("nan"), float("inf"), -float("inf"))
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# The CPU's LAPACK crashes on NaN.
CRASHES = {"linalg.eigvals"}
# Of each op and dtype, unless all are asked for.
SAMPLES, SEEN, PLANTS = 2, 24, 12


def planted(arguments: Any) -> Iterator[tuple[str, Any]]:
    """The arguments with one element replaced."""
    operands = [t for t in tensors(arguments) if t.is_floating_point() and t.numel() > 0]
    for number, operand in enumerate(operands):
        for value in VALUES:
            changed = operand.detach().clone(memory_format=torch.preserve_format)
            changed[tuple(size // 2 for size in changed.shape)] = value

            def leaf(entry: Any, old: Any = operand, new: Any = changed) -> Any:
                return new if entry is old else entry

            yield f"{value} in operand {number}", convert(arguments, leaf)


def dtypes(op: Any) -> list[torch.dtype]:
    taken = {*opinfo.dtypes(op), *op.supported_dtypes("cpu")}
    return [dtype for dtype in DTYPES if dtype in taken]


def find(op: Any, dtype: torch.dtype, everything: bool) -> str | None:
    """The first difference from the CPU."""
    limits = (None, None) if everything else (SAMPLES, SEEN)
    calls = (
        (number, sample, what, changed)
        for number, sample in enumerate(opinfo.samples(op, dtype, *limits))
        for what, changed in planted(((sample.input, *sample.args), dict(sample.kwargs)))
    )
    for number, sample, what, changed in itertools.islice(calls, None if everything else PLANTS):
        try:
            judge(op.op, changed, Verdict(), **opinfo.how_to_judge(op, dtype, sample))
        except WrongResult as error:
            return f"sample {number}, {what}: {error}"
    return None


@pytest.mark.filterwarnings("ignore")  # samples use what PyTorch deprecates
@pytest.mark.parametrize("name", [name for name in opinfo.OPS if name not in CRASHES])
def test_special_values(name, request):
    op = opinfo.OPS[name]
    if not dtypes(op):
        pytest.skip("takes no floats on the CPU")
    everything = request.config.getoption("--all-samples")
    wrong = {}
    for dtype in dtypes(op):
        text = find(op, dtype, everything)
        if text:
            wrong[f"{name} {name_of(dtype)}"] = text
    check_differences("special_values", name, wrong, complete=everything)


def test_the_list_names_ops_that_there_are():
    named = {entry.rsplit(" ", 1)[0] for entry in differences("special_values")}
    assert named <= set(opinfo.OPS)
