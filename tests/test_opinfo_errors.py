"""Wrong calls of every op of PyTorch's database: the card refuses what the CPU refuses.

The database has error inputs, with the type and text of the error. And every op that has `out=` is
given tensors that do not suit it: of another size, dtype or device, or that share memory.
"""

import math
import re
from typing import Any

import opinfo
import oracle
import pytest
import torch
from proof import Arguments, Tolerance, WrongResult, check, convert, name_of, seed_all, tensors
from refusals import check_differences, small_and_quiet  # noqa: F401  (a fixture)
from torch.testing._internal.opinfo.core import ErrorInput

pytestmark = pytest.mark.filterwarnings("ignore")  # samples use what PyTorch deprecates


def outcome(function: Any, arguments: Any) -> Any:
    """What a call returns, or the exception that it raises."""
    args, kwargs = arguments
    seed_all(0)
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return error


def check_same_error(ours: Any, expected: Exception) -> None:
    said = f"the CPU: {type(expected).__name__}: {expected}"
    if not isinstance(ours, Exception):
        raise WrongResult(f"accepted; {said}")
    if type(ours) is not type(expected) or "INTERNAL ASSERT" in str(ours):
        raise WrongResult(f"{type(ours).__name__}: {ours}; {said}")


# ----------------------------------------------------------------------------------- error inputs


def without_float64(leaf: Any) -> Any:
    wide = isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float64
    return leaf.float() if wide else leaf


def check_error(function: Any, wrong: ErrorInput) -> None:
    sample = wrong.sample_input
    arguments = convert(((sample.input, *sample.args), dict(sample.kwargs)), without_float64)
    if any(t.is_complex() or t.is_sparse for t in tensors(arguments)):
        return  # no such tensor is on a card
    moved = Arguments(arguments)
    ours = outcome(function, moved.card)
    expected = outcome(function, moved.host)
    if not isinstance(expected, Exception):
        return
    check_same_error(ours, expected)
    regex = wrong.error_regex
    if re.search(regex, str(expected)) and not re.search(regex, str(ours)):
        raise WrongResult(f"{ours}, without {regex!r}; the CPU: {expected}")


@pytest.mark.parametrize("name", [n for n, op in opinfo.OPS.items() if op.error_inputs_func])
def test_error_inputs(name):
    op = opinfo.OPS[name]
    wrong = {}
    for number, entry in enumerate(op.error_inputs("cpu")):
        try:
            check_error(op.op, entry)
        except WrongResult as error:
            wrong[f"{name} {number}"] = str(error)
    check_differences("errors", name, wrong)


# ---------------------------------------------------------------------------------------- dtypes

REFUSED_DTYPES = (torch.int64, torch.bool)


def dtype_faults(op: Any, dtype: torch.dtype) -> str | None:
    """What is wrong with calls in a dtype that the CPU's op does not have."""
    for sample in list(opinfo.samples(op, torch.float32))[: opinfo.VARIANTS]:

        def other(leaf: Any) -> Any:
            return (
                leaf.to(dtype)
                if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
                else leaf
            )

        moved = Arguments(convert(((sample.input, *sample.args), dict(sample.kwargs)), other))
        expected = outcome(op.op, moved.host)
        if isinstance(expected, Exception):
            try:
                check_same_error(outcome(op.op, moved.card), expected)
            except WrongResult as error:
                return str(error)
    return None


@pytest.mark.parametrize("name", opinfo.OPS)
def test_dtypes_that_the_cpu_refuses(name):
    op = opinfo.OPS[name]
    if torch.float32 not in opinfo.dtypes(op):
        pytest.skip("takes no float32 on the CPU")
    wrong = {}
    for dtype in REFUSED_DTYPES:
        if dtype not in op.supported_dtypes("cpu"):
            text = dtype_faults(op, dtype)
            if text:
                wrong[f"{name} {name_of(dtype)}"] = text
    check_differences("dtypes", name, wrong)


# ------------------------------------------------------------------------------------------- out=


