"""Runs of pointwise ops and reductions that a core computes in one pass over its memory.

Consecutive ops of a core that share tensors become one ``chain`` step: every tensor is read once,
results that nobody reads afterwards are never written. The results are those of the separate ops,
bit by bit: values are rounded to the format that their tensor has in the bundle.

Ops name their dimensions themselves. What two ops call the same is found out from the tensors they
share: a dimension of one that has the stride of a dimension of the other in the same memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from torch_spyre._C import DataFormats
from torch_spyre.backend.lower import PartsOfCores, lowered_constants, narrowed, parts_of_cores
from torch_spyre.backend.nests import counter, nests
from torch_spyre.backend.places import Place, Region, first_slice
from torch_spyre.backend.program import (
    SCRATCHPAD,
    Chain,
    ChainLoad,
    ChainOp,
    ChainReduce,
    ChainTensor,
    CoreStep,
    Operand,
)
from torch_spyre.backend.sdsc import PRESENT, DeviceOp, Dim, Tensor

MAX_OPS = 64  # of a chain
MAX_TENSORS = 64
# Formats that values between ops can have, and formats that can be read besides.
VALUES = (DataFormats.SEN169_FP16, DataFormats.IEEE_FP32)
READABLE = (*VALUES, DataFormats.SEN143_FP8, DataFormats.SEN152_FP8)


@dataclass(eq=False)
class Work:
    """An op with its places: what steps of the program are made from."""

    op: DeviceOp
    places: list[Place]  # one a tensor of the op
    regions: list[Region]  # the same

    @property
    def output(self) -> Region:
        return self.regions[-1]

    @property
    def runs_best_alone(self) -> bool:
        """Whether cores share a product, or a factor that the card had better unpack once."""
        op = self.op
        if op.op.kind != "matmul" or any(place.operand == SCRATCHPAD for place in self.places):
            return False
        factor = op.tensors[1]
        rows = any(dim.splits > 1 and not factor.has(dim.label) for dim in op.dims)
        return rows or op.splits_k

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


@dataclass(eq=False)
class Memory:
    """A tensor as the chain sees it: with the chain's names of dimensions."""

    tensor: Tensor
    place: Place
    region: Region

    @property
    def dims(self) -> frozenset[str]:
        return frozenset(label for label in self.tensor.dims if self.tensor.has(label))

    def same(self, other: Memory) -> bool:
        """Whether an iteration touches the same element here and there."""
        one, two = self.tensor, other.tensor
        return (
            self.place == other.place
            and (one.format, one.lane, one.stride) == (two.format, two.lane, two.stride)
            and one.stick == two.stick
        )


@dataclass(eq=False)
class Link:
    work: Work
    inputs: list[Memory]
    output: Memory
    loaded: list[Memory] = field(default_factory=list)  # inputs that no op of the chain makes

    @property
    def op(self) -> DeviceOp:
        return self.work.op


