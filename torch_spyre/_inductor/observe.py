"""Shows what each pass does to the ops of a kernel.

Knows nothing of Inductor, like the passes themselves; ``debug.py`` decides what is written where.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from torch_spyre._inductor.errors import describe_tensor, user_line
from torch_spyre._inductor.kernel_ir import KernelOp

log = logging.getLogger("spyre.inductor.passes")
Ops = list[KernelOp]


@dataclass(frozen=True)
class Pass:
    """A pass that ran over the ops of a kernel, as text."""

    name: str
    before: str
    after: str


_watched: ContextVar[list[Pass] | None] = ContextVar("watched", default=None)


def observed(run: Callable[[Ops], Ops], ops: Ops) -> Ops:
    """``run(ops)``, recorded for the debug directory and the log."""
    record = _watched.get()
    if record is None and not log.isEnabledFor(logging.DEBUG):
        return run(ops)
    name = getattr(run, "__name__", str(run))
    before = text_of(ops)
    entry = Pass(name, before, "this pass did not end")
    if record is not None:
        record.append(entry)
    count = len(ops)
    after = run(ops)
    entry = Pass(name, before, text_of(after))
    if record is not None:
        record[-1] = entry
    log.debug("%s: %d ops become %d\n%s", name, count, len(after), entry.after)
    return after


def text_of(ops: Sequence[KernelOp]) -> str:
    """One line an op, under the user's line it comes from; then every tensor with its layout."""
    lines: list[str] = []
    origin = None
    for op in ops:
        if op.origin != origin:
            origin = op.origin
            lines.append(f"# {user_line(origin)}")
        splits = ", ".join(f"{s} by {n}" for s, n in op.splits.items() if n > 1)
        lines.append(f"{op}, cores split {splits}" if splits else str(op))
    buffers = dict.fromkeys(a.buffer for op in ops for a in [*op.inputs, op.output])
    return "\n".join([*lines, "", *map(describe_tensor, buffers), ""])


@contextlib.contextmanager
def watching(record: list[Pass]) -> Iterator[None]:
    """Passes that run inside are appended to the record."""
    token = _watched.set(record)
    try:
        yield
    finally:
        _watched.reset(token)
