"""Watches a run: what the card does in every op, transfer and launch, and where that comes from.

What the card does is what its counters gain. What is done between the events, by native code that
calls the card without PyTorch's dispatcher, becomes an event too: nothing is lost.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves

from torch_spyre import _C
from torch_spyre.constants import DEVICE_NAME
from torch_spyre.execution import kernel_runner
from torch_spyre.execution.kernel_runner import Launch, SDSCKernelRunner
from torch_spyre.explanation.origins import origin
from torch_spyre.explanation.traffic import Traffic
from torch_spyre.ops.fallbacks import fallback_counts

if TYPE_CHECKING:
    from torch._dynamo.output_graph import GraphCompileReason

Gains = Counter[
    str
]  # of the fields of torch.spyre.Counters, but "clock 0" for modelled_ns of card 0
OTHER = "(other)"

# In-place ops that do not read what they write.
_FILLS = {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_"}


@dataclass
class Event:
    """An op, a launch of a compiled kernel: what the card did in it, and not in an event inside."""

    name: str
    line: str
    layer: str
    gains: Gains
    kernels: Sequence[SDSCKernelRunner] = ()  # launched in it
    inside: str = ""  # the kernel for whose launch it was needed


@dataclass
class Compilation:
    """What ``torch.compile`` did meanwhile."""

    frames: int = 0
    seconds: float = 0.0
    graph_breaks: dict[str, int] = field(default_factory=dict)
    recompilations: dict[str, int] = field(default_factory=dict)
    op_by_op: dict[str, int] = field(default_factory=dict)  # graphs that were not compiled, and why

    def __add__(self, other: Compilation) -> Compilation:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        sums: list[Any] = [
            dict(Counter(a) + Counter(b)) if isinstance(a, dict) else a + b for a, b in pairs
        ]
        return Compilation(*sums)


@dataclass
class Recording:
    """Of one run."""

    events: list[Event] = field(default_factory=list)
    traffic: Traffic = field(default_factory=Traffic)
    least_bytes: int = 0
    wall_seconds: float = 0.0
    fallbacks: dict[str, int] = field(default_factory=dict)
    compilation: Compilation = field(default_factory=Compilation)

    @property
    def total(self) -> Gains:
        return sum((event.gains for event in self.events), Counter())


@contextlib.contextmanager
def recording() -> Iterator[Recording]:
    """Everything inside is recorded. Results should be alive when it ends: they were written."""
    record = Recording()
    _wait()
    watcher = _Watcher(record)
    fallbacks = Counter(fallback_counts())
    with compilation() as record.compilation:
        started = time.perf_counter()
        try:
            with kernel_runner.watched_by(watcher.launch), watcher:
                yield record
        finally:
            watcher.between_events(_counters())
            _wait()
            record.wall_seconds = time.perf_counter() - started
            record.least_bytes = record.traffic.least()
            record.fallbacks = dict(Counter(fallback_counts()) - fallbacks)


@contextlib.contextmanager
def compilation() -> Iterator[Compilation]:
    """What Dynamo does inside. A graph is not taken from a cache: it may be another's, with the
    lines and layers of that."""
    from torch._dynamo.output_graph import graph_break_reasons
    from torch._dynamo.utils import counters, get_compilation_metrics
    from torch._functorch import config as functorch_config
    from torch._inductor import config as inductor_config

    done = Compilation()
    op_by_op = Counter(counters["spyre_op_by_op"])
    known = [*get_compilation_metrics(), *graph_break_reasons]  # kept: ids are not used again
    seen = {id(each) for each in known}
    try:
        with (
            inductor_config.patch(fx_graph_cache=False),
            functorch_config.patch(enable_autograd_cache=False),
        ):
            yield done
    finally:
        new = [metrics for metrics in get_compilation_metrics() if id(metrics) not in seen]
        breaks = [each for each in graph_break_reasons if id(each) not in seen]
        done.frames = sum(bool(metrics.is_forward) for metrics in new)
        done.seconds = sum(metrics.duration_us or 0 for metrics in new) / 1e6
        reasons = Counter(m.recompile_reason for m in new if m.recompile_reason and m.is_forward)
        done.recompilations = dict(reasons)
        done.graph_breaks = dict(Counter(map(_graph_break, breaks)))
        done.op_by_op = dict(Counter(counters["spyre_op_by_op"]) - op_by_op)


def _graph_break(reason: GraphCompileReason) -> str:
    """The user's line, then what Dynamo says."""
    where = reason.user_stack[-1] if reason.user_stack else None
    line = f'File "{where.filename}", line {where.lineno}, in {where.name}' if where else ""
    return f"{line}: {where.line if where else ''}\n{reason.reason}"


