"""Which way the sticks of intermediates run: the choice that moves the fewest bytes.

Every buffer that only the kernel sees may have its sticks along any of its dimensions, or one stick
for every element ("sparse", what a reduction along sticks leaves). An op wants its tensors to
agree, and those that do not are restickified. The ops are walked in order with a beam of partial
choices, of which those that agree on all buffers still needed are one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor import config
from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp, Ramp
from torch_spyre._inductor.planning.accesses import (
    MATMUL,
    stick_symbol,
    symbols_of,
)
from torch_spyre._inductor.planning.realign import expressible
from torch_spyre.partition.dims import STICK_BYTES

BEAM_WIDTH = 64
SPARSE = -1  # instead of a dimension: sticks of one element
IMPOSSIBLE = 1 << 60  # bytes: only if there is nothing else
STRIDED = 4  # reading across sticks costs so many times the bytes
ONE_MORE_OP = 1 << 20  # a restickify, for which cores mostly wait, costs as much as so many bytes

# The loop an access has its sticks along; None: none; False: no op can touch it so.
Stick: TypeAlias = "str | bool | None"


def choose_layouts(ops: list[KernelOp]) -> list[KernelOp]:
    """Gives every local its layout.

    Needs indices that are linear; leaves ops, and buffers that others see, as they are.
    """
    search = _Search(ops)
    for buffer, dim in search.best_choice().items():
        free = search.free[buffer]
        if buffer.layout is None or dim != free.default or free.size != buffer.size:
            buffer.layout = free.layout(dim)
        buffer.size, buffer.stride = list(free.size), list(free.stride)
    return ops


@dataclass
class _Free:
    """A buffer whose layout is ours to choose."""

    buffer: Buffer
    size: list[int]
    stride: list[int]
    default: int = SPARSE
    candidates: list[int] = field(default_factory=list)

    def layout(self, dim: int) -> SpyreTensorLayout:
        order = [other for other in range(len(self.size)) if other != dim]
        return SpyreTensorLayout(
            self.size, self.stride, self.buffer.dtype, [*order, dim] if self.size else []
        )

    def offer(self, dim: int) -> None:
        if dim not in self.candidates:
            self.candidates.append(dim)

    def dim_of(self, access: Access, symbol: str) -> int | None:
        """The dimension that a loop walks along."""
        step = access.index.strides.get(symbol)
        for dim, (extent, stride) in enumerate(zip(self.size, self.stride, strict=True)):
            if extent > 1 and stride == step:
                return dim
        return None

    def stick_of(self, access: Access, dim: int, space: dict[str, int]) -> Stick:
        """The loop along the sticks of an access, if the sticks run along ``dim``."""
        own = symbols_of(access)
        walked = {symbol: self.dim_of(access, symbol) for symbol in own}
        if not access.index.offset and all(
            at is not None and space[symbol] <= self.size[at] for symbol, at in walked.items()
        ):
            return next((symbol for symbol, at in walked.items() if at == dim), None)
        placed = Buffer("", self.buffer.dtype, self.size, self.stride, self.layout(dim))
        moved = Access(placed, access.index)
        return stick_symbol(moved, space) if expressible(moved, space) else False


@dataclass
class _State:
    cost: int
    alive: dict[Buffer, int]
    chosen: tuple[Buffer, int] | None = None
    before: _State | None = None


class _Search:
    def __init__(self, ops: list[KernelOp]) -> None:
        self.ops = ops
        self.free: dict[Buffer, _Free] = {}
        self.last_use: dict[Buffer, int] = {}
        for time, op in enumerate(ops):
            for access in (*op.inputs, op.output):
                self.last_use[access.buffer] = time
            if op.output.buffer.local and op.output.buffer not in self.free:
                self.free[op.output.buffer] = _free(op)
        self.sticks: dict[tuple[int, int, int], Stick] = {}
        self._offer_candidates()

    # --------------------------------------------------------------------------- candidates

    def _offer_candidates(self) -> None:
        """Sticks that some neighbour has or wants; more would only be more to search."""
        for free in self.free.values():
            free.offer(free.default)
        for order in (self.ops, self.ops[::-1]):
            for op in order:
                self._offer(op)

    def _offer(self, op: KernelOp) -> None:
        accesses = [*op.inputs, op.output]
        wanted = {s for i in range(len(accesses)) for s in self._possible_sticks(op, i)}
        if op.op == MATMUL:
            wanted |= {*op.reduced, *self._needed_by_product(op)}
        symbols = [s for s in op.space if s in wanted]
        sparse = op.op != MATMUL and any(s in wanted for s in op.reduced)
        for i, access in enumerate(accesses):
            free = self.free.get(access.buffer)
            if free is None:
                continue
            for symbol in symbols:
                dim = free.dim_of(access, symbol)
                if dim is not None:
                    free.offer(dim)
            if i == len(op.inputs) and (sparse or self._computes_from_sparse(op)):
                free.offer(SPARSE)

    def _needed_by_product(self, op: KernelOp) -> set[str]:
        """Loops of one factor alone, if nobody wants the sticks of the result along one of them."""
        writable = _loops_of_one_factor(op)
        return set() if writable & {*self._possible_sticks(op, len(op.inputs))} else writable

    def _possible_sticks(self, op: KernelOp, i: int) -> Iterable[str]:
        access = (*op.inputs, op.output)[i]
        free = self.free.get(access.buffer)
        for dim in free.candidates if free else (0,):
            stick = self._stick(op, i, dim)
            if isinstance(stick, str):
                yield stick

    def _computes_from_sparse(self, op: KernelOp) -> bool:
        own = symbols_of(op.output)
        for access in op.inputs:
            free = self.free.get(access.buffer)
            if free and SPARSE in free.candidates and symbols_of(access) == own:
                return True
        return False

    def _stick(self, op: KernelOp, i: int, dim: int) -> Stick:
        key = (id(op), i, dim)
        if key not in self.sticks:
            access = (*op.inputs, op.output)[i]
            free = self.free.get(access.buffer)
            if free is not None:
                self.sticks[key] = free.stick_of(access, dim, op.space)
            else:
                self.sticks[key] = _given_stick(access, op.space)
        return self.sticks[key]

    # ------------------------------------------------------------------------------- search

    def best_choice(self) -> dict[Buffer, int]:
        if all(len(free.candidates) == 1 for free in self.free.values()):
            return {buffer: free.default for buffer, free in self.free.items()}
        width = BEAM_WIDTH if config.global_stick_optimizer else 1
        beam = [_State(0, {})]
        for time, op in enumerate(self.ops):
            beam = self._advanced(beam, time, op, width)
        state: _State | None = beam[0]
        choice = {}
        while state is not None:
            if state.chosen is not None:
                choice[state.chosen[0]] = state.chosen[1]
            state = state.before
        return choice

    def _advanced(self, beam: list[_State], time: int, op: KernelOp, width: int) -> list[_State]:
        accesses = [*op.inputs, op.output]
        buffers = [access.buffer for access in accesses]
        ends = [buffer for buffer in buffers if self.last_use[buffer] == time]
        costs: dict[tuple[int, ...], int] = {}
        target = buffers[-1]
        found: dict[frozenset[tuple[Buffer, int]], _State] = {}
        for state in beam:
            fresh = target in self.free and target not in state.alive
            for dim in self.free[target].candidates if fresh else (0,):
                alive = {**state.alive, target: dim} if fresh else state.alive
                dims = tuple(alive.get(buffer, 0) for buffer in buffers)
                if dims not in costs:
                    sticks = [self._stick(op, i, dim) for i, dim in enumerate(dims)]
                    costs[dims] = _bytes_moved(op, sticks)
                if any(buffer in alive for buffer in ends):
                    alive = {b: d for b, d in alive.items() if b not in ends}
                cost = state.cost + costs[dims]
                key = frozenset(alive.items())
                if key not in found or cost < found[key].cost:
                    found[key] = _State(cost, alive, (target, dim) if fresh else None, state)
        return sorted(found.values(), key=lambda state: state.cost)[:width]


def _free(op: KernelOp) -> _Free:
    """What an op writes first, with the dimensions it has."""
    buffer = op.output.buffer
    if buffer.layout is None:
        return _of_loops(op)
    free = _Free(buffer, list(buffer.size), list(buffer.stride))
    step = buffer.layout.stride_map[-1]
    for dim, extent in enumerate(buffer.size):
        if extent > 1 and buffer.stride[dim] == step:
            free.default = dim
    if op.op == MATMUL and not _loops_of_one_factor(op) & {
        free.stick_of(op.output, dim, op.space) for dim in range(len(free.size))
    }:
        # Sticks of several loops, such as those of 512 columns that are 32 heads of 16, which no
        # product writes. Dimensions as fine as the loops have sticks of one.
        return _of_loops(op)
    return free


def _of_loops(op: KernelOp) -> _Free:
    """What an op writes, with a dimension for each loop."""
    own = [symbol for symbol in op.space if op.output.index.strides.get(symbol)]
    size = [op.space[symbol] for symbol in own]
    stride = [op.output.index.strides[symbol] for symbol in own]
    return _Free(op.output.buffer, size, stride, len(size) - 1 if size else SPARSE)


def _loops_of_one_factor(op: KernelOp) -> set[str]:
    """Those that the sticks of a product's result may run along."""
    x, y = (symbols_of(access) for access in op.inputs)
    return x ^ y


