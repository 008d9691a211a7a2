"""The cost model: prices of ops against its formulae, laws of scaling, the ring."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from subprocesses import forked

from torch_spyre.cost import OpCost, price, ring_all_gather, ring_load, sfp_passes, shared_read
from torch_spyre.machine import load
from torch_spyre.ops.table import OPS

OP = int(load().value("overhead.op_ns"))


# ----------------------------------------------------------------------------------------- one op

SIZES = st.integers(0, 1 << 30)
COSTS = st.builds(
    OpCost,
    unit=st.sampled_from(["sfp", "pt"]),
    passes=st.sampled_from([1.0, 1.5, 6.0]),
    element_bytes=st.sampled_from([1, 2, 4]),
    points=SIZES,
    rows=st.integers(1, 4096),
    read_bytes=SIZES,
    written_bytes=SIZES,
    lx_bytes=SIZES,
    partial_sums=SIZES,
    ring_link_bytes=SIZES,
    ring_hops=st.integers(0, 16),
)


def by_hand(cost):
    """The formulae of docs/cost-model.md, in nanoseconds."""
    cycle = 1 / 1.5
    if cost.unit == "pt":
        efficiency = min(1, math.sqrt(max(1, cost.rows / 8) / 8))
        compute = cost.points / (1024 * efficiency) * cycle
    else:
        lanes = 32 if cost.element_bytes == 4 else 64
        compute = cost.points * cost.passes / (lanes * 2) * cycle
    ring = (cost.ring_link_bytes / 128 + cost.ring_hops) * cycle
    return {
        "compute": compute,
        "read": cost.read_bytes / 204.8,
        "write": cost.written_bytes / 204.8,
        "lx": cost.lx_bytes / 512 * cycle,
        "ring": ring,
    }


@given(COSTS)
def test_prices_are_what_the_formulae_say(cost):
    got, want = price(cost), by_hand(cost)
    for name, ns in want.items():
        assert ns - 0.01 <= getattr(got, name) <= ns + 1
    longest = max(getattr(got, name) for name in want)
    assert got.total == longest + got.overhead
    assert got.overhead == OP + math.ceil(round(cost.partial_sums * 0.14, 6))
    by_name = {
        "compute": "compute",
        "read": "memory",
        "write": "memory",
        "lx": "lx",
        "ring": "ring",
    }
    slowest = {by_name[name] for name in want if getattr(got, name) == longest}
    assert got.bound in (slowest if longest >= got.overhead else {"overhead"})


@given(COSTS, st.sampled_from(["points", "read_bytes", "written_bytes", "lx_bytes"]))
def test_twice_as_much_takes_twice_as_long(cost, field):
    part = {"points": "compute", "read_bytes": "read", "written_bytes": "write", "lx_bytes": "lx"}
    before = getattr(price(cost), part[field])
    setattr(cost, field, 2 * getattr(cost, field))
    assert 2 * before - 2 <= getattr(price(cost), part[field]) <= 2 * before


def test_more_cores_help_until_memory_does_not_keep_up():
    def ns(cores):
        cost = OpCost(cores=cores, points=(1 << 24) // cores, passes=6.0)
        cost.read_bytes = cost.written_bytes = 2 << 24
        return price(cost).total

    times = [ns(cores) for cores in (1, 2, 4, 8, 16, 32)]
    assert times == sorted(times, reverse=True)
    assert times[1] < 0.51 * times[0]
    assert times[-1] == times[-2] == math.ceil((2 << 24) / 204.8) + OP


def test_a_short_product_does_not_fill_the_array():
    def rate(rows):
        return rows / price(OpCost(unit="pt", points=rows << 20, rows=rows)).compute

    assert rate(64) == pytest.approx(rate(512), rel=1e-3)
    assert rate(16) == pytest.approx(rate(64) / 2, rel=1e-3)
    assert rate(8) == pytest.approx(rate(64) / math.sqrt(8), rel=1e-3)


def test_the_classes_of_ops():
    passes = {name: sfp_passes(name) for name in ("add", "exp", "realdiv", "sum", "softmax")}
    assert passes == {"add": 1, "exp": 1.5, "realdiv": 1.5, "sum": 1, "softmax": 6}
    parts = ("max", "sub", "exp", "sum", "realdiv")
    assert passes["softmax"] == sum(sfp_passes(name) for name in parts)
    assert all(sfp_passes(name) >= 1 for name in OPS)


def test_what_cannot_be_a_cost_is_refused():
    with pytest.raises(ValueError, match="points is not negative"):
        OpCost(points=-1)
    with pytest.raises(ValueError, match='"sfp" or "pt", not "gpu"'):
        OpCost(unit="gpu")
    with pytest.raises(TypeError, match="no field elements"):
        OpCost(elements=3)


def test_pricing_is_cheap_enough_for_planners():
    cost = OpCost(points=1 << 20, read_bytes=1 << 20)
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(10_000):
            price(cost)
        best = min(best, (time.perf_counter() - start) / 10_000)
    assert best < 2e-6


def test_pricing_starts_no_runtime():
    code = """
    import json, torch
    from torch_spyre.cost import OpCost, price
    print(json.dumps([price(OpCost()).total, torch.spyre.is_initialized()]))
    """
    assert forked(code).value == [OP, False]


# ---------------------------------------------------------------------------------------- the ring


def test_the_ring_carries_messages_the_shorter_way():
    assert ring_load([(0, 1, 1280)]).ns == 8  # 10 cycles for the bytes, one for the hop
    assert ring_load([(0, 31, 1280)]).hops == 1
    assert ring_load([(0, 20, 128), (20, 0, 128)]).hops == 12
    rotation = [(core, (core + 4) % 32, 1280) for core in range(32)]
    assert ring_load(rotation).link_bytes == 4 * 1280
    assert ring_load(rotation).bytes == 32 * 1280
    with pytest.raises(IndexError, match=r"0\.\.31"):
        ring_load([(0, 32, 128)])


@given(st.lists(st.integers(-1, 3), min_size=1, max_size=32), st.integers(0, 1 << 20))
def test_an_all_gather_brings_everybody_everything(groups, size):
    members = [sum(g == group for g in groups) for group in groups if group >= 0]
    gathered = ring_all_gather(groups, size)
    assert gathered.bytes == sum(count - 1 for count in members) * size
    alone = [
        (a, b, size)
        for a, one in enumerate(groups)
        for b, other in enumerate(groups)
        if one == other >= 0 and a != b
    ]
    apart = ring_load(alone)  # every message on its own: slices are not shared on the way
    assert gathered.link_bytes <= apart.link_bytes
    assert gathered.hops == apart.hops


def test_the_ring_beats_device_memory_for_slices_of_neighbours():
    slices = 64 << 10
    ring = ring_load([(core, core ^ 1, slices) for core in range(32)]).ns
    through_memory = (
        price(OpCost(written_bytes=32 * slices)).write + price(OpCost(read_bytes=32 * slices)).read
    )
    assert ring < through_memory / 20


SHARED = st.tuples(st.integers(1, 5), st.integers(1, 5)).filter(lambda bits: sum(bits) <= 5)


@given(SHARED, st.booleans(), st.integers(1, 1 << 24))
def test_what_cores_share_comes_again_or_over_the_ring(bits, neighbours, size):
    parts, sharers = (1 << n for n in bits)
    cores = range(parts * sharers)
    groups = tuple(core // sharers if neighbours else core % parts for core in cores)
    way = shared_read(size, groups)
    often = size * math.ceil(sharers / 8)
    if way.read_bytes == often:
        assert (way.ring.bytes, way.ring.hops) == (0, 0)
    else:
        assert way.read_bytes == size
        part = math.ceil(size / len(cores))
        assert way.ring.bytes == ring_all_gather(groups, part).bytes >= size * (sharers - 1)
    taken = price(
        OpCost(
            read_bytes=way.read_bytes,
            ring_link_bytes=way.ring.link_bytes,
            ring_hops=way.ring.hops,
        )
    )
    assert taken.total <= price(OpCost(read_bytes=often)).total
    if sharers > 8 and size > 1 << 16:
        assert way.read_bytes == size
