"""What planning gives, and how it says that a kernel has to be another one."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch_spyre._inductor.errors import layer_of, user_line
from torch_spyre._inductor.kernel_ir import Buffer, Resident
from torch_spyre._inductor.op_spec import KernelEntry, OpSpec, walk
from torch_spyre.backend.program import NO_HANDOVER, Handover


@dataclass
class Kernel:
    """Ready to be written: specs, and what a launch needs."""

    specs: list[KernelEntry]
    args: list[Buffer]  # in the order of the call; constants are the last ones
    pool_bytes: int = 0
    residents: list[Resident] = field(default_factory=list)
    handover: Handover = NO_HANDOVER  # in LX, from the kernel before and to the next

    @property
    def tensors(self) -> list[Buffer]:
        """Arguments that the caller brings."""
        return [buffer for buffer in self.args if buffer.constant is None]

    @property
    def operands(self) -> list[str]:
        """Their names; a copy of a view is made by the launch, from what it is a view of."""
        return [buffer.view.of if buffer.view else buffer.name for buffer in self.tensors]

    @property
    def views(self) -> dict[int, tuple[tuple[int, ...], tuple[int, ...], int]]:
        """Size and stride of the arguments that are copies of views, and the offset in what these
        are views of."""
        found = ((i, buffer.view) for i, buffer in enumerate(self.tensors))
        return {i: (view.size, view.stride, view.offset) for i, view in found if view}

    @property
    def ops(self) -> list[OpSpec]:
        """In order, those in loops once."""
        return [entry for entry in walk(self.specs) if isinstance(entry, OpSpec)]

    @property
    def outputs(self) -> list[int]:
        """Which arguments the kernel writes."""
        written = {arg.arg_index for spec in self.ops for arg in spec.args if not arg.is_input}
        return sorted(written - {-1})

    @property
    def constants(self) -> list[Buffer]:
        return [buffer for buffer in self.args if buffer.constant is not None]

    @property
    def sources(self) -> tuple[list[tuple[str, str]], list[int]]:
        """The user's lines and layers of the ops: each pair once, and which one an op is of."""
        pairs: dict[tuple[str, str], int] = {}
        origins = [(user_line(op.source), layer_of(op.source)) for op in self.ops]
        numbers = [pairs.setdefault(origin, len(pairs)) for origin in origins]
        return list(pairs), numbers


class MustSplit(Exception):
    """An op touches what only the kernel knows in a way that takes a copy outside of it."""

    def __init__(self, node: int, buffer: str, writes: bool) -> None:
        super().__init__(node, buffer)
        self.node = node
        self.buffer = buffer
        self.writes = writes  # the buffer must be known outside; else the kernel ends before
