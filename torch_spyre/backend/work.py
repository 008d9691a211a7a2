"""Ops with their places: what steps of a program are made from, and who reads what they make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch_spyre.backend.places import Place, Region, first_slice
from torch_spyre.backend.program import SCRATCHPAD
from torch_spyre.backend.sdsc import STICK_BYTES, DeviceOp


@dataclass(eq=False)
class Work:
    """An op with its places."""

    op: DeviceOp
    places: list[Place]  # one a tensor of the op
    regions: list[Region]  # the same

    @property
    def output(self) -> Region:
        return self.regions[-1]

    @property
    def is_elementwise(self) -> bool:
        """Whether it can be part of a chain, by its kind."""
        return self.op.op.kind in ("pointwise", "reduce")

    def meets(self, other: Work) -> bool:
        """Whether one writes what the other touches: they have to stay in order."""
        return any(self.output.overlaps(region) for region in other.regions) or any(
            other.output.overlaps(region) for region in self.regions
        )

    def as_one_core(self) -> Work | None:
        """The same work as that of a single core, unless cores are needed for it."""
        op = self.op
        places = []
        for tensor, place in zip(op.tensors, self.places, strict=True):
            if place.operand == SCRATCHPAD:
                return None
            first = first_slice(op, tensor, place)
            if first is None:
                return None
            places.append(Place(place.operand, (first,), place.strides))
        dims = [replace(dim, chunk=dim.extent, splits=1) for dim in op.dims]
        slices = [dict.fromkeys(op.slices[0], 0)]
        return Work(replace(op, dims=dims, cores=1, slices=slices), places, self.regions)


class Readers:
    """Which results are read later. Looks at the works of the whole program."""

    def __init__(self, works: Sequence[tuple[Work, int | None]], locals: Callable[[int], bool]):
        """``works`` in order, each with the number of the loop it is in, if any; ``locals`` says
        whether memory of an operand is gone when the program ends."""
        self.works = works
        self.locals = locals
        self.position = {id(work.regions): i for i, (work, _) in enumerate(works)}

    def needed(self, work: Work, inside: list[Work]) -> bool:
        """Whether a result is read by a work that is not among ``inside``."""
        region = work.output
        if not self.locals(region.place.operand):
            return True
        skipped = {id(other.regions) for other in inside}
        position = self.position[id(work.regions)]
        loop = self.works[position][1]
        if loop is not None:
            return self._read_in_loop(region, position, skipped, loop)
        for other, _ in self.works[position + 1 :]:
            if id(other.regions) not in skipped and any(map(region.overlaps, other.regions[:-1])):
                return True
            if _covers(other.output, region):
                return False
        return False

    def _read_in_loop(self, region: Region, position: int, skipped: set[int], loop: int) -> bool:
        """The next iteration reads, too: before the result is there again."""
        for i, (other, its_loop) in enumerate(self.works):
            if i < position and its_loop != loop:
                continue
            if i > position and id(other.regions) in skipped:
                continue
            if any(map(region.overlaps, other.regions[:-1])):
                return True
        return False


def _covers(write: Region, region: Region) -> bool:
    """Whether a write leaves nothing of what was there."""
    if write.place.operand != region.place.operand:
        return False
    if write.alike(region):
        return True
    if not (write.begin <= region.begin and region.end <= write.end):
        return False
    steps = write.steps()
    return steps is not None and (
        not steps or steps == [(STICK_BYTES, (write.end - write.begin) // STICK_BYTES)]
    )
