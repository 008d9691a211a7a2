"""From kernel ops to OpSpecs: loops, layouts, copies, core splits, memory.

Passes are functions from ops to ops, one a file, in the order of :data:`PASSES`. They work on
:mod:`~torch_spyre._inductor.kernel_ir` with numbers for sizes, and know nothing of Inductor.
"""

from __future__ import annotations

from collections.abc import Callable

from torch_spyre._inductor.kernel_ir import KernelOp
from torch_spyre._inductor.observe import observed
from torch_spyre._inductor.planning.cut_loops import cut_loops
from torch_spyre._inductor.planning.dead_ops import drop_dead_ops
from torch_spyre._inductor.planning.elide_copies import elide_copies
from torch_spyre._inductor.planning.fold_casts import fold_casts
from torch_spyre._inductor.planning.hinted import tile_as_hinted
from torch_spyre._inductor.planning.kernel import Kernel, MustSplit
from torch_spyre._inductor.planning.products import write_out_products
from torch_spyre._inductor.planning.realign import realign
from torch_spyre._inductor.planning.restickify import insert_restickifies
from torch_spyre._inductor.planning.sticks import choose_layouts
from torch_spyre._inductor.planning.together import plan_kernels

__all__ = ["PASSES", "Kernel", "MustSplit", "plan_kernel", "plan_kernels", "settle"]

Pass = Callable[[list[KernelOp]], list[KernelOp]]

PASSES: list[Pass] = [
    write_out_products,
    fold_casts,
    cut_loops,
    elide_copies,
    drop_dead_ops,
    choose_layouts,
    realign,
    insert_restickifies,
    tile_as_hinted,
]


def plan_kernel(ops: list[KernelOp]) -> Kernel:
    """A kernel that computes the ops. Raises :class:`Unsupported` or :class:`MustSplit`."""
    return plan_kernels([settle(ops)])[0]


def settle(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops of a kernel with final layouts. Raises as :func:`plan_kernel` does."""
    for run in PASSES:
        ops = observed(run, ops)
    return ops
