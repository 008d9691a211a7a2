"""An order in which ops that can be one chain follow one another."""

from __future__ import annotations

from itertools import groupby

from torch_spyre._inductor.kernel_ir import Buffer, KernelOp
from torch_spyre._inductor.planning.accesses import MATMUL

Chain = list[KernelOp]  # ops that are connected: they read what others among them wrote


def products_first(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops, with every matrix product before the chains that it does not need.

    A product is a step of its own. The fewer products stand between two chains, the more of these
    can become one. Ops that touch the same memory keep their order, unless both only read it; and
    ops stay in their loops.
    """
    runs = groupby(ops, lambda op: op.loops)
    return [op for _, run in runs for op in _products_first(list(run))]


def _products_first(ops: list[KernelOp]) -> list[KernelOp]:
    result: list[KernelOp] = []
    waiting: list[KernelOp] = []
    for op in ops:
        if op.op != MATMUL:
            waiting.append(op)
            continue
        chains = _chains(waiting)
        needed = [chain for chain in chains if any(_must_precede(one, op) for one in chain)]
        first = {id(one) for chain in needed for one in chain}
        result += [one for one in waiting if id(one) in first]
        result.append(op)
        waiting = [one for one in waiting if id(one) not in first]
    return result + waiting


def _chains(ops: list[KernelOp]) -> list[Chain]:
    """The ops in groups: ops are in one group if they touch memory that one of them writes."""
    written = {op.output.buffer for op in ops}
    chain_of: dict[Buffer, Chain] = {}
    chains: list[Chain] = []
    for op in ops:
        shared = {a.buffer for a in (*op.inputs, op.output) if a.buffer in written}
        joined: Chain = [op]
        for chain in {id(c): c for c in map(chain_of.get, shared) if c is not None}.values():
            joined = [*chain, *joined]
            chains = [other for other in chains if other is not chain]
        chains.append(joined)
        for one in joined:
            for access in (*one.inputs, one.output):
                if access.buffer in written:
                    chain_of[access.buffer] = joined
    return chains


def _must_precede(earlier: KernelOp, later: KernelOp) -> bool:
    """Whether one of them writes what the other touches."""
    touched = {access.buffer for access in (*later.inputs, later.output)}
    reads = {access.buffer for access in earlier.inputs}
    return earlier.output.buffer in touched or later.output.buffer in reads
