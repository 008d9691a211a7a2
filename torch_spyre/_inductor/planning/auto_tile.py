"""Loops over tiles, where buffers between ops are too large for the scratchpads.

This file says which loops there could be. ``tile.py`` makes them. The cost model decides whether
they pay.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp
from torch_spyre._inductor.planning.accesses import device_bytes
from torch_spyre._inductor.planning.prices import lx_available
from torch_spyre._inductor.planning.tile import Tiles, can_be_cut

MAX_TILES = 1024
MAX_DISTANCE = 4  # in buffers, from an op that has to be tiled to others that join its loop
COUNTS_TRIED = 3  # numbers of tiles: the least that may be enough, and more


def tilings(ops: list[KernelOp], large: set[Buffer], cores: int, attempt: int = 0) -> list[Tiles]:
    """Loops around ops that hand each other ``large`` buffers; more tiles in later attempts."""
    runs = _runs(ops, large)
    wanted = {op for run in runs for op in run}
    free = [op for op in ops if not op.loops]
    plan: list[Tiles] = []
    more = False
    for run in runs:
        if any(op not in free for op in run):
            continue
        for symbols in _loops(free, run, wanted):
            op, symbol = next(iter(symbols.items()))
            counts = [
                n
                for n in _counts(op.space[symbol], _needed(symbols, cores))
                if can_be_cut(Tiles(n, symbols))
            ][:COUNTS_TRIED]
            if counts:
                plan.append(Tiles(counts[min(attempt, len(counts) - 1)], symbols))
                more |= attempt < len(counts)
                free = [op for op in free if op not in symbols]
                break
    return plan if more else []


def _runs(ops: list[KernelOp], large: set[Buffer]) -> list[list[KernelOp]]:
    """Ops that are connected by large buffers, in order."""
    runs: list[tuple[set[Buffer], list[KernelOp]]] = []
    for op in ops:
        touched = {a.buffer for a in (*op.inputs, op.output)} & large
        if not touched:
            continue
        joined = [run for run in runs if run[0] & touched]
        rest = [run for run in runs if not run[0] & touched]
        buffers = touched.union(*(run[0] for run in joined))
        runs = [*rest, (buffers, [*(each for run in joined for each in run[1]), op])]
    return [members for _, members in runs if len(members) > 1]


def _loops(
    near: list[KernelOp], run: list[KernelOp], wanted: set[KernelOp]
) -> Iterator[dict[KernelOp, str]]:
    """Loops that all ops of a run have, the outermost first; ops nearby may have them, too."""
    for symbol in _by_stride(run[0].output):
        symbols = _spread(run, symbol, near, wanted)
        if symbols is not None:
            yield {op: symbols[op] for op in near if op in symbols}


def _by_stride(access: Access) -> list[str]:
    strides = access.index.strides
    return sorted((s for s in strides if strides[s]), key=lambda s: -strides[s])


def _spread(
    run: list[KernelOp], symbol: str, near: list[KernelOp], wanted: set[KernelOp]
) -> dict[KernelOp, str] | None:
    """The loops of ops that go through the same dimension, followed from buffer to buffer.

    None if an op of the run has no such loop, or one that cannot be cut. Other ops may stay
    outside. Two kinds may not: those between two ops of the loop, for which it would have to be
    left and entered again; and masks that are made of constants only.
    """
    taken = _reached(run, symbol, near, wanted, MAX_DISTANCE)
    if taken is None or any(op not in taken for op in run):
        return None
    everything = _reached(run, symbol, near, wanted, len(near)) or {}
    before = _after(taken, near[::-1], everything, back=True)
    between = before & _after(taken, near, everything)
    made = {op for op in before if all(a.buffer.constant is not None for a in op.inputs)}
    chosen = {*taken, *between, *made}
    return {op: taken.get(op) or everything[op] for op in near if op in chosen}


def _reached(
    run: list[KernelOp], symbol: str, near: list[KernelOp], wanted: set[KernelOp], most: int
) -> dict[KernelOp, str] | None:
    """The same loops, of ops that at most ``most`` buffers lie between and an op that is wanted."""
    symbols = {run[0]: symbol}
    waiting = [(run[0], most)]
    while waiting:
        op, far = waiting.pop(0)
        own = symbols[op]
        if own in op.reduced:
            if op in run:
                return None
            del symbols[op]
            continue
        for access in _accesses(op):
            stride = access.index.strides.get(own, 0)
            if not stride or not access.buffer.local:
                continue
            for other in near:
                left = most if other in wanted else far - 1
                if other in symbols or left <= 0:
                    continue
                found = _same_loop(other, access.buffer, stride, op.space[own])
                if found is not None:
                    symbols[other] = found
                    waiting.append((other, left))
    return symbols


def _after(
    taken: Collection[KernelOp],
    ops: list[KernelOp],
    among: Collection[KernelOp],
    back: bool = False,
) -> set[KernelOp]:
    """Of ops in order, those that use what comes from the taken ones; back: that lead to them."""
    found: set[KernelOp] = set()
    buffers: set[Buffer] = set()
    for op in ops:
        inputs, outputs = {a.buffer for a in op.inputs}, {op.output.buffer}
        used, given = (outputs, inputs) if back else (inputs, outputs)
        if op in among and used & buffers:
            found.add(op)
        if op in taken or op in found:
            buffers |= given
    return found


def _accesses(op: KernelOp) -> list[Access]:
    return [*op.inputs, op.output]


def _same_loop(op: KernelOp, buffer: Buffer, stride: int, size: int) -> str | None:
    for access in _accesses(op):
        if access.buffer is buffer:
            for symbol, step in access.index.strides.items():
                if step == stride and op.space[symbol] == size:
                    return symbol
    return None


def _needed(symbols: dict[KernelOp, str], cores: int) -> int:
    """Into how many tiles at least, by what the ops hold at a time."""
    largest = 0
    for op in symbols:
        touched = {a.buffer for a in _accesses(op) if a.buffer.local}
        largest = max(largest, sum(map(device_bytes, touched)))
    return max(2, math.ceil(largest / cores / max(1, lx_available())))


def _counts(size: int, least: int) -> list[int]:
    """Equal tiles if there can be about so many; if not, also such that the last one is smaller."""
    most = min(size, MAX_TILES)
    divisors = [n for n in range(least, most + 1) if size % n == 0]
    near = [n for n in divisors if n <= 4 * divisors[0]]
    if near and near[0] < 2 * least:
        return near
    return sorted({n for n in (least, 2 * least, *near) if n <= most})
