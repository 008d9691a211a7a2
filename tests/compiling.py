"""Compiling a function for the card, and looking at what became of it."""

import re
import warnings
from dataclasses import dataclass

import torch
from torch._inductor.utils import run_and_get_code

from torch_spyre._inductor.compile import CompileFallbackWarning


def card(*size, dtype=torch.float16, seed=0):
    """Normal numbers on the card, the same ones for the same seed."""
    host = torch.randn(size, generator=torch.Generator().manual_seed(seed))
    if not dtype.is_floating_point:
        host = host * 10
    return host.to(dtype).to("spyre")


@dataclass
class Compiled:
    results: tuple[torch.Tensor, ...]
    eager_calls: list[str]  # ops that the wrapper calls between kernels, in order
    kernels: int


def compiled(function, *args):
    """Compile as one graph and run; fails if the graph ran op by op."""
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileFallbackWarning)
        got, wrappers = run_and_get_code(torch.compile(function, fullgraph=True), *args)
    return Compiled(got if isinstance(got, tuple) else (got,), *content("\n".join(wrappers)))


def counted(run):
    """What a call adds to the counters, once everything it needs has run before."""
    run()
    torch.spyre.reset()
    run()
    torch.spyre.synchronize()
    return torch.spyre.counters()


def content(code):
    """The eager calls in wrapper code, and the number of its kernels."""
    calls = re.findall(r"^\s*(?:\w+ = )?(?:torch\.ops\.)?((?:aten|prims)\.\w+)[.(]", code, re.M)
    return calls, code.count("_compile.sdsc(")


def same_as_eager(function, *args, calls=(), exact=True):
    """The compiled function gives what the eager one gives, with these eager calls left in it."""
    outcome = compiled(function, *args)
    assert outcome.eager_calls == list(calls)
    want = function(*args)
    want = want if isinstance(want, tuple) else (want,)
    for ours, eager in zip(outcome.results, want, strict=True):
        assert (ours.device, ours.shape, ours.dtype) == (eager.device, eager.shape, eager.dtype)
        if exact:
            torch.testing.assert_close(ours.cpu(), eager.cpu(), rtol=0, atol=0, equal_nan=True)
        else:
            assert_near(ours, eager)
    return outcome


def same_as_cpu(function, *args, tolerance=2**-8):
    """The compiled function gives what float64 on the CPU gives, up to a relative error."""
    outcome = compiled(function, *args)
    host = [wide(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
    want = function(*host)
    for ours, right in zip(
        outcome.results, want if isinstance(want, tuple) else (want,), strict=True
    ):
        assert ours.shape == right.shape
        assert_near(ours, right, tolerance)
    return outcome


def wide(tensor):
    host = tensor.cpu()
    return host.double() if host.is_floating_point() else host


def assert_near(ours, right, tolerance=2**-8):
    ours, right = ours.detach().cpu().double(), right.detach().cpu().double()
    scale = right.nan_to_num(posinf=0, neginf=0).abs().max().item() if right.numel() else 0
    torch.testing.assert_close(ours, right, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
