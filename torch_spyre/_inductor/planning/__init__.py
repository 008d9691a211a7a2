"""From kernel ops to OpSpecs: loops, layouts, copies, core splits, memory.

Passes are functions from ops to ops, one a file. :data:`PASSES` is the list of all, in the order in
which they run (``passes.py``). They work on :mod:`~torch_spyre._inductor.kernel_ir` with numbers
for sizes, and know nothing of Inductor.
"""

from __future__ import annotations

from torch_spyre._inductor.kernel_ir import KernelOp
from torch_spyre._inductor.planning.kernel import Kernel, MustSplit
from torch_spyre._inductor.planning.passes import PASSES, SETTLE, through
from torch_spyre._inductor.planning.together import plan_kernels

__all__ = ["PASSES", "SETTLE", "Kernel", "MustSplit", "plan_kernel", "plan_kernels", "settle"]


def plan_kernel(ops: list[KernelOp]) -> Kernel:
    """A kernel that computes the ops. Raises :class:`Unsupported` or :class:`MustSplit`."""
    return plan_kernels([settle(ops)])[0]


def settle(ops: list[KernelOp]) -> list[KernelOp]:
    """The ops of a kernel with final layouts. Raises as :func:`plan_kernel` does."""
    return through(SETTLE, ops)