@dataclass(eq=False)
class Run:
    """Works that one chain can compute. ``add()`` tells whether another one can join."""

    needed: Callable[[Work, list[Work]], bool]  # whether works besides these read a result
    links: list[Link] = field(default_factory=list)
    sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of a dimension, by core

    @property
    def works(self) -> list[Work]:
        return [link.work for link in self.links]

    def add(self, work: Work) -> bool:
        if not work.is_elementwise or not _formats_fit(work.op) or len(self.links) == MAX_OPS:
            return False
        parts = parts_of_cores(work.op)
        if self.links and (
            work.op.cores != self.links[0].op.cores
            or _idle(parts) != _idle(parts_of_cores(self.links[0].op))
        ):
            return False
        by_label = {
            dim.label: tuple(part[i] for part in parts) for i, dim in enumerate(work.op.dims)
        }
        wide = {label: sizes for label, sizes in by_label.items() if max(sizes) > 1}
        names = self._names(work, wide)
        if names is None:
            return False
        *inputs, output = [
            Memory(_renamed(tensor, names), place, region)
            for tensor, place, region in zip(
                work.op.tensors, work.places, work.regions, strict=True
            )
        ]
        if not output.dims <= frozenset().union(*(memory.dims for memory in inputs)):
            return False  # spreads a value over more places than it has
        link = Link(work, inputs, output)
        sizes = self.sizes | {names[label]: wide[label] for label in wide}
        links = [*self.links, link]
        if _line_dims(links, set(sizes)) is None or self._clashes(link):
            return False
        if sum(1 for _ in _memories(links)) > 4 * MAX_TENSORS:
            return False
        self.links, self.sizes = links, sizes
        return True

    def _names(self, work: Work, wide: dict[str, tuple[int, ...]]) -> dict[str, str] | None:
        """The chain's names of the op's dimensions; None if the op has nothing to do with it."""
        names: dict[str, str] = {}
        shared = not self.links
        for tensor, place in zip(work.op.tensors, work.places, strict=True):
            for known in _memories(self.links):
                if known.place != place:
                    continue
                found = self._same_dims(tensor, known.tensor, wide)
                if found is None:
                    continue
                if any(names.get(label, name) != name for label, name in found.items()):
                    return None
                names |= found
                shared = True
                break
        if not shared or len(set(names.values())) != len(names):
            return None
        for label in wide:
            if label not in names:
                names[label] = f"d{len(self.sizes) + len(names)}_{label}"
        return names

    def _same_dims(
        self, tensor: Tensor, known: Tensor, wide: dict[str, tuple[int, ...]]
    ) -> dict[str, str] | None:
        """How the dimensions of two tensors in one place are called, if they are the same."""
        if (tensor.format, tensor.lane) != (known.format, known.lane):
            return None
        found = {}
        for label in tensor.dims:
            if not tensor.has(label) or label not in wide:
                continue
            for name in known.dims:
                if (
                    known.stride[name] == tensor.stride[label]
                    and (known.stick == name) == (tensor.stick == label)
                    and self.sizes[name] == wide[label]
                ):
                    found[label] = name
                    break
            else:
                return None
        return found if len(found) == len(known.dims) else None

    def _clashes(self, link: Link) -> bool:
        """Whether blocks of lines, one after the other, could see what is not theirs to see."""
        for memory in link.inputs:
            for earlier in reversed(self.links):
                if memory.same(earlier.output):
                    break
                if memory.region.overlaps(earlier.output.region):
                    return True
            else:
                link.loaded.append(memory)
        for memory in [memory for known in [*self.links, link] for memory in known.loaded]:
            if not memory.same(link.output) and memory.region.overlaps(link.output.region):
                return True
        return any(
            earlier.output.region.overlaps(link.output.region)
            and not earlier.output.same(link.output)
            and self.needed(earlier.work, [*self.works, link.work])
            for earlier in self.links
        )


def _formats_fit(op: DeviceOp) -> bool:
    if op.exact:
        return False
    if any(tensor.gathered for tensor in op.tensors):
        return False
    return op.output.format in VALUES and all(t.format in READABLE for t in op.tensors)


def _idle(parts: PartsOfCores) -> list[bool]:
    return [0 in part for part in parts]


def _renamed(tensor: Tensor, names: dict[str, str]) -> Tensor:
    dims = [label for label in tensor.dims if tensor.has(label) and label in names]
    return replace(
        tensor,
        dims=[names[label] for label in dims],
        stick=names[tensor.stick] if tensor.stick in dims else "",
        scale={names[label]: PRESENT for label in dims},
        stride={names[label]: tensor.stride[label] for label in dims},
    )


def _memories(links: Sequence[Link]) -> Iterator[Memory]:
    for link in reversed(links):
        yield link.output
        yield from link.inputs


def _line_dims(links: Sequence[Link], dims: set[str]) -> frozenset[str] | None:
    """The dimensions of which every result has all; None if there are no such ones.

    Each result has either these only, one value a line, or all dimensions.
    """
    narrow = {link.output.dims for link in links if link.output.dims != dims}
    if len(narrow) > 1:
        return None
    lines = narrow.pop() if narrow else frozenset(dims)
    for link in links:
        reduces = link.op.op.kind == "reduce"
        if reduces and (link.output.dims != lines or link.inputs[0].dims != dims):
            return None
        if reduces and lines == dims:
            return None
    return lines


# ---------------------------------------------------------------------------------------- emission


def chains(run: Run, operands: dict[Place, int]) -> list[CoreStep]:
    """The steps of all cores; those with parts of the same sizes have one together."""
    steps = []
    idle = _idle(parts_of_cores(run.links[0].op))

    def part(core: int) -> tuple[int, ...]:
        return tuple(sizes[core] for sizes in run.sizes.values())

    for sizes, group in itertools.groupby(range(len(idle)), key=part):
        cores = [core for core in group if not idle[core]]
        if cores:
            step = _Writer(run, dict(zip(run.sizes, sizes, strict=True)), operands).chain()
            steps.append(CoreStep(step, cores[0], cores[-1] + 1))
    return steps


