"""Parts of intermediates that go over the ring, from scratchpad to scratchpad."""

import itertools
import math
from dataclasses import replace
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from compiling import card, counted
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from kernel_ops import (
    LAYOUTS,
    A,
    B,
    C,
    at,
    buffer,
    bundle_of,
    groups_of,
    local,
    op,
    run_on_card,
    through,
)
from kernels import c0, c1, check_result, exchange, files_of, resliced

from torch_spyre._C import _Program
from torch_spyre._inductor import config
from torch_spyre._inductor.planning import SETTLE, divide_work, plan_kernel
from torch_spyre._inductor.planning.footprints import OpShape
from torch_spyre._inductor.planning.lx import place_in_lx
from torch_spyre._inductor.planning.pool import place_in_pool
from torch_spyre._inductor.planning.prices import OpPrices, effort_of, in_lx
from torch_spyre._inductor.planning.ring_copies import RingCopies
from torch_spyre._inductor.planning.ring_moves import exchange_parts
from torch_spyre._inductor.planning.specs import kernel_of
from torch_spyre._inductor.planning.variants import best_variant
from torch_spyre.backend.account import accounts_of
from torch_spyre.backend.bundle import parse_bundle
from torch_spyre.backend.compiler import compile_files
from torch_spyre.backend.errors import MalformedBundle
from torch_spyre.backend.schedule import groups, works
from torch_spyre.cost import price
from torch_spyre.partition import ring
from torch_spyre.partition.ring import Axis

pytestmark = pytest.mark.usefixtures("fresh_compiler")

CORES = 32


# ------------------------------------------------------------------------------------ the messages


@st.composite
def arrangements(draw):
    """Axes with the sizes of slices on both sides, who has which slice, and who wants which."""
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=3))
    axes = tuple(Axis(n, draw(st.integers(1, n)), draw(st.integers(1, n))) for n in sizes)
    have, want = (
        list(itertools.product(*(range(math.ceil(axis.size / axis[side])) for axis in axes)))
        for side in (1, 2)
    )
    assume(len(have) <= CORES)
    twice = st.lists(st.sampled_from(have), max_size=CORES - len(have))
    source = draw(st.permutations([*have, *draw(twice)]))
    target = draw(st.lists(st.sampled_from(want), min_size=1, max_size=CORES))
    return axes, tuple(source), tuple(target)


def boxes(axes, slices, side):
    """The sticks of every core, one by one."""
    chunks = [getattr(axis, side) for axis in axes]
    return [
        set(
            itertools.product(
                *(
                    range(i * chunk, min(axis.size, (i + 1) * chunk))
                    for axis, chunk, i in zip(axes, chunks, mine, strict=True)
                )
            )
        )
        for mine in slices
    ]


@given(arrangements())
def test_every_core_gets_each_stick_once_from_the_nearest_that_has_it(case):
    axes, source, target = case
    have, want = boxes(axes, source, "source"), boxes(axes, target, "target")
    got = [[] for _ in target]
    for piece in ring.pieces(*case):
        sticks = set(itertools.product(*(range(*ends) for ends in piece.ranges)))
        assert sticks <= have[piece.source]
        assert piece.bytes == 128 * len(sticks)
        holders = [core for core, mine in enumerate(have) if sticks <= mine]
        assert distance(piece.source, piece.target) == min(
            distance(core, piece.target) for core in holders
        )
        got[piece.target] += sticks
    assert [sorted(sticks) for sticks in got] == [sorted(sticks) for sticks in want]


def distance(one, other):
    return min((other - one) % CORES, (one - other) % CORES)


