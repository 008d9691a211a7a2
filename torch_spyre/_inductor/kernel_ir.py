"""A kernel between Inductor's loops and OpSpecs: device ops over buffers, one op each.

Everything that plans (layouts, restickifies, core splits, memory) works on a list of
:class:`KernelOp`; none of it looks at Inductor.

While a kernel is built from a graph with dynamic shapes, a size, stride or offset may be an
expression of the graph's size symbols. Such a kernel is not planned: it becomes a template
(``kernel_template.py``), whose instances have numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import sympy
import torch

from torch_spyre._C import DataFormats, SpyreTensorLayout, get_device_dtype
from torch_spyre._inductor.hints import Hint
from torch_spyre._inductor.views import LinearIndex
from torch_spyre.backend.program import LxBytes


@dataclass(frozen=True)
class Ramp:
    """``offset + sum(stride * index)`` for every index: numbers that loops count."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def tensor(self, dtype: torch.dtype) -> torch.Tensor:
        total = torch.tensor(self.offset)
        for dim, (extent, stride) in enumerate(zip(self.size, self.stride, strict=True)):
            shape = [1] * len(self.size)
            shape[dim] = extent
            total = total + (torch.arange(extent) * stride).reshape(shape)
        return total.to(dtype)


@dataclass(frozen=True)
class View:
    """What of a buffer's storage is copied, and which way."""

    of: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int  # from where the buffer begins: the next call's may begin elsewhere in its storage
    written: bool  # the kernel writes it: copied back after the launch, else before


@dataclass(frozen=True, eq=False)
class Loop:
    """Around ops: they run ``count`` times, each time on the next tile.

    A tile is what ``symbol`` counts; ops that are tiled have it in their space.
    """

    symbol: str
    count: int


@dataclass(frozen=True)
class DimPart:
    """A dimension that has a name, or a part of one."""

    name: str
    size: int
    unit: int = 1  # how many indices of the dimension one of the part is


# What a loop counts, outermost first: mostly one dimension, several that a view made one of.
DimParts = tuple[DimPart, ...]


@dataclass(eq=False)
class Buffer:
    """Memory a kernel reads or writes."""

    name: str
    dtype: torch.dtype
    size: list[int]
    stride: list[int]
    layout: SpyreTensorLayout | None = None  # None: the kernel may choose
    offset: int = 0  # in its storage
    local: bool = False  # nobody outside of the kernel sees it
    constant: float | Ramp | None = None  # what it holds, from the start
    view: View | None = None  # a copy of a view of another buffer, made around the launch
    tile_of: frozenset[Loop] = frozenset()  # it holds one tile, and stays while these advance
    clone: bool = False  # a copy of what comes from outside, made to be in LX
    lx: LxBytes | None = None  # where it is in the scratchpads of the cores, if it is there
    why_not: str = ""  # if it is not
    pool: int | None = None  # where it is in the pool, if it is there

    @property
    def format(self) -> DataFormats:
        return get_device_dtype(self.dtype)

    def __repr__(self) -> str:
        return f"{self.name}: {str(self.dtype).removeprefix('torch.')}{self.size}"


@dataclass(frozen=True)
class Access:
    """What an iteration touches of a buffer."""

    buffer: Buffer
    index: LinearIndex


