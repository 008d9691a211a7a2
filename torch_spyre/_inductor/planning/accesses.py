"""Questions about one access of an op that several passes ask, and a copy of what it reads."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from torch_spyre._inductor.constants import BATCH_MATMUL_OP, IDENTITY_OP, RESTICKIFY_OP
from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp
from torch_spyre._inductor.views import device_coordinates
from torch_spyre.partition.dims import STICK_BYTES

MATMUL = BATCH_MATMUL_OP
RESTICKIFY = RESTICKIFY_OP

# What a reduction over no elements gives.
NEUTRAL = {"sum": 0.0, MATMUL: 0.0, "any": 0.0, "prod": 1.0, "max": -torch.inf, "min": torch.inf}

# What finds a place, and what finds the value there.
PLACES = {"argmax": "max", "argmin": "min"}


def neutral_element(op: str, dtype: torch.dtype) -> float:
    """What a reduction over no elements gives, as a number of the dtype."""
    value = NEUTRAL[op]
    if dtype.is_floating_point or math.isfinite(value):
        return value
    if dtype == torch.bool:
        return float(value > 0)
    return float(torch.iinfo(dtype).min if value < 0 else torch.iinfo(dtype).max)


def stick_symbol(access: Access, space: dict[str, int]) -> str | None:
    """The loop that moves along the sticks of a buffer; None if none does."""
    assert access.buffer.layout is not None
    coordinates = device_coordinates(access.buffer.layout, access.index, space)
    if coordinates is not None:
        loops = coordinates[-1].loops
    else:  # such as every third element
        above = min((t for t in access.buffer.layout.stride_map[:-1] if t > 0), default=0)
        steps = {s: step for s, step in access.index.strides.items() if step and space[s] > 1}
        loops = [s for s, step in steps.items() if not above or step % above]
    return loops[0] if len(loops) == 1 else None


def begins_inside(access: Access, space: dict[str, int]) -> bool:
    """Whether a view begins inside a stick, which a matrix must not."""
    assert access.buffer.layout is not None
    coordinates = device_coordinates(access.buffer.layout, access.index, space)
    return coordinates is None or coordinates[-1].offset != 0


def symbols_of(access: Access) -> set[str]:
    """The loops that move an access."""
    return {symbol for symbol, stride in access.index.strides.items() if stride}


def copies_integers(buffer: Buffer) -> bool:
    """Whether a copy must not go through float32, which has 24 bits."""
    return not buffer.dtype.is_floating_point and buffer.dtype != torch.bool


def device_bytes(buffer: Buffer) -> int:
    assert buffer.layout is not None
    return STICK_BYTES * math.prod(buffer.layout.device_size[:-1])


def walks_dimensions(access: Access) -> bool:
    """Whether each loop walks one dimension of the buffer, element by element."""
    strides = [stride for stride in access.index.strides.values() if stride]
    return len({*strides}) == len(strides) and {*strides} <= {*access.buffer.stride}


def copy_for(op: KernelOp, position: int, target: Buffer) -> KernelOp:
    """An ``identity`` by which each core gets what an op reads there, split as the op is.

    Cores that read the same make the same copy.
    """
    source = op.inputs[position]
    moving = symbols_of(source)
    alike = {s: n for s, n in op.splits.items() if n > 1 and s not in moving}
    space = {s: alike.get(s, n) for s, n in op.space.items() if s in moving or s in alike}
    return replace(
        op,
        op=IDENTITY_OP,
        space=space,
        inputs=[source],
        output=Access(target, source.index),
        constants={},
        exact=copies_integers(source.buffer),
        splits={s: n for s, n in op.splits.items() if s in space},
        alike=frozenset(alike),
    )