@given(arrangements())
def test_the_load_is_that_of_a_walk_round_the_ring(case):
    """Message by message, link by link; what passes a core that wants it too is not sent again."""
    links, hops, arrived = {}, 0, 0
    lx = [0] * CORES
    passed, read = set(), set()
    for piece in ring.pieces(*case):
        message = piece.source, piece.ranges
        if message not in read:
            lx[piece.source] += piece.bytes
        read.add(message)
        lx[piece.target] += piece.bytes
        way = (piece.target - piece.source) % CORES
        step, count = (1, way) if way <= CORES // 2 else (-1, CORES - way)
        hops = max(hops, count)
        arrived += piece.bytes if count else 0
        for hop in range(count):
            link = (piece.source + step * hop) % CORES, step
            if (message, link) not in passed:
                passed.add((message, link))
                links[link] = links.get(link, 0) + piece.bytes
    expected = arrived, max(links.values(), default=0), hops, max(lx), sum(lx)
    assert ring.load(*case) == expected


# ------------------------------------------------------------------------------------- on the card


def ran(kernel):
    check_result(kernel, _Program(compile_files(files_of(kernel.entries))).launch)


SPLITS = st.tuples(st.integers(1, 8), st.integers(1, 4), st.booleans())


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 70),
    st.integers(1, 300),
    SPLITS,
    SPLITS,
    st.sampled_from([torch.float16, torch.float32]),
)
def test_any_split_goes_over_into_any_other(rows, columns, have, want, dtype):
    def splits(a, b, columns_first):
        return {c1: b, c0: a} if columns_first else {c0: a, c1: b}

    torch.manual_seed(rows * columns)
    ran(resliced(rows, columns, splits(*have), splits(*want), dtype))


def test_what_came_over_the_ring_is_one_thing_to_the_checker():
    """Something else was at its place before. Its pieces are not taken for what overwrites that."""
    kernel = resliced(8, 300, {c0: 8, c1: 1}, {c0: 1, c1: 1})
    exp, move, neg = kernel.entries
    place = move.args[-1]

    def writing(start):
        output = replace(place, allocation={"lx": start})
        return replace(exp, args=[exp.args[0], output], iteration_space=move.iteration_space)

    start = place.allocation["lx"]
    with torch.spyre.checked():
        kernel.entries[:] = [writing(start), exp, move, neg]
        ran(kernel)
        kernel.entries[:] = [exp, move, writing(start + 128), neg]
        with pytest.raises(RuntimeError, match="two things overlap in the scratchpad"):
            ran(kernel)


def test_cores_wait_before_they_take_and_before_others_write_again():
    files = files_of(exchange().entries)
    steps = [[w.op.op.name for w in works(g.works)] for g in groups(parse_bundle(files))]
    assert steps == [["exp"], ["identity"], ["neg"]]


# ---------------------------------------------------------------------------------- what is planned


def rows_then_columns(rows, columns):
    """Divide rows by their sums, then add up columns: cores have rows first, then columns."""
    x, out = buffer("x", rows, columns), buffer("out", columns)
    e, s, d = local("e", rows, columns), local("s", rows), local("d", rows, columns)
    space = {A: rows, B: columns}
    return [
        op("exp", space, [at(x, A, B)], at(e, A, B)),
        op("sum", space, [at(e, A, B)], at(s, A)),
        op("realdiv", space, [at(e, A, B), at(s, A)], at(d, A, B)),
        op("sum", {B: columns, A: rows}, [at(d, A, B)], at(out, B)),
    ]


def planned_ops(ops):
    for run in SETTLE:
        ops = run(ops)
    return best_variant(ops)


def test_a_large_intermediate_goes_over_the_ring():
    kernel = plan_kernel(rows_then_columns(512, 2048))
    assert [spec.op for spec in kernel.ops] == ["exp", "sum", "realdiv", "identity", "sum"]
    source, target = kernel.ops[3].args
    assert (source.component, target.component) == ("lx", "lx")
    assert kernel.pool_bytes == 0
    assert [names for names in groups_of(kernel) if "identity" in names] == [["identity"]]


def test_it_costs_less_than_device_memory():
    with config.patch(lx_ring_moves=False):
        without = effort_of(planned_ops(rows_then_columns(512, 2048)))
    assert effort_of(planned_ops(rows_then_columns(512, 2048))) < without / 1.5


