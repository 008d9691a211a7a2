"""Ops with their places: what steps of a program are made from, and who reads what they make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from torch_spyre.backend.places import Place, Region
from torch_spyre.backend.program import SCRATCHPAD, LxBytes
from torch_spyre.backend.sdsc import DeviceOp, Tensor
from torch_spyre.partition.dims import STICK_BYTES, Dim, Slices
from torch_spyre.partition.steps import Step


@dataclass(eq=False)
class Work:
    """An op with its places."""

    op: DeviceOp
    places: list[Place]  # one a tensor of the op
    regions: list[Region]  # the same

    @property
    def output(self) -> Region:
        return self.regions[-1]

    def cut(self, label: str, inner: int) -> Work:
        """The same work of one core, with a dimension as two: the inner one of so many indices."""
        dims = []
        for dim in self.op.dims:
            if dim.label != label:
                dims.append(dim)
                continue
            for name, size in zip(cut_names(label), (dim.size // inner, inner), strict=True):
                dims.append(Dim(name, size, size, size, 1))
        tensors = [cut_tensor(tensor, label, inner) for tensor in self.op.tensors]
        slices = Slices([{dim.label: 0 for dim in dims}])
        op = replace(self.op, dims=dims, tensors=tensors, slices=slices)
        return Work(op, self.places, self.regions)

    @property
    def is_elementwise(self) -> bool:
        """Whether it can be part of a chain, by its kind."""
        return self.op.op.kind in ("pointwise", "reduce") and not self.op.exchanges

    def meets(self, other: Work) -> bool:
        """Whether one writes what the other touches: they have to stay in order."""
        return any(self.output.overlaps(region) for region in other.regions) or any(
            other.output.overlaps(region) for region in self.regions
        )

    def as_one_core(self) -> Work | None:
        """The same work as that of a single core, unless cores are needed for it."""
        op = self.op
        places = []
        for region, place in zip(self.regions, self.places, strict=True):
            if place.operand == SCRATCHPAD or region.origin is None:
                return None
            places.append(Place(place.operand, (region.origin,), place.strides))
        dims = [dim._replace(chunk=dim.extent, splits=1) for dim in op.dims]
        slices = Slices([dict.fromkeys(op.slices[0], 0)])
        return Work(replace(op, dims=dims, cores=1, slices=slices), places, self.regions)


def cut_names(label: str) -> tuple[str, str]:
    """Of the outer and the inner part of a dimension."""
    return f"{label}o", f"{label}i"


def cut_tensor(tensor: Tensor, label: str, inner: int) -> Tensor:
    """The tensor seen with a dimension, not that of its sticks, as two."""
    if label not in tensor.dims:
        return tensor
    names = cut_names(label)
    where = tensor.dims.index(label)
    strides = (tensor.stride[label] * inner, tensor.stride[label])
    return replace(
        tensor,
        dims=[*tensor.dims[:where], *reversed(names), *tensor.dims[where + 1 :]],
        scale=_without(tensor.scale, label) | dict.fromkeys(names, tensor.scale[label]),
        stride=_without(tensor.stride, label) | dict(zip(names, strides, strict=True)),
    )


def _without(values: dict[str, int], label: str) -> dict[str, int]:
    return {key: value for key, value in values.items() if key != label}


class Readers:
    """Which results are read later. Looks at the works of the whole program."""

    def __init__(
        self,
        works: Sequence[tuple[Work, int | None]],
        locals: Callable[[int], bool],
        left: Sequence[LxBytes] = (),
    ):
        """``works`` in order, each with the number of the loop it is in, if any; ``locals`` says
        whether memory of an operand is gone when the program ends, but for what is ``left``."""
        self.works = works
        self.locals = locals
        self.left = left
        self.position = {id(work.regions): i for i, (work, _) in enumerate(works)}

    def needed(self, work: Work, inside: list[Work]) -> bool:
        """Whether a result is read by a work that is not among ``inside``."""
        region = work.output
        if not self.locals(region.place.operand):
            return True
        written = LxBytes(region.begin, region.end, region.op.cores)
        if region.place.operand == SCRATCHPAD and any(map(written.meets, self.left)):
            return True
        skipped = {id(other.regions) for other in inside}
        position = self.position[id(work.regions)]
        loop = self.works[position][1]
        after = range(position + 1, len(self.works))
        if self._is_read(region, after, skipped):
            return True
        if loop is None:
            return False
        # The next iteration: first the rest of this one, then from the beginning of the loop.
        inside_loop = [i for i, (_, around) in enumerate(self.works) if around == loop]
        rest = [i for i in inside_loop if i > position]
        return self._is_read(region, [*rest, *(i for i in inside_loop if i <= position)], skipped)

    def _is_read(self, region: Region, order: Iterable[int], skipped: set[int]) -> bool:
        """Whether one of the works reads there before another has written something else."""
        for i in order:
            other, loop = self.works[i]
            if id(other.regions) not in skipped and any(map(region.overlaps, other.regions[:-1])):
                return True
            if (loop is None or not other.output.place.strides) and _covers(other.output, region):
                return False
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
    whole = Step(STICK_BYTES, (write.end - write.begin) // STICK_BYTES)
    return steps is not None and (not steps or steps == (whole,))
