"""What stays in the scratchpad: solvers, judged by a checker of plans and by exhaustive search."""

import importlib.util
import itertools
import sys
import time
from collections import defaultdict

import lx_patterns
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lx_patterns import FITTING, KIB, LX, MODEL, PATTERNS, SHORT, STICK, Pattern, modelled_us

from torch_spyre._inductor import config
from torch_spyre._inductor.scratchpad import SOLVERS, LifetimeBoundBuffer, lx_limit, solver
from torch_spyre._inductor.scratchpad.firstfit_bestfit_solver import (
    BestFitLayoutSolver,
    FirstFitLayoutSolver,
)
from torch_spyre._inductor.scratchpad.plan_solver import GreedyLayoutSolver, MemoryPlanSolver
from torch_spyre._inductor.scratchpad.prices import Demand, prices

QUICK = [name for name in SOLVERS if name != "exact"]
PUBLIC = ["greedy", "firstfit", "bestfit"]
needs_or_tools = pytest.mark.skipif(
    not importlib.util.find_spec("ortools"),
    reason="OR-Tools is not installed (requirements-dev.txt)",
)


def buffer(name, size, *uses, parents=(), value=None, address=None) -> LifetimeBoundBuffer:
    return LifetimeBoundBuffer(
        name, size, list(uses), in_place_parents=list(parents), value=value, address=address
    )


def addresses(buffers):
    return {b.name: b.address for b in buffers}


def check(buffers, limit, alignment=128, fixed=()):
    """A plan keeps what it promises, moment by moment."""
    alive = defaultdict(list)
    for b in [*buffers, *fixed]:
        if b.address is None:
            continue
        if b not in fixed:
            assert b.address % alignment == 0, b
            assert 0 <= b.address <= limit - b.size, b
        for moment in range(b.start_time, b.end_time):
            alive[moment].append(b)
    for together in alive.values():
        for a, b in itertools.combinations(together, 2):
            apart = a.address + a.size <= b.address or b.address + b.size <= a.address
            pair = a in b.in_place_parents or b in a.in_place_parents
            assert apart or (pair and a.address == b.address), (a, b)


def kept(buffers) -> float:
    return sum(b.worth for b in buffers if b.address is not None)


@st.composite
def buffer_sets(draw, most=12, units=8, times=9):
    """Buffers of any lives, some of which may lie in the place of others."""
    found: list[LifetimeBoundBuffer] = []
    for i in range(draw(st.integers(1, most))):
        uses = sorted(draw(st.sets(st.integers(0, times), min_size=1, max_size=4)))
        size = draw(st.integers(1, units)) * 128 - draw(st.sampled_from([0, 0, 0, 100]))
        b = buffer(f"b{i}", size, *uses, value=draw(st.none() | st.integers(-2, 50)))
        b.first_use_is_read = draw(st.booleans())
        fitting = [p for p in found if p.uses[-1] == uses[0] and p.size >= size]
        b.in_place_parents = [p for p in fitting if draw(st.booleans())]
        found.append(b)
    return found


def fresh(buffers):
    """The same buffers, unplanned."""
    copies: dict[LifetimeBoundBuffer, LifetimeBoundBuffer] = {}
    for b in buffers:
        parents = [copies[parent] for parent in b.in_place_parents]
        copy = LifetimeBoundBuffer(b.name, b.size, list(b.uses), b.first_use_is_read, None, parents)
        copy.value = b.value
        copies[b] = copy
    return list(copies.values())


# ------------------------------------------------------------------------------- what all promise


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_plans_of_patterns_are_valid_and_the_same_each_time(pattern, name):
    plan = SOLVERS[name](pattern.limit()).plan_layout(pattern.buffers())
    check(plan, pattern.limit())
    again = SOLVERS[name](pattern.limit()).plan_layout(pattern.buffers())
    assert addresses(again) == addresses(plan)


@pytest.mark.parametrize("name", QUICK)
@given(buffers=buffer_sets(), units=st.integers(0, 16), alignment=st.sampled_from([64, 128, 256]))
def test_plans_of_any_buffers_are_valid(name, buffers, units, alignment):
    planned = SOLVERS[name](units * 128, alignment).plan_layout(buffers)
    assert planned is buffers
    check(planned, units * 128, alignment)


@pytest.mark.parametrize("name", QUICK)
@given(buffers=buffer_sets(), data=st.data())
def test_fixed_buffers_are_obstacles(name, buffers, data):
    obstacles = []
    for i in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, 9))
        uses = start, data.draw(st.integers(start, 9))
        where = i * 512 + data.draw(st.sampled_from([0, 128, 200]))
        obstacles.append(buffer(f"fixed{i}", 300, *uses, address=where))
    before = [b.address for b in obstacles]
    SOLVERS[name](1536).plan_layout(buffers, obstacles)
    check(buffers, 1536, fixed=obstacles)
    assert [b.address for b in obstacles] == before


