"""Copies inside of a kernel, where tensors of one op have their sticks along different loops."""

from __future__ import annotations

import logging

from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp, Ramp, contiguous_strides
from torch_spyre._inductor.planning.accesses import (
    MATMUL,
    RESTICKIFY,
    begins_inside,
    device_bytes,
    stick_symbol,
    symbols_of,
)
from torch_spyre._inductor.planning.sticks import agrees
from torch_spyre._inductor.views import LinearIndex

log = logging.getLogger("spyre.inductor.stickify")


def insert_restickifies(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops, with copies of inputs whose sticks run along another loop than the op's.

    Needs a layout for every buffer. Matrix products get x along K, y along K or N, and their loops
    in the order of batches, M, N, K.
    """
    result: list[KernelOp] = []
    for op in ops:
        if op.op == MATMUL:
            _matmul_operands(op, result)
        elif not op.reduced:
            stick = stick_symbol(op.output, op.space)
            if stick is not None:
                op.inputs = [_with_stick(access, stick, op, result) for access in op.inputs]
        result.append(op)
    return result


def _with_stick(access: Access, stick: str, op: KernelOp, result: list[KernelOp]) -> Access:
    """The access itself if its sticks suit the op; else one to a copy."""
    if agrees(stick_symbol(access, op.space), stick, access):
        return access
    if isinstance(access.buffer.constant, Ramp):
        return _turned(access, access.buffer.constant, stick, op)
    return copied(access, stick if stick in symbols_of(access) else None, op, result)


def _turned(access: Access, ramp: Ramp, stick: str, op: KernelOp) -> Access:
    """Numbers that loops count, made with their sticks where they are wanted.

    Without a loop along the stick they get a last dimension of one, which has the sticks.
    """
    own = [symbol for symbol in op.space if symbol in symbols_of(access) and symbol != stick]
    steps = dict(zip(access.buffer.stride, ramp.stride, strict=True))
    loops = [*own, stick] if stick in symbols_of(access) else own
    size = [op.space[symbol] for symbol in loops]
    counted = [steps[access.index.strides[symbol]] for symbol in loops]
    if stick not in loops:
        size, counted = [*size, 1], [*counted, 0]
    turned = Ramp(tuple(size), tuple(counted), ramp.offset)
    stride = contiguous_strides(size)
    made = Buffer(f"{access.buffer.name}_{stick}", access.buffer.dtype, size, stride)
    made.layout = SpyreTensorLayout(size, made.dtype)
    made.constant = turned
    return Access(made, LinearIndex(0, dict(zip(loops, stride, strict=False))))


def copied(access: Access, stick: str | None, op: KernelOp, result: list[KernelOp]) -> Access:
    """An access to a copy with its sticks along a loop, or with a stick for every element."""
    source = access.buffer
    space = {symbol: op.space[symbol] for symbol in op.space if symbol in symbols_of(access)}
    size = list(space.values())
    copy = Buffer(f"r{len(result)}_{source.name}", source.dtype, size, [], local=True)
    copy.stride = contiguous_strides(size)
    dim = list(space).index(stick) if stick is not None else -1
    order = [other for other in range(len(size)) if other != dim]
    copy.layout = SpyreTensorLayout(size, copy.stride, copy.dtype, [*order, dim])
    index = LinearIndex(0, dict(zip(space, copy.stride, strict=True)))
    read = LinearIndex(access.index.offset, {s: access.index.strides[s] for s in space})
    made = KernelOp(RESTICKIFY, space, [Access(source, read)], Access(copy, index))
    made.origin, made.hints, made.dims = op.origin, op.hints, op.dims
    result.append(made)
    log.info(
        "%s of %s%s: %d bytes restickified for %s",
        source.name,
        source.size,
        "" if source.local else ", in every call",
        device_bytes(copy),
        op.op,
    )
    return Access(copy, index)


def _matmul_operands(op: KernelOp, result: list[KernelOp]) -> None:
    (k,) = op.reduced
    n = stick_symbol(op.output, op.space)
    x, y = op.inputs
    if n is not None and n not in symbols_of(y):
        x, y = y, x
    if n is None or n not in symbols_of(y) or n in symbols_of(x):
        raise Unsupported("no side of the product has the sticks of the result", op=op)
    rows = [s for s in op.space if s in symbols_of(x) and s not in symbols_of(y)]
    # What only y has besides N is a batch that shares x.
    batches = [s for s in op.space if s in symbols_of(y) and s not in (n, k)]
    others = [s for s in op.space if s not in {*rows, *batches, n, k}]
    if others:
        raise Unsupported("a product with a loop that no factor has", op=op)
    if stick_symbol(x, op.space) != k or begins_inside(x, op.space):
        x = copied(x, k, op, result)
    if stick_symbol(y, op.space) not in (n, k) or begins_inside(y, op.space):
        y = copied(y, n, op, result)
    op.inputs = [x, y]
    if not rows:
        rows = ["m1"]
    op.space = {s: op.space.get(s, 1) for s in [*batches, *rows, n, k]}
