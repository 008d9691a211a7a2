"""Strides and counts: how what a core touches lies in memory.

>>> merged([Step(128, 32), Step(4096, 4)])  # 4 x 32 rows and 128 rows are the same
(Step(stride=128, number=128, uneven=None),)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from operator import itemgetter
from typing import NamedTuple


class Step(NamedTuple):
    """So many places, each as far behind the one before."""

    stride: int
    number: int  # of the core that has most
    uneven: Hashable = None  # says how many the others have, if not as many


def merged(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Steps that come by the same places, largest stride first: equal ones for the same shape.

    Two become one where the outer goes on as the inner would; those to one place are left out.
    """
    found: list[Step] = []
    for step in sorted(steps, key=itemgetter(0, 1), reverse=True):
        if step.uneven is None and step.number == 1:
            continue
        if found and step.uneven is None:
            outer = found[-1]
            if outer.uneven is None and outer.stride == step.stride * step.number:
                step = Step(step.stride, step.number * outer.number)
                found.pop()
        found.append(step)
    return tuple(found)
