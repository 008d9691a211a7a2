"""Over which cores the loops of every op are split.

An op that splits its loops as its neighbours do reads, on every core, what that core wrote: the
cores need not wait for each other. So the splits of all ops are chosen together, by time: that of
the largest part of each op, and that of every wait. Uneven parts are allowed; the last is smaller.
For an op with a hint about it there is nothing to choose.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from sympy import Symbol

from torch_spyre._inductor import config
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.kernel_ir import Buffer, KernelOp
from torch_spyre._inductor.planning.accesses import (
    MATMUL,
    RESTICKIFY,
    STICK_BYTES,
    device_bytes,
    symbols_of,
)
from torch_spyre._inductor.planning.footprints import Group, OpShape, Splits
from torch_spyre._inductor.planning.hinted import hinted_splits
from torch_spyre._inductor.planning.matmul_cost import BYTES, MACS_PER_CORE, Product, divisions
from torch_spyre.machine import load as load_machine

SPAN_BYTES = int(load_machine().value("memory.core_span_bytes"))
BEAM_WIDTH = 8
PRODUCTS_TRIED = 6  # of the divisions the cost model likes best
WAIT_US = 1.0  # for all cores to meet
ELEMENTS_US = 64 * 1.5e3  # that the vector unit of a core computes: lanes times clock


def divide_work(ops: list[KernelOp]) -> list[KernelOp]:
    """Gives every op its splits, and its loops an order: neighbouring cores share the last ones.

    Needs final layouts, and the loops of products in order, which they keep.
    """
    last_use = {a.buffer: time for time, op in enumerate(ops) for a in (*op.inputs, op.output)}
    only_read = set(last_use) - {op.output.buffer for op in ops}
    beam = [_State(0.0, Group(), {})]
    for time, op in enumerate(ops):
        gone = only_read | {a.buffer for a in (*op.inputs, op.output) if last_use[a.buffer] == time}
        beam = _advanced(beam, OpShape(op), gone)
    state: _State | None = beam[0]
    for op in reversed(ops):
        assert state is not None
        op.splits = dict(state.splits)
        op.space = {symbol: op.space[symbol] for symbol in op.splits}
        state = state.before
    return ops


@dataclass
class _State:
    """A choice for the ops so far."""

    cost: float  # microseconds
    group: Group  # of the last op
    splits: Splits  # of the last op
    before: _State | None = None


def _advanced(beam: list[_State], shape: OpShape, gone: set[Buffer]) -> list[_State]:
    hinted = hinted_splits(shape)
    own = _candidates(shape) if hinted is None else [hinted]
    times: dict[tuple[tuple[Symbol, int], ...], float] = {}
    cheapest = beam[0]
    found: list[tuple[float, int, _State]] = []
    for state in beam:
        rank = 0
        seen = set()
        inherited = _inherited(shape, state.group) if hinted is None else ()
        for splits in (*inherited, *own):
            key = tuple(splits.items())
            if key in seen:
                continue
            seen.add(key)
            goes_on = state.group.accepts(shape, splits)
            if not goes_on and state is not cheapest:
                continue  # to wait after the cheapest is never worse
            if key not in times:
                times[key] = _microseconds(shape, splits)
            group = state.group if goes_on else Group()
            cost = state.cost + times[key] + (0 if goes_on else WAIT_US)
            found.append(
                (cost, rank, _State(cost, group.with_op(shape, splits, gone), splits, state))
            )
            rank += 1
    # Of equal ones, the first choice after every state: what the next op wants is not known yet.
    found.sort(key=lambda entry: entry[:2])
    limit = found[0][0] + WAIT_US
    return [state for cost, _, state in found[:BEAM_WIDTH] if cost <= limit]


# --------------------------------------------------------------------------------------- candidates


def _candidates(shape: OpShape) -> list[Splits]:
    """Ways to split an op that are good for itself, the best first."""
    cores = config.sencores
    free = [s for s in shape.op.space if shape.units[s] > 1 and _may_split(shape, s)]
    candidates = _in_turns(shape, free, cores)
    if shape.contracted is not None:
        # Split along batches alone, cores share nothing, and need not wait for a product.
        shared = symbols_of(shape.op.inputs[0]) & symbols_of(shape.op.inputs[1])
        few = max(_cores(splits) for splits in candidates) // 4
        batches = _in_turns(shape, [s for s in free if s in shared], cores)
        candidates += [splits for splits in batches if _cores(splits) >= max(2, few)]
    product = _product(shape)
    if product is not None and product.b == 1:
        used = max(_cores(splits) for splits in candidates)
        candidates = _by_cost_model(shape, product, used) + candidates
    candidates = _within_span(shape, candidates)
    times = [_microseconds(shape, splits) for splits in candidates]
    limit = min(times) + WAIT_US
    return [splits for splits, time in zip(candidates, times, strict=True) if time <= limit]


def _cores(splits: Splits) -> int:
    return math.prod(splits.values())


def _in_turns(shape: OpShape, free: list[Symbol], cores: int) -> list[Splits]:
    """The loops take what they can of the cores, in several orders: outer loops first, or large."""
    by_size = sorted(free, key=lambda s: -shape.units[s])
    found: dict[tuple[int, ...], Splits] = {}
    for first in ((), *((s,) for s in free), *itertools.permutations(free, 2)):
        rest = [s for s in by_size if s not in first]
        splits = dict.fromkeys(shape.op.space, 1)
        left = cores
        for symbol in (*first, *rest):
            splits[symbol] = _parts(shape.units[symbol], left)
            left //= splits[symbol]
        found.setdefault(tuple(splits.values()), splits)
    return list(found.values())


def _may_split(shape: OpShape, symbol: Symbol) -> bool:
    op = shape.op
    if symbol in shape.reduced:
        return False
    # The back end leaves a loop with an unfinished stick to one core when it turns sticks.
    return op.op != RESTICKIFY or op.space[symbol] % shape.unit[symbol] == 0


def _parts(units: int, cores: int) -> int:
    """How many cores a loop can use: parts as equal as possible, none empty."""
    return math.ceil(units / math.ceil(units / cores))


def _product(shape: OpShape) -> Product | None:
    """The sizes of a matrix product with one M and at most one batch."""
    op = shape.op
    if op.op != MATMUL:
        return None
    *outer, n, k = op.space
    rows = [s for s in outer if s not in symbols_of(op.inputs[1])]
    if len(rows) != 1 or len(outer) > 2:
        return None
    batch = math.prod(op.space[s] for s in outer if s not in rows)
    return Product(batch, op.space[rows[0]], op.space[n], op.space[k])


def _by_cost_model(shape: OpShape, product: Product, cores: int) -> list[Splits]:
    """What the cost model likes best of all that use as many cores as there is work for."""
    m, n, k = list(shape.op.space)[-3:]
    units = (1, shape.units[m], shape.units[n], shape.units[k])
    known = [d for d in divisions(units, config.sencores) if math.prod(d) >= cores]
    known.sort(key=lambda division: product.microseconds(*division))
    return [
        dict.fromkeys(shape.op.space, 1) | dict(zip((m, n, k), d[1:], strict=True))
        for d in known[:PRODUCTS_TRIED]
    ]


def _within_span(shape: OpShape, candidates: list[Splits]) -> list[Splits]:
    """Those with which no core reaches farther than it can."""
    if all(device_bytes(access.buffer) <= SPAN_BYTES for access in shape.accesses):
        return candidates
    fits = [splits for splits in candidates if _span(shape, splits) <= SPAN_BYTES]
    if not fits:
        span = min(_span(shape, splits) for splits in candidates)
        raise Unsupported(
            f"{shape.op}: a core would span {span} bytes of a tensor, it reaches {SPAN_BYTES}",
            op=shape.op,
            hint="set CHUNK_LARGE_TENSORS=1, or work on slices",
        )
    return fits


def smallest_span(shape: OpShape) -> int:
    """Of the bytes from the first to the last that a core touches of a tensor, however split."""
    if all(device_bytes(access.buffer) <= SPAN_BYTES for access in shape.accesses):
        return 0
    free = [s for s in shape.op.space if shape.units[s] > 1 and _may_split(shape, s)]
    return min(_span(shape, splits) for splits in _in_turns(shape, free, config.sencores))


def _span(shape: OpShape, splits: Splits) -> int:
    return STICK_BYTES * max(footprint.span for footprint in shape.footprints(splits))


def _inherited(shape: OpShape, group: Group) -> Iterator[Splits]:
    """Splits with which an input is read as it was written in this group."""
    for position, access in enumerate(shape.op.inputs):
        for footprint, written in group.touches.get(access.buffer, {}).items():
            splits = shape.splits_like(position, footprint) if written else None
            if splits is not None:
                yield splits


# -------------------------------------------------------------------------------------------- costs


def _microseconds(shape: OpShape, splits: Splits) -> float:
    op = shape.op
    if op.op != MATMUL:
        return shape.largest_part(splits) / ELEMENTS_US
    product = _product(shape)
    if product is not None and product.b == 1:
        return product.microseconds(1, *list(splits.values())[-3:])
    # Batches share nothing: the model's penalty for splitting them would leave cores idle.
    touched = sum(math.prod(op.space[s] for s in symbols_of(a)) for a in shape.accesses)
    return shape.largest_part(splits) / MACS_PER_CORE + 2 * touched / BYTES
