"""What the ops of a bundle cost: its accounts, which go with the program to the card's clock.

An op is priced as the bundle describes it, cores, memories and loops, and not by the steps that the
software card happens to run instead.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from torch_spyre.backend.bundle import Bundle, Execute, Node
from torch_spyre.backend.program import OPCODES, Words, real_bits
from torch_spyre.backend.sdsc import DeviceOp, touch_of
from torch_spyre.cost import Account, OpCost
from torch_spyre.partition.demand import demand
from torch_spyre.partition.dims import Cut

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
    touches = [touch_of(op, tensor) for tensor in op.tensors]
    in_lx = [number for number, tensor in enumerate(op.tensors) if tensor.component == "lx"]
    return demand(op.op, Cut(op.dims, op.slices), touches, in_lx, op.tensors[0].held)


def _words(size: int) -> int:
    return -(-size // 8)


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
            words += [len(name), *struct.unpack(f"<{_words(len(name))}q", _padded(name))]
            words += [account.count, UNITS.index(cost.unit), real_bits(cost.passes)]
            words += [cost.element_bytes, cost.cores, *(getattr(cost, field) for field in FIELDS)]
        return words


def _padded(text: bytes) -> bytes:
    return text.ljust(_words(len(text)) * 8, b"\0")


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
        end = at + 1 + _words(length)
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
