"""What the ops of a bundle cost: its accounts, which go with the program to the card's clock.

An op is priced as the bundle describes it, cores, memories and loops, and not by the steps that the
software card happens to run instead.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from torch_spyre.backend.bundle import Bundle, Execute, Node
from torch_spyre.backend.exchange import exchange_of
from torch_spyre.backend.program import OPCODES, Words, real_bits
from torch_spyre.backend.sdsc import STICK_BYTES, DeviceOp, Dim, Tensor
from torch_spyre.cost import Account, OpCost, sfp_passes, shared_read
from torch_spyre.ring import load

UNITS = ("sfp", "pt")
# The numbers of an account in the order of the program format.
FIELDS = (
    "points",
    "all_points",
    "rows",
    "read_bytes",
    "written_bytes",
    "lx_bytes",
    "all_lx_bytes",
    "partial_sums",
    "ring_bytes",
    "ring_link_bytes",
    "ring_hops",
)
HEADER_BYTES = 32


def accounts_of(bundle: Bundle) -> list[Account]:
    """The ops of a bundle in order, those of loops once, with the number of iterations."""
    return [Account(op.op.name, op_cost(op), count) for op, count in _ops(bundle.nodes, 1)]


def _ops(nodes: Iterable[Node], count: int) -> Iterator[tuple[DeviceOp, int]]:
    for node in nodes:
        if isinstance(node, Execute):
            yield node.op, count
        else:
            yield from _ops(node.body, count * node.count)


# -------------------------------------------------------------------------------------- one op


def op_cost(op: DeviceOp) -> OpCost:
    """What one iteration of an op asks of the card."""
    parts = [_Part(op, tensor) for tensor in op.tensors]
    cost = OpCost(
        unit=op.op.unit,
        passes=sfp_passes(op.op.name),
        element_bytes=max(tensor.element_bytes for tensor in op.tensors),
        cores=op.cores,
        all_points=math.prod(dim.size for dim in op.dims),
    )
    if cost.unit == "pt":
        _, y, out = op.tensors
        cost.points = math.prod(dim.part(0) for dim in op.dims)
        rows = [dim for dim in op.dims if out.has(dim.label) and not y.has(dim.label)]
        cost.rows = math.prod(dim.part(0) for dim in rows)
    else:  # the SFP works on whole sticks
        cost.points = max(part.core_sticks * part.tensor.elems_per_stick for part in parts)
    if op.exchanges:
        moved = load(*exchange_of(op))
        cost.ring_bytes, cost.ring_link_bytes, cost.ring_hops = moved[:3]
        cost.lx_bytes, cost.all_lx_bytes = moved.lx_bytes, moved.all_lx_bytes
        return cost
    for part in parts:
        if part.tensor.component == "lx":
            cost.lx_bytes += part.core_sticks * STICK_BYTES
            cost.all_lx_bytes += part.all_core_sticks * STICK_BYTES
        elif part is parts[-1]:
            cost.written_bytes += part.sticks * STICK_BYTES
        else:
            read, ring = shared_read(part.sticks * STICK_BYTES, part.groups)
            cost.read_bytes += read
            cost.ring_bytes += ring.bytes
            cost.ring_link_bytes += ring.link_bytes
            cost.ring_hops = max(cost.ring_hops, ring.hops)
    cost.partial_sums = _partial_sums(op)
    return cost


def _partial_sums(op: DeviceOp) -> int:
    """Results that cores add to those of others: where they share a reduced dimension."""
    if op.op.kind == "pointwise":  # nothing is reduced: cores make copies of the same
        return 0
    kept = [dim for dim in op.dims if op.output.has(dim.label)]
    shared = math.prod(dim.splits for dim in op.dims if dim not in kept)
    return (shared - 1) * math.prod(dim.size for dim in kept)


@dataclass
class _Part:
    """How many sticks of a tensor an op touches."""

    op: DeviceOp
    tensor: Tensor

    def __post_init__(self) -> None:
        dims = [(dim, self.tensor.unit(dim.label)) for dim in self._dims()]
        self.sticks = math.prod(_units(dim.size, unit) for dim, unit in dims)
        # Of the core with the largest part; parts are equal but for the last.
        self.core_sticks = math.prod(_units(dim.part(0), unit) for dim, unit in dims)
        self.sharers = self.op.cores // math.prod(dim.splits for dim, _ in dims)
        self.all_core_sticks = self.sharers * math.prod(
            sum(_units(dim.part(slice), unit) for slice in range(dim.splits)) for dim, unit in dims
        )

    @property
    def groups(self) -> tuple[int, ...]:
        """A number for every core, the same for those that touch the same part."""
        labels = [dim.label for dim in self._dims() if dim.splits > 1]
        known: dict[tuple[int, ...], int] = {}
        parts = (tuple(map(slices.__getitem__, labels)) for slices in self.op.slices)
        return tuple(known.setdefault(part, len(known)) for part in parts)

    def _dims(self) -> list[Dim]:
        """Along which it is another stick, or another element of one."""
        chosen: set[str] = set()
        if self.tensor.gathered:  # every index reads what it chooses
            chosen = {label for label in self.tensor.dims if self.op.output.has(label)}
        return [d for d in self.op.dims if self.tensor.has(d.label) or d.label in chosen]


def _units(size: int, unit: int) -> int:
    return -(-size // unit)


# ---------------------------------------------------------------------------------- in a program


@dataclass
class Accounts:
    """The accounts as an entry of a program; docs/program-format.md."""

    accounts: Sequence[Account]
    opcode = OPCODES["accounts"]

    def words(self) -> Words:
        words = [len(self.accounts)]
        for account in self.accounts:
            name, cost = account.name.encode(), account.cost
            words += [len(name), *struct.unpack(f"<{_units(len(name), 8)}q", _padded(name))]
            words += [account.count, UNITS.index(cost.unit), real_bits(cost.passes)]
            words += [cost.element_bytes, cost.cores, *(getattr(cost, field) for field in FIELDS)]
        return words


def _padded(text: bytes) -> bytes:
    return text.ljust(_units(len(text), 8) * 8, b"\0")


def accounts_in(program: bytes) -> list[Account]:
    """The accounts that a program has in front; none if it has none."""
    head = int.from_bytes(program[HEADER_BYTES : HEADER_BYTES + 8], "little")
    if head & 0xFFFFFFFF != Accounts.opcode:
        return []
    words = memoryview(program)[HEADER_BYTES + 8 : HEADER_BYTES + 8 + (head >> 32) * 8].cast("q")
    accounts = []
    at = 1
    for _ in range(words[0]):
        length = words[at]
        end = at + 1 + _units(length, 8)
        name = words[at + 1 : end].tobytes()[:length].decode()
        count, unit, passes, element_bytes, cores = words[end : end + 5]
        at = end + 5 + len(FIELDS)
        cost = OpCost(
            unit=UNITS[unit],
            passes=struct.unpack("<d", struct.pack("<q", passes))[0],
            element_bytes=element_bytes,
            cores=cores,
            **dict(zip(FIELDS, words[end + 5 : at], strict=True)),
        )
        accounts.append(Account(name, cost, count))
    return accounts
