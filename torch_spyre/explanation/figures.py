"""What ops cost, in numbers that add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from torch_spyre.cost import Account, OpCost, peak_points_per_ns, transfer_ns
from torch_spyre.execution.kernel_runner import SDSCKernelRunner
from torch_spyre.explanation.record import Event, Gains, clock_ns
from torch_spyre.machine import load as load_machine

WAITS = ("memory", "compute", "lx", "ring", "overhead")  # what cores wait for
LAUNCH, TRANSFER, PROGRAM = "(launch)", "(transfer)", "(program)"

_CORES = int(load_machine().value("card.cores"))
_LAUNCH_NS = int(load_machine().value("overhead.launch_ns"))
_PARTIAL_SUM_BYTES = 4  # they are fp32
PEAK_MACS_PER_NS = peak_points_per_ns(OpCost(unit="pt"))
PEAK_ELEMENTS_PER_NS = peak_points_per_ns(OpCost(unit="sfp"))
BYTES_PER_NS = load_machine().value("bandwidth.lpddr5_bytes_per_second") / 1e9


@dataclass
class Figures:
    """Of some ops. Time is that of the card's engines, whether or not they overlap."""

    count: int = 0
    ns: int = 0
    read_bytes: int = 0  # of device memory
    written_bytes: int = 0
    lx_bytes: int = 0
    ring_bytes: int = 0
    host_bytes: int = 0  # over PCIe
    macs: int = 0
    elements: int = 0  # of the SFP
    extra_elements: int = 0  # beyond those asked for
    core_ns: int = 0  # summed over the cores that had work
    peak_ns: float = 0.0  # if the units were never idle
    waits: dict[str, int] = field(default_factory=dict)  # ns by what was waited for

    def add(self, other: Figures) -> None:
        for name, value in vars(other).items():
            if isinstance(value, int | float):
                setattr(self, name, getattr(self, name) + value)
        for name, ns in other.waits.items():
            self.waits[name] = self.waits.get(name, 0) + ns

    @property
    def device_bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    @property
    def flops(self) -> int:
        """A product and its sum count two, an element of the SFP one."""
        return 2 * self.macs + self.elements

    @property
    def intensity(self) -> float:
        """FLOP a byte of the busier way, to or from device memory: both go on at the same time."""
        busier = max(self.read_bytes, self.written_bytes)
        return self.flops / busier if busier else 0.0

    @property
    def bound(self) -> str:
        """What most of the time was waited for; empty for what cores have no part in."""
        return max(self.waits, key=lambda name: self.waits[name], default="")

    @property
    def cores(self) -> float:
        """Busy, on average."""
        return self.core_ns / self.ns if self.ns else 0.0

    @property
    def utilisation(self) -> float:
        """Of the units' peak on the whole card."""
        return self.peak_ns / self.ns if self.ns else 0.0


@dataclass
class Row(Figures):
    """Ops that have a name in common."""

    name: str = ""


@dataclass
class Item:
    """One op of a run."""

    op: str
    layer: str
    line: str
    figures: Figures


def rows(named: Iterable[tuple[str, Figures]]) -> list[Row]:
    """Summed by name, the longest first."""
    found: dict[str, Row] = {}
    for name, figures in named:
        found.setdefault(name, Row(name=name)).add(figures)
    return sorted(found.values(), key=lambda row: (-row.ns, row.name))


def items(event: Event) -> Iterator[Item]:
    """The ops of an event, and what had to be done around them. Their times add up to its own."""
    gains, kernels = event.gains, event.kernels
    launches = gains["launches"]
    if kernels and launches:
        for account in (account for kernel in kernels for account in kernel.accounts):
            layer, line = account.layer or event.layer, account.source or event.line
            yield Item(account.name, layer, line, account_figures(account))
    elif launches:
        yield Item(event.name, event.layer, event.line, _eager_figures(gains))
    around = [*_transfers(gains)]
    if launches:
        ns = launches * _LAUNCH_NS
        around.append((LAUNCH, Figures(launches, ns, waits={"overhead": ns})))
    for name, figures in around:  # a kernel is of many lines
        yield Item(name, name, name if kernels else event.line, figures)


def account_figures(account: Account) -> Figures:
    """Of all iterations of an op of a compiled kernel."""
    cost, price, count = account.cost, account.price, account.count
    work = price.total - price.overhead
    waits = Counter({price.busiest: work * count})
    waits["overhead"] += price.overhead * count
    products = cost.unit == "pt"
    return Figures(
        count=count,
        ns=account.ns,
        read_bytes=cost.read_bytes * count,
        written_bytes=cost.written_bytes * count,
        lx_bytes=cost.all_lx_bytes * count,
        ring_bytes=(cost.ring_bytes + _PARTIAL_SUM_BYTES * cost.partial_sums) * count,
        macs=cost.all_points * count if products else 0,
        elements=0 if products else cost.all_points * count,
        extra_elements=max(0, cost.points * cost.cores - cost.all_points) * count,
        core_ns=cost.cores * account.ns,
        peak_ns=account.utilisation * account.ns,
        waits={name: ns for name, ns in waits.items() if ns},
    )


def launch_ns(kernel: SDSCKernelRunner) -> int:
    """Of a launch of a compiled kernel."""
    return _LAUNCH_NS + sum(account.ns for account in kernel.accounts)


def busy_ns(gains: Gains) -> int:
    """Time of launches."""
    return sum(gains[f"{name}_ns"] for name in WAITS)


def _eager_figures(gains: Gains) -> Figures:
    """Of the launches of an eager op, without what it takes to launch; all cores share it."""
    launching = gains["launches"] * _LAUNCH_NS
    ns = busy_ns(gains) - launching
    waits = {name: gains[f"{name}_ns"] for name in WAITS}
    waits["overhead"] -= launching
    macs, elements = gains["macs"], gains["sfp_elements"]
    peak = macs / PEAK_MACS_PER_NS + elements / PEAK_ELEMENTS_PER_NS
    return Figures(
        count=1,
        ns=ns,
        read_bytes=gains["device_bytes_read"],
        written_bytes=gains["device_bytes_written"],
        lx_bytes=gains["lx_bytes"],
        ring_bytes=gains["ring_bytes"],
        macs=macs,
        elements=elements,
        core_ns=_CORES * ns,
        peak_ns=min(peak, ns),
        waits={name: value for name, value in waits.items() if value},
    )


def _transfers(gains: Gains) -> Iterator[tuple[str, Figures]]:
    """Of tensors, and of programs that were not on the card yet."""
    count = gains["transfers_to_card"] + gains["transfers_to_host"]
    nbytes = gains["bytes_to_card"] + gains["bytes_to_host"]
    program = gains["program_bytes"]
    least = transfer_ns(0)
    ns = count * least + transfer_ns(nbytes) - least if count else 0
    program_ns = transfer_ns(program) if program else 0
    if count or program:
        # The clock knows better, if nothing overlaps: every transfer is rounded, and a program may
        # have been one of several.
        clock = clock_ns(gains) - busy_ns(gains)
        missing = clock - ns - program_ns
        if missing > 0 and program:
            program_ns += missing
        elif abs(missing) <= count:
            ns += missing
    if count:
        yield TRANSFER, Figures(count, ns, host_bytes=nbytes)
    if program:
        yield PROGRAM, Figures(1, program_ns, host_bytes=program)
