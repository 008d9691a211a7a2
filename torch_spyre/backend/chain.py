"""Writes chains, as steps of a program."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from torch_spyre._C import DataFormats
from torch_spyre.backend.fuse import (
    Memory,
    Run,
    idle_cores,
    line_dims,
    memories,
    split_dims,
    widest_tensor,
)
from torch_spyre.backend.lower import lowered_constants, narrowed
from torch_spyre.backend.nests import counter, nests
from torch_spyre.backend.places import Place
from torch_spyre.backend.program import (
    Chain,
    ChainLoad,
    ChainOp,
    ChainReduce,
    ChainTensor,
    CoreStep,
    Operand,
)
from torch_spyre.backend.sdsc import DeviceOp, Tensor
from torch_spyre.partition.dims import Dim


def chains(run: Run, operands: dict[Place, int]) -> list[CoreStep]:
    """The steps of all cores. Cores with parts of the same sizes share one step."""
    steps = []
    idle = idle_cores(run.links[0].op)

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
        lines = line_dims(links, dims)
        assert lines is not None
        widest = widest_tensor(links)
        elems = max((m.tensor.elems_per_stick for m in memories(links)), default=1)
        whole_sticks = not widest.stick or self.sizes[widest.stick] % elems == 0
        alike = all(m.dims in (lines, frozenset()) for m in memories(links))
        self.one_line = lines == dims and alike and whole_sticks  # in the order of memory
        if self.one_line:
            self.line_counter = counter([], self.sizes)
            self.position_counter, self.length = _like(widest, elems, self.sizes)
            self.lines = 1
            self.line_dims: list[Dim] = []
            self.position_dims = list(self.dims.values())
            return
        lines, positions = split_dims(links, lines, dims)
        outer_first = sorted(self.dims.values(), key=lambda dim: -_distance(widest, dim.label))
        self.line_dims = [dim for dim in outer_first if dim.label in lines]
        self.position_dims = [dim for dim in outer_first if dim.label in positions]
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
            if _changes_nothing(op):
                values.append(inputs[0])
                continue
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
        has_positions = bool(memory.dims & {dim.label for dim in self.position_dims})
        # A single line that is all there is: else it would be one that all lines share.
        has_lines = has_positions and self.one_line
        has_lines |= bool(memory.dims & {dim.label for dim in self.line_dims})
        dims = [
            *(self.line_dims if has_lines else ()),
            *(self.position_dims if has_positions else ()),
        ]
        walked = nests(self.sizes, [tensor, self.line_counter, self.position_counter], dims)
        number = self.operands.setdefault(memory.place, len(self.operands))
        operand = Operand(number, tensor.format)
        self.step.tensors.append(ChainTensor(operand, walked, has_lines, has_positions))
        return len(self.step.tensors) - 1


def _changes_nothing(op: DeviceOp) -> bool:
    """Whether the op only copies."""
    return op.op.name == "identity" and op.tensors[0].format == op.output.format and not op.narrow


def _product(dims: Sequence[Dim], sizes: dict[str, int]) -> int:
    result = 1
    for dim in dims:
        result *= sizes[dim.label]
    return result


def _distance(tensor: Tensor, label: str) -> int:
    """The distance of neighbours along a dimension."""
    if not tensor.has(label):
        return 0
    return 1 if tensor.stick == label else tensor.stride[label]


def _like(tensor: Tensor, elems: int, sizes: dict[str, int]) -> tuple[Tensor, int]:
    """A dense tensor with the same order of dimensions, whose offsets number the elements; and how
    many there are."""
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
