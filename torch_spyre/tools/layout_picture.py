"""A picture of how the elements of a tensor lie in sticks.

Follows the definition of the default layout and not the runtime's code, so that a picture which
disagrees with ``SpyreTensorLayout`` shows a mistake in one of the two.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

Index = tuple[int, ...]


def device_dims(shape: Sequence[int], order: Sequence[int]) -> list[int]:
    """Host dimension behind each device dimension; the stick's stands twice. -1: none."""
    if not order:
        return [-1, -1]
    head, *rest = order
    return [*rest, head, rest[-1]] if rest else [head, head]


def device_size(shape: Sequence[int], order: Sequence[int], in_stick: int) -> list[int]:
    """Sizes of the device dimensions, the stick last."""
    dims = device_dims(shape, order)
    sizes = [shape[dim] if dim >= 0 else 1 for dim in dims]
    sizes[-1] = in_stick
    outer = _outer_stick_dim(dims)
    sizes[outer] = math.ceil(sizes[outer] / in_stick) if dims[outer] >= 0 else 1
    return sizes


def sticks(
    shape: Sequence[int], order: Sequence[int], in_stick: int
) -> Iterator[list[Index | None]]:
    """The host index of every element of every stick, None where there is padding."""
    dims = device_dims(shape, order)
    outer = _outer_stick_dim(dims)
    sizes = device_size(shape, order, in_stick)
    for outside in itertools.product(*map(range, sizes[:-1])):
        stick: list[Index | None] = []
        for inside in range(in_stick):
            index = [0] * len(shape)
            there = True
            for place, coordinate in enumerate((*outside, inside)):
                if dims[place] < 0:
                    there &= coordinate == 0
                else:
                    index[dims[place]] += coordinate * (in_stick if place == outer else 1)
            there &= all(i < extent for i, extent in zip(index, shape, strict=True))
            stick.append(tuple(index) if there else None)
        yield stick


def padding_share(shape: Sequence[int], order: Sequence[int], in_stick: int) -> float:
    """Part of the device memory that holds no element."""
    held = math.prod(device_size(shape, order, in_stick))
    return 1 - math.prod(shape) / held if held else 0.0


def picture(shape: Sequence[int], order: Sequence[int], in_stick: int, most: int = 12) -> list[str]:
    """One line a stick, the first and the last ones."""
    count = math.prod(device_size(shape, order, in_stick)[:-1])
    lines = []
    for number, stick in _ends(sticks(shape, order, in_stick), count, most):
        if number < 0:
            lines.append(f"{'...':>10}")
        else:
            lines.append(f"stick {number:4}  {_stick_text(stick)}")
    return lines


def _outer_stick_dim(dims: Sequence[int]) -> int:
    return 0 if len(dims) == 2 else len(dims) - 3


def _ends(
    found: Iterator[list[Index | None]], count: int, most: int
) -> Iterator[tuple[int, list[Index | None]]]:
    if count <= most:
        yield from enumerate(found)
        return
    yield from zip(range(most - 2), found, strict=False)
    yield -1, []
    if count <= 100_000:  # walking to the end of a large tensor is not worth the wait
        yield count - 1, list(found)[-1]


def _stick_text(stick: list[Index | None]) -> str:
    cells = [",".join(map(str, index)) or "value" for index in stick if index is not None]
    padding = len(stick) - len(cells)
    shown = cells if len(cells) <= 6 else [*cells[:3], "...", *cells[-2:]]
    text = "  ".join(shown)
    return f"{text}  + {padding} padding" if padding else text
