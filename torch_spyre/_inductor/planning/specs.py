"""From planned ops to OpSpecs."""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby

from torch_spyre._inductor.constants import IDENTITY_OP
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp, Loop
from torch_spyre._inductor.op_spec import KernelEntry, LoopSpec, OpSpec, TensorArg
from torch_spyre._inductor.planning.accesses import MATMUL, device_bytes, stick_symbol
from torch_spyre._inductor.planning.kernel import Kernel
from torch_spyre._inductor.planning.residents import residents
from torch_spyre._inductor.views import Coordinate, Term, device_coordinates
from torch_spyre.backend.program import Handover
from torch_spyre.machine import load as load_machine

SEGMENT_BYTES = int(load_machine().value("memory.segment_bytes"))


def kernel_of(
    ops: list[KernelOp],
    found: Collection[Buffer] = (),
    left: Collection[Buffer] = (),
) -> Kernel:
    """The kernel that runs the ops. Needs splits and homes.

    What is ``found`` in LX is there when it begins, what is ``left`` stays when it ends.
    """
    touched = {a.buffer for op in ops for a in (*op.inputs, op.output)}
    pool = {buffer: buffer.pool for buffer in touched if buffer.pool is not None}
    pool_bytes = max((place + device_bytes(buffer) for buffer, place in pool.items()), default=0)
    args = _arguments(ops)
    numbers = {buffer: i for i, buffer in enumerate(args)}
    shift = 1 if pool_bytes else 0  # the pool takes the first segment
    places = {buffer: {"hbm": (i + shift) * SEGMENT_BYTES} for buffer, i in numbers.items()}
    places |= {buffer: {"pool": offset} for buffer, offset in pool.items()}
    places |= {buffer: {"lx": buffer.lx.begin} for buffer in touched if buffer.lx is not None}
    specs = [(op.loops, _spec(op, numbers, places)) for op in ops]
    handover = Handover([b.lx for b in found if b.lx], [b.lx for b in left if b.lx])
    seen = residents(ops, found, left)
    return Kernel(_nested(specs, 0), args, pool_bytes, seen, handover)


def _nested(specs: list[tuple[tuple[Loop, ...], OpSpec]], depth: int) -> list[KernelEntry]:
    """The specs in their loops; ``depth`` of these are around already."""
    entries: list[KernelEntry] = []
    for loop, group in groupby(specs, lambda entry: entry[0][depth : depth + 1]):
        body = list(group)
        if not loop:
            entries += [spec for _, spec in body]
        else:
            body_entries = _nested(body, depth + 1)
            entries.append(LoopSpec(loop[0].count, body_entries, [loop[0].symbol]))
    return entries


def _name_single_tiles(coordinates: list[Coordinate], access: Access, op: KernelOp) -> None:
    """Loops with tiles of one index move nothing in what holds a tile, but the op has them there:
    a batch of a product is one of all its tensors."""
    buffer = access.buffer
    assert buffer.layout is not None
    for symbol in (loop.symbol for loop in op.loops if loop in buffer.tile_of):
        step = access.index.strides.get(symbol, 0)
        if not step or op.space[symbol] > 1:
            continue
        fitting = [
            (stride, dim)
            for dim, stride in enumerate(buffer.layout.stride_map[:-1])
            if stride > 0 and step % stride == 0
        ]
        if fitting:
            stride, dim = max(fitting)
            coordinates[dim] = coordinates[dim].plus(Term(symbol, step // stride))


def _moving(op: KernelOp, buffer: Buffer) -> list[str]:
    """Loops that do not find a tile of theirs in a buffer, but all of them."""
    return [loop.symbol for loop in op.loops if loop not in buffer.tile_of]


def _arguments(ops: list[KernelOp]) -> list[Buffer]:
    seen: dict[Buffer, None] = {}
    for op in ops:
        for access in [*op.inputs, op.output]:
            if not access.buffer.local:
                seen.setdefault(access.buffer)
    return sorted(seen, key=lambda buffer: buffer.constant is not None)


def _spec(op: KernelOp, numbers: dict[Buffer, int], places: dict[Buffer, dict[str, int]]) -> OpSpec:
    space = {s: (size, op.splits.get(s, 1)) for s, size in op.space.items()}
    args = []
    units: list[str] = []
    reference = op.inputs[0] if op.reduced and op.op != MATMUL else op.output
    stick = stick_symbol(reference, op.space)
    for access in [*op.inputs, op.output]:
        buffer = access.buffer
        assert buffer.layout is not None
        found = device_coordinates(buffer.layout, access.index, op.reach(buffer))
        if found is None:
            raise Unsupported(f"{op}: loops over tiles of {buffer} carry between its dimensions")
        coordinates = [*found]
        _name_single_tiles(coordinates, access, op)
        if not coordinates[-1].loops and any(stick in c.loops for c in coordinates[:-1]):
            # The op's stick dimension counts rows here: the sticks get a dimension of their own.
            units.append(f"u{len(units)}")
            coordinates[-1] = coordinates[-1].plus(Term(units[-1]))
        held = [loop.symbol for loop in op.loops if loop in buffer.tile_of]
        moving = any(access.index.strides.get(s) for s in _moving(op, buffer))
        args.append(
            TensorArg(
                access is not op.output,
                numbers.get(buffer, -1),
                buffer.format,
                list(buffer.layout.device_size),
                coordinates,
                dict(places[buffer]),
                list(buffer.layout.stride_map),
                per_tile_fixed=bool(held) and not moving,
                tile_symbols=held if moving else [],
                held=op.held if access is not op.output else {},
            )
        )
    # Dimensions of one index go first: the last labels have a meaning.
    space = dict.fromkeys(units, (1, 1)) | space
    info: dict[str, object] = {}
    if op.constants:
        info["constants"] = op.constants
    if op.exact:
        info["compute"] = "int64"
    if narrow := _narrowed(op):
        info["narrow"] = narrow
    return OpSpec(op.op, bool(op.reduced), space, args, info, source=op.origin)


def _narrowed(op: KernelOp) -> str | None:
    """The dtype of the result, if its format also holds numbers that the dtype has not."""
    dtype = str(op.output.buffer.dtype).removeprefix("torch.")
    copied = op.op == IDENTITY_OP and op.inputs[0].buffer.dtype == op.output.buffer.dtype
    return dtype if dtype == "bool" or (dtype == "uint8" and not copied) else None