class _Writer:
    def __init__(self, run: Run, sizes: dict[str, int], operands: dict[Place, int]) -> None:
        self.run = run
        self.sizes = sizes
        self.operands = operands
        self.dims = {label: Dim(label, size, size, size, 1) for label, size in sizes.items()}
        self._choose_lines()
        self.step = Chain(self.lines, self.length, [], [], [])
        self.loads: list[tuple[Memory, int]] = []

    def _choose_lines(self) -> None:
        links, dims = self.run.links, set(self.sizes)
        lines = _line_dims(links, dims)
        assert lines is not None
        widest = max(_memories(links), key=lambda memory: len(memory.dims)).tensor
        elems = max((m.tensor.elems_per_stick for m in _memories(links)), default=1)
        whole_sticks = not widest.stick or self.sizes[widest.stick] % elems == 0
        alike = all(m.dims in (lines, frozenset()) for m in _memories(links))
        if lines == dims and alike and whole_sticks:  # in the order of memory
            self.line_counter = counter([], self.sizes)
            self.position_counter, self.length = _like(widest, elems, self.sizes)
            self.lines = 1
            self.line_dims: list[Dim] = []
            self.position_dims = list(self.dims.values())
            return
        if lines == dims:
            inner = widest.stick or min(widest.dims, key=lambda label: widest.stride[label])
            lines = lines - {inner}
        outer = sorted(lines, key=lambda label: -_distance(widest, label))
        inner_dims = sorted(dims - lines, key=lambda label: -_distance(widest, label))
        self.line_dims = [self.dims[label] for label in outer]
        self.position_dims = [self.dims[label] for label in inner_dims]
        self.line_counter = counter(self.line_dims, self.sizes)
        self.position_counter = counter(self.position_dims, self.sizes)
        self.lines = _product(self.line_dims, self.sizes)
        self.length = _product(self.position_dims, self.sizes)

    def chain(self) -> Chain:
        values: list[int] = []  # of each link
        for position, link in enumerate(self.run.links):
            inputs = [self._value(memory, position, values) for memory in link.inputs]
            op = link.op
            constants = lowered_constants(op)
            format, narrow = op.output.format, narrowed(op)
            if op.op.kind == "reduce":
                self.step.values.append(
                    ChainReduce(op.op.name, inputs[0], format, constants, narrow)
                )
            else:
                self.step.values.append(ChainOp(op.op.name, inputs, format, constants, narrow))
            values.append(len(self.step.values) - 1)
        links = self.run.links
        for position, link in enumerate(links):
            if any(link.output.same(later.output) for later in links[position + 1 :]):
                continue
            if self.run.needed(link.work, self.run.works):
                tensor = self._tensor(link.output)
                self.step.stores.append((values[position], tensor))
        return self.step

    def _value(self, memory: Memory, position: int, values: list[int]) -> int:
        for earlier in reversed(range(position)):
            if memory.same(self.run.links[earlier].output):
                return values[earlier]
        for known, value in self.loads:
            if memory.same(known):
                return value
        self.step.values.append(ChainLoad(self._tensor(memory)))
        self.loads.append((memory, len(self.step.values) - 1))
        return len(self.step.values) - 1

    def _tensor(self, memory: Memory) -> int:
        tensor = memory.tensor
        has_lines = bool(memory.dims & {dim.label for dim in self.line_dims})
        has_positions = bool(memory.dims & {dim.label for dim in self.position_dims})
        dims = [
            *(self.line_dims if has_lines else ()),
            *(self.position_dims if has_positions else ()),
        ]
        walked = nests(self.sizes, [tensor, self.line_counter, self.position_counter], dims)
        number = self.operands.setdefault(memory.place, len(self.operands))
        operand = Operand(number, tensor.format)
        self.step.tensors.append(ChainTensor(operand, walked, has_lines, has_positions))
        return len(self.step.tensors) - 1


def _product(dims: Sequence[Dim], sizes: dict[str, int]) -> int:
    result = 1
    for dim in dims:
        result *= sizes[dim.label]
    return result


def _distance(tensor: Tensor, label: str) -> int:
    """How far apart neighbours along a dimension lie."""
    if not tensor.has(label):
        return 0
    return 1 if tensor.stick == label else tensor.stride[label]


def _like(tensor: Tensor, elems: int, sizes: dict[str, int]) -> tuple[Tensor, int]:
    """A dense tensor of the same order, whose offsets number the elements; and how many."""
    stride = {}
    span = min(elems, sizes[tensor.stick]) if tensor.stick else 1
    for label in sorted(tensor.dims, key=lambda label: tensor.stride[label]):
        stride[label] = span
        size = sizes[label]
        span *= -(-size // elems) if label == tensor.stick else size
    numbers = replace(
        tensor,
        index=-1,
        format=DataFormats.IEEE_INT32,
        elems_per_stick=elems if tensor.stick else 1,
        stride=stride,
        lane=0,
    )
    return numbers, span


# ----------------------------------------------------------------------------------------- liveness


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
    return steps is not None and (not steps or steps == [(128, (write.end - write.begin) // 128)])
