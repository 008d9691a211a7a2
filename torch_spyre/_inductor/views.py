"""Where an iteration touches a tensor: from a linear index to device coordinates.

A device layout places storage offset ``o`` by digits: with the layout's host strides in falling
order, a digit is ``o // stride`` and the rest goes on. An index that is linear in loop variables
has digits that are simple in these variables as long as nothing carries from one digit into the
next. Most views are like that; the others get coordinates with all of the index in each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy
from sympy import Expr, Integer, Symbol

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
    def of(index: Expr, symbols: Sequence[Symbol]) -> LinearIndex | None:
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
    order = _digit_order(layout)
    digits = _separate_digits(layout, order, index, extents)
    separate = digits is not None
    if digits is None:
        digits = _general_digits(layout, order, index)
    coordinates: list[Expr] = [Integer(0)] * len(layout.device_size)
    for dim, digit in zip(order, digits, strict=True):
        coordinates[dim] = digit
    return coordinates, separate


def _digit_order(layout: SpyreTensorLayout) -> list[int]:
    """Device dimensions that count something, by falling host stride."""
    dims = [
        dim
        for dim, stride in enumerate(layout.stride_map)
        if stride > 0 and layout.device_size[dim] > 1
    ]
    return sorted(dims, key=lambda dim: -layout.stride_map[dim])


def _separate_digits(
    layout: SpyreTensorLayout,
    order: list[int],
    index: LinearIndex,
    extents: Mapping[Symbol, int],
) -> list[Expr] | None:
    if any(stride < 0 for stride in index.strides.values()):
        return None
    terms = [
        _Term(stride, symbol, extents[symbol])
        for symbol, stride in index.strides.items()
        if stride and extents[symbol] > 1
    ]
    constant = index.offset
    digits = []
    for dim in order:
        stride = layout.stride_map[dim]
        digit: Expr = Integer(constant // stride)
        constant %= stride
        rest: list[_Term] = []
        for term in terms:
            if term.coefficient % stride == 0:
                digit += term.coefficient // stride * term.value
            elif term.largest < stride:
                rest.append(term)
            elif stride % term.coefficient == 0:
                period = stride // term.coefficient
                digit += sympy.floor(term.value / period)
                rest.append(_Term(term.coefficient, sympy.Mod(term.value, period), period))
            else:
                return None
        if constant + sum(term.largest for term in rest) >= stride:
            return None  # would carry
        terms = rest
        digits.append(digit)
    return digits if not terms and constant == 0 else None


def _general_digits(layout: SpyreTensorLayout, order: list[int], index: LinearIndex) -> list[Expr]:
    rest = index.expression
    digits = []
    for dim in order:
        stride = layout.stride_map[dim]
        digits.append(sympy.floor(rest / stride))
        rest = sympy.Mod(rest, stride)
    return digits
