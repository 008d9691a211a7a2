"""From kernel ops to OpSpecs: layouts of locals, restickifies, core splits, memory.

Each step is a function from ops to ops, in the order they are called here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import sympy
from sympy import Expr, Symbol

from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor import config
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.kernel_ir import (
    Access,
    Buffer,
    KernelOp,
    View,
    contiguous_strides,
)
from torch_spyre._inductor.observe import observed
from torch_spyre._inductor.op_spec import OpSpec, TensorArg
from torch_spyre._inductor.views import LinearIndex, device_coordinates
from torch_spyre.machine import load as load_machine

MACHINE = load_machine()
SEGMENT_BYTES = int(MACHINE.value("memory.segment_bytes"))
STICK_BYTES = int(MACHINE.value("memory.stick_bytes"))
MATMUL = "batchmatmul"
RESTICKIFY = "ReStickifyOpHBM"


@dataclass
class Kernel:
    """Ready to be written: specs, and what a launch needs."""

    specs: list[OpSpec]
    args: list[Buffer]  # in the order of the call; constants are the last ones
    pool_bytes: int = 0

    @property
    def constants(self) -> list[Buffer]:
        return [buffer for buffer in self.args if buffer.constant is not None]


class MustSplit(Exception):
    """An op touches what only the kernel knows in a way that takes a copy outside of it."""

    def __init__(self, node: int, buffer: str, writes: bool) -> None:
        super().__init__(node, buffer)
        self.node = node
        self.buffer = buffer
        self.writes = writes  # the buffer must be known outside; else the kernel ends before


def plan_kernel(ops: list[KernelOp]) -> Kernel:
    """A kernel that computes the ops. Raises :class:`Unsupported` or :class:`MustSplit`."""
    for run in (realign, choose_layouts, insert_restickifies):
        ops = observed(run, ops)
    args = _arguments(ops)
    pool, pool_bytes = plan_pool(ops)
    numbers = {buffer: i for i, buffer in enumerate(args)}
    shift = 1 if pool_bytes else 0
    specs = []
    for op in ops:
        splits = divide_work(op)
        specs.append(_spec(op, splits, numbers, pool, shift))
    return Kernel(specs, args, pool_bytes)


# ------------------------------------------------------------------------------------------- views


def expressible(access: Access, space: dict[Symbol, int]) -> bool:
    """Whether a SuperDSC can say what an op touches of a buffer that has its place."""
    assert access.buffer.layout is not None
    coordinates, separate = device_coordinates(access.buffer.layout, access.index, space)
    elems = access.buffer.format.elems_per_stick()
    *outer, stick = coordinates
    if not separate or not _is_stick(stick, elems, space):
        return False
    divided = sympy.Tuple(*outer).atoms(sympy.floor, sympy.Mod)
    return all(
        atom == sympy.floor(symbol / elems) for atom in divided for symbol in stick.free_symbols
    )


def _is_stick(coordinate: Expr, elems: int, space: dict[Symbol, int]) -> bool:
    if isinstance(coordinate, sympy.Mod):
        return coordinate.args[0].is_Symbol and coordinate.args[1] == elems
    lane, symbol = coordinate.as_coeff_Add()  # a slice may begin inside of a stick
    if symbol == 0:
        return True
    return symbol.is_Symbol and lane + space[symbol] <= elems


def realign(ops: list[KernelOp]) -> list[KernelOp]:
    """Views that cross sticks are read from, or written to, copies made outside of the kernel."""
    copies: dict[tuple[Buffer, View], Buffer] = {}
    for op in ops:
        for i, access in enumerate([*op.inputs, op.output]):
            if access.buffer.layout is None or expressible(access, op.space):
                continue
            if access.buffer.local:
                raise MustSplit(op.node, access.buffer.name, i == len(op.inputs))
            moved = _outside_copy(access, op, i == len(op.inputs), copies)
            if i < len(op.inputs):
                op.inputs[i] = moved
            else:
                op.output = moved
    return ops


def _outside_copy(
    access: Access, op: KernelOp, written: bool, copies: dict[tuple[Buffer, View], Buffer]
) -> Access:
    symbols = [s for s in op.space if access.index.strides.get(s)]
    strides = [access.index.strides[s] for s in symbols]
    if min(strides, default=0) < 0:
        raise Unsupported(f"{op}: walks {access.buffer.name} backwards", op=op)
    # The order of memory: the copy is then as dense as the view can be.
    symbols.sort(key=lambda s: -access.index.strides[s])
    size = [op.space[s] for s in symbols]
    view = View(
        access.buffer.name,
        tuple(size),
        tuple(access.index.strides[s] for s in symbols),
        access.index.offset,
        written,
    )
    copy = copies.get((access.buffer, view))
    if copy is None:
        name = f"{access.buffer.name}_view{len(copies)}"
        copy = Buffer(name, access.buffer.dtype, size, contiguous_strides(size), view=view)
        copy.layout = SpyreTensorLayout(size, copy.dtype)
        copies[(access.buffer, view)] = copy
    strides_of_copy = dict(zip(symbols, copy.stride, strict=True))
    index = LinearIndex(0, {s: strides_of_copy.get(s, 0) for s in op.space})
    return Access(copy, index)


# ----------------------------------------------------------------------------------------- layouts


def stick_symbol(access: Access, space: dict[Symbol, int]) -> Symbol | None:
    """The loop that moves along the sticks of a buffer; None if none does."""
    assert access.buffer.layout is not None
    coordinates, _ = device_coordinates(access.buffer.layout, access.index, space)
    symbols = coordinates[-1].free_symbols
    return next(iter(symbols)) if len(symbols) == 1 else None


def choose_layouts(ops: list[KernelOp]) -> list[KernelOp]:
    """Locals get the stick of what they are computed from or for."""
    placed: dict[Buffer, list[Symbol]] = {}
    for position, op in enumerate(ops):
        if op.output.buffer.layout is None:
            stick = _wanted_stick(ops, position)
            order = [symbol for symbol in op.space if symbol != stick]
            _place(op.output.buffer, op.space, [*order, *([stick] if stick else [])], placed)
        op.inputs = [_relocated(access, op.space, placed) for access in op.inputs]
        op.output = _relocated(op.output, op.space, placed)
    return ops


def _wanted_stick(ops: list[KernelOp], position: int) -> Symbol | None:
    op = ops[position]
    known = [access for access in op.inputs if access.buffer.layout is not None]
    # The result of the loop these ops belong to decides, then the widest input.
    for later in ops[position + 1 :]:
        if later.space is not op.space:
            break
        if later.output.buffer.layout is not None and not later.reduced:
            stick = stick_symbol(later.output, op.space)
            if stick is not None:
                return stick
            break
        known += [access for access in later.inputs if access.buffer.layout is not None]
    for access in sorted(known, key=lambda access: -math.prod(access.buffer.size)):
        stick = stick_symbol(access, op.space)
        if stick is not None:
            return stick
    return list(op.space)[-1] if op.space else None


def _place(
    buffer: Buffer,
    space: dict[Symbol, int],
    order: list[Symbol],
    placed: dict[Buffer, list[Symbol]],
) -> None:
    buffer.size = [space[symbol] for symbol in order]
    buffer.stride = contiguous_strides(buffer.size)
    buffer.layout = SpyreTensorLayout(buffer.size, buffer.dtype)
    placed[buffer] = order


def _relocated(
    access: Access, space: dict[Symbol, int], placed: dict[Buffer, list[Symbol]]
) -> Access:
    order = placed.get(access.buffer)
    if order is None:
        return access
    strides = dict(zip(order, access.buffer.stride, strict=True))
    return Access(access.buffer, LinearIndex(0, {s: strides.get(s, 0) for s in space}))


def insert_restickifies(ops: list[KernelOp]) -> list[KernelOp]:
    """Copies of inputs whose sticks run along another loop than the op's."""
    result: list[KernelOp] = []
    for op in ops:
        if op.op == MATMUL:
            _matmul_operands(op, result)
        else:
            reference = op.inputs[0] if op.reduced else op.output
            stick = stick_symbol(reference, op.space)
            op.inputs = [
                _with_stick(access, stick, op, result) if stick is not None else access
                for access in op.inputs
            ]
        result.append(op)
    return result