def _given_stick(access: Access, space: dict[str, int]) -> Stick:
    if expressible(access, space):
        return stick_symbol(access, space)
    # A copy is made around the launch, dense in the order of memory.
    strides = {symbol: abs(stride) for symbol, stride in access.index.strides.items() if stride}
    return min(strides, key=strides.__getitem__, default=None)


# -------------------------------------------------------------------------------------------- costs


def _bytes_moved(op: KernelOp, sticks: list[Stick]) -> int:
    """By the op and by the restickifies it needs."""
    accesses = [*op.inputs, op.output]
    if any(stick is False for stick in sticks):
        return IMPOSSIBLE
    touched = sum(_bytes(a, s, op.space) for a, s in zip(accesses, sticks, strict=True))
    if op.op == MATMUL:
        return touched + _matmul_restickifies(op, sticks)
    *inputs, output = sticks
    if op.reduced:
        wrong = inputs[0] not in op.reduced and inputs[0] != output
        return touched + wrong * STRIDED * _bytes(op.output, output, op.space)
    return touched + sum(
        _restickify(access, output, op.space)
        for access, stick in zip(op.inputs, inputs, strict=True)
        if not agrees(stick, output, access)
    )


def agrees(stick: Stick, wanted: Stick, access: Access) -> bool:
    """Whether an access with its sticks along ``stick`` suits an op with ``wanted``."""
    if stick == wanted:
        return True
    own = symbols_of(access)
    return not own or (stick is None and wanted not in own)


