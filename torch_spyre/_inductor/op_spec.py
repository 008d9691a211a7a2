"""What a kernel does, before it is written down for the back end.

A kernel is a list of :class:`OpSpec` and :class:`LoopSpec`. Each op runs over an iteration space of
loops, which are names; each of its tensors says, for every dimension of its device layout, at which
coordinate an iteration touches it. Nothing here depends on Inductor: a person can write an OpSpec
by hand. There, symbols and expressions of sympy may stand for names, numbers and coordinates;
:func:`in_integers` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import sympy
from sympy import Expr, Function, Symbol

from torch_spyre._inductor.views import Coordinate, Term

if TYPE_CHECKING:
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
    device_coordinates: Sequence[Any]  # one a device dimension
    allocation: dict[str, int]  # one of {"hbm": address}, {"pool": offset}, {"lx": offset}
    stride_map: list[int] | None = None  # host element stride of each device dimension
    per_tile_fixed: bool = False  # the address stays while enclosing loops advance
    name: str | None = None  # of an index tensor, as IndirectAccess calls it
    # The loops of whose data it holds one tile. These do not change its address; other loops do.
    tile_symbols: Sequence[Any] = ()
    # Of what an identity takes from the LX of other cores: over how many cores each loop is split
    # there, the first from core to core. Empty: as in the iteration space.
    held: Mapping[Any, int] = field(default_factory=dict)

    @property
    def component(self) -> str:
        """Which memory it is in: "pool", "lx" or "hbm"."""
        allocation = self.allocation
        return "pool" if "pool" in allocation else "lx" if "lx" in allocation else "hbm"

    @property
    def address(self) -> int:
        return self.allocation[self.component]


@dataclass
class OpSpec:
    """One device op: an entry of the op table over an iteration space."""

    op: str
    is_reduction: bool
    iteration_space: Mapping[Any, tuple[Any, int]]  # extent, and over how many cores it is split
    args: list[TensorArg]  # index tensors, inputs, then the output
    op_info: dict[str, Any] = field(default_factory=dict)
    tiled_symbols: Sequence[Any] = ()
    source: str = field(default="", compare=False, repr=False)  # the user's line, for people

    @property
    def constants(self) -> dict[str, float]:
        return self.op_info.get("constants", {})


@dataclass
class LoopSpec:
    """A body that runs ``count`` times, each time on the next tile of its tensors."""

    count: Any
    body: list[KernelEntry]
    # What this level divides; empty: what the first op of the body says of itself.
    tiled_symbols: Sequence[Any] = ()


@dataclass
class UnimplementedOp:
    """Stands for an op the back end does not have; a kernel that holds one refuses to run."""

    op: str


KernelEntry: TypeAlias = OpSpec | LoopSpec | UnimplementedOp


def walk(entries: Iterable[KernelEntry]) -> Iterator[OpSpec | UnimplementedOp]:
    """The ops of a kernel in order, loop bodies once."""
    for entry in entries:
        if isinstance(entry, LoopSpec):
            yield from walk(entry.body)
        else:
            yield entry


# ------------------------------------------------------------------------ what a person has written


class Formula:
    """A coordinate that is no sum of digits of loops; may be read from index tensors."""

    def __init__(self, expression: Expr) -> None:
        self.expression = expression

    @cached_property
    def index_tensors(self) -> Sequence[str]:
        """The names of tensors that it is read from."""
        return sorted(str(access.args[0]) for access in self.expression.atoms(IndirectAccess))

    @cached_property
    def loops(self) -> Sequence[str]:
        names = (str(symbol) for symbol in self.expression.free_symbols)
        return sorted(name for name in names if name not in self.index_tensors)

    def at(self, iteration: Mapping[str, int]) -> int:
        """Its value in an iteration; loops that are not given are at their first iteration."""
        symbols = self.expression.free_symbols
        return int(self.expression.subs({s: iteration.get(str(s), 0) for s in symbols}))

    def __str__(self) -> str:
        return str(self.expression)

    def __repr__(self) -> str:
        return f"Formula({self.expression!r})"


AnyCoordinate: TypeAlias = Coordinate | Formula


def in_integers(entry: KernelEntry) -> KernelEntry:
    """The entry without sympy: loops are names, extents and counts are numbers, coordinates are
    those of ``views.py``. Entries that the compiler made are so from the start."""
    if isinstance(entry, LoopSpec):
        body = [in_integers(inner) for inner in entry.body]
        count = int(entry.count) if sympy.sympify(entry.count).is_Integer else entry.count
        return LoopSpec(count, body, [*map(str, entry.tiled_symbols)])
    if not isinstance(entry, OpSpec):
        return entry
    space = {str(loop): (int(size), cores) for loop, (size, cores) in entry.iteration_space.items()}
    args = [_arg_in_integers(arg) for arg in entry.args]
    tiled = [*map(str, entry.tiled_symbols)]
    return replace(entry, iteration_space=space, args=args, tiled_symbols=tiled)


def _arg_in_integers(arg: TensorArg) -> TensorArg:
    return replace(
        arg,
        device_coordinates=[*map(coordinate, arg.device_coordinates)],
        tile_symbols=[*map(str, arg.tile_symbols)],
        held={str(loop): parts for loop, parts in arg.held.items()},
    )


def coordinate(written: Any) -> AnyCoordinate:
    """``floor(c0/64)`` and the like as a :class:`Coordinate`."""
    if isinstance(written, Coordinate | Formula):
        return written
    expression = sympy.sympify(written)
    offset, terms = 0, []
    for part in sympy.Add.make_args(expression):
        number, rest = part.as_coeff_Mul()
        term = None if rest is sympy.S.One else _term(rest)
        if not number.is_Integer or (term is None and rest is not sympy.S.One):
            return Formula(expression)
        if term is None:
            offset += int(number)
        else:
            terms.append(term._replace(step=int(number)))
    # As the loops come in the expression is nobody's business; a term for each is.
    return Coordinate(offset, tuple(sorted(terms)))


def _term(expression: Expr) -> Term | None:
    """A loop, perhaps below some periods, in whole units; None if it is something else."""
    if isinstance(expression, Symbol):
        return Term(expression.name)
    if isinstance(expression, sympy.floor):
        unit, counted = _whole(1 / expression.args[0].as_coeff_Mul()[0]), expression.args[0]
        inner = _term(counted.as_coeff_Mul()[1]) if unit else None
        return inner._replace(unit=inner.unit * unit) if inner and unit else None
    if isinstance(expression, sympy.Mod):
        inner, period = _term(expression.args[0]), _whole(expression.args[1])
        if inner and period:  # i//2 % 3 is i%6 // 2
            return inner._replace(periods=(*inner.periods, period * inner.unit))
    return None


def _whole(number: Expr) -> int | None:
    return int(number) if number.is_Integer and number > 0 else None
