"""Where an iteration touches a tensor: from a linear index to device coordinates, in integers.

A device layout places storage offset ``o`` by digits: with the layout's host strides in falling
order, a digit is ``o // stride`` and the rest goes on. An index that is linear in loops has digits
of single loops as long as nothing carries from one digit into the next. Most views are like that.

>>> layout = SpyreTensorLayout([5, 130], torch.float16)
>>> [*map(str, device_coordinates(layout, LinearIndex(0, {"r": 130, "c": 1}), {"r": 5, "c": 130}))]
['c//64', 'r', 'c%64']
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sympy
import torch  # noqa: F401  (for the example)
from sympy import Expr, Symbol
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from torch_spyre._C import SpyreTensorLayout


@dataclass(frozen=True, eq=False)
class LinearIndex:
    """``offset + sum(stride * loop)``, in elements of a storage; loops are names."""

    offset: int
    strides: Mapping[str, int]

    def _key(self) -> tuple[int, frozenset[tuple[str, int]]]:
        return self.offset, frozenset(item for item in self.strides.items() if item[1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinearIndex) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        terms = [_times(stride, loop) for loop, stride in self.strides.items() if stride != 0]
        return _sum(terms, self.offset)


def linear_index(index: Expr, loops: Collection[Symbol]) -> LinearIndex | None:
    """An expression of Inductor's as a linear index, or None if it is not linear in the loops."""
    offset: Any = 0
    strides: dict[Symbol, Any] = dict.fromkeys(loops, 0)
    for part in sympy.Add.make_args(sympy.expand(index)):
        stride, rest = part.as_coeff_Mul()
        if not rest.is_Symbol and not rest.is_Number:  # other symbols are sizes of a launch
            stride, rest = part.as_independent(*loops, as_Add=False)
        elif rest.is_Symbol and rest not in strides:
            stride, rest = part, sympy.S.One
        stride = int(stride) if stride.is_Integer else stride
        if rest is sympy.S.One:
            offset += stride
        elif rest in strides:
            strides[rest] += stride
        else:
            return None
    return LinearIndex(offset, {symbol.name: stride for symbol, stride in strides.items()})


