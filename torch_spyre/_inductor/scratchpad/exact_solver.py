"""The yardstick: a plan of the most value, by OR-Tools' CP-SAT.

Time and addresses are the sides of rectangles that may not overlap. If a child takes the address of
its parent, the parent gives up its last moment, except for bytes that the child does not need.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from torch_spyre._inductor.scratchpad.layout import Layout
from torch_spyre._inductor.scratchpad.plan_solver import MemoryPlanSolver
from torch_spyre._inductor.scratchpad.value_solver import ValueLayoutSolver

SEED = 1
VALUE_STEPS = 10**9  # of the largest value: numbers of the model are whole


class ExactLayoutSolver(MemoryPlanSolver):
    """Keeps what is worth most, or the best that it found within its limit of time.

    The limit is in CP-SAT's deterministic seconds: one thread counts its work, so a plan does not
    depend on the machine. After planning, ``bound`` is a value that no plan exceeds.
    """

    def __init__(self, size: int, alignment: int = 128, time_limit: float = 10.0) -> None:
        super().__init__(size, alignment)
        self.time_limit = time_limit
        self.bound = 0.0

    def fill(self, layout: Layout) -> None:
        cp_model = _load_cp_model()
        ValueLayoutSolver(self.limit, self.alignment).fill(layout)  # to begin with
        model = _Model(layout, cp_model.CpModel())
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = SEED
        solver.parameters.max_deterministic_time = self.time_limit
        status = solver.solve(model.model)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            for i in range(layout.count):
                there = i in model.kept and solver.boolean_value(model.kept[i])
                layout.address[i] = solver.value(model.address[i]) if there else None
            self.bound = solver.best_objective_bound / model.scale
        else:
            self.bound = sum(layout.buffers[i].worth for i in model.kept)


def _load_cp_model() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise ImportError(
            "the exact layout solver needs OR-Tools: pip install 'torch-spyre[exact]'"
        ) from error
    return cp_model


class _Model:
    """The plan of a layout as constraints; what the layout holds already is a hint."""

    def __init__(self, layout: Layout, model: Any) -> None:
        self.layout = layout
        self.model = model
        self.kept: dict[int, Any] = {}
        self.address: dict[int, Any] = {}
        self._times: list[Any] = []
        self._places: list[Any] = []
        # By time, what is there: (present, bytes). The constraint is that no two rectangles
        # overlap. It follows that all together fit; to say so helps to find bounds.
        self._loads: dict[int, list[tuple[Any, int]]] = defaultdict(list)
        self._births = sorted({buffer.start_time for buffer in layout.buffers})
        self._add_variables()
        successors = self._add_successors()
        for i in self.kept:
            self._add_buffer(i, successors[i])
        model.add_no_overlap_2d(self._times, self._places)
        for load in self._loads.values():
            model.add(sum(present * size for present, size in load) <= layout.limit)
        self.scale = self._maximise_value()

    def _add_variables(self) -> None:
        layout, model = self.layout, self.model
        for i, buffer in enumerate(layout.buffers):
            place = layout.address[i]
            if i >= layout.count:
                self.kept[i] = model.new_constant(1)
                self.address[i] = place
            elif buffer.worth >= 0 and layout.last_start([i]) >= 0:
                self.kept[i] = model.new_bool_var(f"keep {buffer.name}")
                last = layout.last_start([i]) // layout.alignment
                unit = model.new_int_var(0, last, f"address of {buffer.name}")
                self.address[i] = unit * layout.alignment
                model.add_hint(self.kept[i], place is not None)
                model.add_hint(unit, (place or 0) // layout.alignment)

    def _add_successors(self) -> dict[int, list[tuple[int, Any]]]:
        """For each buffer the children that may take its place, and whether they do."""
        layout, model = self.layout, self.model
        successors: dict[int, list[tuple[int, Any]]] = defaultdict(list)
        for child in self.kept:
            taken = []
            for parent in layout.parents[child]:
                if parent not in self.kept:
                    continue
                takes = model.new_bool_var(f"{child} takes the place of {parent}")
                model.add_implication(takes, self.kept[child])
                model.add_implication(takes, self.kept[parent])
                model.add(self.address[child] == self.address[parent]).only_enforce_if(takes)
                places = layout.address[child], layout.address[parent]
                model.add_hint(takes, places[0] is not None and places[0] == places[1])
                taken.append(takes)
                successors[parent].append((child, takes))
            if layout.buffers[child].start_time == layout.buffers[child].end_time - 1:
                # A buffer of one moment only cannot both take an address and leave it.
                taken += [takes for _, takes in successors[child]]
            model.add_at_most_one(taken)
        return successors

    def _add_buffer(self, i: int, successors: list[tuple[int, Any]]) -> None:
        buffer, size = self.layout.buffers[i], self.layout.size
        if not successors:
            self._add_rectangle(i, buffer.start_time, buffer.end_time, self.kept[i])
            return
        last = buffer.end_time - 1
        if buffer.start_time < last:
            self._add_rectangle(i, buffer.start_time, last, self.kept[i])
        alone = self.model.new_bool_var(f"nobody takes the place of {buffer.name}")
        self.model.add_exactly_one(alone, self.kept[i].negated(), *(t for _, t in successors))
        self._add_rectangle(i, last, last + 1, alone)
        for child, takes in successors:
            if size[child] < size[i]:
                self._add_rectangle(i, last, last + 1, takes, size[child])

    def _add_rectangle(self, i: int, start: int, end: int, present: Any, above: int = 0) -> None:
        """A buffer at some times, from an offset on."""
        model, bytes_ = self.model, self.layout.size[i] - above
        self._times.append(
            model.new_optional_fixed_size_interval_var(start, end - start, present, "")
        )
        self._places.append(
            model.new_optional_fixed_size_interval_var(self.address[i] + above, bytes_, present, "")
        )
        if i >= self.layout.count:  # may reach beyond the limit
            bytes_ = max(0, min(bytes_, self.layout.limit - self.address[i] - above))
        for time in self._births:
            if start <= time < end:
                self._loads[time].append((present, bytes_))

    def _maximise_value(self) -> float:
        """Sets the objective, in whole numbers. Returns by what values are multiplied for it."""
        worth = {i: self.layout.buffers[i].worth for i in self.kept if i < self.layout.count}
        whole = all(value == int(value) for value in worth.values())
        scale = 1 if whole else VALUE_STEPS / max(worth.values())
        self.model.maximize(sum(math.ceil(worth[i] * scale) * self.kept[i] for i in worth))
        return scale