@dataclass(eq=False)
class KernelOp:
    """One op of the op table over an iteration space."""

    op: str
    space: dict[str, int]
    inputs: list[Access]
    output: Access
    constants: dict[str, float] = field(default_factory=dict)
    exact: bool = False  # computed in integers
    origin: str = ""  # the user's source line
    node: int = 0  # which of the kernel's nodes it belongs to
    splits: dict[str, int] = field(default_factory=dict)  # over how many cores; planned late
    # Of a copy between scratchpads: how the cores that have its input are split. Planned last.
    held: dict[str, int] = field(default_factory=dict)
    loops: tuple[Loop, ...] = ()  # around it, outermost first: the space is that of one tile
    alike: frozenset[str] = frozenset()  # count cores that do the same, each in its own LX
    hints: tuple[Hint, ...] = ()  # of the user, outermost first
    dims: dict[str, DimParts] = field(default_factory=dict)  # of loops whose names are known
    last_tile: bool = False  # of several; smaller than the first
    over_ring: frozenset[int] = frozenset()  # inputs of which it wants other parts than cores have

    @property
    def reduced(self) -> list[str]:
        """Loops that the output does not have: it sums them up, or the like."""
        kept = self.output.index.strides
        return [s for s in self.space if not kept.get(s) and s not in self.alike]

    @property
    def accesses(self) -> list[Access]:
        return [*self.inputs, self.output]

    @property
    def times(self) -> int:
        """How often the loops around run it."""
        return math.prod(loop.count for loop in self.loops)

    def part(self, symbol: str, start: int, size: int) -> KernelOp:
        """The op for some iterations of a loop."""

        def moved(access: Access) -> Access:
            index = access.index
            offset = index.offset + start * index.strides.get(symbol, 0)
            return Access(access.buffer, LinearIndex(offset, index.strides))

        space = self.space | {symbol: size}
        inputs = [moved(access) for access in self.inputs]
        return replace(self, space=space, inputs=inputs, output=moved(self.output))

    def reach(self, buffer: Buffer) -> dict[str, int]:
        """What symbols count in all tiles, as far as these move through a buffer."""
        space = dict(self.space)
        for loop in self.loops:
            if loop.symbol in space and loop not in buffer.tile_of:
                space[loop.symbol] *= loop.count
        return space

    def __str__(self) -> str:
        inputs = ", ".join(f"{a.buffer.name}[{a.index}]" for a in self.inputs)
        space = ", ".join(f"{symbol}<{size}" for symbol, size in self.space.items())
        out = f"{self.output.buffer}[{self.output.index}]"
        tiles = "".join(f", in {loop.count} tiles of {loop.symbol}" for loop in self.loops)
        return f"{out} = {self.op}({inputs}) for {space}{tiles}"


def copied(ops: Sequence[KernelOp]) -> list[KernelOp]:
    """The same ops on buffers of their own, for passes to change."""
    buffers: dict[Buffer, Buffer] = {}
    spaces = {id(op.space): dict(op.space) for op in ops}

    def own(access: Access) -> Access:
        if access.buffer not in buffers:
            buffers[access.buffer] = replace(access.buffer)
        return Access(buffers[access.buffer], access.index)

    return [
        replace(
            op, space=spaces[id(op.space)], inputs=[*map(own, op.inputs)], output=own(op.output)
        )
        for op in ops
    ]


class Resident(NamedTuple):
    """Where an intermediate of a kernel lives, from its first op to its last."""

    name: str
    bytes: int  # in LX those of one core, else all
    where: str  # "lx" or "pool"
    address: int
    first: int
    last: int
    reason: str = ""  # why it is not in LX
    across: str = ""  # kernels: "found" from the one before, "left" for the next, or both


def has_symbols(numbers: Any) -> bool:
    """Whether any of the numbers is an expression, not known before a launch."""
    return any(isinstance(number, sympy.Basic) for number in numbers)


def number(value: Any) -> Any:
    """The value as an int, if it is one; else as the expression of size symbols that it is."""
    if isinstance(value, int):
        return value
    return int(value) if value.is_Integer else value


def number_key(value: Any) -> Any:
    """Stands for a number in keys: other than numbers, keys of 0.0 and -0.0 differ, those of 1 and
    1.0 too, and that of NaN is equal to itself. Ramps and expressions stand for themselves."""
    return repr(value) if isinstance(value, int | float) else value


def literal(value: float) -> str:
    """Python text that is exactly this number, wherever it stands."""
    return repr(value) if math.isfinite(value) else f"float('{value!r}')"


def literals(constants: Mapping[str, float]) -> str:
    """The same of the constants of an op."""
    return f"{{{', '.join(f'{name!r}: {literal(value)}' for name, value in constants.items())}}}"


def contiguous_strides(size: Sequence[int]) -> list[int]:
    strides, step = [], 1
    for extent in reversed(size):
        strides.append(step)
        step *= extent if has_symbols([extent]) else max(extent, 1)
    return strides[::-1]