def _matmul_restickifies(op: KernelOp, sticks: list[Stick]) -> int:
    (k,) = op.reduced
    x, y, n = sticks
    rows, columns = op.inputs
    if n not in symbols_of(columns):
        x, y, rows, columns = y, x, columns, rows
    if n not in symbols_of(columns) or n in symbols_of(rows):
        return IMPOSSIBLE
    total = 0 if x == k else _restickify(rows, k, op.space)
    return total + (0 if y in (n, k) else _restickify(columns, n, op.space))


def _restickify(access: Access, wanted: Stick, space: dict[str, int]) -> int:
    """A copy: read across sticks, written, and read again. What loops count is made as wanted."""
    if isinstance(access.buffer.constant, Ramp):
        return 0
    stick = wanted if wanted in symbols_of(access) else None
    dense = _bytes(access, True, space)
    return ONE_MORE_OP + STRIDED * dense + 2 * _bytes(access, stick, space)


def _bytes(access: Access, stick: Stick, space: dict[str, int]) -> int:
    """That an op touches of a buffer; without a loop along the stick, a stick an element."""
    count = math.prod(space[symbol] for symbol in symbols_of(access))
    if stick is None:
        return count * STICK_BYTES
    return count * STICK_BYTES // access.buffer.format.elems_per_stick()
