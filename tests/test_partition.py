"""How cores share the work of an op: against sets of the elements that each core has."""

import itertools
import math

from hypothesis import assume, given
from hypothesis import strategies as st

from torch_spyre.ops.table import OPS
from torch_spyre.partition.demand import Touch, demand, ring_parts
from torch_spyre.partition.dims import Cut, Dim, slices_of_cores
from torch_spyre.partition.ring import load
from torch_spyre.partition.steps import Step, merged

LABELS = ("rows", "columns", "inner")


# ------------------------------------------------------------------------------------------- oracle


def dealt(extent, size, unit, ways):
    """Which indices each of so many has: units one after the other, each as many as the first."""
    sticks = [range(begin, min(extent, begin + unit)) for begin in range(0, extent, unit)]
    share = math.ceil(len(sticks) / ways) if sticks else 1
    hands = [sticks[i : i + share] for i in range(0, len(sticks), share)] or [[]]
    return [[i for stick in hand for i in stick if i < size] for hand in hands]


def points_of_cores(hands, order):
    """The iterations of every core: cores count through the dimensions, the first one fastest."""
    places = itertools.product(*(range(len(hands[label])) for label in reversed(order)))
    for place in places:
        part = dict(zip(reversed(order), place, strict=True))
        yield [
            dict(zip(hands, point, strict=True))
            for point in itertools.product(*(hands[label][part[label]] for label in hands))
        ]


def sticks(touch, points):
    return {tuple(point[label] // unit for label, unit in touch.units.items()) for point in points}


# ----------------------------------------------------------------------------------------- examples


@st.composite
def works(draw, most=8):
    """Dimensions cut for at most so many cores, and tensors of them; the oracle's view beside."""
    unit = {label: draw(st.sampled_from([1, 1, 4])) for label in LABELS}
    dims, hands, left = [], {}, most
    for label in LABELS:
        size = draw(st.integers(1, 13))
        extent = size + draw(st.sampled_from([0, 0, 1, 5]))
        ways = draw(st.integers(1, left))
        dims.append(Dim.of(label, size, ways, unit[label], extent))
        hands[label] = dealt(extent, size, unit[label], ways)
        left //= dims[-1].splits
    touches = []
    for _ in range(draw(st.integers(2, 3))):
        labels = draw(st.lists(st.sampled_from(LABELS), min_size=1, unique=True))
        along = {label: unit[label] for label in labels}
        touches.append(Touch(draw(st.sampled_from([32, 64])), along))
    order = draw(st.permutations(LABELS))
    cuts = {dim.label: dim.splits for dim in dims}
    cut = Cut(dims, slices_of_cores(tuple((label, cuts[label]) for label in order)))
    return cut, touches, hands, [*points_of_cores(hands, order)]


@given(works())
def test_dimensions_are_dealt_out_in_whole_units(work):
    cut, _, hands, cores = work
    assert len(cut.slices) == len(cores)
    for dim in cut.dims:
        assert [dim.part(slice) for slice in range(dim.splits)] == [*map(len, hands[dim.label])]
        assert dim.last_chunk == dim.extent - dim.chunk * (dim.splits - 1) >= min(1, dim.extent)
    for mine, points in zip(cut.slices, cores, strict=True):
        for dim in cut.dims:
            indices = {point[dim.label] for point in points}
            begin = mine[dim.label] * dim.chunk
            assert indices <= {*range(begin, begin + dim.chunk)}


@given(works())
def test_cores_with_one_number_have_the_same(work):
    cut, touches, _, cores = work
    for touch in touches:
        groups = cut.slices.groups(*touch.units)
        for one, other in itertools.combinations(range(len(cores)), 2):
            if cores[one] and cores[other]:
                same = sticks(touch, cores[one]) == sticks(touch, cores[other])
                assert same == (groups[one] == groups[other])


@given(works(), st.sets(st.integers(0, 2)))
def test_what_an_op_asks_for_is_what_its_cores_touch(work, in_lx):
    cut, touches, _, cores = work
    cost = demand(OPS["sum"], cut, touches, in_lx)
    *inputs, _ = everything = [*enumerate(touches)]
    every = [point for points in cores for point in points]
    by_core = [[len(sticks(touch, points)) for points in cores] for touch in touches]
    assert cost.cores == len(cores)
    assert cost.all_points == len(every)
    assert cost.points == max(max(n) * t.elems for n, t in zip(by_core, touches, strict=True))
    outside = [128 * len(sticks(touch, every)) for i, touch in inputs if i not in in_lx]
    assert cost.read_bytes == sum(outside)  # at most 8 cores share
    last = len(touches) - 1
    written = 0 if last in in_lx else 128 * len(sticks(touches[last], every))
    assert cost.written_bytes == written
    inside = [i for i, _ in everything if i in in_lx]
    assert cost.lx_bytes == 128 * sum(max(by_core[i]) for i in inside)
    if all(cores):
        assert cost.all_lx_bytes == 128 * sum(sum(by_core[i]) for i in inside)
        kept = touches[last].units
        places = [{tuple(p[label] for label in kept) for p in points} for points in cores]
        results = {place for mine in places for place in mine}
        assert cost.partial_sums == sum(map(len, places)) - len(results)
    assert cost.ring_bytes == 0


@given(works())
def test_a_product_asks_for_rows_of_the_core_with_most(work):
    cut, _, hands, cores = work
    units = ({"rows": 1, "inner": 1}, {"inner": 1, "columns": 1}, {"rows": 1, "columns": 1})
    cost = demand(OPS["batchmatmul"], cut, [Touch(64, each) for each in units], ())
    assert cost.points == max(map(len, cores))
    assert cost.rows == max(map(len, hands["rows"]))


STRIDES, COUNTS = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24]), st.integers(1, 4)
STEPS = st.lists(st.builds(Step, STRIDES, COUNTS, st.none()))