def _with_stick(access: Access, stick: Symbol, op: KernelOp, result: list[KernelOp]) -> Access:
    """The access itself if its sticks run along ``stick`` or nowhere; else one to a copy."""
    own = [s for s in op.space if access.index.strides.get(s)]
    if not own or (stick not in own and stick_symbol(access, op.space) is None):
        return access
    if stick_symbol(access, op.space) == stick:
        return access
    order = [s for s in own if s != stick] + [stick] * (stick in own)
    return _copied(access, {s: op.space[s] for s in own}, order, op, result)


def _copied(
    access: Access,
    space: dict[Symbol, int],
    order: list[Symbol],
    op: KernelOp,
    result: list[KernelOp],
) -> Access:
    source = access.buffer
    copy = Buffer(f"r{len(result)}_{source.name}", source.dtype, [], [], local=True)
    placed: dict[Buffer, list[Symbol]] = {}
    _place(copy, space, order, placed)
    strides = {s: access.index.strides.get(s, 0) for s in space}
    read = Access(source, LinearIndex(access.index.offset, strides))
    write = _relocated(Access(copy, access.index), space, placed)
    result.append(KernelOp(RESTICKIFY, space, [read], write, origin=op.origin))
    return _relocated(Access(copy, access.index), op.space, placed)


