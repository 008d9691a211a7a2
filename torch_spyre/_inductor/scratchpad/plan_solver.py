"""What a solver gets and gives, and the public greedy solver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch_spyre._inductor.scratchpad.layout import Layout


@dataclass(eq=False)
class LifetimeBoundBuffer:
    """A buffer that could be in the scratchpad, from its first use to its last.

    ``uses`` are numbers of ops, rising. A child may lie at the address of one of its
    ``in_place_parents``, whose last use is the child's first: the op reads the one while it writes
    the other. ``value`` is what it saves to have the buffer here, in any unit that all buffers
    share; without one, the bytes that the uses move. Below zero, it is better placed elsewhere.
    """

    name: str
    size: int  # bytes
    uses: list[int]
    first_use_is_read: bool = False
    address: int | None = None  # None: not in the scratchpad
    in_place_parents: list[LifetimeBoundBuffer] = field(default_factory=list)
    value: float | None = None

    @property
    def start_time(self) -> int:
        return self.uses[0]

    @property
    def end_time(self) -> int:
        """The first moment at which its memory is free again."""
        return self.uses[-1] + 1

    @property
    def worth(self) -> float:
        return self.size * len(self.uses) if self.value is None else self.value


class MemoryPlanSolver(ABC):
    """Gives buffers addresses below ``limit``. The same buffers always get the same."""

    def __init__(self, size: int, alignment: int = 128) -> None:
        if size < 0 or alignment < 1:
            raise ValueError(f"{size} bytes in units of {alignment} are no memory")
        self.limit = size
        self.alignment = alignment

    def plan_layout(
        self,
        buffers: list[LifetimeBoundBuffer],
        fixed: Sequence[LifetimeBoundBuffer] = (),
    ) -> list[LifetimeBoundBuffer]:
        """The same buffers with addresses; None for those that do not fit.

        ``fixed`` ones have their addresses already and keep them. They may be in-place parents.
        """
        _check(buffers, fixed)
        layout = Layout(buffers, fixed, self.limit, self.alignment)
        for i in range(layout.count, len(layout.buffers)):
            for j in layout.in_the_way([i], layout.buffers[i].address or 0):
                names = f"{layout.buffers[i].name} and {layout.buffers[j].name}"
                raise ValueError(f"fixed buffers {names} overlap")
        self.fill(layout)
        for i, buffer in enumerate(buffers):
            buffer.address = layout.address[i]
        return buffers

    @abstractmethod
    def fill(self, layout: Layout) -> None:
        """Give the buffers of a layout addresses."""


def _check(buffers: Sequence[LifetimeBoundBuffer], fixed: Sequence[LifetimeBoundBuffer]) -> None:
    if any(buffer.address is not None for buffer in buffers):
        raise ValueError("Buffers cannot be previously or partially planned")
    for buffer in fixed:
        if buffer.address is None:
            raise ValueError(f"fixed buffer {buffer.name} has no address")
    known = dict.fromkeys([*buffers, *fixed])
    if len(known) != len(buffers) + len(fixed):
        raise ValueError("a buffer is there twice")
    for buffer in known:
        if buffer.size <= 0:
            raise ValueError(f"buffer {buffer.name} has {buffer.size} bytes")
        if not buffer.uses or buffer.uses != sorted(buffer.uses):
            raise ValueError(f"uses of buffer {buffer.name} do not rise: {buffer.uses}")
    for child in known:
        for parent in child.in_place_parents:
            pair = f"in-place parent {parent.name} of {child.name}"
            if parent not in known:
                raise ValueError(f"{pair} is not among the buffers")
            if parent.end_time != child.start_time + 1:
                raise ValueError(
                    f"{pair} must be used last where the child is used first, at "
                    f"{child.start_time}, not at {parent.end_time - 1}"
                )
            if child.size > parent.size:
                raise ValueError(f"{pair} is smaller: {parent.size} bytes, not {child.size}")


class GreedyLayoutSolver(MemoryPlanSolver):
    """Places each buffer when its life begins, without looking ahead, as the public implementation.

    It takes the first that fits: where an in-place parent is; address 0; above all that is alive;
    the lowest gap.
    """

    def fill(self, layout: Layout) -> None:
        for i in sorted(range(layout.count), key=lambda i: layout.buffers[i].start_time):
            start = layout.start_with_relatives([i])
            free = layout.free_starts([i])
            if start is None and free:
                above = free[-1][1] == layout.last_start([i])
                start = free[-1][0] if above and free[0][0] > 0 else free[0][0]
            layout.address[i] = start
