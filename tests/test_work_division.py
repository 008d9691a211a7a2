"""Which cores do what, where intermediates lie, and what compiled graphs get of it."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from compiling import card
from hypothesis import event, given, settings
from hypothesis import strategies as st
from kernel_ops import (
    FULL,
    HALF,
    LAYOUTS,
    A,
    B,
    C,
    at,
    buffer,
    groups_of,
    interpret,
    local,
    numbered,
    op,
    run_on_card,
    softmax_ops,
    through,
)

from torch_spyre._inductor import config
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.kernel_ir import Access
from torch_spyre._inductor.planning import plan_kernel
from torch_spyre._inductor.planning.dead_ops import drop_dead_ops
from torch_spyre._inductor.planning.divide_work import divide_work
from torch_spyre._inductor.planning.footprints import OpShape
from torch_spyre._inductor.planning.pool import place_in_pool
from torch_spyre._inductor.planning.prices import OpPrices
from torch_spyre._inductor.planning.specs import kernel_of

# ------------------------------------------------------------------------------------ work division
from torch_spyre._inductor.views import LinearIndex


def sticks_by_core(each, access):
    """Which sticks of a matrix each core touches, iteration by iteration."""
    rows, columns = access.buffer.size
    along_rows = access.buffer.name == "turned"
    stick_of = {
        row * columns + column: row // 64 * columns + column
        if along_rows
        else column // 64 * rows + row
        for row in range(rows)
        for column in range(columns)
    }
    shape = OpShape(each)
    touched = {}
    for point in itertools.product(*(range(n) for n in each.space.values())):
        where = dict(zip(each.space, point, strict=True))
        core, cores = 0, 1
        for symbol, parts in each.splits.items():
            core += where[symbol] // shape.chunk(symbol, parts) * cores
            cores *= parts
        host = access.index.offset + sum(t * where[s] for s, t in access.index.strides.items())
        touched.setdefault(core, set()).add(stick_of[host])
    return touched


@given(st.data())
def test_equal_footprints_mean_equal_sticks(data):
    rows, columns = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 200))
    turned = data.draw(st.booleans())
    x = buffer("turned" if turned else "x", rows, columns, stick=0 if turned else 1)
    made = []
    for _ in range(2):
        space = {A: rows, B: columns} if data.draw(st.booleans()) else {B: columns, A: rows}
        each = op("neg", space, [at(x, A, B)], at(buffer("o", rows, columns), A, B))
        shape = OpShape(each)
        each.splits = {
            s: math.ceil(u / math.ceil(u / data.draw(st.integers(1, 4))))
            for s, u in shape.units.items()
        }
        made.append((each, shape.footprints(each.splits)[0]))
    (one, footprint), (other, again) = made
    sticks = [sticks_by_core(each, each.inputs[0]) for each in (one, other)]
    if footprint == again:
        assert sticks[0] == sticks[1]


@given(st.data())
def test_a_footprint_within_another_means_no_other_sticks(data):
    size = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 200)))
    x = buffer("x", *size)
    made = []
    for extents in ([data.draw(st.integers(1, n)) for n in size], size):
        space = dict(zip((A, B), extents, strict=True))
        each = op("neg", space, [at(x, A, B)], at(buffer("o", *extents), A, B))
        shape = OpShape(each)
        each.splits = {s: shape.parts(s, data.draw(st.integers(1, 4))) for s in space}
        made.append((each, shape.footprints(each.splits)[0]))
    (part, footprint), (whole, larger) = made
    touched, there = (sticks_by_core(each, each.inputs[0]) for each in (part, whole))
    if footprint.within(larger):
        event("within")
        assert all(touched[core] <= there[core] for core in touched)


@pytest.mark.parametrize("shape", [(256, 512), (100, 500), (33, 4096), (7, 70), (1, 64)])
def test_softmax_needs_no_wait(shape):
    ops = softmax_ops(*shape, inside=FULL)
    kernel = plan_kernel(ops)
    assert len(groups_of(kernel)) == 1
    assert {each.splits[A] for each in ops} == {math.ceil(shape[0] / math.ceil(shape[0] / 32))}
    x = torch.randn(shape).half()
    got = run_on_card(kernel, x=x)["out"].float()
    torch.testing.assert_close(got, x.float().softmax(1), rtol=1e-2, atol=1e-3)


def test_few_long_rows_are_worth_a_wait():
    ops = through(LAYOUTS, softmax_ops(2, 1 << 23, FULL, FULL))
    by_name = {each.op: math.prod(each.splits.values()) for each in divide_work(ops)}
    assert by_name["max"] == 2
    assert by_name["exp"] == 32


def test_uneven_sizes_use_many_cores():
    for rows in (31, 33, 50, 61, 97):
        (each,) = divide_work([op("neg", {A: rows, B: 64}, [at(buffer("x", rows, 64), A, B)],
                                  at(buffer("o", rows, 64), A, B))])  # fmt: skip
        assert math.prod(each.splits.values()) >= 16


def test_fewer_cores_are_respected():
    with config.patch(sencores=5):
        for each in through([*LAYOUTS, divide_work], softmax_ops(100, 130, inside=FULL)):
            assert math.prod(each.splits.values()) <= 5


def test_loops_in_another_order_still_agree():
    """A transposed copy after an op over heads and rows: cores keep what they wrote."""
    x, t, out = buffer("x", 4, 16, 64), local("t", 4, 16, 64), buffer("out", 16, 4, 64)
    ops = [
        op("exp", {A: 4, B: 16, C: 64}, [at(x, A, B, C)], at(t, A, B, C)),
        op("neg", {B: 16, A: 4, C: 64}, [at(t, A, B, C)], at(out, B, A, C)),
    ]
    kernel = plan_kernel(ops)
    assert all(math.prod(each.splits.values()) == 32 for each in ops)
    assert len(groups_of(kernel)) == 1
    a = torch.rand(4, 16, 64).half()
    got = run_on_card(kernel, x=a)["out"].float()
    torch.testing.assert_close(got, -a.float().exp().transpose(0, 1), rtol=1e-2, atol=1e-2)


def matmul_op(m, n, k):
    x, y, out = buffer("x", m, k), buffer("y", n, k), buffer("out", m, n)
    return op("batchmatmul", {A: m, B: n, C: k}, [at(x, A, C), at(y, B, C)], at(out, A, B))


def product_and_more(m, n, k):
    """``-exp(x @ y.T)``, of which nobody sees the product."""
    product = matmul_op(m, n, k)
    made, more, out = local("made", m, n), local("more", m, n), buffer("out", m, n)
    product.output = at(made, A, B)
    space = {A: m, B: n}
    return [
        product,
        op("exp", space, [at(made, A, B)], at(more, A, B)),
        op("neg", space, [at(more, A, B)], at(out, A, B)),
    ]


@pytest.mark.parametrize("sizes", [(256, 3072, 1024), (128, 128, 64), (97, 200, 70)])
def test_what_follows_a_product_is_computed_where_its_tiles_are(sizes):
    kernel = plan_kernel(product_and_more(*sizes))
    assert groups_of(kernel) == [["batchmatmul", "exp", "neg"]]


def test_cores_that_share_a_tile_of_a_product_are_waited_for():
    ops = through([*LAYOUTS, divide_work], product_and_more(1, 1024, 4096))
    ops[0].splits[C] = 2
    kernel = kernel_of(place_in_pool(ops))
    assert groups_of(kernel) == [["batchmatmul"], ["exp", "neg"]]


@pytest.mark.parametrize("sizes", [(512, 4096, 1024), (128, 256, 512), (1, 4096, 4096)])
def test_a_product_is_split_as_the_cost_model_says(sizes):
    m, n, k = sizes
    (each,) = through(LAYOUTS, [matmul_op(m, n, k)])
    prices = OpPrices(OpShape(each))
    divide_work([each])
    even = [
        dict(zip(each.space, parts, strict=True))
        for parts in itertools.product(range(1, 33), repeat=3)
        if math.prod(parts) == 32
        and all(size % n == 0 for size, n in zip((m, n // 64, k // 64), parts, strict=True))
    ]
    best = min(map(prices.microseconds, even))
    assert prices.microseconds(each.splits) == pytest.approx(best)
    fewest = min(d[C] for d in even if prices.microseconds(d) <= best)
    assert each.splits[C] == fewest  # a result is left to one core where that is as fast


def test_a_product_of_odd_sizes_uses_many_cores():
    each = through([*LAYOUTS, divide_work], [matmul_op(97, 70, 130)])[0]
    assert math.prod(each.splits.values()) >= 25


def test_more_than_a_core_reaches_is_refused_with_a_way_out():
    size = (1 << 29,)
    each = op("neg", {A: size[0]}, [at(buffer("x", *size), A)], at(buffer("o", *size), A))
    assert divide_work([each])[0].splits[A] == 32
    with config.patch(sencores=2), pytest.raises(Unsupported, match="CHUNK_LARGE_TENSORS"):
        divide_work([each])


# ------------------------------------------------------------------------------------------- memory


SIDE = 24  # of the squares below


@st.composite
def chains(draw):
    """Ops over a square, each on what some ops before it made."""
    x, ops, made = buffer("x", SIDE, SIDE), [], []
    for i in range(draw(st.integers(1, 8))):
        dtype = draw(st.sampled_from([HALF, FULL]))
        sources = [x, *made]
        into = local(f"t{i}", SIDE, SIDE, dtype=dtype)
        reads = [draw(st.sampled_from(sources)) for _ in range(2)]
        symbols = draw(st.sampled_from([(A, B), (B, A)]))
        ops.append(op("add", {A: SIDE, B: SIDE}, [at(reads[0], A, B), at(reads[1], *symbols)],
                      at(into, A, B)))  # fmt: skip
        made.append(into)
    ops.append(
        op("neg", {A: SIDE, B: SIDE}, [at(made[-1], A, B)], at(buffer("out", SIDE, SIDE), A, B))
    )
    return ops


@settings(max_examples=30)
@given(chains(), st.booleans())
def test_live_intermediates_never_share_memory(ops, planning):
    ops = through([drop_dead_ops, *LAYOUTS, divide_work], ops)
    with config.patch(hbm_planning=planning):
        size = kernel_of(place_in_pool(ops)).pool_bytes
    spans = {}
    for time, each in enumerate(ops):
        for access in (*each.inputs, each.output):
            if access.buffer.local:
                spans.setdefault(access.buffer, []).append(time)
    bytes_of = {b: 128 * math.prod(b.layout.device_size[:-1]) for b in spans}
    places = {b: b.pool for b in spans}
    assert size <= sum(bytes_of.values())
    for one, other in itertools.combinations(spans, 2):
        apart = (places[one] + bytes_of[one] <= places[other]
                 or places[other] + bytes_of[other] <= places[one])  # fmt: skip
        assert places[one] % 128 == 0
        if apart:
            continue
        assert planning
        first, second = sorted((one, other), key=lambda b: spans[b][0])
        assert spans[first][-1] <= spans[second][0]
        if spans[first][-1] == spans[second][0]:  # in place: the same elements
            each = ops[spans[second][0]]
            reads = [a for a in each.inputs if a.buffer is first]
            assert all(a.index == each.output.index for a in reads)
            assert places[first] == places[second]


@settings(max_examples=30)
@given(chains())
def test_nobody_waits_for_memory_that_is_used_again(ops):
    ops = through([drop_dead_ops, *LAYOUTS, divide_work], ops)
    with config.patch(hbm_planning=False):
        apart = groups_of(kernel_of(place_in_pool(ops)))
    assert groups_of(kernel_of(place_in_pool(ops))) == apart


def test_a_chain_of_ops_lives_in_one_place():
    x, ops = buffer("x", 64, 128), []
    value = x
    for i in range(5):
        into = local(f"t{i}", 64, 128)
        ops.append(op("neg", {A: 64, B: 128}, [at(value, A, B)], at(into, A, B)))
        value = into
    ops.append(op("neg", {A: 64, B: 128}, [at(value, A, B)], at(buffer("out", 64, 128), A, B)))
    with config.patch(lx_planning=False):
        assert plan_kernel(ops).pool_bytes == 64 * 128 * 2


def test_uneven_parts_beside_other_memory():
    """Rows 1 to 127 of an intermediate, and right behind it what is computed from them."""
    x, t, m = buffer("x", 128, 128), local("t", 128, 128), local("m", 127)
    few, kept, again = buffer("few", 3, 64), local("kept", 3, 64), buffer("again", 3, 64)
    out = buffer("out", 127, 128)
    space, later = {A: 127, B: 128}, LinearIndex(128, {A: 128, B: 1})
    ops = [
        op("neg", {A: 3, B: 64}, [at(few, A, B)], at(kept, A, B)),
        op("neg", {A: 128, B: 128}, [at(x, A, B)], at(t, A, B)),
        op("max", space, [Access(t, later)], at(m, A)),
        op("sub", space, [Access(t, later), at(m, A)], at(out, A, B)),
        op("neg", {A: 3, B: 64}, [at(kept, A, B)], at(again, A, B)),
    ]
    x = torch.randn(128, 128).half()
    got = run_on_card(plan_kernel(ops), x=x)["out"].float()
    want = -x[1:].float() - (-x[1:].float()).amax(1, keepdim=True)
    torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2)


@settings(max_examples=15)
@given(chains())
def test_plans_compute_what_the_ops_say(ops):
    storages = numbered(ops[0].inputs[0].buffer)
    x = torch.tensor([storages["x"][i] for i in range(SIDE * SIDE)]).reshape(SIDE, SIDE)
    if max(map(abs, interpret(ops, storages)["out"].values())) > 100:
        x = x.sign()
        storages = {"x": dict(enumerate(x.flatten().tolist()))}
        interpret(ops, storages)
    want = torch.tensor([storages["out"][i] for i in range(SIDE * SIDE)]).reshape(SIDE, SIDE)
    got = run_on_card(plan_kernel(ops), x=x)["out"].float()
    torch.testing.assert_close(got, want, rtol=2**-7, atol=2**-7 * want.abs().max().item())


# ---------------------------------------------------------------------------------- compiled graphs


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: F.softmax(x * 2, -1),
        lambda x, w: F.layer_norm(x, w.shape, w, w),
        lambda x, w: F.rms_norm(x, w.shape, w),
    ],
    ids=["softmax", "layer_norm", "rms_norm"],
)
@pytest.mark.parametrize("rows", [64, 37])
def test_rows_are_one_kernel_without_a_wait(planned, function, rows):
    x, w = card(rows, 200), card(200, seed=1)
    got, kernels = planned(function, x, w)
    assert [len(groups_of(kernel)) for kernel in kernels] == [1]
    want = function(x.cpu().float(), w.cpu().float())
    torch.testing.assert_close(got.cpu().float(), want, rtol=1e-2, atol=1e-2)


def gated(x, g, u):
    return F.silu(x @ g.t()) * (x @ u.t())


def test_what_knobs_do(planned):
    args = card(33, 128), card(192, 128, seed=1), card(192, 128, seed=2)
    got, kernels = planned(gated, *args)
    assert len(kernels) == 1
    assert groups_of(kernels[0]) == [["batchmatmul", "batchmatmul", "silu", "mul"]]
    with config.patch(fusion=False):
        apart, each_one = planned(gated, *args)
    assert len(each_one) >= 4
    assert all(len(kernel.specs) == 1 for kernel in each_one)
    assert kernels[0].pool_bytes == 0
    with config.patch(lx_planning=False):
        tight, pooled = planned(gated, *args)
        with config.patch(hbm_planning=False):
            roomy, more = planned(gated, *args)
    assert more[0].pool_bytes >= pooled[0].pool_bytes > 0
    # Fewer rows at a time are summed up in another order, where sticks run along the sums.
    torch.testing.assert_close(got.cpu(), tight.cpu(), rtol=2**-8, atol=2e-3)
    assert torch.equal(tight.cpu(), apart.cpu())
    assert torch.equal(tight.cpu(), roomy.cpu())


def test_attention_with_grouped_heads_copies_nothing(planned):
    def attention(q, k, v):
        batch, _, length, size = q.shape
        wide = [t[:, :, None].expand(batch, 2, 2, length, size).reshape(q.shape) for t in (k, v)]
        scores = (q @ wide[0].transpose(-1, -2)) * 0.125
        return (scores.softmax(-1) @ wide[1]).transpose(1, 2).reshape(batch, length, -1)

    q, k, v = card(2, 4, 48, 64), card(2, 2, 48, 64, seed=1), card(2, 2, 48, 64, seed=2)
    got, kernels = planned(attention, q, k, v)
    names = [spec.op for kernel in kernels for spec in kernel.specs]
    assert "identity" not in names
    assert "ReStickifyOpHBM" not in names
    want = attention(*(t.cpu().float() for t in (q, k, v)))
    torch.testing.assert_close(got.cpu().float(), want, rtol=2e-2, atol=2e-2)
