"""Where the tensors of an op lie, core by core, and which sticks each core touches."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch_spyre.backend.bundle import Bundle, Execute
from torch_spyre.backend.errors import MalformedBundle
from torch_spyre.backend.program import MAX_OPERANDS, SCRATCHPAD
from torch_spyre.backend.sdsc import CARD_BYTES, DeviceOp, Tensor
from torch_spyre.machine import load as load_machine
from torch_spyre.partition.dims import STICK_BYTES, Cut, units
from torch_spyre.partition.steps import Step, merged

SEGMENT_BYTES = int(load_machine().value("memory.segment_bytes"))
TENSOR_SEGMENTS = int(load_machine().value("memory.tensor_segments"))


@dataclass(frozen=True)
class Place:
    """Where a tensor of an op begins, on every core."""

    operand: int  # of the launch, or SCRATCHPAD
    offsets: tuple[int, ...]  # bytes, one a core
    strides: tuple[tuple[str, int], ...] = ()  # (variable of a loop around, bytes an iteration)

    def reach(self, counts: Mapping[str, int]) -> int:
        """How far the loops around carry it."""
        return sum(stride * (counts[variable] - 1) for variable, stride in self.strides)


def address_field(tensor: Tensor) -> str:
    return f"scheduleTree_[{tensor.index}].startAddressCoreCorelet_"


def place_of(
    bundle: Bundle, node: Execute, tensor: Tensor, fixed: Mapping[str, int] | None = None
) -> Place:
    """``fixed`` gives loop variables their values; the others stay strides."""
    place = node.places.get(tensor.index)
    if place is None:
        place = node.places[tensor.index] = _find(bundle, node, tensor)
    if not fixed or not place.strides:
        return place
    moved = sum(stride * fixed[name] for name, stride in place.strides if name in fixed)
    rest = tuple((name, stride) for name, stride in place.strides if name not in fixed)
    return Place(place.operand, tuple(offset + moved for offset in place.offsets), rest)


def _find(bundle: Bundle, node: Execute, tensor: Tensor) -> Place:
    if tensor.component == "lx":
        return Place(SCRATCHPAD, tuple(tensor.start))
    if not tensor.symbolic:
        return Place(*_segment(node, tensor, tensor.start))
    try:
        addresses = [node.symbols[start] for start in tensor.start]
    except KeyError as missing:
        raise MalformedBundle(
            node.op.file,
            address_field(tensor),
            f"{node.line} gives symbol {missing} no value; name it in symbol_ids",
        ) from None
    bases = {(address.parameter, address.strides) for address in addresses}
    if len(bases) > 1:
        raise MalformedBundle(
            node.op.file,
            address_field(tensor),
            "cores find the tensor relative to several addresses; give it one base",
        )
    ((parameter, strides),) = bases
    offsets = tuple(address.offset for address in addresses)
    for value in (*offsets, *(stride for _, stride in strides)):
        if value % STICK_BYTES or not 0 <= value <= CARD_BYTES:
            raise MalformedBundle(
                bundle.where,
                node.line,
                f"byte {value} of Tensor{tensor.index} is not the beginning of a stick of a card",
            )
    if parameter is None:
        return Place(*_segment(node, tensor, offsets), strides)
    return Place(_argument(bundle, parameter), offsets, strides)


def _segment(
    node: Execute, tensor: Tensor, addresses: Sequence[int]
) -> tuple[int, tuple[int, ...]]:
    """Baked addresses: the tensor of segment n is argument n of a launch."""
    segments = {address // SEGMENT_BYTES for address in addresses}
    segment = segments.pop()
    if segments or segment >= TENSOR_SEGMENTS:
        raise MalformedBundle(
            node.op.file,
            address_field(tensor),
            f"addresses must lie in one of the {TENSOR_SEGMENTS} tensor segments; "
            "a kernel of more tensors needs symbolic addresses",
        )
    return segment, tuple(address % SEGMENT_BYTES for address in addresses)


def _argument(bundle: Bundle, parameter: str) -> int:
    """Which argument of a launch a parameter is the address of. The pool comes first."""
    if parameter == "pool":
        return 0
    number = int(parameter.removeprefix("arg_")) + bundle.has_pool
    if number >= MAX_OPERANDS:
        raise MalformedBundle(bundle.where, parameter, f"at most {MAX_OPERANDS} arguments")
    return number


# ---------------------------------------------------------------------------------------- regions


@dataclass(frozen=True)
class Axis:
    """One dimension of a tensor in memory: sticks, or rows of them."""

    stride: int  # bytes
    count: int  # of all cores together
    parts: tuple[int, ...]  # one a core; a single number if all are equal

    @property
    def step(self) -> Step:
        """Of a core."""
        return Step(self.stride, max(self.parts), self.parts if len(self.parts) > 1 else None)


@dataclass
class Region:
    """What the cores touch of a tensor, in all iterations of the loops around."""

    op: DeviceOp
    tensor: Tensor
    place: Place
    counts: Mapping[str, int]  # of the loops around
    axes: list[Axis]
    core_bytes: int  # from the first to the last byte of one core in one iteration
    begin: int  # bytes
    end: int
    pattern: tuple[Step, ...]  # equal: every core touches the same sticks, seen from its start

    def overlaps(self, other: Region) -> bool:
        """Whether the two may have a stick in common."""
        if self.place.operand != other.place.operand:
            return False
        if self.end <= other.begin or other.end <= self.begin:
            return False
        return not _interleaved(self, other)

    def alike(self, other: Region) -> bool:
        """Whether every core touches the same sticks here and there, iteration by iteration."""
        return self.pattern == other.pattern and self.place == other.place

    @functools.cached_property
    def origin(self) -> int | None:
        """Where the tensor begins, if every core starts where its slices lie in it."""
        op, tensor = self.op, self.tensor
        along = {dim.label: tensor.unit(dim.label) for dim in op.dims if tensor.has(dim.label)}
        begins = Cut(op.dims, op.slices).begins(along, tensor.stride)
        offsets = zip(self.place.offsets, begins, strict=True)
        origins = {offset - begin * tensor.element_bytes for offset, begin in offsets}
        return origins.pop() if len(origins) == 1 else None

    def steps(self) -> tuple[Step, ...] | None:
        """How all touched sticks lie behind the first; None if cores do not start as slices do.

        Of scratchpads, which every core has for itself, those of one core.
        """
        place = self.place
        if place.operand == SCRATCHPAD:
            steps = [Step(axis.stride, max(axis.parts)) for axis in self.axes]
        elif self.origin is not None:
            steps = [Step(axis.stride, axis.count) for axis in self.axes]
        else:
            return None
        around = [Step(stride, self.counts[variable]) for variable, stride in place.strides]
        return merged([*steps, *around])

    def cores_are_apart(self) -> bool:
        """Whether no stick is touched by two cores, in whatever iterations.

        Says no where it cannot tell. Cores with the same part of the tensor count as one.
        """
        steps = self.steps()
        if steps is None:
            return False
        end = STICK_BYTES
        for step in reversed(steps):
            if step.stride < end:
                return False
            end += (step.number - 1) * step.stride
        return True


def region_of(op: DeviceOp, tensor: Tensor, place: Place, counts: Mapping[str, int]) -> Region:
    if tensor.index not in op.geometry:
        axes = _axes(op, tensor)
        core_bytes = sum((max(axis.parts) - 1) * axis.stride for axis in axes) + STICK_BYTES
        op.geometry[tensor.index] = axes, core_bytes, merged(axis.step for axis in axes)
    axes, core_bytes, pattern = op.geometry[tensor.index]
    end = _end_of_cores(place, axes, core_bytes) + place.reach(counts)
    return Region(op, tensor, place, counts, axes, core_bytes, min(place.offsets), end, pattern)


def _end_of_cores(place: Place, axes: Sequence[Axis], core_bytes: int) -> int:
    """Where the last core ends; the last part of a dimension may be smaller."""
    if all(len(axis.parts) == 1 for axis in axes):
        return max(place.offsets) + core_bytes
    ends = [
        offset + sum((axis.parts[core % len(axis.parts)] - 1) * axis.stride for axis in axes)
        for core, offset in enumerate(place.offsets)
    ]
    return max(ends) + STICK_BYTES


def _axes(op: DeviceOp, tensor: Tensor) -> list[Axis]:
    """The dimensions a tensor has, largest stride first, without those of one index."""
    axes = []
    cut = op.cut(tensor)
    for dim in cut.dims:
        if not tensor.has(dim.label):
            continue
        unit = tensor.unit(dim.label)
        count = units(dim.size, unit)
        if count <= 1:
            continue
        parts: tuple[int, ...] = (count,)
        if dim.splits > 1:
            parts = (units(dim.chunk, unit),)
            if dim.part(dim.splits - 1) != dim.chunk:
                by_slice = [units(dim.part(slice), unit) for slice in range(dim.splits)]
                parts = tuple(by_slice[slices[dim.label]] for slices in cut.slices)
        axes.append(Axis(tensor.stride[dim.label] * tensor.element_bytes, count, parts))
    if tensor.gathered:  # any of the places may be visited
        count, stride = tensor.gathered
        axes.append(Axis(stride * tensor.element_bytes, count, (count,)))
    axes.sort(key=lambda axis: -axis.stride)
    return axes


def _interleaved(one: Region, other: Region) -> bool:
    """Whether two regions with a common range are known to have no stick in common.

    True for parts of one tensor that differ along one dimension: with strides that divide each
    other, an address is a number with one digit a stride, and the regions are boxes of digits.
    """
    boxes = []
    both = [one.steps(), other.steps()]
    if both[0] is None or both[1] is None:
        return False
    strides = sorted(
        {STICK_BYTES, *(s.stride for steps in both for s in steps or ())}, reverse=True
    )
    for larger, smaller in itertools.pairwise(strides):
        if larger % smaller:
            return False
    for region, steps in zip((one, other), both, strict=True):
        counts = {step.stride: step.number for step in steps or ()}
        rest, radix, box = region.begin, None, []
        for stride in strides:
            digit, rest = divmod(rest, stride)
            end = digit + counts.get(stride, 1)
            if radix is not None and end > radix // stride:
                return False  # carries into the next digit
            radix = stride
            box.append((digit, end))
        boxes.append(box)
    return any(a[1] <= b[0] or b[1] <= a[0] for a, b in zip(*boxes, strict=True))
