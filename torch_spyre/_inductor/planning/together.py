"""Kernels that are launched together: what one hands to the next stays in LX.

Splits and places are then planned for the ops of all as if they were one kernel, and the plan is
cut where the kernels end. A buffer that is in LX across such a place has one address in all of
them, nobody touches it in between, and it has no device memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp
from torch_spyre._inductor.planning.kernel import Kernel
from torch_spyre._inductor.planning.passes import AGREE, ARRANGE, FINISH, PLACE, through
from torch_spyre._inductor.planning.prices import effort_of
from torch_spyre._inductor.planning.specs import kernel_of
from torch_spyre._inductor.planning.variants import best_variant, copied


def plan_kernels(kernels: Sequence[list[KernelOp]], between: Collection[str] = ()) -> list[Kernel]:
    """The kernels of ops with final layouts, each planned for itself, or together: what is less
    effort.

    ``between`` are buffers that only these kernels see. Those that stay in LX are no arguments.
    """
    joint = _joined(kernels, between) if between else []
    apart = [best_variant(ops) for ops in kernels]
    if joint:
        cut = _cut(_planned(joint), between, len(kernels))
        if cut is not None and cut.effort < sum(map(effort_of, apart)):
            return cut.kernels()
    return [kernel_of(through(FINISH, ops)) for ops in apart]


def _joined(kernels: Sequence[list[KernelOp]], between: Collection[str]) -> list[KernelOp]:
    """Copies of all ops, with the number of their kernel; buffers of one name are one buffer."""
    known: dict[str, Buffer] = {}

    def joined(access: Access) -> Access:
        buffer = access.buffer
        if buffer.local or buffer.constant is not None:
            return access
        buffer = known.setdefault(buffer.name, buffer)
        return Access(buffer, access.index)

    ops = []
    for number, kernel in enumerate(kernels):
        for op in copied(kernel):
            op.node = number
            op.inputs, op.output = [joined(access) for access in op.inputs], joined(op.output)
            ops.append(op)
    for name in between:
        if name in known:
            known[name].local = True
    return ops


def _planned(ops: list[KernelOp]) -> list[KernelOp]:
    kernels = _by_kernel(through(AGREE, ops))
    return through(PLACE, [op for _, kernel in kernels for op in through(ARRANGE, list(kernel))])


def _by_kernel(ops: Iterable[KernelOp]) -> Iterable[tuple[int, Iterable[KernelOp]]]:
    return groupby(ops, lambda op: op.node)


@dataclass
class _Cut:
    """A plan for several kernels, and what lives in LX from one of them to another."""

    ops: list[KernelOp]
    lives: dict[Buffer, tuple[int, int]]  # the first kernel that has it there, and the last
    count: int  # kernels

    @property
    def effort(self) -> float:
        return effort_of(self.ops)

    def kernels(self) -> list[Kernel]:
        parts = {number: list(ops) for number, ops in _by_kernel(self.ops)}
        return [self._kernel(number, parts.get(number, [])) for number in range(self.count)]

    def _kernel(self, number: int, ops: list[KernelOp]) -> Kernel:
        found = [b for b, (first, last) in self.lives.items() if first < number <= last]
        left = [b for b, (first, last) in self.lives.items() if first <= number < last]
        return kernel_of(through(FINISH, ops), found, left)


def _cut(ops: list[KernelOp], between: Collection[str], count: int) -> _Cut | None:
    """The plan, with what several kernels touch in LX or known outside; None if it cannot be."""
    lives: dict[Buffer, tuple[int, int]] = {}
    for op in ops:
        for buffer in (access.buffer for access in (*op.inputs, op.output)):
            if buffer.local:
                lives[buffer] = lives.get(buffer, (op.node, op.node))[0], op.node
    lives = {buffer: life for buffer, life in lives.items() if life[0] < life[1]}
    for buffer in [*lives]:
        if buffer.lx is None:
            if buffer.name not in between:  # a copy that was made for LX
                return None
            buffer.local = False
            del lives[buffer]
    return _Cut(ops, lives, count)