def test_a_small_one_does_not():
    kernel = plan_kernel(rows_then_columns(8, 128))
    assert "identity" not in [spec.op for spec in kernel.ops]


def test_the_knob_keeps_cores_apart():
    with config.patch(lx_ring_moves=False):
        kernel = plan_kernel(rows_then_columns(512, 2048))
    assert "identity" not in [spec.op for spec in kernel.ops]
    assert kernel.pool_bytes


def test_planners_ask_for_what_the_back_end_counts():
    best = planned_ops(rows_then_columns(512, 2048))
    listed = assert_planned_as_counted(best, plan_kernel(rows_then_columns(512, 2048)))
    assert listed[3].cost.ring_bytes > 0


def assert_planned_as_counted(best, kernel):
    listed = accounts_of(parse_bundle(bundle_of(kernel)))
    for each, account in zip(best, listed, strict=True):
        planned = OpPrices(OpShape(each)).cost(each.splits, in_lx(each))
        assert price(planned).total == price(account.cost).total
        for field in ("read_bytes", "written_bytes", "lx_bytes", "ring_bytes", "ring_link_bytes"):
            assert getattr(planned, field) == getattr(account.cost, field), (each, field)
    return listed


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 40), st.integers(1, 20))
def test_results_do_not_depend_on_the_ring(rows, columns):
    rows, columns = rows * 16 - 3, columns * 64 - 5
    torch.manual_seed(0)
    x = torch.randn(rows, columns).half()
    results = []
    for knobs in ({}, {"lx_ring_moves": False}, {"lx_planning": False}):
        with config.patch(knobs):
            results.append(run_on_card(plan_kernel(rows_then_columns(rows, columns)), x=x)["out"])
    assert torch.equal(results[0], results[2])
    assert torch.equal(results[1], results[2])


def swiglu(x, gate, up, down):
    return (F.silu(x @ gate) * (x @ up)) @ down


def test_a_product_takes_its_factor_over_the_ring(planned):
    """Cores that compute columns of a result share its rows: all of them get these."""
    torch.manual_seed(0)
    tensors = card(256, 512), card(512, 1536), card(512, 1536), card(1536, 512)
    results, times, copies = [], [], []
    for knobs in ({"lx_planning": False}, {"lx_ring_moves": False}, {}):
        with config.patch(knobs):
            torch._dynamo.reset()
            got, kernels = planned(swiglu, *tensors)
            results.append(got.cpu())
            run = torch.compile(swiglu, fullgraph=True, dynamic=False)
            spent = counted(lambda run=run: run(*tensors))
        times.append(spent.modelled_ns)
        components = [
            [arg.component for arg in spec.args]
            for kernel in kernels
            for spec in kernel.ops
            if spec.op == "identity"
        ]
        copies.append(components.count(["lx", "lx"]))
    assert torch.equal(results[1], results[0])
    assert torch.equal(results[2], results[0])
    assert times[2] < times[1] < times[0]
    assert copies == [0, 0, 1]


def products(rows, *widths):
    """Of matrices, one after the other, with something in between that a core does for itself."""
    ops, value = [], buffer("x0", rows, widths[0])
    for i, (k, n) in enumerate(itertools.pairwise(widths)):
        weight = buffer(f"w{i}", n, k)
        made = local(f"t{i}", rows, n)
        last = i == len(widths) - 2
        into = buffer("out", rows, n) if last else local(f"x{i + 1}", rows, n)
        space = {A: rows, B: n, C: k}
        factors = [at(value, A, C), at(weight, B, C)]
        ops += [
            op("batchmatmul", space, factors, at(made, A, B)),
            op("silu", {A: rows, B: n}, [at(made, A, B)], at(into, A, B)),
        ]
        value = into
    return ops


