"""``torch_spyre.explain``: what a run did on the card, how long it would take there, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_spyre.explanation.record import compilation, recording
from torch_spyre.explanation.report import Report, report_of

__all__ = ["Report", "explain", "recording", "report_of"]


def explain(
    function: Callable[..., Any], *inputs: Any, compiled: bool = True, **keywords: Any
) -> Report:
    """Run a function or a model and say what the card did.

    It is compiled with ``torch.compile`` if it is not yet, run once for that, and once more to be
    recorded. With ``compiled=False`` it runs once, as it is.
    """
    compilations = None
    title = _title(function)
    if compiled:
        if not _is_compiled(function):
            function = torch.compile(function)
        with compilation() as compilations:
            function(*inputs, **keywords)
    with recording() as record:
        result = function(*inputs, **keywords)
    del result  # alive till now: what is left in the end had to be written
    report = report_of(title, record)
    if compilations is not None:
        report.compilation = compilations + report.compilation
    return report


def _is_compiled(function: Callable[..., Any]) -> bool:
    wraps = getattr(function, "_torchdynamo_orig_callable", None) is not None
    return wraps or isinstance(function, torch._dynamo.OptimizedModule)


def _title(function: Callable[..., Any]) -> str:
    function = getattr(function, "_orig_mod", function)
    return getattr(function, "__name__", None) or type(function).__name__
