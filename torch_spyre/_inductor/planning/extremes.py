"""Places of extremes in parts: what each part has and where, and which of two counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from torch_spyre._inductor.dtype_ops import computes_in_integers
from torch_spyre._inductor.kernel_ir import Access, KernelOp
from torch_spyre._inductor.planning.accesses import PLACES
from torch_spyre._inductor.planning.accumulate import COMBINES, Numbers, tensor_like


@dataclass
class Extreme:
    """Ops that find the extreme of a part, and where they leave it and its place."""

    ops: list[KernelOp]
    value: Access
    place: Access


def extreme_of(op: KernelOp) -> Extreme:
    """Of all that an op looks through."""
    made = _Ops(op)
    source = op.inputs[0].buffer.dtype
    value, place = made.local("value", source), made.local("place", op.output.buffer.dtype)
    exact = computes_in_integers(PLACES[op.op], [source])
    found = replace(op, op=PLACES[op.op], output=value, exact=exact)
    return Extreme([found, replace(op, output=place)], value, place)


def extreme_of_two(
    op: KernelOp,
    symbol: str,
    halves: Sequence[KernelOp],
    found: Sequence[Extreme],
    numbers: Numbers,
) -> Extreme:
    """Of all that an op looks through, from those of its halves along a loop.

    The lower place among equals, and a NaN before everything, as without halves. The last of the
    ops gives the place.
    """
    made = _Ops(op)
    values = [half.value for half in found]
    value = made(COMBINES[PLACES[op.op]], values, values[0].buffer.dtype)
    start = 0
    places, best = [], []
    for half, one in zip(halves, found, strict=True):
        places.append(_place_in(op, symbol, start, half, one.place, made, numbers))
        equal = made("equal", [one.value, value], torch.bool)
        nan = made("isnan", [one.value], torch.bool)
        best.append(made("logicalor", [equal, nan], torch.bool))
        start += half.space[symbol]
    dtype = op.output.buffer.dtype
    chosen = [
        made("where3", [best[0], places[0], places[1]], dtype),
        made("where3", [best[1], places[1], places[0]], dtype),
    ]
    place = made("minimum", chosen, dtype)
    return Extreme([*found[0].ops, *found[1].ops, *made.ops], value, place)


def _place_in(
    op: KernelOp,
    symbol: str,
    start: int,
    half: KernelOp,
    place: Access,
    made: _Ops,
    numbers: Numbers,
) -> Access:
    """A place of a half as one of the whole: places count reduced loops, the outermost first."""
    before, after = (math.prod(op.space[s] for s in loops) for loops in _around(op.reduced, symbol))
    dtype = place.buffer.dtype
    left_out = (op.space[symbol] - half.space[symbol]) * after  # in every iteration of outer loops
    if before > 1:
        period = numbers.number(half.space[symbol] * after, dtype)
        times = made("floordivide", [place, period], dtype)
        added = made("mul", [times, numbers.number(left_out, dtype)], dtype)
        place = made("add", [place, added], dtype)
    if start:
        place = made("add", [place, numbers.number(start * after, dtype)], dtype)
    return place


def _around(loops: list[str], symbol: str) -> tuple[list[str], list[str]]:
    at = loops.index(symbol)
    return loops[:at], loops[at + 1 :]


class _Ops:
    """Ops on what is left when an op has reduced its loops."""

    def __init__(self, op: KernelOp) -> None:
        self.op = op
        kept = {s: n for s, n in op.space.items() if s not in op.reduced}
        self.base = replace(op, space=kept, inputs=[], constants={})
        self.ops: list[KernelOp] = []

    def local(self, name: str, dtype: torch.dtype) -> Access:
        return tensor_like(f"{self.op.output.buffer.name}_{name}", self.op, dtype)

    def __call__(self, name: str, inputs: list[Access], dtype: torch.dtype) -> Access:
        output = self.local(f"{name}{len(self.ops)}", dtype)
        exact = computes_in_integers(name, [a.buffer.dtype for a in (*inputs, output)])
        self.ops.append(replace(self.base, op=name, inputs=inputs, output=output, exact=exact))
        return output
