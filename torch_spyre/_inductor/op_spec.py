"""What a kernel does, before it is written down for the back end.

A kernel is a list of :class:`OpSpec` and :class:`LoopSpec`. Each op runs over an iteration space of
symbols; each of its tensors says, for every dimension of its device layout, at which coordinate an
iteration touches it. Nothing here depends on Inductor: a person can write an OpSpec by hand, and
the generated wrapper code does exactly that.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import sympy
from sympy import Expr, Function, Symbol

from torch_spyre._C import DataFormats


class IndirectAccess(Function):
    """``IndirectAccess(Symbol("arg1_1"))``: the coordinate that tensor ``arg1_1`` holds here."""

    @classmethod
    def eval(cls, name: Expr) -> None:
        return None  # never evaluated: only the card knows the value


@dataclass
class TensorArg:
    """One tensor of an op and how the op's iterations touch it."""

    is_input: bool
    arg_index: int  # in the kernel's argument list; -1 for what lives in LX or the pool
    device_dtype: DataFormats
    device_size: list[int]  # outermost first; the last is the stick
    device_coordinates: list[Expr]  # one a device dimension
    allocation: dict[str, int]  # one of {"hbm": address}, {"pool": offset}, {"lx": offset}
    stride_map: list[int] | None = None  # host element stride of each device dimension
    per_tile_fixed: bool = False  # the address stays while enclosing loops advance
    name: str | None = None  # of an index tensor, as IndirectAccess calls it
    # Of loops of whose data it holds one tile: they do not move it, others do.
    tile_symbols: list[Symbol] = field(default_factory=list)
    # Of what an identity takes from the LX of other cores: over how many cores each symbol is split
    # there, the first from core to core. Empty: as in the iteration space.
    held: dict[Symbol, int] = field(default_factory=dict)

    @property
    def component(self) -> str:
        """Which memory it is in: "pool", "lx" or "hbm"."""
        allocation = self.allocation
        return "pool" if "pool" in allocation else "lx" if "lx" in allocation else "hbm"

    @property
    def address(self) -> int:
        return self.allocation[self.component]

    @property
    def stick_symbols(self) -> frozenset[Symbol]:
        return iteration_symbols(self.device_coordinates[-1])


@dataclass
class OpSpec:
    """One device op: an entry of the op table over an iteration space."""

    op: str
    is_reduction: bool
    iteration_space: dict[Symbol, tuple[Expr, int]]  # extent, and over how many cores it is split
    args: list[TensorArg]  # index tensors, inputs, then the output
    op_info: dict[str, Any] = field(default_factory=dict)
    tiled_symbols: list[Symbol] = field(default_factory=list)
    source: str = field(default="", compare=False, repr=False)  # the user's line, for people

    @property
    def constants(self) -> dict[str, float]:
        return self.op_info.get("constants", {})


@dataclass
class LoopSpec:
    """A body that runs ``count`` times, each time on the next tile of its tensors."""

    count: Expr
    body: list[KernelEntry]
    # What this level divides; empty: what the first op of the body says of itself.
    tiled_symbols: list[Symbol] = field(default_factory=list)


@dataclass
class UnimplementedOp:
    """Stands for an op the back end does not have; a kernel that holds one refuses to run."""

    op: str


KernelEntry: TypeAlias = OpSpec | LoopSpec | UnimplementedOp


@functools.lru_cache(maxsize=1 << 14)
def iteration_symbols(coordinate: Expr) -> frozenset[Symbol]:
    """The symbols a coordinate depends on, index tensors' names left out."""
    names = {access.args[0] for access in sympy.sympify(coordinate).atoms(IndirectAccess)}
    return frozenset(sympy.sympify(coordinate).free_symbols - names)


@functools.lru_cache(maxsize=1 << 14)
def index_tensors(coordinate: Expr) -> tuple[str, ...]:
    """The names of the index tensors a coordinate is read from."""
    accesses = sympy.sympify(coordinate).atoms(IndirectAccess)
    return tuple(sorted(str(access.args[0]) for access in accesses))


def walk(entries: list[KernelEntry]) -> Iterator[OpSpec | UnimplementedOp]:
    """The ops of a kernel in order, loop bodies once."""
    for entry in entries:
        if isinstance(entry, LoopSpec):
            yield from walk(entry.body)
        else:
            yield entry
