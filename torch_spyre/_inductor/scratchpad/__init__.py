"""What stays in the scratchpad of a core (LX), and where. Pure algorithms: see README.md."""

from __future__ import annotations

from torch_spyre._inductor import config
from torch_spyre._inductor.scratchpad.exact_solver import ExactLayoutSolver
from torch_spyre._inductor.scratchpad.firstfit_bestfit_solver import (
    BestFitLayoutSolver,
    FirstFitLayoutSolver,
)
from torch_spyre._inductor.scratchpad.lowest_peak import lowest_peak
from torch_spyre._inductor.scratchpad.plan_solver import (
    GreedyLayoutSolver,
    LifetimeBoundBuffer,
    MemoryPlanSolver,
)
from torch_spyre._inductor.scratchpad.value_solver import ValueLayoutSolver
from torch_spyre.machine import load as load_machine

__all__ = [
    "SOLVERS",
    "LifetimeBoundBuffer",
    "MemoryPlanSolver",
    "lowest_peak",
    "lx_limit",
    "solver",
]

SOLVERS: dict[str, type[MemoryPlanSolver]] = {
    "default": ValueLayoutSolver,
    "greedy": GreedyLayoutSolver,
    "firstfit": FirstFitLayoutSolver,
    "bestfit": BestFitLayoutSolver,
    "exact": ExactLayoutSolver,
}


def lx_limit() -> int:
    """Bytes of a core's scratchpad that the planner may fill."""
    return int(load_machine().value("memory.lx_bytes_per_core") * (1 - config.dxp_lx_frac_avail))


def solver(size: int | None = None) -> MemoryPlanSolver:
    """The solver that ``config.layout_solver`` names, for so many bytes (:func:`lx_limit`)."""
    if config.layout_solver not in SOLVERS:
        choices = ", ".join(SOLVERS)
        raise ValueError(f"invalid layout_solver {config.layout_solver!r}: one of {choices}")
    return SOLVERS[config.layout_solver](lx_limit() if size is None else size)