class _Watcher(TorchDispatchMode):
    """Sees every op that goes through the dispatcher, and every launch of a compiled kernel."""

    def __init__(self, record: Recording) -> None:
        super().__init__()
        self.record = record
        self.inner: list[Gains] = []  # what events inside of the open ones did
        self.counters = _counters()  # at the end of the last event
        self.kernel = ""  # whose launch is going on

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with self._event() as gains:
            result = func(*args, **kwargs)
        if gains:
            line, layer = origin()
            name = f"{func.namespace}.{func._opname}"
            event = Event(name, line, layer, gains, inside=self.kernel)
            self.record.events.append(event)
            if gains["launches"]:
                reads, writes = _touched(func, args, kwargs, result)
                self.record.traffic.launch(reads, writes, gains["device_bytes_read"])
        return result

    @contextlib.contextmanager
    def launch(self, launches: Sequence[Launch]) -> Iterator[None]:
        """Around the launch of a compiled kernel, or of several together. One of a thread that is
        not recorded here is something that happens meanwhile."""
        if self not in _get_current_dispatch_mode_stack():
            yield
            return
        kernels = [kernel for kernel, _ in launches]
        self.kernel = ", ".join(kernel.name for kernel in kernels)
        name = self.kernel
        try:
            with self._event() as gains:
                yield
        finally:
            self.kernel = ""
        line, layer = origin()
        self.record.events.append(Event(name, line, layer, gains, kernels))
        for kernel, args in launches:
            tensors = list(enumerate(args))
            read = sum(each.count * each.cost.read_bytes for each in kernel.accounts)
            self.record.traffic.launch(
                [tensor for i, tensor in tensors if i not in kernel.outputs],
                [tensor for i, tensor in tensors if i in kernel.outputs],
                read,
            )

    @contextlib.contextmanager
    def _event(self) -> Iterator[Gains]:
        """What the card does inside, without what inner events do: known when it ends."""
        own: Gains = Counter()
        before = _counters()
        if not self.inner:
            self.between_events(before)
        self.inner.append(Counter())
        try:
            yield own
        finally:
            self.counters = _counters()
            gained = _gained(before, self.counters)
            own.update(gained)
            own.subtract(self.inner.pop())
            if self.inner:
                self.inner[-1].update(gained)
            for name in [name for name, value in own.items() if not value]:
                del own[name]

    def between_events(self, now: list[dict[str, int]]) -> None:
        """Something the card did since the last event; or somebody set its counters to zero."""
        gains = _gained(self.counters, now)
        if any(gains.values()) and min(gains.values()) >= 0:
            self.record.events.append(Event(OTHER, "", "", gains))
        self.counters = now


def _touched(
    func: Any, args: Any, kwargs: dict[str, Any], result: Any
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The tensors on the card that an op reads, and those it writes."""
    writes = _on_card(tree_leaves(result))
    read_args = args[1:] if func._opname in _FILLS else args
    inputs = {name: value for name, value in kwargs.items() if name != "out"}
    return _on_card(tree_leaves((read_args, inputs))), writes


def _on_card(leaves: Iterable[Any]) -> list[torch.Tensor]:
    return [x for x in leaves if isinstance(x, torch.Tensor) and x.device.type == DEVICE_NAME]


# ---------------------------------------------------------------------------------------- counters


def _each_card(function: Callable[[int], Any]) -> list[Any]:
    """One of every device, and none before one was used."""
    return [function(i) for i in range(_C.device_count())] if _C._is_initialized() else []


def _wait() -> None:
    _each_card(lambda index: _C._synchronize(torch.device(DEVICE_NAME, index)))


def _counters() -> list[dict[str, int]]:
    return _each_card(_C._counters)


def _gained(before: list[dict[str, int]], after: list[dict[str, int]]) -> Gains:
    gains: Gains = Counter()
    for i, counters in enumerate(after):
        gained = Counter(counters)
        gained.subtract(before[i] if before else {})
        gains[f"clock {i}"] = gained.pop("modelled_ns")
        gains.update(gained)
    return gains


def clock_ns(gains: Gains) -> int:
    """By how much the modelled clock went on: that of the card that took longest."""
    return max((value for name, value in gains.items() if name.startswith("clock ")), default=0)