class Term(NamedTuple):
    """``step * (i % period // unit)``, where ``i`` counts a loop. There may be no period, or two:
    ``i % 65 % 64`` is the lane of an element in rows of 65."""

    loop: str
    step: int = 1
    unit: int = 1
    periods: tuple[int, ...] = ()

    def value(self, i: int) -> int:
        """What it adds in iteration ``i`` of its loop."""
        for period in self.periods:
            i %= period
        return self.step * (i // self.unit)

    def __str__(self) -> str:
        value = self.loop + "".join(f"%{period}" for period in self.periods)
        return _times(self.step, value + (f"//{self.unit}" if self.unit > 1 else ""))


class Coordinate(NamedTuple):
    """Of one device dimension: a number, and what loops add to it."""

    offset: int = 0
    terms: tuple[Term, ...] = ()

    @property
    def loops(self) -> list[str]:
        return [term.loop for term in self.terms]

    @property
    def index_tensors(self) -> Sequence[str]:
        """The names of tensors that it is read from: none."""
        return ()

    def plus(self, term: Term) -> Coordinate:
        return Coordinate(self.offset, (*self.terms, term))

    def at(self, iteration: Mapping[str, int]) -> int:
        """Its value in an iteration; loops that are not named are at their beginning."""
        return self.offset + sum(
            term.value(iteration[term.loop]) for term in self.terms if term.loop in iteration
        )

    def __str__(self) -> str:
        return _sum([str(term) for term in self.terms], self.offset)


def device_coordinates(
    layout: SpyreTensorLayout, index: LinearIndex, extents: Mapping[str, int]
) -> tuple[Coordinate, ...] | None:
    """One coordinate a device dimension; None if loops carry from one into another."""
    loops = tuple(
        (loop, stride, extents[loop])
        for loop, stride in index.strides.items()
        if stride and extents[loop] > 1
    )
    return _coordinates(layout, index.offset, loops)


_Loops = tuple[tuple[str, int, int], ...]  # name, stride, extent


# The same layouts are walked in the same way again and again, by the passes over one op and by the
# layers of a model: without it, compiling 32 of them takes 3 % longer.
@functools.lru_cache(maxsize=1 << 14)
def _coordinates(
    layout: SpyreTensorLayout, offset: int, loops: _Loops
) -> tuple[Coordinate, ...] | None:
    strides, sizes = list(layout.stride_map), list(layout.device_size)
    # Device dimensions that count something, by falling host stride.
    order = [dim for dim, stride in enumerate(strides) if stride > 0 and sizes[dim] > 1]
    order.sort(key=lambda dim: -strides[dim])
    digits = digits_of([strides[dim] for dim in order], offset, loops)
    if digits is None:
        return None
    coordinates = [Coordinate()] * len(sizes)
    for dim, digit in zip(order, digits, strict=True):
        coordinates[dim] = digit
    return tuple(coordinates)


class _Rest(NamedTuple):
    """What a loop has left for the digits below: ``stride * (i % period)``."""

    loop: str
    stride: int
    extent: int  # how many numbers i % period is
    periods: tuple[int, ...] = ()

    def below(self, unit: int) -> _Rest:
        """Without what is a multiple of ``unit``."""
        known = self.periods[:-1] if self.periods and self.periods[-1] % unit == 0 else self.periods
        return _Rest(self.loop, self.stride, unit, (*known, unit))

    @property
    def largest(self) -> int:
        return self.stride * (self.extent - 1)


def digits_of(strides: list[int], offset: int, loops: _Loops) -> list[Coordinate] | None:
    """The digits of an offset and of loops over it; None if one would carry into the next."""
    if any(stride < 0 for _, stride, _ in loops):
        return None
    rests = [_Rest(*loop) for loop in loops]
    digits = []
    for stride in strides:
        number, offset = divmod(offset, stride)
        terms, left = [], []
        for rest in rests:
            if rest.stride % stride == 0:
                terms.append(Term(rest.loop, rest.stride // stride, 1, rest.periods))
            elif rest.largest < stride:
                left.append(rest)
            elif stride % rest.stride == 0:
                unit = stride // rest.stride
                terms.append(Term(rest.loop, 1, unit, rest.periods))
                left.append(rest.below(unit))
            else:
                return None
        if offset + sum(rest.largest for rest in left) >= stride:
            return None  # would carry
        rests = left
        digits.append(Coordinate(number, tuple(terms)))
    return digits if not rests and offset == 0 else None


# ----------------------------------------------------------------------------- sympy, for OpSpecs


def loop_symbol(loop: str) -> Symbol:
    return Symbol(loop, integer=True, nonnegative=True)


def expression(coordinate: Coordinate) -> Expr:
    """A coordinate as OpSpecs have it."""
    terms = []
    for loop, step, unit, periods in coordinate.terms:
        value: Expr = loop_symbol(loop)
        for period in periods:
            value = sympy.Mod(value, period)
        terms.append(step * (sympy.floor(value / unit) if unit > 1 else value))
    return sympy.Add(coordinate.offset, *terms)


def compute_coordinates(
    size: Sequence[int], stride: Sequence[int], ranges: Mapping[Symbol, int], index: Expr
) -> list[Expr]:
    """At which coordinate of a strided tensor an iteration over ``ranges`` touches it."""
    order = [dim for dim, step in enumerate(stride) if step > 0 and size[dim] > 1]
    order.sort(key=lambda dim: -stride[dim])
    steps = [int(stride[dim]) for dim in order]
    index = sympy.sympify(index)
    linear, digits = linear_index(index, ranges), None
    if linear is not None:
        extents = {symbol.name: int(extent) for symbol, extent in ranges.items()}
        loops = tuple((loop, step, extents[loop]) for loop, step in linear.strides.items() if step)
        digits = digits_of(steps, linear.offset, loops)
    coordinates: list[Expr] = [sympy.Integer(0)] * len(size)
    if digits is None:
        plain = index.replace(ModularIndexing, _modulo).replace(FloorDiv, _floor)
        found = _general_digits(steps, plain)
    else:
        own = {loop_symbol(symbol.name): symbol for symbol in ranges}
        found = [expression(digit).xreplace(own) for digit in digits]
    for dim, digit in zip(order, found, strict=True):
        coordinates[dim] = digit
    return coordinates


def _general_digits(strides: list[int], whole: Expr) -> list[Expr]:
    """With all of the index in each of them."""
    rest = whole
    digits = []
    for position, stride in enumerate(strides):
        digit = sympy.floor(rest / stride)
        digits.append(digit)
        # Not Mod of Mod: sympy makes Mod(2*Mod(i, 6)**2, 3) of Mod(Mod(2*i, 12), 3).
        nested = any(above % stride for above in strides[:position]) or whole.has(sympy.Mod)
        rest = rest - stride * digit if nested else sympy.Mod(whole, stride)
    return digits


def _modulo(value: Expr, divisor: Expr, period: Expr) -> Expr:
    return sympy.Mod(sympy.floor(value / divisor), period)


def _floor(numerator: Expr, denominator: Expr) -> Expr:
    return sympy.floor(numerator / denominator)


# -------------------------------------------------------------------------------------------- text


def _times(step: object, value: str) -> str:
    return value if step == 1 else f"{step}*{value}"


def _sum(terms: list[str], offset: object) -> str:
    if offset != 0 or not terms:
        terms = [*terms, str(offset)]
    return " + ".join(terms).replace("+ -", "- ")