@pytest.mark.parametrize("name", QUICK)
def test_a_child_can_lie_where_a_fixed_parent_lies(name):
    old = buffer("old", 256, 0, 3, address=128)
    (child,) = SOLVERS[name](384).plan_layout([buffer("child", 256, 3, 5, parents=[old])], [old])
    assert child.address == 128


@pytest.mark.parametrize("name", QUICK)
def test_nothing_to_plan_and_nothing_that_fits(name):
    assert SOLVERS[name](1024).plan_layout([]) == []
    assert addresses(SOLVERS[name](1024).plan_layout([buffer("a", 1025, 0, 1)])) == {"a": None}
    assert addresses(SOLVERS[name](0).plan_layout([buffer("a", 128, 0, 1)])) == {"a": None}


@pytest.mark.parametrize("name", QUICK)
def test_an_in_place_chain_needs_the_memory_of_one_buffer(name):
    chain = [buffer("b0", 1024, 0, 1)]
    for i in range(1, 5):
        chain.append(buffer(f"b{i}", 1024 - 128 * i, i, i + 1, parents=chain[-1:]))
    assert set(addresses(SOLVERS[name](1024).plan_layout(chain)).values()) == {0}


@pytest.mark.parametrize("name", QUICK)
def test_only_one_child_takes_the_place_of_a_parent(name):
    parent = buffer("parent", 512, 0, 2, value=100)
    children = [buffer(f"child{i}", 512, 2, 3, parents=[parent]) for i in range(2)]
    plan = SOLVERS[name](512).plan_layout([parent, *children])
    check(plan, 512)
    assert [b.address for b in plan].count(0) == 2


# ------------------------------------------------------------------------------------------ errors


def test_buffers_that_have_addresses_are_refused():
    with pytest.raises(ValueError, match="Buffers cannot be previously or partially planned"):
        GreedyLayoutSolver(1024).plan_layout([buffer("a", 128, 0, 1, address=0)])


def test_fixed_buffers_without_addresses_of_their_own_are_refused():
    with pytest.raises(ValueError, match="fixed buffer a has no address"):
        GreedyLayoutSolver(1024).plan_layout([], [buffer("a", 128, 0, 1)])
    walls = [buffer("a", 128, 0, 1, address=0), buffer("b", 128, 1, 2, address=100)]
    with pytest.raises(ValueError, match="fixed buffers a and b overlap"):
        GreedyLayoutSolver(1024).plan_layout([], walls)
    walls[1] = buffer("b", 128, 1, 2, address=0, parents=walls[:1])
    assert GreedyLayoutSolver(1024).plan_layout([], walls) == []


def test_in_place_pairs_meet_in_one_op_and_the_child_is_not_larger():
    parent = buffer("p", 256, 0, 3)
    for child, says in [
        (buffer("c", 256, 4, 5, parents=[parent]), "used last where the child is used first"),
        (buffer("c", 256, 2, 5, parents=[parent]), "used last where the child is used first"),
        (buffer("c", 257, 3, 5, parents=[parent]), "is smaller: 256 bytes, not 257"),
        (buffer("c", 256, 3, 5, parents=[buffer("q", 256, 0, 3)]), "q of c is not among"),
    ]:
        with pytest.raises(ValueError, match=says):
            GreedyLayoutSolver(1024).plan_layout([parent, child])


def test_buffers_without_sense_are_refused():
    one = buffer("a", 128, 0)
    for buffers, says in [
        ([one, one], "twice"),
        ([buffer("a", 0, 1)], "0 bytes"),
        ([buffer("a", 128)], "do not rise"),
        ([buffer("a", 128, 3, 1)], "do not rise"),
    ]:
        with pytest.raises(ValueError, match=says):
            GreedyLayoutSolver(1024).plan_layout(buffers)
    with pytest.raises(ValueError, match="no memory"):
        GreedyLayoutSolver(1024, 0)


# ----------------------------------------------------------------------------------- public solvers


def test_lives_end_after_the_last_use():
    b = buffer("a", 128, 2, 5)
    assert (b.start_time, b.end_time) == (2, 6)
    assert b.worth == 256
    assert buffer("a", 128, 2, 5, value=7.5).worth == 7.5


def test_greedy_takes_the_bottom_then_the_top_then_a_gap():
    buffers = [
        buffer("a", 256, 0, 2),
        buffer("b", 256, 1, 9),  # above a
        buffer("c", 128, 3, 9),  # a is gone: the bottom
        buffer("d", 128, 4, 9),  # not the gap: above b
        buffer("e", 128, 5, 9),  # the gap
        buffer("f", 128, 6, 9),  # nothing left
    ]
    plan = addresses(GreedyLayoutSolver(640).plan_layout(buffers))
    assert plan == {"a": 0, "b": 256, "c": 0, "d": 512, "e": 128, "f": None}