def room(size: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """An empty tensor with memory to spare: the CPU writes some as if they were in order."""
    count = math.prod(size)
    return torch.empty(8 * count + 8, dtype=dtype)[:count].view(size)


def expanded(result: torch.Tensor) -> torch.Tensor:
    if result.numel() == 0:
        return torch.empty_like(result)
    return room(result.shape, result.dtype).flatten()[0].expand(result.shape)


# What takes the place of a result.
OUTS = {
    "nothing in it": lambda t: torch.empty(0, dtype=t.dtype),
    "another size": lambda t: room((*t.shape, 2), t.dtype),
    "other strides": lambda t: room((*t.shape, 3), t.dtype)[..., 1],
    "turned around": lambda t: (
        room(t.shape[::-1], t.dtype).permute(*range(t.dim())[::-1])
        if t.dim() > 1
        else room(t.shape, t.dtype)
    ),
    "elements on each other": expanded,
    "int64": lambda t: room(t.shape, torch.int64),
    "bool": lambda t: room(t.shape, torch.bool),
    "float32": lambda t: room(t.shape, torch.float32),
    "float16": lambda t: room(t.shape, torch.float16),
}


def in_place_of(results: Any, change: Any) -> Any:
    if isinstance(results, torch.Tensor):
        return change(results)
    return tuple(change(entry) for entry in results)


def check_out(op: Any, what: str, arguments: Any, results: Any, random: bool) -> None:
    """The call with an unsuitable `out` ends on the card as it does on the CPU."""
    args, kwargs = arguments
    out = in_place_of(results, OUTS[what])
    moved = Arguments((args, {**kwargs, "out": out}))
    expected, ours = outcome(op, moved.host), outcome(op, moved.card)
    if isinstance(expected, Exception):
        check_same_error(ours, expected)
    elif what == "elements on each other":
        return  # the CPU does not look; what comes out is anything
    elif isinstance(ours, Exception):
        raise WrongResult(f"{type(ours).__name__}: {ours}")
    else:
        mine, theirs = (tensors(moved_to[1]["out"]) for moved_to in (moved.card, moved.host))
        for one, other, before in zip(mine, theirs, tensors(out), strict=True):
            if before.shape == other.shape and one.stride() not in (
                before.stride(),
                other.stride(),
            ):
                raise WrongResult(f"strides {one.stride()}, given {before.stride()}")
        tolerance = Tolerance(2**-7, 2**-7)
        try:
            check(mine, theirs, theirs, tolerance, values=not random)
        except WrongResult:
            # Some of the CPU's kernels write as if `out` were in order.
            right = [r.to(out.dtype) for r, out in zip(tensors(results), mine, strict=True)]
            check(mine, right, right, tolerance, values=not random)


def check_shared(op: Any, arguments: Any, result: Any, random: bool) -> None:
    """An `out` one element before the input, in the same memory: refused, or right."""
    (first, *rest), kwargs = arguments
    if not isinstance(first, torch.Tensor) or not isinstance(result, torch.Tensor):
        return
    if (first.shape, first.dtype) != (result.shape, result.dtype) or first.numel() < 2:
        return
    count = first.numel()
    memory = torch.empty(count + 1, dtype=first.dtype)
    source, out = memory[1:].view(first.shape), memory[:-1].view(first.shape)
    source.copy_(first.detach())
    moved = Arguments(((source, *rest), {**kwargs, "out": out}))
    expected = outcome(op, moved.host)
    ours = outcome(op, moved.card)
    if isinstance(expected, Exception) and isinstance(ours, Exception):
        check_same_error(ours, expected)
    elif not isinstance(ours, Exception) and not random:
        check([ours], [result], [result], Tolerance(2**-7, 2**-7))


def check_wrong_device(op: Any, arguments: Any, out: Any) -> None:
    args, kwargs = Arguments(arguments).card
    ours = outcome(op, (args, {**kwargs, "out": out}))
    if not isinstance(ours, RuntimeError) or "INTERNAL ASSERT" in str(ours):
        raise WrongResult(f"{type(ours).__name__}: {ours}"[:200])


def out_faults(op: Any, dtype: torch.dtype) -> dict[str, str]:
    """What is wrong with unsuitable `out=`, by what is unsuitable."""
    wrong: dict[str, str] = {}
    for sample in list(opinfo.samples(op, dtype))[: opinfo.VARIANTS]:
        arguments = ((sample.input, *sample.args), dict(sample.kwargs))
        moved = Arguments(arguments)
        results = outcome(op.op, moved.host)
        untouched = torch.default_generator.get_state()
        seed_all(0)
        random = op.name in opinfo.UNINITIALISED or not torch.equal(
            untouched, torch.default_generator.get_state()
        )
        suitable = in_place_of(results, torch.empty_like) if is_tensors(results) else None
        with_out = outcome(op.op, (moved.host[0], {**moved.host[1], "out": suitable}))
        if suitable is None or isinstance(with_out, Exception):
            continue
        if isinstance(outcome(op.op, moved.card), Exception):
            continue  # refused whatever `out` is
        for what in OUTS:
            try:
                check_out(op.op, what, arguments, results, random)
            except WrongResult as error:
                wrong.setdefault(what, str(error))
        try:
            check_shared(op.op, arguments, results, random)
        except WrongResult as error:
            wrong.setdefault("memory of the input", str(error))
        if tensors(arguments):
            try:
                check_wrong_device(op.op, arguments, in_place_of(results, torch.empty_like))
            except WrongResult as error:
                wrong.setdefault("on the CPU", str(error))
    return wrong


def is_tensors(results: Any) -> bool:
    """A tensor or several, of dtypes that are on the card."""
    several = (results,) if isinstance(results, torch.Tensor) else results
    return isinstance(several, tuple) and all(
        isinstance(entry, torch.Tensor) and entry.dtype in oracle.DEVICE_DTYPES for entry in several
    )


@pytest.mark.parametrize("name", [n for n, op in opinfo.OPS.items() if op.supports_out])
def test_out(name):
    op = opinfo.OPS[name]
    dtype = next((d for d in (torch.float32, torch.int64) if d in opinfo.dtypes(op)), None)
    if dtype is None:
        pytest.skip("takes neither float32 nor int64 on the CPU")
    wrong = {f"{name} {what}": text for what, text in out_faults(op, dtype).items()}
    check_differences("out", name, wrong)