def _matmul_operands(op: KernelOp, result: list[KernelOp]) -> None:
    """x with its sticks along K, y and the result along N; loops in the order M, N, K."""
    (k,) = op.reduced
    n = stick_symbol(op.output, op.space)
    x, y = op.inputs
    if n is not None and n not in _symbols(y):
        x, y = y, x
    if n is None or n not in _symbols(y) or n in _symbols(x):
        raise Unsupported("no side of the product has the sticks of the result", op=op)
    rows = [s for s in op.space if s in _symbols(x) and s not in _symbols(y)]
    batches = [s for s in op.space if s in _symbols(x) and s in _symbols(y) and s != k]
    others = [s for s in op.space if s not in {*rows, *batches, n, k}]
    if others:
        raise Unsupported("a product with a loop that no factor has", op=op)
    if stick_symbol(x, op.space) != k or _begins_inside(x, op.space):
        own = [s for s in op.space if s in _symbols(x) and s != k]
        x = _copied(x, {s: op.space[s] for s in [*own, k]}, [*own, k], op, result)
    if stick_symbol(y, op.space) not in (n, k) or _begins_inside(y, op.space):
        own = [s for s in op.space if s in _symbols(y) and s != n]
        y = _copied(y, {s: op.space[s] for s in [*own, n]}, [*own, n], op, result)
    op.inputs = [x, y]
    space = {s: op.space[s] for s in [*batches, *rows, n, k]}
    if not rows:
        space = (
            {s: op.space[s] for s in batches} | {Symbol("m1"): 1} | {s: op.space[s] for s in (n, k)}
        )
    op.space = space


def _begins_inside(access: Access, space: dict[Symbol, int]) -> bool:
    """Whether a view begins inside a stick, which a matrix must not."""
    assert access.buffer.layout is not None
    coordinates, _ = device_coordinates(access.buffer.layout, access.index, space)
    return coordinates[-1].as_coeff_Add()[0] != 0


def _symbols(access: Access) -> set[Symbol]:
    return {symbol for symbol, stride in access.index.strides.items() if stride}


# ---------------------------------------------------------------------------------- work and memory