def test_the_ring_lets_each_product_have_its_best_split():
    best = planned_ops(products(512, 512, 1024, 512))
    made = [each for each in best if each.op == "batchmatmul"]
    assert [each.op for each in best].count("identity") == 1
    for each in made:
        prices = OpPrices(OpShape(each))
        even = [
            dict(zip((A, B, C), parts, strict=True))
            for parts in itertools.product(range(1, 33), repeat=3)
            if math.prod(parts) == 32
            and all(
                each.space[s] // unit % n == 0
                for (s, unit), n in zip(((A, 1), (B, 64), (C, 64)), parts, strict=True)
            )
        ]
        assert prices.microseconds(each.splits) == pytest.approx(
            min(map(prices.microseconds, even))
        )
    with config.patch(lx_ring_moves=False):
        (without,) = {
            tuple(each.splits.values())
            for each in planned_ops(products(512, 512, 1024, 512))
            if each.op == "batchmatmul"
        }
    assert without == (32, 1, 1)  # rows: all that can agree


@pytest.mark.parametrize("rows", [1, 7, 64, 200, 512, 1000])
@pytest.mark.parametrize("widths", [(128, 320, 64), (512, 1024, 512), (300, 1100, 700, 300)])
def test_plans_are_never_worse_for_the_ring(rows, widths):
    effort = effort_of(planned_ops(products(rows, *widths)))
    with config.patch(lx_ring_moves=False):
        assert effort <= effort_of(planned_ops(products(rows, *widths)))


SWITCHES = (
    *("lx_planning", "lx_ring_moves", "co_optimizing_lx_planning"),
    *("lx_in_place", "lx_boundary_clones", "auto_tiling"),
)


def test_results_do_not_depend_on_switches():
    torch.manual_seed(0)
    sizes = 512, 512, 1024, 512
    given_tensors = {"x0": torch.randn(sizes[:2]).half() / 8}
    for i, (k, n) in enumerate(itertools.pairwise(sizes[1:])):
        given_tensors[f"w{i}"] = torch.randn(n, k).half() / 8
    results, plans = [], set()
    for values in itertools.product((True, False), repeat=len(SWITCHES)):
        with config.patch(dict(zip(SWITCHES, values, strict=True))):
            kernel = plan_kernel(products(*sizes))
        plan = str(bundle_of(kernel))
        if plan not in plans:  # of those that are different
            plans.add(plan)
            results.append(run_on_card(kernel, **given_tensors)["out"])
    assert len(plans) > 2
    assert all(torch.equal(result, results[0]) for result in results)


def test_the_work_of_planning_grows_with_the_number_of_ops():
    """Products of other sizes, so that no answer serves two of them."""

    def asked(count):
        divide_work._asked_about.cache_clear()
        widths = [64 * (5 + i) for i in range(count + 1)]
        way = mock.patch.object(divide_work, "_with_op", wraps=divide_work._with_op)
        price_of = RingCopies.microseconds
        copy = mock.patch.object(RingCopies, "microseconds", autospec=True, side_effect=price_of)
        with way as ways, copy as copies:
            divide_work.divide_work(through(LAYOUTS, products(256, *widths)))
        return ways.call_count, copies.call_count

    few, many = asked(6), asked(18)
    assert min(few) > 0
    for less, more in zip(few, many, strict=True):
        assert more < 3.6 * less


# -------------------------------------------------------------------------------- what is refused


def refused(edit, why):
    files = files_of(exchange().entries)
    document = files.superdscs["sdsc_1.json"]
    (top,) = document.values()
    (dsc,) = top["dscs_"][0].values()
    edit(dsc["scheduleTree_"][0], dsc)
    with pytest.raises(MalformedBundle, match=why):
        compile_files(files)


def test_more_than_other_cores_have():
    """The last op before wrote less: of 7 rows on 7 cores, each has one."""

    def edit(node, dsc):  # as if 4 cores had 2 rows each
        node["coordinates_"]["coreIdToWkSlice_"] = {str(i): {"mb": i, "out": 0} for i in range(4)}
        folds = node["coordinates_"]["coordInfo"]["mb"]["folds"]
        folds["dim_prop_attr"][0]["factor_"] = 4
        folds["dim_prop_func"][0]["Affine"]["alpha_"] = 2

    refused(edit, r"no op before wrote all of bytes 0..\d+ of the scratchpads of 4 cores")


