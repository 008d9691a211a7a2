"""Leaves out copies that rearrange or repeat numbers, where readers or the writer do not need them.

A reader can read the source of the copy. Or the op that makes the source can write its result where
the copy would be.
"""

from __future__ import annotations

from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp
from torch_spyre._inductor.planning.accesses import MATMUL, stick_symbol, symbols_of
from torch_spyre._inductor.planning.realign import expressible
from torch_spyre._inductor.views import LinearIndex

COPY = "identity"


def elide_copies(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops without these copies, as far as the sticks of every access stay what they were.

    Needs loops that are cut. Copies that no op reads any more are left for ``drop_dead_ops``.
    """
    return _written_in_place(_read_in_place(ops))


def _is_copy(op: KernelOp) -> bool:
    return op.op == COPY and op.inputs[0].buffer.dtype == op.output.buffer.dtype


# ------------------------------------------------------------------------------------------ readers


def _read_in_place(ops: list[KernelOp]) -> list[KernelOp]:
    copies: dict[Buffer, KernelOp] = {}  # by what they write, until that or the source changes
    for op in ops:
        for i, access in enumerate(op.inputs):
            copy = copies.get(access.buffer)
            moved = _through(copy, access, op.space) if copy else None
            if moved is None or moved.buffer is op.output.buffer:  # read before it is written
                continue
            if _still_a_product(op, i, moved):
                op.inputs[i] = moved
        written = op.output.buffer
        copies = {b: c for b, c in copies.items() if written not in (b, c.inputs[0].buffer)}
        if _is_copy(op) and written.local and op.inputs[0].buffer is not written:
            copies[written] = op
    return ops


def _through(copy: KernelOp, access: Access, space: dict[str, int]) -> Access | None:
    """The access to the source of a copy, if each of its loops is a loop of the copy."""
    source, target = copy.inputs[0], copy.output
    if access.index.offset != target.index.offset:
        return None
    strides = _translated(
        {s: (step, space[s]) for s, step in access.index.strides.items() if step},
        copy,
        target.index,
        source.index,
    )
    if strides is None:
        return None
    moved = Access(source.buffer, LinearIndex(source.index.offset, strides))
    return moved if _same_stick(moved, access, space) else None


def _still_a_product(op: KernelOp, position: int, moved: Access) -> bool:
    """Whether one of the factors of a product still has each loop."""
    if op.op != MATMUL:
        return True
    other = op.inputs[1 - position]
    return set(op.space) <= symbols_of(other) | symbols_of(moved)


# ------------------------------------------------------------------------------------------ writers


def _written_in_place(ops: list[KernelOp]) -> list[KernelOp]:
    touches: dict[Buffer, list[int]] = {}
    for time, op in enumerate(ops):
        for access in (*op.inputs, op.output):
            touches.setdefault(access.buffer, []).append(time)
    gone = set()
    for time, op in enumerate(ops):
        source = op.inputs[0].buffer
        if not _is_copy(op) or not source.local or len(touches[source]) != 2:
            continue
        written, _ = touches[source]
        between = [t for t in touches[op.output.buffer] if written <= t < time]
        maker = ops[written]
        if between or written in gone or maker.output.buffer is not source:
            continue
        output = _to_target(op, maker)
        if output is not None:
            maker.output = output
            touches[op.output.buffer] = sorted([*touches[op.output.buffer], written])
            gone.add(time)
    return [op for time, op in enumerate(ops) if time not in gone]


def _to_target(copy: KernelOp, maker: KernelOp) -> Access | None:
    """The output of an op that a copy reads, moved to where the copy writes. None if that is not
    possible, or if the op does not write all that the copy reads."""
    source, target = copy.inputs[0], copy.output
    made = maker.output
    if made.index.offset != source.index.offset:
        return None
    strides = _translated(
        {s: (step, maker.space[s]) for s, step in made.index.strides.items() if step},
        copy,
        source.index,
        target.index,
        all_of_it=True,
    )
    if strides is None or 0 in strides.values():
        return None
    output = Access(target.buffer, LinearIndex(target.index.offset, strides))
    return output if _same_stick(output, made, maker.space) else None


def _translated(
    loops: dict[str, tuple[int, int]],
    copy: KernelOp,
    old: LinearIndex,
    new: LinearIndex,
    all_of_it: bool = False,
) -> dict[str, int] | None:
    """The strides on the other side of a copy of loops, which are given as (stride, extent).

    None unless each is a loop of the copy, or a part of one.
    """
    strides: dict[str, int] = {}
    done = dict.fromkeys(copy.space, 1)  # iterations of the copy's loops that inner loops cover
    for symbol, (step, extent) in sorted(loops.items(), key=lambda item: item[1]):
        for loop, size in copy.space.items():
            if old.strides.get(loop, 0) * done[loop] == step and done[loop] * extent <= size:
                strides[symbol] = new.strides.get(loop, 0) * done[loop]
                done[loop] *= extent
                break
        else:
            return None
    return None if all_of_it and done != copy.space else strides


def _same_stick(moved: Access, before: Access, space: dict[str, int]) -> bool:
    if moved.buffer.layout is not None and not expressible(moved, space):
        return False
    return bool(_usual_stick(moved, space) == _usual_stick(before, space))


def _usual_stick(access: Access, space: dict[str, int]) -> str | None:
    if access.buffer.layout is not None:
        return stick_symbol(access, space)
    return next((s for s, step in access.index.strides.items() if step == 1), None)
