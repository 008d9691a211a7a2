"""Compiled kernels and how they are launched."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

import torch

from torch_spyre import _C
from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor.kernel_ir import Ramp, Resident, number_key
from torch_spyre.backend.account import accounts_in
from torch_spyre.cost import Account

log = logging.getLogger("spyre.execution")

# Layout, strides and storage offset that a kernel was compiled for.
Expected = Sequence[tuple[SpyreTensorLayout, list[int], int]]
Sources = tuple[Sequence[tuple[str, str]], Sequence[int]]
Residents = Sequence[tuple[Any, ...]]
Constants = Sequence[tuple[float | Ramp, torch.dtype]]
# Size, stride and offset from where the argument begins, by its number.
Views = Mapping[int, tuple[tuple[int, ...], tuple[int, ...], int]]

Launch = tuple["SDSCKernelRunner", tuple[torch.Tensor, ...]]

Watcher = Callable[[Sequence[Launch]], AbstractContextManager[None]]

# Around every launch while somebody records: torch_spyre.explanation. Those who came first are
# outermost. Replaced, never changed: a launch goes on with those that it began with.
watchers: tuple[Watcher, ...] = ()
_watchers_lock = threading.Lock()


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """The watcher sees every launch inside, of all threads."""
    global watchers
    with _watchers_lock:
        watchers = (*watchers, watcher)
    try:
        yield
    finally:
        with _watchers_lock:
            watchers = tuple(other for other in watchers if other is not watcher)


@contextmanager
def _watched(launches: Sequence[Launch]) -> Iterator[None]:
    with ExitStack() as stack:
        for watcher in watchers:
            stack.enter_context(watcher(launches))
        yield


class SDSCKernelRunner:
    """A compiled kernel: a program of the card, and what the program expects of its operands."""

    def __init__(
        self,
        name: str,
        binary: bytes,
        expected: Expected = (),
        outputs: Sequence[int] = (),  # which arguments it writes
        constants: Constants = (),  # operands of its own, after the arguments
        pool_bytes: int = 0,  # of intermediates: an operand of its own, before the arguments
        views: Views | None = None,  # arguments of which it takes a copy of a view
        sources: Sources = ((), ()),  # the user's lines and layers, and which one each op is of
        residents: Residents = (),  # fields of Resident, each
    ) -> None:
        self.name = name
        self.binary = binary
        self.expected = list(expected)
        self.outputs = frozenset(outputs)
        self.constants = constants
        self.pool_bytes = pool_bytes
        self.views = views
        self.sources = sources
        self.residents = [Resident(*fields) for fields in residents]
        self.loaded: dict[int, _C._Kernel] = {}  # by device
        self.launch_on: dict[int, Callable[[tuple[torch.Tensor, ...]], int]] = {}  # by device

    @property
    def accounts(self) -> list[Account]:
        """What the kernel's ops cost, in order, and from which lines of the user's they come."""
        accounts = accounts_in(self.binary)
        origins, numbers = self.sources
        if len(numbers) != len(accounts):  # loops were written out, or nobody said
            return accounts
        return [
            replace(account, source=origins[number][0], layer=origins[number][1])
            for account, number in zip(accounts, numbers, strict=True)
        ]

    def run(self, *args: torch.Tensor) -> None:
        """What generated code calls."""
        if not watchers and self.views is None:  # no calls that can be spared
            launch = self.launch_on.get(args[0].get_device())
            if launch is not None and launch(args) < 0:
                return
        with _watched([(self, args)]) if watchers else nullcontext():
            self._run(args)

    def _run(self, args: tuple[torch.Tensor, ...]) -> None:
        if self.views:
            self._run_on_views(args, self.views)
        else:
            launch_kernel(self, args)

    def _run_on_views(self, args: tuple[torch.Tensor, ...], views: Views) -> None:
        """Copy what the kernel cannot reach in place; back again what it writes."""
        tensors = list(args)
        written = []
        for i, (size, stride, offset) in views.items():
            there = args[i].as_strided(size, stride, args[i].storage_offset() + offset)
            if i in self.outputs:
                tensors[i] = torch.empty_like(there, memory_format=torch.contiguous_format)
                written.append((there, tensors[i]))
            else:
                tensors[i] = there.clone(memory_format=torch.contiguous_format)
        launch_kernel(self, tuple(tensors))
        for there, copy in written:
            there.copy_(copy)

    def load(self, device: int) -> _C._Kernel:
        """The program and the constants on a card, brought there once."""
        constants = [constant_tensor(value, dtype, device) for value, dtype in self.constants]
        lines = dict.fromkeys(source for source, _ in self.sources[0] if source)
        loaded = _C._Kernel(
            *(self.binary, device, self.expected, constants, self.pool_bytes),
            *(self.name, ", ".join(lines)),
        )
        self.loaded[device] = loaded
        self.launch_on[device] = loaded.launcher()
        return loaded


def launch_kernel(kernel: SDSCKernelRunner, args: tuple[torch.Tensor, ...]) -> None:
    """Launch a kernel on the current stream of its arguments' device, without waiting for it."""
    device = args[0].get_device()
    if device not in kernel.loaded:
        kernel.load(device)
    launch = kernel.launch_on[device]
    if launch(args) < 0:
        return
    copies = _Copies()
    failed = launch(copies.instead_of(args, kernel))
    assert failed < 0, f"{kernel.name}: argument {failed} still does not fit"
    copies.write_back()