def test_greedy_frees_what_has_ended_before_it_allocates():
    buffers = [buffer("a", 256, 0, 2), buffer("b", 256, 3, 4), buffer("c", 256, 4, 5)]
    plan = addresses(GreedyLayoutSolver(256).plan_layout(buffers))
    assert plan == {"a": 0, "b": 0, "c": None}


def test_first_fit_begins_with_short_and_busy_buffers():
    buffers = [buffer("long", 512, 0, 9), buffer("busy", 512, 2, 3, 4), buffer("idle", 512, 2, 5)]
    plan = addresses(FirstFitLayoutSolver(1024).plan_layout(buffers))
    assert plan == {"busy": 0, "idle": 512, "long": None}


def test_best_fit_takes_the_tightest_gap_and_first_fit_the_lowest():
    walls = [buffer("low", 128, 0, 9, address=512), buffer("high", 128, 0, 9, address=768)]
    for kind, where in [(FirstFitLayoutSolver, 0), (BestFitLayoutSolver, 640)]:
        assert addresses(kind(2048).plan_layout([buffer("a", 128, 4, 5)], walls)) == {"a": where}


# ------------------------------------------------------------------------------------- most value


def plan(name, pattern, **arguments):
    return SOLVERS[name](pattern.limit(), **arguments).plan_layout(pattern.buffers())


@pytest.mark.parametrize("pattern", FITTING, ids=lambda pattern: pattern.name)
def test_the_default_keeps_all_that_can_be_kept(pattern):
    assert None not in addresses(plan("default", pattern)).values()


@pytest.mark.parametrize(
    "name",
    ["fragmentation", "staircase up", "staircase down", "GQA attention", "MoE MLP", "SwiGLU MLP"],
)
def test_the_public_greedy_solver_evicts_what_would_fit(name):
    (pattern,) = (pattern for pattern in FITTING if pattern.name == name)
    assert None in addresses(plan("greedy", pattern)).values()


@pytest.mark.parametrize("pattern", SHORT, ids=lambda pattern: pattern.name)
def test_the_default_keeps_at_least_what_the_public_solvers_keep(pattern):
    assert kept(plan("default", pattern)) >= max(kept(plan(name, pattern)) for name in PUBLIC)


@needs_or_tools
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_the_default_is_within_five_percent_of_the_best_plan(pattern):
    exact = SOLVERS["exact"](pattern.limit(), time_limit=1.0)
    best = exact.plan_layout(pattern.buffers())
    check(best, pattern.limit())
    assert kept(best) == pytest.approx(exact.bound)  # proven
    default = plan("default", pattern)
    assert kept(default) >= 0.95 * exact.bound
    assert modelled_us(default) <= 1.05 * modelled_us(best)


@pytest.mark.parametrize(
    ("pattern", "all_fits"),
    [
        (MODEL, True),
        (Pattern("40 layers, large", lambda: lx_patterns.model(scores=640 * KIB)), True),
        (Pattern("40 layers, too large", lambda: lx_patterns.model(inner=900 * KIB)), False),
    ],
    ids=lambda value: value.name if isinstance(value, Pattern) else "",
)
def test_a_model_of_forty_layers_is_planned_at_once(pattern, all_fits):
    buffers = pattern.buffers()
    assert len(buffers) > 3000
    start = time.process_time()
    SOLVERS["default"](LX).plan_layout(buffers)
    print(f"{pattern.name}: {len(buffers)} buffers in {time.process_time() - start:.2f} s")
    check(buffers, LX)
    assert all_fits == (None not in addresses(buffers).values())
    assert kept(buffers) >= max(kept(plan(name, pattern)) for name in PUBLIC)


def test_the_default_keeps_what_is_worth_more():
    buffers = [buffer("small", 512, 0, 9, value=3), buffer("large", 1024, 0, 9, value=2)]
    assert addresses(SOLVERS["default"](1024).plan_layout(buffers)) == {"small": 0, "large": None}
    buffers = [buffer("small", 512, 0, 9, value=3), buffer("large", 1024, 0, 9, value=4)]
    assert addresses(SOLVERS["default"](1024).plan_layout(buffers)) == {"small": None, "large": 0}


@pytest.mark.parametrize("name", ["default", pytest.param("exact", marks=needs_or_tools)])
def test_what_is_better_off_elsewhere_is_not_kept(name):
    buffers = [buffer("a", 128, 0, 1, value=-1.0), buffer("b", 128, 0, 1, value=0.1)]
    assert addresses(SOLVERS[name](1024).plan_layout(buffers)) == {"a": None, "b": 0}


