"""Where an iteration touches a tensor: from a linear index to device coordinates.

A device layout places storage offset ``o`` by digits: with the layout's host strides in falling
order, a digit is ``o // stride`` and the rest goes on. An index that is linear in loop variables
has digits that are simple in these variables as long as nothing carries from one digit into the
next. Most views are like that; the others get coordinates with all of the index in each of them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy
from sympy import Expr, Integer, Symbol
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from torch_spyre._C import SpyreTensorLayout


@dataclass(frozen=True, eq=False)
class LinearIndex:
    """``offset + sum(stride * symbol)``, in elements of a storage."""

    offset: int
    strides: Mapping[Symbol, int]

    def _key(self) -> tuple[int, frozenset[tuple[Symbol, int]]]:
        return self.offset, frozenset(item for item in self.strides.items() if item[1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinearIndex) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    @staticmethod
    @functools.lru_cache(maxsize=1 << 14)
    def of(index: Expr, symbols: tuple[Symbol, ...]) -> LinearIndex | None:
        """The index as a linear one, or None if it is not."""
        index = sympy.expand(index)
        strides = {}
        for symbol in symbols:
            stride = index.coeff(symbol, 1)
            strides[symbol] = int(stride) if stride.is_Integer else stride
        offset = sympy.expand(index - sum(stride * symbol for symbol, stride in strides.items()))
        linear = LinearIndex(int(offset) if offset.is_Integer else offset, strides)
        # Other symbols are sizes that a launch knows.
        unknown = sympy.Tuple(offset, *strides.values()).free_symbols
        return linear if unknown.isdisjoint(symbols) else None

    @property
    def expression(self) -> Expr:
        return self.offset + sum(
            (stride * symbol for symbol, stride in self.strides.items()), Integer(0)
        )


@dataclass(frozen=True)
class _Term:
    """``coefficient * value``, where the value takes ``count`` numbers from 0 on."""

    coefficient: int
    value: Expr
    count: int

    @property
    def largest(self) -> int:
        return self.coefficient * (self.count - 1)


def device_coordinates(
    layout: SpyreTensorLayout, index: LinearIndex, extents: Mapping[Symbol, int]
) -> tuple[list[Expr], bool]:
    """One coordinate a device dimension; and whether each has the variables of its own only."""
    loops = tuple(
        _Term(stride, symbol, extents[symbol])
        for symbol, stride in index.strides.items()
        if stride and extents[symbol] > 1
    )
    coordinates, separate = _coordinates(layout, index.offset, loops)
    return list(coordinates), separate


# The same layouts are walked in the same way again and again: by the passes over one op, and by the
# layers of a model.
@functools.lru_cache(maxsize=1 << 14)
def _coordinates(
    layout: SpyreTensorLayout, offset: int, loops: tuple[_Term, ...]
) -> tuple[list[Expr], bool]:
    strides, sizes = layout.stride_map, layout.device_size
    # Device dimensions that count something, by falling host stride.
    order = [dim for dim, stride in enumerate(strides) if stride > 0 and sizes[dim] > 1]
    order.sort(key=lambda dim: -strides[dim])
    digits = _separate_digits([strides[dim] for dim in order], offset, loops)
    separate = digits is not None
    if digits is None:
        digits = _general_digits([strides[dim] for dim in order], offset, loops)
    coordinates: list[Expr] = [Integer(0)] * len(sizes)
    for dim, digit in zip(order, digits, strict=True):
        coordinates[dim] = digit
    return coordinates, separate


def _separate_digits(
    strides: list[int], constant: int, loops: tuple[_Term, ...]
) -> list[Expr] | None:
    if any(term.coefficient < 0 for term in loops):
        return None
    terms = list(loops)
    digits = []
    for stride in strides:
        digit: list[Expr] = [Integer(constant // stride)]
        constant %= stride
        rest: list[_Term] = []
        for term in terms:
            if term.coefficient % stride == 0:
                digit.append(term.coefficient // stride * term.value)
            elif term.largest < stride:
                rest.append(term)
            elif stride % term.coefficient == 0:
                period = stride // term.coefficient
                digit.append(sympy.floor(term.value / period))
                rest.append(_Term(term.coefficient, sympy.Mod(term.value, period), period))
            else:
                return None
        if constant + sum(term.largest for term in rest) >= stride:
            return None  # would carry
        terms = rest
        digits.append(sympy.Add(*digit))
    return digits if not terms and constant == 0 else None


def _general_digits(strides: list[int], offset: int, loops: tuple[_Term, ...]) -> list[Expr]:
    whole = rest = sympy.Add(offset, *(term.coefficient * term.value for term in loops))
    digits = []
    for position, stride in enumerate(strides):
        digit = sympy.floor(rest / stride)
        digits.append(digit)
        # Not Mod of Mod: sympy makes Mod(2*Mod(i, 6)**2, 3) of Mod(Mod(2*i, 12), 3).
        nested = any(above % stride for above in strides[:position]) or whole.has(sympy.Mod)
        rest = rest - stride * digit if nested else sympy.Mod(whole, stride)
    return digits


def compute_coordinates(
    size: Sequence[int], stride: Sequence[int], ranges: Mapping[Symbol, int], index: Expr
) -> list[Expr]:
    """At which coordinate of a strided tensor an iteration over ``ranges`` touches it."""
    order = [dim for dim, step in enumerate(stride) if step > 0 and size[dim] > 1]
    order.sort(key=lambda dim: -stride[dim])
    steps = [int(stride[dim]) for dim in order]
    linear = LinearIndex.of(sympy.sympify(index), tuple(ranges))
    if linear is None:
        plain = sympy.sympify(index).replace(ModularIndexing, _modulo)
        loops: tuple[_Term, ...] = (_Term(1, plain.replace(FloorDiv, _floor), 1),)
        digits = None
        offset = 0
    else:
        offset = linear.offset
        found = linear.strides.items()
        loops = tuple(_Term(step, s, int(ranges[s])) for s, step in found if step)
        digits = _separate_digits(steps, offset, loops)
    coordinates: list[Expr] = [Integer(0)] * len(size)
    for dim, digit in zip(order, digits or _general_digits(steps, offset, loops), strict=True):
        coordinates[dim] = digit
    return coordinates


def _modulo(value: Expr, divisor: Expr, period: Expr) -> Expr:
    return sympy.Mod(sympy.floor(value / divisor), period)


def _floor(numerator: Expr, denominator: Expr) -> Expr:
    return sympy.floor(numerator / denominator)