def places(steps):
    """How often steps come by each place."""
    ways = itertools.product(*(range(0, s.stride * s.number, s.stride) for s in steps))
    return sorted(map(sum, ways))


@given(STEPS.filter(lambda steps: math.prod(step.number for step in steps) < 1000), st.randoms())
def test_steps_come_by_the_same_places_in_whatever_order_they_are_merged(steps, random):
    found = merged(steps)
    assert places(found) == places(steps)
    assert all(step.number > 1 for step in found)
    assert merged(found) == found == merged(random.sample(steps, len(steps)))


def test_a_dimension_seen_as_two_is_the_same_shape():
    """Uneven parts are compared core by core."""
    assert merged([Step(4096, 4), Step(128, 32)]) == (Step(128, 128),)
    assert merged([Step(8192, 4), Step(128, 32)]) != (Step(128, 128),)
    assert merged([Step(128, 3, (3, 2))]) != merged([Step(128, 3)])


@given(works(32), st.data())
def test_what_goes_over_the_ring_is_what_cores_lack(work, data):
    cut, (touch, *_), _, cores = work
    assume(all(cores))
    dims, hands, left = [], {}, 32
    for dim in cut.dims:
        if dim.label in touch.units:
            ways, unit = data.draw(st.integers(1, left)), touch.units[dim.label]
            dims.append(Dim.of(dim.label, dim.size, ways, unit, dim.extent))
            hands[dim.label] = dealt(dim.extent, dim.size, unit, ways)
            left //= dims[-1].splits
    held = Cut(dims, slices_of_cores(tuple((dim.label, dim.splits) for dim in dims)))
    holders = [sticks(touch, points) for points in points_of_cores(hands, [*hands])]
    lacking = 0
    for core, points in enumerate(cores):
        had = holders[core] if core < len(holders) else set()
        lacking += len(sticks(touch, points) - had)
    cost = demand(OPS["identity"], cut, [touch, touch], (0, 1), held)
    assert cost.ring_bytes == 128 * lacking == load(*ring_parts(touch, held, cut)).ring_bytes
    assert cost.read_bytes == cost.written_bytes == 0