def test_part_of_a_chain_is_kept_where_the_whole_does_not_fit():
    chain = [buffer("a", 512, 0, 2)]
    chain.append(buffer("b", 512, 2, 4, parents=chain[-1:]))
    chain.append(buffer("c", 512, 4, 6, parents=chain[-1:]))
    wall = buffer("wall", 128, 3, 3, address=0)
    plan = addresses(SOLVERS["default"](512).plan_layout(chain, [wall]))
    assert plan == {"a": 0, "b": None, "c": 0}


@given(buffers=buffer_sets(most=4, units=4, times=4), known=st.floats(0, 1))
def test_no_plan_exceeds_the_bound_of_the_prices(buffers, known):
    buffers = [b for b in buffers if b.worth >= 0]
    for b in buffers:
        b.in_place_parents = []
    best = most_value(buffers, 5, [])
    demands = [Demand(b.start_time, b.end_time, b.size, b.worth) for b in buffers]
    assert not demands or prices(demands, 5 * STICK, known * best).bound >= best * (1 - 1e-12)


def test_prices_say_when_there_is_too_little_memory_and_for_whom():
    early, late = Demand(0, 2, 128, 100.0), Demand(5, 7, 128, 100.0)
    rival = Demand(4, 6, 128, 60.0)
    found = prices([early, late, rival], 128, 0.0)
    assert found.bound == pytest.approx(200, rel=0.01)
    assert found.rents[0] == 0
    assert 60 / 128 * 0.95 <= found.rents[2] <= 100 / 128 * 1.05


# -------------------------------------------------------------------------------------------- exact


def most_value(buffers, units, fixed) -> float:
    """Of all plans, by trying them."""
    options = [
        [None, *range(0, units * STICK - b.size + 1, STICK)] if b.worth >= 0 else [None]
        for b in buffers
    ]
    best = 0.0
    for choice in itertools.product(*options):
        for b, address in zip(buffers, choice, strict=True):
            b.address = address
        if kept(buffers) > best:
            try:
                check(buffers, units * STICK, fixed=fixed)
            except AssertionError:
                continue
            best = kept(buffers)
    return best


@needs_or_tools
@settings(max_examples=20)
@given(
    buffers=buffer_sets(most=4, units=4, times=4),
    obstacle=st.none() | st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 700)),
    scale=st.sampled_from([1, 0.37]),
)
def test_the_exact_solver_finds_the_best_of_all_plans(buffers, obstacle, scale):
    for b in buffers:
        b.value = b.worth * scale
    fixed = []
    if obstacle is not None:
        start, end, address = obstacle
        fixed = [buffer("wall", 100, *sorted([start, end]), address=address)]
    best = most_value(fresh(buffers), 5, fixed)
    exact = SOLVERS["exact"](5 * STICK)
    assert kept(exact.plan_layout(buffers, fixed)) == pytest.approx(best, rel=1e-4)
    assert exact.bound == pytest.approx(best, rel=1e-4)
    check(buffers, 5 * STICK, fixed=fixed)
    assert kept(SOLVERS["default"](5 * STICK).plan_layout(fresh(buffers), fixed)) <= best * 1.0001


@needs_or_tools
def test_the_exact_solver_finds_the_same_plan_each_time():
    pattern = Pattern("random", lambda: lx_patterns.random_program(ops=20, seed=3), 0.5)
    assert addresses(plan("exact", pattern)) == addresses(plan("exact", pattern))


@needs_or_tools
def test_the_exact_solver_gives_what_it_has_when_its_time_is_over():
    pattern = Pattern("random", lambda: lx_patterns.random_program(ops=40, seed=9), 0.5)
    exact = SOLVERS["exact"](pattern.limit(), time_limit=1e-6)
    plan_ = exact.plan_layout(pattern.buffers())
    check(plan_, pattern.limit())
    assert kept(plan("default", pattern)) <= kept(plan_) <= exact.bound


@needs_or_tools
def test_the_exact_solver_plans_nothing():
    assert SOLVERS["exact"](1024).plan_layout([]) == []


def test_the_exact_solver_says_how_to_install_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(ImportError, match=r"pip install 'torch-spyre\[exact\]'"):
        SOLVERS["exact"](1024).plan_layout([buffer("a", 128, 0, 1)])


# ------------------------------------------------------------------------------------------- choice


def test_the_knob_chooses_the_solver():
    for name, kind in SOLVERS.items():
        with config.patch(layout_solver=name):
            assert type(solver()) is kind
    with config.patch(layout_solver="fastest"), pytest.raises(ValueError) as error:
        solver()
    assert all(name in str(error.value) for name in SOLVERS)


def test_the_solver_has_what_the_back_end_leaves_of_a_core():
    assert solver().limit == lx_limit() == LX
    with config.patch(dxp_lx_frac_avail=0.5):
        assert solver().limit == 1024 * KIB
    assert isinstance(solver(4096), MemoryPlanSolver)
    assert solver(4096).limit == 4096
