"""Safetensors files straight to the card: one tensor after the other, no second copy of them all.

The safetensors library has a fixed list of devices, and no way to add one. When it is imported, the
constructor of its file type learns to look at the device first (``csrc/module/python_doors.cpp``).
So ``safe_open(..., device="spyre")`` works, and so does what is made of it, such as
``safetensors.torch.load_file``.
"""

import ctypes
import functools
import mmap
import sys
from typing import Any

import torch

from torch_spyre import _C

LARGE_BYTES = 1 << 20  # pages of smaller tensors are not worth a system call
MADV_PAGEOUT = 21  # Linux: removes pages from memory; their content stays in the file


def open_for_cards(safetensors: Any) -> None:
    """Let the library open files for cards."""

    def open_for_card(filename: Any, framework: str, device: Any, **options: Any) -> Any:
        if framework not in ("pt", "torch", "pytorch"):
            return NotImplemented
        # Read, not mapped: pages of a mapped file would stay till all of it is loaded.
        options["backend"] = "pread"
        return _FileForCard(
            safetensors.safe_open(filename, framework, "cpu", **options), torch.device(device)
        )

    _C._open_safetensors_door(safetensors.safe_open, open_for_card)


class _FileForCard:
    """An open file whose tensors arrive on a card. Everything else is safetensors' own."""

    def __init__(self, opened: Any, device: torch.device) -> None:
        self._opened = opened
        self._device = device

    def __enter__(self) -> "_FileForCard":
        self._opened.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._opened.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)

    def get_tensor(self, name: str) -> torch.Tensor:
        return self._opened.get_tensor(name).to(self._device)

    def get_tensors(self) -> dict[str, torch.Tensor]:
        return {name: self.get_tensor(name) for name in self._opened.keys()}  # noqa: SIM118

    def get_slice(self, name: str) -> "_SliceForCard":
        return _SliceForCard(self._opened.get_slice(name), self._device)


class _SliceForCard:
    """A tensor of which parts are read."""

    def __init__(self, part: Any, device: torch.device) -> None:
        self._part = part
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)

    def __getitem__(self, index: Any) -> torch.Tensor:
        return self._part[index].to(self._device)


class MappedFiles:
    """Where files are mapped in the memory of this process, as it was at the first question."""

    @functools.cached_property
    def _spans(self) -> list[tuple[int, int]]:
        if sys.platform != "linux":
            return []
        with open("/proc/self/maps") as maps:
            fields = [line.split(maxsplit=5) for line in maps]
        spans = (span.split("-") for span, _, _, _, inode, *_ in fields if inode != "0")
        return [(int(begin, 16), int(end, 16)) for begin, end in spans]

    def give_back_pages(self, tensor: torch.Tensor) -> None:
        """Return the host memory of a tensor that lies in a mapped file. So a model that was loaded
        on the CPU and is moved to a card is in memory only once. If the tensor is read again, it
        comes from the file."""
        if tensor.device.type != "cpu" or tensor.nbytes < LARGE_BYTES or not tensor.is_contiguous():
            return
        page, address = mmap.PAGESIZE, tensor.data_ptr()
        if not any(begin <= address < end for begin, end in self._spans):
            return
        first, end = -(-address // page) * page, (address + tensor.nbytes) // page * page
        size = ctypes.c_size_t(end - first)
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), size, MADV_PAGEOUT)
