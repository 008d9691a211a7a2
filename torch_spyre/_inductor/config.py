"""Knobs of the compiler. ``torch_spyre._inductor.config.patch({...})`` changes them for a while.

Each is read from the environment once, by ``settings.py``: Inductor hashes this module into its
cache keys.
"""

import sys
from typing import TYPE_CHECKING

from torch.utils._config_module import install_config_module

from torch_spyre._inductor import settings

# Cores that a kernel may use.
sencores: int = settings.environment_number("SENCORES", 32)
# Cores that share a tile of a matrix product are neighbours.
core_id_k_fast_emission: bool = settings.environment_flag("SPYRE_CORE_ID_K_FAST_EMISSION", True)
# Addresses as arguments of the kernel: one binary serves tensors anywhere.
bundle_symbolic_args: bool = settings.environment_flag("BUNDLE_SYMBOLIC_ARGS", True)
unroll_loops: bool = settings.environment_flag("UNROLL_LOOPS", False)
# Of a dimension that is dynamic: see granularity.py.
max_buckets: int = settings.environment_number("MAX_BUCKETS", 32)
min_default_granularity: int = settings.environment_number("MIN_DEFAULT_GRANULARITY", 4)
# Sticks of all intermediates of a kernel are chosen together; else one op after the other.
global_stick_optimizer: bool = settings.environment_flag("GLOBAL_STICK_OPTIMIZER", True)
# Memory of intermediates is used again when they are not needed any more.
hbm_planning: bool = settings.environment_flag("SPYRE_INDUCTOR_MEMORY_PLAN", True)
# Intermediates live in the scratchpads (LX) of the cores where they can,
lx_planning: bool = settings.environment_flag("LX_PLANNING", True)
# also those of other ops than max, sum, exp, sub, mul, mean, add and rsqrt; loops are split so that
allow_all_ops_in_lx_planning: bool = True
# ops agree on which core has which part, instead of each op as it is fastest by itself. There they
co_optimizing_lx_planning: bool = settings.environment_flag("CO_OPTIMIZING_LX_PLANNING", True)
# take the place of what an op reads for the last time,
lx_in_place: bool = settings.environment_flag("LX_IN_PLACE", True)
# and inputs that are read several times are copied there first, if the cost model says it pays.
lx_boundary_clones: bool = settings.environment_flag("LX_BOUNDARY_CLONES", True)
# What cores have other parts of than the next op wants goes from scratchpad to scratchpad.
lx_ring_moves: bool = settings.environment_flag("LX_RING_MOVES", True)
# What a kernel hands to the next stays there, too, where it survives: not on a VF, a shared card.
lx_across_kernels: bool = settings.environment_flag("LX_ACROSS_KERNELS", True)
# Ops whose intermediates do not fit there run in loops over tiles, if the cost model says it pays.
auto_tiling: bool = settings.environment_flag("SPYRE_INDUCTOR_AUTO_TILING", True)
# The part of a core's scratchpad (LX) that the planner leaves to the back end.
dxp_lx_frac_avail: float = settings.environment_fraction("DXP_LX_FRAC_AVAIL", 0.2)
# Who says what stays in the scratchpad, and where: see scratchpad/README.md.
layout_solver: str = "default"
# Ops on tensors that cores do not reach, however they are split, run in several parts.
chunk_large_tensors: bool = settings.environment_flag("CHUNK_LARGE_TENSORS", False)
# What spyre_hint says does not count.
ignore_work_division_hints: bool = settings.environment_flag("SPYRE_INDUCTOR_IGNORE_HINTS", False)
# Consecutive loops become one kernel; else each is one.
fusion: bool = settings.environment_flag("SPYRE_INDUCTOR_ENABLE_FUSION", True)
# A graph that cannot be compiled: "warn" and run it op by op, or "error".
compile_fallback: str = settings.environment_choice(
    "TORCH_SPYRE_COMPILE_FALLBACK", "warn", ("error",)
)

if TYPE_CHECKING:
    from torch.utils._config_typing import *  # noqa: F403

install_config_module(sys.modules[__name__])
