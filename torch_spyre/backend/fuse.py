"""Runs of pointwise ops and reductions that a core computes in one pass over its memory.

Consecutive ops of a core that share tensors become one ``chain`` step: every tensor is read once,
results that nobody reads afterwards are never written. The results are those of the separate ops,
bit by bit: values are rounded to the format that their tensor has in the bundle.

Ops name their dimensions themselves. What two ops call the same is found out from the tensors they
share: a dimension of one that has the stride of a dimension of the other in the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from torch_spyre._C import DataFormats
from torch_spyre.backend.lower import parts_of_cores
from torch_spyre.backend.places import Place, Region
from torch_spyre.backend.sdsc import PRESENT, DeviceOp, Tensor
from torch_spyre.backend.work import Work, cut_names, cut_tensor

MAX_OPS = 64  # of a chain
MAX_CUTS = 8  # of dimensions, for one op
# Formats that values between ops can have, and formats that can be read besides.
VALUES = (DataFormats.SEN169_FP16, DataFormats.IEEE_FP32)
READABLE = (*VALUES, DataFormats.SEN143_FP8, DataFormats.SEN152_FP8)


@dataclass(eq=False)
class Memory:
    """A tensor as the chain sees it: with the chain's names of the dimensions that it has."""

    tensor: Tensor
    place: Place
    region: Region

    @property
    def dims(self) -> frozenset[str]:
        return frozenset(self.tensor.dims)

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
    # Refuse what blocks of lines, one after the other, might see too early or too late. Else the
    # run has to be asked in the end whether it `is_sound`: what is never stored does no harm.
    careful: bool = False
    links: list[Link] = field(default_factory=list)
    sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of a dimension, by core

    @property
    def works(self) -> list[Work]:
        return [link.work for link in self.links]

    def add(self, work: Work) -> bool:
        if not work.is_elementwise or not _formats_fit(work.op) or len(self.links) == MAX_OPS:
            return False
        if work.op.cores == 1:
            work = self._cut_alike(work)
        parts = parts_of_cores(work.op)
        if self.links and (
            work.op.cores != self.links[0].op.cores
            or idle_cores(work.op) != idle_cores(self.links[0].op)
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
        link = Link(work, inputs, output)
        sizes = self.sizes | {names[label]: wide[label] for label in wide}
        links = [*self.links, link]
        lines = line_dims(links, set(sizes))
        if lines is None or self._clashes(link):
            return False
        if not all(_spreads_none(each, split_dims(links, lines, set(sizes))) for each in links):
            return False
        self.links, self.sizes = links, sizes
        return True

    def _cut_alike(self, work: Work) -> Work:
        """Dimensions that only one side sees as one are cut on both, where tensors are shared."""
        for _ in range(MAX_CUTS):
            for tensor, place in zip(work.op.tensors, work.places, strict=True):
                sizes = {dim.label: dim.size for dim in work.op.dims}
                known = next((m for m in memories(self.links) if m.place == place), None)
                if known is None:
                    continue
                own = {label: size for label, (size,) in self.sizes.items()}
                found = _first_cut(_axes(tensor, sizes), _axes(known.tensor, own))
                if found is None:
                    continue
                label, name, inner = found
                if label and all(t.stick != label for t in work.op.tensors):
                    work = work.cut(label, inner)
                    break
                if name and all(m.tensor.stick != name for m in memories(self.links)):
                    self._cut(name, inner)
                    break
            else:
                return work
        return work

    def _cut(self, name: str, inner: int) -> None:
        for memory in memories(self.links):
            memory.tensor = cut_tensor(memory.tensor, name, inner)
        ((size,), names) = self.sizes.pop(name), cut_names(name)
        self.sizes |= {names[0]: (size // inner,), names[1]: (inner,)}

    def _names(self, work: Work, wide: dict[str, tuple[int, ...]]) -> dict[str, str] | None:
        """The chain's names of the op's dimensions; None if the op has nothing to do with it."""
        names: dict[str, str] = {}
        shared = not self.links
        for tensor, place in zip(work.op.tensors, work.places, strict=True):
            for known in memories(self.links):
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
        """Whether an op would see what is not its to see."""
        for memory in link.inputs:
            for earlier in reversed(self.links):
                if memory.same(earlier.output):
                    break
                if memory.region.overlaps(earlier.output.region):
                    return True
            else:
                link.loaded.append(memory)
        return self.careful and not self._are_sound([*self.links, link])

    def is_sound(self) -> bool:
        """Whether blocks of lines, one after the other, do not disturb each other."""
        return self._are_sound(self.links)

    def _are_sound(self, links: list[Link]) -> bool:
        works = [link.work for link in links]
        stored = [
            link
            for position, link in enumerate(links)
            if not any(link.output.same(later.output) for later in links[position + 1 :])
            and self.needed(link.work, works)
        ]
        loaded = [memory for link in links for memory in link.loaded]
        return not any(
            memory.region.overlaps(link.output.region) and not memory.same(link.output)
            for i, link in enumerate(stored)
            for memory in (*loaded, *(earlier.output for earlier in stored[:i]))
        )


Axes = list[tuple[int, int, str]]  # (stride, size, label), nearest first


def _axes(tensor: Tensor, sizes: dict[str, int]) -> Axes:
    """The dimensions of a tensor besides that of its sticks."""
    return sorted(
        (tensor.stride[label], sizes[label], label)
        for label in tensor.dims
        if tensor.has(label) and sizes[label] > 1 and label != tensor.stick
    )


def _first_cut(one: Axes, other: Axes) -> tuple[str, str, int] | None:
    """Which dimension of either to cut (the other name is empty), and into parts of how many."""
    for (stride, size, label), (other_stride, other_size, name) in zip(one, other, strict=False):
        if stride != other_stride:
            return None
        if size == other_size:
            continue
        if size % other_size == 0:
            return label, "", other_size
        return ("", name, size) if other_size % size == 0 else None
    return None


def _formats_fit(op: DeviceOp) -> bool:
    if op.exact:
        return False
    if any(tensor.gathered for tensor in op.tensors):
        return False
    return op.output.format in VALUES and all(t.format in READABLE for t in op.tensors)


def idle_cores(op: DeviceOp) -> list[bool]:
    return [0 in part for part in parts_of_cores(op)]


def _renamed(tensor: Tensor, names: dict[str, str]) -> Tensor:
    dims = [label for label in tensor.dims if tensor.has(label) and label in names]
    return replace(
        tensor,
        dims=[names[label] for label in dims],
        stick=names[tensor.stick] if tensor.stick in dims else "",
        scale={names[label]: PRESENT for label in dims},
        stride={names[label]: tensor.stride[label] for label in dims},
    )


def memories(links: Sequence[Link]) -> Iterator[Memory]:
    for link in reversed(links):
        yield link.output
        yield from link.inputs


def split_dims(
    links: Sequence[Link], lines: frozenset[str], dims: set[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """The dimensions from line to line, and those along a line."""
    if lines == dims and dims:
        widest = widest_tensor(links)
        inner = widest.stick or min(widest.dims, key=lambda label: widest.stride[label])
        lines = lines - {inner}
    return lines, frozenset(dims) - lines


def widest_tensor(links: Sequence[Link]) -> Tensor:
    return max(memories(links), key=lambda memory: len(memory.dims)).tensor


def _spreads_none(link: Link, split: tuple[frozenset[str], frozenset[str]]) -> bool:
    """Whether the op has as many values as its result has places: what it reads is given for every
    line, or for every position, whichever of these dimensions it has."""
    read = frozenset().union(*(memory.dims for memory in link.inputs))
    return all(not (link.output.dims & dims) or read & dims for dims in split)


def line_dims(links: Sequence[Link], dims: set[str]) -> frozenset[str] | None:
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
