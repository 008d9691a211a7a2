"""Around Dynamo's work on functions whose arguments are tensors or modules of the card."""

import contextlib
import functools
import logging
from collections.abc import Iterator
from typing import Any

import torch

from torch_spyre.constants import DEVICE_NAME
from torch_spyre.model_utils import on_spyre
from torch_spyre.patches.calls import short_calls
from torch_spyre.patches.replacing import replaced


def around_tracing(convert_frame: Any) -> None:
    """While Dynamo works on a function with tensors or modules of the card among its arguments,
    from its first bytecode to its guards, Python's collector of cycles is off, and calls of the
    result are made short.

    Missing upstream: a hook of a device around Dynamo's work. Its callbacks do not get the
    arguments, and ``torch._dynamo.reset()`` forgets them.
    """
    original = convert_frame._compile

    def on_card(value: object) -> bool:
        if isinstance(value, torch.Tensor):
            return value.device.type == DEVICE_NAME
        return isinstance(value, torch.nn.Module) and on_spyre(value)

    @functools.wraps(original)
    def _compile(code: Any, globals: Any, locals: dict[str, Any], *args: Any, **more: Any) -> Any:
        if not any(on_card(value) for value in locals.values()):
            return original(code, globals, locals, *args, **more)
        from torch_spyre._inductor.collector import uncollected

        with uncollected(), unnamed_lines(), short_calls():
            return original(code, globals, locals, *args, **more)

    convert_frame._compile = _compile


@contextlib.contextmanager
def unnamed_lines() -> Iterator[None]:
    """Dynamo does not look up in which functions lines are, unless its log prints it.

    Missing upstream: the same. Dynamo reads whole files with a tokenizer in Python for it.
    """
    from torch._dynamo import output_graph, symbolic_convert

    logs = (
        output_graph.trace_call_log,
        symbolic_convert.trace_call_log,
        symbolic_convert.trace_source_log,
    )
    if any(log.isEnabledFor(logging.DEBUG) for log in logs):
        yield
        return
    with replaced(symbolic_convert, "get_funcname", lambda *_: None):
        yield
