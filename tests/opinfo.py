"""PyTorch's database of ops, and how each of its ops is run on the card."""

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from proof import DTYPES, Tolerance, Verdict, judge, tensors
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import DecorateInfo, OpInfo, SampleInput

SAMPLES = 24  # of each op and dtype, spread over the first of the database's
SAMPLES_SEEN = 96
LARGEST = 1 << 17  # elements of an argument
VARIANTS = 3  # samples on which out= and the in-place variant are tried

# The content of what these return is not defined.
UNINITIALISED = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
    "resize_", "resize_as_",
}  # fmt: skip


# Ops that return indices of which several may be as good: which result, and which argument after
# the tensor is the dimension.
CHOICES = {"sort": (1, 0), "argsort": (0, 0), "topk": (1, 1), "kthvalue": (1, 1), "mode": (1, 0)}


def identifier(op: OpInfo) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


OPS = {identifier(op): op for op in op_db}


def dtypes(op: OpInfo) -> list[torch.dtype]:
    """The dtypes of the proof that the op takes on the CPU; float16 wherever it takes float32."""
    supported = op.supported_dtypes("cpu")
    return [dtype for dtype in DTYPES if dtype in supported or _in_float32(op, dtype)]


def _in_float32(op: OpInfo, dtype: torch.dtype) -> bool:
    """Whether float16 is compared with the CPU's float32, for want of float16 there."""
    supported = op.supported_dtypes("cpu")
    return dtype == torch.float16 and torch.float16 not in supported and torch.float32 in supported


def tolerance(op: OpInfo) -> Tolerance:
    """PyTorch's tolerance of float32 results: the default, or what its own tests allow this op."""
    relative, absolute = Tolerance.relative, Tolerance.absolute
    for entry in op.decorators:
        if not isinstance(entry, DecorateInfo) or entry.device_type not in (None, "cpu"):
            continue
        for decorator in entry.decorators:
            if isinstance(decorator, toleranceOverride) and torch.float32 in decorator.d:
                allowed = decorator.d[torch.float32]
                relative, absolute = max(relative, allowed.rtol), max(absolute, allowed.atol)
    return Tolerance(relative, absolute)


def samples(
    op: OpInfo, dtype: torch.dtype, wanted: int | None = SAMPLES, seen: int | None = SAMPLES_SEEN
) -> Iterator[SampleInput]:
    """So many of those that were seen first; None: all."""
    # The database notes the call stack for every sample: in a thread there is little of it.
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(_first_samples, op, dtype, seen).result()
    step = max(1, len(found) // wanted) if wanted else 1
    for sample in found[::step][:wanted]:
        inside = tensors([sample.input, sample.args, sample.kwargs])
        if all(t.layout == torch.strided and t.numel() <= LARGEST for t in inside):
            yield sample


def _first_samples(op: OpInfo, dtype: torch.dtype, seen: int | None) -> list[SampleInput]:
    if not _in_float32(op, dtype):
        return list(itertools.islice(op.sample_inputs("cpu", dtype), seen))
    wide = itertools.islice(op.sample_inputs("cpu", torch.float32), seen)
    return [sample.transform(_narrow) for sample in wide]


def _narrow(leaf: torch.Tensor | torch.dtype) -> torch.Tensor | torch.dtype:
    if isinstance(leaf, torch.Tensor):
        return leaf.half() if leaf.dtype == torch.float32 else leaf
    return torch.float16 if leaf == torch.float32 else leaf


def run(op: OpInfo, dtype: torch.dtype, verdict: Verdict) -> None:
    """All samples of the op, its out= and in-place variants; raises what is wrong."""
    for number, sample in enumerate(samples(op, dtype)):
        arguments = ((sample.input, *sample.args), dict(sample.kwargs))
        options = how_to_judge(op, dtype, sample)
        got = judge(op.op, arguments, verdict, **options)
        if number >= VARIANTS:
            continue
        if op.inplace_variant is not None and not sample.broadcasts_input:
            judge(op.inplace_variant, arguments, verdict, **options)
        if op.supports_out and tensors([got]):
            judge(_with_out(op.op), arguments, verdict, **options)


def how_to_judge(op: OpInfo, dtype: torch.dtype, sample: SampleInput) -> dict[str, Any]:
    """Options of `judge`."""
    return {
        "tolerance": tolerance(op),
        "uninitialised": op.name in UNINITIALISED,
        "half_on_cpu": not _in_float32(op, dtype),
        "seeds_itself": "wrapper_set_seed" in getattr(op.op, "__code__", run.__code__).co_names,
        "choices": _choices(op, sample),
    }


def _choices(op: OpInfo, sample: SampleInput) -> tuple[int, int] | None:
    if op.name not in CHOICES or sample.kwargs.get("stable"):
        return None
    result, position = CHOICES[op.name]
    given = sample.args[position : position + 1]
    return result, sample.kwargs.get("dim", given[0] if given else -1)


def _with_out(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with results it is given; they must be what it returns."""

    def call(*args: Any, **kwargs: Any) -> Any:
        shapes = function(*args, **kwargs)
        if isinstance(shapes, torch.Tensor):
            out: Any = torch.empty_like(shapes)
        else:
            out = tuple(torch.empty_like(t) for t in shapes)
        result = function(*args, **kwargs, out=out)
        for given, returned in zip(tensors([out]), tensors([result]), strict=True):
            assert given.data_ptr() == returned.data_ptr()
        return out

    return call