def test_slices_that_nobody_has():
    def edit(node, dsc):
        node["coordinates_"]["coreIdToWkSlice_"]["3"] = {"mb": 2, "out": 0}

    refused(edit, "do not have all parts")


def test_slices_beyond_the_last():
    def edit(node, dsc):
        node["coordinates_"]["coreIdToWkSlice_"]["3"] = {"mb": 7, "out": 0}

    refused(edit, "7 is not in 0..6")


def test_slices_that_are_not_the_whole():
    def edit(node, dsc):
        folds = node["coordinates_"]["coordInfo"]["mb"]["folds"]
        folds["dim_prop_attr"][0]["factor_"] = 6

    refused(edit, "6 parts of 1 are not the 7 of mb")


def test_a_place_that_is_being_taken_from():
    def edit(node, dsc):
        starts = dsc["scheduleTree_"][1]["startAddressCoreCorelet_"]["data_"]
        starts.update(dict.fromkeys(starts, "0"))

    refused(edit, "may write what another has not read yet")


def test_places_that_differ_from_core_to_core():
    def edit(node, dsc):
        node["startAddressCoreCorelet_"]["data_"]["[3, 0, 0]"] = "128"

    refused(edit, "one address in all scratchpads")


def test_other_ops_than_copies():
    def edit(node, dsc):
        dsc["computeOp_"][0]["opFuncName"] = "neg"

    refused(edit, "is called '1_identity'|only the input of an identity")


# -------------------------------------------------------------------- whatever splits ops may have

SIZES = st.tuples(st.integers(1, 9), st.integers(1, 40), st.sampled_from([5, 64, 130, 256]))


def kernel_ops(sizes):
    """Results of three dimensions, of two with a value in each stick, and readers of both."""
    x, out = buffer("x", *sizes), buffer("out", *sizes)
    e, s = local("e", *sizes), local("s", *sizes[:2])
    space = dict(zip((A, B, C), sizes, strict=True))
    return [
        op("exp", dict(space), [at(x, A, B, C)], at(e, A, B, C)),
        op("sum", dict(space), [at(e, A, B, C)], at(s, A, B)),
        op("realdiv", dict(space), [at(e, A, B, C), at(s, A, B)], at(out, A, B, C)),
    ]


def with_splits(ops, draw):
    """Each op's loops in any order, split over any number of the cores that are left."""
    for each in ops:
        shape, left, splits = OpShape(each), CORES, {}
        for symbol in draw(st.permutations(list(each.space))):
            most = left if shape.may_split(symbol) else 1
            splits[symbol] = shape.parts(symbol, draw(st.integers(1, most)))
            left //= splits[symbol]
        each.splits = splits
        each.space = {symbol: each.space[symbol] for symbol in splits}
    return ops


@settings(max_examples=40, deadline=None)
@given(SIZES, st.data())
def test_copies_between_any_splits_of_ops(sizes, data):
    def planned(ops):
        for run in SETTLE:
            ops = run(ops)
        return ops

    with config.patch(lx_planning=False):
        plain = plan_kernel(kernel_ops(sizes))
    ops = with_splits(planned(kernel_ops(sizes)), data.draw)
    for each in ops:
        each.over_ring = frozenset(range(len(each.inputs)))
    best = exchange_parts(place_in_lx(ops))
    kernel = kernel_of(place_in_pool(best))
    assert_planned_as_counted(best, kernel)
    event(f"{sum(bool(each.held) for each in best)} copies")
    torch.manual_seed(0)
    x = torch.randn(sizes).half()
    assert torch.equal(run_on_card(kernel, x=x)["out"], run_on_card(plain, x=x)["out"])