def divide_work(op: KernelOp) -> dict[Symbol, int]:
    """Over how many cores each loop of an op is split: the largest loops of the output first."""
    cores = config.sencores
    sticks: dict[Symbol, int] = {}  # a core has whole sticks of every tensor
    for access in [*op.inputs, op.output]:
        stick = stick_symbol(access, op.space)
        if stick is not None:
            elems = access.buffer.format.elems_per_stick()
            sticks[stick] = max(elems, sticks.get(stick, 1))
    units = {}
    for symbol, size in op.space.items():
        if symbol not in op.reduced:
            elems = sticks.get(symbol, 1)
            units[symbol] = size // elems if size % elems == 0 else 1
    splits = dict.fromkeys(op.space, 1)
    for symbol in sorted(units, key=lambda s: -units[s]):
        best = max(d for d in range(1, cores + 1) if units[symbol] % d == 0)
        splits[symbol] = best
        cores //= best
    return splits


def plan_pool(ops: list[KernelOp]) -> tuple[dict[Buffer, int], int]:
    """Places of the locals in the pool of intermediates: first fit by lifetime."""
    born: dict[Buffer, int] = {}
    dies: dict[Buffer, int] = {}
    for time, op in enumerate(ops):
        for access in [*op.inputs, op.output]:
            if access.buffer.local:
                born.setdefault(access.buffer, time)
                dies[access.buffer] = time
    places: dict[Buffer, int] = {}
    peak = 0
    for buffer, start in born.items():
        size = device_bytes(buffer)
        taken = sorted(
            (places[other], places[other] + device_bytes(other))
            for other in places
            if born[other] <= dies[buffer] and dies[other] >= start
        )
        place = 0
        for begin, end in taken:
            if place + size <= begin:
                break
            place = max(place, end)
        places[buffer] = place
        peak = max(peak, place + size)
    if peak > SEGMENT_BYTES:
        raise Unsupported(
            f"the intermediates of the kernel need {peak} bytes, more than a segment",
            hint="compile smaller parts of the model, or smaller tensors",
        )
    return places, peak


def device_bytes(buffer: Buffer) -> int:
    assert buffer.layout is not None
    return STICK_BYTES * math.prod(buffer.layout.device_size[:-1])


def _arguments(ops: list[KernelOp]) -> list[Buffer]:
    seen: dict[Buffer, None] = {}
    for op in ops:
        for access in [*op.inputs, op.output]:
            if not access.buffer.local:
                seen.setdefault(access.buffer)
    return sorted(seen, key=lambda buffer: buffer.constant is not None)


# ------------------------------------------------------------------------------------------- specs


def _spec(
    op: KernelOp,
    splits: dict[Symbol, int],
    numbers: dict[Buffer, int],
    pool: dict[Buffer, int],
    shift: int,
) -> OpSpec:
    space: dict[Symbol, tuple[Expr, int]] = {
        s: (sympy.Integer(size), splits.get(s, 1)) for s, size in op.space.items()
    }
    args = []
    units: list[Symbol] = []
    reference = op.inputs[0] if op.reduced and op.op != MATMUL else op.output
    stick = stick_symbol(reference, op.space)
    for access in [*op.inputs, op.output]:
        buffer = access.buffer
        assert buffer.layout is not None
        coordinates, _ = device_coordinates(buffer.layout, access.index, op.space)
        outer = set().union(*(c.free_symbols for c in coordinates[:-1]))
        if not coordinates[-1].free_symbols and stick in outer:
            # The op's stick dimension counts rows here: the sticks get a dimension of their own.
            unit = Symbol(f"u{len(units)}")
            units.append(unit)
            coordinates[-1] += unit
        number = numbers.get(buffer, -1)
        where = (
            {"pool": pool[buffer]} if buffer.local else {"hbm": (number + shift) * SEGMENT_BYTES}
        )
        args.append(
            TensorArg(
                access is not op.output,
                number,
                buffer.format,
                list(buffer.layout.device_size),
                coordinates,
                where,
                list(buffer.layout.stride_map),
            )
        )
    # Dimensions of one index go first: the last labels have a meaning.
    space = {unit: (sympy.Integer(1), 1) for unit in units} | space
    info: dict[str, object] = {}
    if op.constants:
        info["constants"] = op.constants
    if op.exact:
        info["compute"] = "int64"
    if str(op.output.buffer.dtype) == "torch.bool":
        info["narrow"] = "bool"
    return OpSpec(op.op, bool(op.reduced), space, args, info)
