"""How little device memory would have to move, and how much of it is padding.

The least is every tensor that was there before, read once by the first that needs it, and every
tensor that is left in the end, written once: what lies between could stay in the cores.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from torch_spyre._C import SpyreTensorLayout, get_spyre_tensor_layout

STICK_BYTES = 128


@dataclass
class _Memory:
    """The memory of tensors."""

    alive: StorageWeakRef
    stored: int  # bytes in the card's layout
    needed: int  # bytes of the elements of the largest tensor in it
    written: int = 0  # bytes, by launches


@dataclass
class Traffic:
    """What launches read and wrote."""

    inputs: int = 0  # bytes of tensors that were there before
    memories: dict[int, _Memory] = field(default_factory=dict)

    def launch(
        self, reads: Iterable[torch.Tensor], writes: Iterable[torch.Tensor], read_bytes: int
    ) -> None:
        """A launch that read so many bytes in all."""
        new = 0
        for tensor in reads:
            known = self._key(tensor) in self.memories
            memory = self._memory(tensor)
            if not known:
                new += bytes_of(tensor, memory.stored)
        self.inputs += min(new, read_bytes)  # some of a tensor may not be needed
        for tensor in writes:
            memory = self._memory(tensor)
            memory.written = max(memory.written, bytes_of(tensor, memory.stored))

    def least(self) -> int:
        """Bytes; ask while the results of the run are alive."""
        left = [memory.written for memory in self.memories.values() if not memory.alive.expired()]
        return self.inputs + sum(left)

    def stored(self) -> tuple[int, int]:
        """Bytes of all tensors on the card, and how many of them are padding."""
        memories = self.memories.values()
        stored = sum(memory.stored for memory in memories)
        return stored, stored - sum(min(memory.needed, memory.stored) for memory in memories)

    def _key(self, tensor: torch.Tensor) -> int:
        return tensor.untyped_storage()._cdata

    def _memory(self, tensor: torch.Tensor) -> _Memory:
        layout = get_spyre_tensor_layout(tensor)
        needed = tensor.numel() * (STICK_BYTES // layout.elems_per_stick())
        memory = self.memories.get(self._key(tensor))
        if memory is None:
            reference = StorageWeakRef(tensor.untyped_storage())
            memory = _Memory(reference, layout.device_bytes(), needed)
            self.memories[self._key(tensor)] = memory
        memory.needed = max(memory.needed, needed)
        return memory


def bytes_of(tensor: torch.Tensor, stored: int) -> int:
    """How much of its memory a tensor needs to be read or written once."""
    alone = SpyreTensorLayout(list(tensor.shape), tensor.dtype)
    return min(stored, alone.device_bytes())