def run_together(*launches: Launch) -> None:
    """What generated code calls for kernels of which each finds in LX what the one before it leaves
    there: they run with nothing in between."""
    with _watched(launches) if watchers else nullcontext():
        device = next(tensor.get_device() for _, args in launches for tensor in args)
        copies = _Copies()
        bound = []
        for kernel, args in launches:
            loaded = kernel.loaded.get(device) or kernel.load(device)
            program = loaded.bind(args) or loaded.bind(copies.instead_of(args, kernel))
            assert program is not None, f"{kernel.name}: an argument still does not fit"
            bound.append(program)
        _C._launch_together(bound)
        copies.write_back()


class _Copies:
    """Of tensors that do not lie as kernels were compiled for: used instead.

    A tensor has one copy for all kernels launched together; they expect the same of it.
    """

    def __init__(self) -> None:
        self.of: dict[int, torch.Tensor] = {}  # by the identity of tensors
        self.written: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def instead_of(
        self, args: tuple[torch.Tensor, ...], kernel: SDSCKernelRunner
    ) -> tuple[torch.Tensor, ...]:
        """The arguments of a kernel that lie as it expects."""
        operands = list(args)
        for i, (layout, stride, offset) in enumerate(kernel.expected):
            tensor = args[i]
            placed = tensor.device_tensor_layout() == layout  # type: ignore[attr-defined]
            if placed and list(tensor.stride()) == stride and tensor.storage_offset() == offset:
                continue
            log.info("%s: argument %d does not lie as expected, and is copied", kernel.name, i)
            if id(tensor) not in self.of:
                self.of[id(tensor)] = _copy(tensor, layout, stride, offset)
            operands[i] = self.of[id(tensor)]
            if i in kernel.outputs:
                self.written[id(tensor)] = tensor, operands[i]
        return tuple(operands)

    def write_back(self) -> None:
        for tensor, copy in self.written.values():
            tensor.copy_(copy)


def _copy(
    tensor: torch.Tensor, layout: SpyreTensorLayout, stride: list[int], offset: int
) -> torch.Tensor:
    """The same, lying so."""
    if _has_place_for_all(layout):
        span = sum((n - 1) * s for n, s in zip(tensor.shape, stride, strict=True)) + 1
        whole = [offset + span], [1]
    else:  # there are gaps, which have no place on the card: more of the same, up to the offset
        size, longest = list(tensor.shape), stride.index(max(stride))
        if offset:
            size[longest] += -(-offset // stride[longest])
        whole = size, stride
    with torch.spyre.device(tensor.device):  # type: ignore[attr-defined]
        storage = _C.spyre_empty_with_layout(*whole, tensor.dtype, layout)
    copy = storage.as_strided(tensor.shape, stride, offset)
    once = copy
    for dim, (size_here, step) in enumerate(zip(tensor.shape, stride, strict=True)):
        if step == 0 and size_here > 1:  # one element for all, in both
            if tensor.stride(dim) != 0:
                raise RuntimeError(
                    f"a kernel was compiled for a tensor that is expanded along dimension {dim}, "
                    f"and got one of strides {tuple(tensor.stride())}"
                )
            once, tensor = once.narrow(dim, 0, 1), tensor.narrow(dim, 0, 1)
    once.copy_(tensor)
    return copy


def _has_place_for_all(layout: SpyreTensorLayout) -> bool:
    """Whether every element of a storage has a place, as far as the layout reaches."""
    reached = 1  # elements that the dimensions so far have places for
    for stride, size in sorted(zip(layout.stride_map, layout.device_size, strict=True)):
        if stride > 0 and size > 1:
            if stride > reached:
                return False
            reached += stride * (size - 1)
    return True


class UnimplementedKernelRunner:
    """A kernel with an op that the back end does not have: an error, but only if it runs."""

    def __init__(self, name: str, op: str) -> None:
        self.name = name
        self.op = op

    def run(self, *args: torch.Tensor) -> None:
        raise RuntimeError(f"Invoked {self.name} which contains unimplemented operation {self.op}")


# Constants on cards, as long as a kernel has them.
_constants: WeakValueDictionary[tuple[Any, torch.dtype, int], torch.Tensor] = WeakValueDictionary()


def constant_tensor(value: float | Ramp, dtype: torch.dtype, device: int) -> torch.Tensor:
    """A constant on the card, which kernels share."""
    key = (number_key(value), dtype, device)
    known = _constants.get(key)
    if known is None:
        host = value.tensor(dtype) if isinstance(value, Ramp) else torch.tensor(value, dtype=dtype)
        known = _constants[key] = host.to(torch.device("spyre", device))
    return known


def get_raw_stream(device: int) -> int:
    """What Inductor's wrapper asks for at its beginning."""
    return torch.spyre.current_stream(device).stream_id  # type: ignore[attr-defined]
