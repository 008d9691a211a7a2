"""The passes of planning, in the order in which they run: functions from ops to ops.

Each says in its docstring what it needs and what it gives. What comes after layouts are settled may
run several times over copies of the ops, for plans that are compared (``variants.py``), and over
the ops of several kernels together (``together.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch_spyre._inductor.kernel_ir import KernelOp
from torch_spyre._inductor.observe import observed
from torch_spyre._inductor.planning.agree import cut_alike
from torch_spyre._inductor.planning.chunk import chunk_large_tensors
from torch_spyre._inductor.planning.clones import clone_inputs, drop_clones, share_reads
from torch_spyre._inductor.planning.cut_loops import cut_loops
from torch_spyre._inductor.planning.dead_ops import drop_dead_ops
from torch_spyre._inductor.planning.divide_work import divide_work
from torch_spyre._inductor.planning.elide_copies import elide_copies
from torch_spyre._inductor.planning.fold_casts import fold_casts
from torch_spyre._inductor.planning.hinted import tile_as_hinted
from torch_spyre._inductor.planning.lx import place_in_lx
from torch_spyre._inductor.planning.order import products_first
from torch_spyre._inductor.planning.pool import place_in_pool
from torch_spyre._inductor.planning.products import write_out_products
from torch_spyre._inductor.planning.realign import realign
from torch_spyre._inductor.planning.restickify import insert_restickifies
from torch_spyre._inductor.planning.ring_moves import exchange_parts
from torch_spyre._inductor.planning.sticks import choose_layouts

Pass = Callable[[list[KernelOp]], list[KernelOp]]

# Which ops there are, and how their tensors lie.
SETTLE: list[Pass] = [
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
# What lets ops agree on the parts that cores have. Afterwards there may be loops over tiles.
AGREE: list[Pass] = [cut_alike, clone_inputs]
# The ops as they run.
ARRANGE: list[Pass] = [products_first, chunk_large_tensors]
# Over which cores loops are split; what is in LX, and how it gets there.
PLACE: list[Pass] = [divide_work, place_in_lx, share_reads, drop_clones, exchange_parts]
# Of the plan that is taken, kernel by kernel.
FINISH: list[Pass] = [place_in_pool]

PASSES = [*SETTLE, *AGREE, *ARRANGE, *PLACE, *FINISH]


def through(passes: Sequence[Pass], ops: list[KernelOp]) -> list[KernelOp]:
    for run in passes:
        ops = observed(run, ops)
    return ops
