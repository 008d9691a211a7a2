"""The report of a run: plain data, made of a recording."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from torch_spyre._inductor.constants import RESTICKIFY_OP
from torch_spyre.execution.kernel_runner import SDSCKernelRunner
from torch_spyre.explanation.figures import (
    BYTES_PER_NS,
    PEAK_ELEMENTS_PER_NS,
    PEAK_MACS_PER_NS,
    Figures,
    Item,
    Row,
    items,
    launch_ns,
    rows,
)
from torch_spyre.explanation.record import Compilation, Recording, clock_ns
from torch_spyre.machine import load as load_machine

TOP_LEVEL = "(top level)"  # ops of no module


@dataclass
class Peaks:
    """What the card can do at best, by the nanosecond."""

    macs: float = PEAK_MACS_PER_NS
    elements: float = PEAK_ELEMENTS_PER_NS  # of the SFP
    device_bytes: float = BYTES_PER_NS
    cores: int = int(load_machine().value("card.cores"))
    lx_bytes: int = int(load_machine().value("memory.lx_bytes_per_core"))


@dataclass
class Intermediate:
    """A tensor inside of a kernel: where it lives, when, and why not in LX."""

    name: str
    bytes: int  # in LX those of one core
    where: str  # "lx" or "pool", which is in device memory
    address: int
    born_ns: int  # since the launch
    dies_ns: int
    reason: str = ""
    across: str = ""  # kernels: "found", "left", or both


@dataclass
class KernelReport:
    """A compiled kernel that was launched."""

    name: str
    launches: int
    ns: int  # of one launch
    pool_bytes: int
    intermediates: list[Intermediate]

    @property
    def in_lx(self) -> list[Intermediate]:
        return [each for each in self.intermediates if each.where == "lx"]

    @property
    def across(self) -> list[Intermediate]:
        """What it finds in LX, or leaves there for the next kernel."""
        return [each for each in self.intermediates if each.across]

    @property
    def evicted(self) -> list[Intermediate]:
        return [each for each in self.intermediates if each.where != "lx"]

    @property
    def lx_peak(self) -> int:
        """Bytes of a core's LX up to the highest in use."""
        return max((each.address + each.bytes for each in self.in_lx), default=0)


@dataclass
class Padding:
    """What exists only because sticks have to be full."""

    stored_bytes: int = 0  # of tensors, all of it
    stored_padding: int = 0
    elements: int = 0  # that ops of compiled kernels were asked for
    extra_elements: int = 0  # that they worked on besides


@dataclass
class Report:
    """What a run did on the card. ``print(report)``; ``report.html(path)``."""

    title: str
    modelled_ns: int = 0  # the card's clock
    wall_seconds: float = 0.0
    launches: int = 0
    transfers_to_card: int = 0
    transfers_to_host: int = 0
    bytes_to_card: int = 0
    bytes_to_host: int = 0
    program_bytes: int = 0
    total: Figures = field(default_factory=Figures)  # of all ops, transfers and launches
    computed: Figures = field(default_factory=Figures)  # of ops only
    least_bytes: int = 0  # of device memory: each input and output once
    ops: list[Row] = field(default_factory=list)
    layers: list[Row] = field(default_factory=list)
    lines: list[Row] = field(default_factory=list)
    kernels: list[KernelReport] = field(default_factory=list)
    restickifies: Figures = field(default_factory=Figures)
    copied_arguments: int = 0  # of kernels, because they did not lie as expected
    padding: Padding = field(default_factory=Padding)
    fallbacks: dict[str, int] = field(default_factory=dict)  # ops on the CPU
    compilation: Compilation = field(default_factory=Compilation)
    peaks: Peaks = field(default_factory=Peaks)

    @property
    def ran(self) -> bool:
        """Whether anything happened on a card."""
        return self.total.count > 0

    def __str__(self) -> str:
        from torch_spyre.explanation.text import text

        return text(self)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """The report that :meth:`to_json` wrote."""
        return _restored(cls, json.loads(text))

    def html(self, path: str | Path) -> None:
        """Write one page that needs nothing else."""
        from torch_spyre.explanation.page import page

        Path(path).write_text(page(self), encoding="utf-8")


def _restored(kind: Any, value: Any) -> Any:
    """A dataclass, or a list of them, from plain data."""
    if get_origin(kind) is list:
        [part] = get_args(kind)
        return [_restored(part, each) for each in value]
    if not isinstance(value, dict) or get_origin(kind) is dict:
        return value
    kinds = get_type_hints(kind)
    return kind(**{name: _restored(kinds[name], part) for name, part in value.items()})


# -------------------------------------------------------------------------------- from a recording


def report_of(title: str, record: Recording) -> Report:
    found = [item for event in record.events for item in items(event)]
    done = [item for item in found if not item.op.startswith("(")]
    total, gains = _sum(found), record.total
    stored, padding = record.traffic.stored()
    compiled = _sum([i for event in record.events if event.kernels for i in items(event)])
    return Report(
        title=title,
        modelled_ns=clock_ns(gains),
        wall_seconds=record.wall_seconds,
        launches=gains["launches"],
        transfers_to_card=gains["transfers_to_card"],
        transfers_to_host=gains["transfers_to_host"],
        bytes_to_card=gains["bytes_to_card"],
        bytes_to_host=gains["bytes_to_host"],
        program_bytes=gains["program_bytes"],
        total=total,
        computed=_sum(done),
        least_bytes=min(record.least_bytes, total.device_bytes),
        ops=rows((item.op, item.figures) for item in found),
        layers=rows((item.layer or TOP_LEVEL, item.figures) for item in found),
        lines=rows((item.line or "(unknown)", item.figures) for item in found),
        kernels=_kernels(record),
        restickifies=_sum([item for item in found if item.op == RESTICKIFY_OP]),
        copied_arguments=sum(bool(e.inside) and e.gains["launches"] > 0 for e in record.events),
        padding=Padding(stored, padding, compiled.elements, compiled.extra_elements),
        fallbacks=dict(sorted(record.fallbacks.items())),
        compilation=record.compilation,
    )


def _sum(found: Sequence[Item]) -> Figures:
    total = Figures()
    for item in found:
        total.add(item.figures)
    return total


def _kernels(record: Recording) -> list[KernelReport]:
    """Each once, in the order of their first launches."""
    launched = Counter(kernel for event in record.events for kernel in event.kernels)
    return [
        KernelReport(
            *(kernel.name, launches, launch_ns(kernel), kernel.pool_bytes), _intermediates(kernel)
        )
        for kernel, launches in launched.items()
    ]


def _intermediates(kernel: SDSCKernelRunner) -> list[Intermediate]:
    accounts = kernel.accounts
    ends = list(itertools.accumulate((account.ns for account in accounts), initial=0))
    _, ops = kernel.sources
    written_out = len(ops) != len(accounts)  # loops: an op is several then, and lives are not known
    return [
        Intermediate(
            *(resident.name, resident.bytes, resident.where, resident.address),
            born_ns=0 if written_out else ends[resident.first],
            dies_ns=ends[-1] if written_out else ends[resident.last + 1],
            reason=resident.reason,
            across=resident.across,
        )
        for resident in kernel.residents
    ]
