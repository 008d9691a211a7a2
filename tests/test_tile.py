"""Ops in loops over tiles compute what they compute without; what lies between them is small."""

from dataclasses import replace
from itertools import groupby

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_ops import (
    FULL,
    LAYOUTS,
    A,
    B,
    C,
    at,
    buffer,
    interpret,
    local,
    numbered,
    op,
    run_on_card,
    through,
)

from torch_spyre._inductor.kernel_ir import Access
from torch_spyre._inductor.op_spec import LoopSpec
from torch_spyre._inductor.planning.accesses import device_bytes
from torch_spyre._inductor.planning.auto_tile import tilings
from torch_spyre._inductor.planning.chunk import chunk_large_tensors
from torch_spyre._inductor.planning.divide_work import divide_work
from torch_spyre._inductor.planning.order import products_first
from torch_spyre._inductor.planning.pool import place_in_pool
from torch_spyre._inductor.planning.specs import kernel_of
from torch_spyre._inductor.planning.tile import NotTileable, Tiles, coarse_tile
from torch_spyre._inductor.views import LinearIndex

REST = [products_first, chunk_large_tensors, divide_work]


def tiles(ops, symbol, count, *inner):
    """Every op that has the symbol in tiles; loops inside as lists."""
    members = {each: symbol for each in ops if symbol in each.space}
    return Tiles(count, members, str(symbol), list(inner))


def kernel(ops):
    ops = through(REST, ops)
    return kernel_of(place_in_pool(ops))


def interpret_loops(ops, storages, depth=0, where=None):
    """Runs ops in loops as plain Python would."""
    where = where or {}
    for loops, group in groupby(ops, lambda each: each.loops[depth : depth + 1]):
        body = list(group)
        if not loops:
            interpret([in_iteration(each, where) for each in body], storages)
            continue
        for number in range(loops[0].count):
            interpret_loops(body, storages, depth + 1, where | {loops[0]: number})
    return storages


def in_iteration(each, where):
    def moved(access):
        offset = access.index.offset
        for loop, number in where.items():
            if loop not in access.buffer.tile_of:
                step = access.index.strides.get(loop.symbol, 0)
                offset += number * step * each.space.get(loop.symbol, 0)
        return Access(access.buffer, LinearIndex(offset, access.index.strides))

    return replace(each, inputs=[moved(a) for a in each.inputs], output=moved(each.output))


def buffers_of(ops):
    return {a.buffer for each in ops for a in (*each.inputs, each.output)}


def run_everywhere(make, plan):
    """In plain Python without tiles, in plain Python with them, and on the card: all the same."""
    ops = through(LAYOUTS, make())
    given_buffers = sorted(
        (b for b in buffers_of(ops) if not b.local and b.name in "xyz"), key=lambda b: b.name
    )
    storages = numbered(*given_buffers)
    want = interpret(ops, {name: dict(values) for name, values in storages.items()})
    tiled = coarse_tile(ops, plan(ops))
    start = {name: dict(values) for name, values in storages.items()}
    start |= {b.name: {0: b.constant} for b in buffers_of(tiled) if b.constant is not None}
    got = interpret_loops(tiled, start)
    outputs = [b for b in buffers_of(tiled) if not b.local and b.name.startswith("out")]
    assert outputs
    planned = kernel(tiled)
    tensors = {
        b.name: torch.tensor(list(storages[b.name].values())).reshape(b.size) for b in given_buffers
    }
    tensors |= {b.name: torch.tensor(b.constant) for b in planned.constants}
    on_card = run_on_card(planned, **tensors)
    for out in outputs:
        assert got[out.name] == want[out.name]
        right = [want[out.name][i] for i in range(len(want[out.name]))]
        assert on_card[out.name].flatten().tolist() == right
    return tiled, planned


# ------------------------------------------------------------------------------------------- chains


def chain(m=8, n=64):
    """Two ops, with an intermediate between them."""
    x, out, between = buffer("x", m, n), buffer("out", m, n), local("t", m, n)
    space = {A: m, B: n}
    return [
        op("neg", space, [at(x, A, B)], at(between, A, B)),
        op("add", space, [at(between, A, B), at(x, A, B)], at(out, A, B)),
    ]


def test_what_lies_between_ops_of_a_loop_is_as_large_as_a_tile():
    tiled, planned = run_everywhere(chain, lambda ops: [tiles(ops, A, 4)])
    (loop,) = planned.specs
    assert isinstance(loop, LoopSpec)
    assert (loop.count, [spec.op for spec in loop.body]) == (4, ["neg", "add"])
    between = tiled[0].output.buffer
    assert between.size == [2, 64]
    assert between.tile_of == set(tiled[0].loops)
    assert planned.pool_bytes == device_bytes(between) == 2 * 128
    assert loop.body[0].args[-1].per_tile_fixed
    assert not loop.body[0].args[0].per_tile_fixed


def test_tiles_of_one_row():
    tiled, _ = run_everywhere(chain, lambda ops: [tiles(ops, A, 8)])
    assert tiled[0].output.buffer.size == [1, 64]


def test_tiles_along_sticks_are_whole_sticks():
    tiled, _ = run_everywhere(lambda: chain(n=256), lambda ops: [tiles(ops, B, 2)])
    assert tiled[0].output.buffer.size == [8, 128]


def test_loops_nest():
    def plan(ops):
        return [tiles(ops, A, 2, tiles(ops, B, 4))]

    tiled, planned = run_everywhere(lambda: chain(n=256), plan)
    (outer,) = planned.specs
    (inner,) = outer.body
    assert (outer.count, inner.count) == (2, 4)
    assert tiled[0].output.buffer.size == [4, 64]


def test_a_buffer_of_the_outer_loop_is_whole_in_the_inner_one():
    """The inner loop is around one of the ops only: it walks through the outer one's tile."""

    def plan(ops):
        return [tiles(ops, A, 2, tiles(ops[:1], B, 4))]

    tiled, planned = run_everywhere(lambda: chain(n=256), plan)
    assert tiled[0].output.buffer.size == [4, 256]
    (outer,) = planned.specs
    inner, add = outer.body
    written = inner.body[0].args[-1]
    assert not written.per_tile_fixed
    assert written.tile_symbols == outer.tiled_symbols
    assert add.args[0].per_tile_fixed


def test_ops_that_have_nothing_to_tile_run_around_the_loop():
    def ops():
        x, y, out = buffer("x", 8, 64), buffer("y", 64), buffer("out", 8, 64)
        row, total, end = local("row", 64), local("total", 64), buffer("out2", 64)
        return [
            op("add", {A: 8, B: 64}, [at(x, A, B), at(x, A, B)], at(out, A, B)),
            op("neg", {B: 64}, [at(y, B)], at(row, B)),
            op("sum", {A: 8, B: 64}, [at(x, A, B)], at(total, B)),
            op("add", {B: 64}, [at(total, B), at(row, B)], at(end, B)),
            op("neg", {A: 8, B: 64}, [at(x, A, B)], at(buffer("out3", 8, 64), A, B)),
        ]

    _, planned = run_everywhere(ops, lambda ops: [tiles(ops, A, 4)])
    shape = [entry.op if not isinstance(entry, LoopSpec) else "loop" for entry in planned.specs]
    assert shape == ["neg", "identity", "loop", "fp32todl16", "add"]


def test_what_needs_a_whole_result_begins_another_loop():
    def ops():
        x = buffer("x", 8, 128, dtype=FULL)
        out = buffer("out", 8, 128, dtype=FULL)
        largest = local("max", 8, dtype=FULL)
        space = {A: 8, B: 128}
        return [
            op("max", space, [at(x, A, B)], at(largest, A)),
            op("sub", space, [at(x, A, B), at(largest, A)], at(out, A, B)),
        ]

    _, planned = run_everywhere(ops, lambda ops: [tiles(ops, B, 2)])
    assert [isinstance(entry, LoopSpec) for entry in planned.specs] == [False, True, True]


def test_a_read_of_other_tiles_begins_another_loop():
    def ops():
        x, out, between = buffer("x", 8, 64), buffer("out", 4, 64), local("t", 8, 64)
        return [
            op("neg", {A: 8, B: 64}, [at(x, A, B)], at(between, A, B)),
            op("neg", {A: 4, B: 64}, [at(between, A, B, offset=2 * 64)], at(out, A, B)),
        ]

    tiled, planned = run_everywhere(ops, lambda ops: [tiles(ops, A, 2)])
    assert len(planned.specs) == 2
    assert tiled[0].output.buffer.size == [8, 64]


# ------------------------------------------------------------------------------------------- uneven


def test_the_last_tile_may_be_smaller():
    """Its ops come after the loop, with an intermediate of their own."""
    tiled, planned = run_everywhere(chain, lambda ops: [tiles(ops, A, 3)])
    loop, *last = planned.specs
    assert (loop.count, [spec.op for spec in last]) == (2, ["neg", "add"])
    assert [each.output.buffer.size for each in tiled if each.op == "neg"] == [[3, 64], [2, 64]]
    assert [each.last_tile for each in tiled] == [False, False, True, True]


@pytest.mark.parametrize(
    ("rows", "count", "loops"), [(8, 5, [3, 2]), (4, 3, [2]), (11, 7, [4, 3]), (9, 8, [7])]
)
def test_several_tiles_are_smaller_if_one_does_not_do(rows, count, loops):
    tiled, planned = run_everywhere(lambda: chain(m=rows), lambda ops: [tiles(ops, A, count)])
    assert [entry.count for entry in planned.specs if isinstance(entry, LoopSpec)] == loops
    assert [each.output.buffer.size for each in tiled if each.op == "neg"] == [[2, 64], [1, 64]]


def test_two_uneven_tiles_are_no_loop():
    _, planned = run_everywhere(lambda: chain(m=5), lambda ops: [tiles(ops, A, 2)])
    assert [spec.op for spec in planned.specs] == ["neg", "add", "neg", "add"]


@pytest.mark.parametrize(
    ("columns", "count", "sizes"),
    [(320, 3, [128, 64]), (200, 2, [128, 72]), (200, 4, [64, 8]), (136, 3, [64, 8])],
)
def test_the_last_of_tiles_along_sticks_may_have_an_unfinished_one(columns, count, sizes):
    tiled, _ = run_everywhere(lambda: chain(n=columns), lambda ops: [tiles(ops, B, count)])
    assert [each.output.buffer.size[1] for each in tiled if each.op == "neg"] == sizes


@pytest.mark.parametrize("columns", [40, 200])
def test_tiles_of_one_row_that_is_no_whole_stick(columns):
    tiled, _ = run_everywhere(lambda: chain(n=columns), lambda ops: [tiles(ops, A, 8)])
    assert tiled[0].output.buffer.size == [1, columns]


def test_uneven_loops_nest():
    def plan(ops):
        return [tiles(ops, A, 3, tiles(ops, B, 3))]

    tiled, planned = run_everywhere(lambda: chain(n=320), plan)
    kinds = ["loop" if isinstance(entry, LoopSpec) else entry.op for entry in planned.specs]
    assert kinds == ["loop", "loop", "neg", "add"]
    sizes = [each.output.buffer.size for each in tiled if each.op == "neg"]
    assert sizes == [[3, 128], [3, 64], [2, 128], [2, 64]]


def test_what_is_read_after_uneven_tiles_stays_whole():
    def ops():
        x, out, between = buffer("x", 8, 64), buffer("out", 4, 64), local("t", 8, 64)
        return [
            op("neg", {A: 8, B: 64}, [at(x, A, B)], at(between, A, B)),
            op("neg", {A: 4, B: 64}, [at(between, A, B, offset=2 * 64)], at(out, A, B)),
        ]

    tiled, _ = run_everywhere(ops, lambda ops: [tiles(ops[:1], A, 3)])
    assert {each.output.buffer.size[0] for each in tiled} == {8, 4}


def test_loops_of_other_lengths_are_cut_at_the_same_places():
    """Two loops over a dimension, one of them in pairs of rows: tiles are whole pairs."""

    def ops():
        x, out, between = buffer("x", 10, 64), buffer("out", 10, 64), local("t", 10, 64)
        rows = Access(between, LinearIndex(0, {A: 128, C: 64, B: 1}))
        result = Access(out, LinearIndex(0, {A: 128, C: 64, B: 1}))
        return [
            op("neg", {A: 10, B: 64}, [at(x, A, B)], at(between, A, B)),
            op("neg", {A: 5, C: 2, B: 64}, [rows], result),
        ]

    tiled, _ = run_everywhere(ops, lambda ops: [tiles(ops, A, 3)])
    assert [each.output.buffer.size[0] for each in tiled if each.output.buffer.local] == [4, 2]


# --------------------------------------------------------------------------------------- reductions


@pytest.mark.parametrize("count", [4, 6, 10])
@pytest.mark.parametrize("kind", ["sum", "max", "min"])
def test_reductions_combine_what_they_have_of_tiles(kind, count):
    def ops():
        x, out = buffer("x", 16, 64, dtype=FULL), buffer("out", 64, dtype=FULL)
        return [op(kind, {A: 16, B: 64}, [at(x, A, B)], at(out, B))]

    _, planned = run_everywhere(ops, lambda ops: [tiles(ops, A, count)])
    first, loop, *last = planned.specs
    assert first.op == "identity"
    assert len(loop.body) == 2
    assert len(last) == {4: 0, 6: 2, 10: 1}[count]  # 6 of 2 rows, and a loop of 4 of one


def test_a_sum_of_16_bits_is_rounded_once():
    """Tiles of 1024 and of 1s: were the total kept in 16 bits, the 1s would be lost."""

    def ops():
        x, out = buffer("x", 16, 64), buffer("out", 64)
        return [op("sum", {A: 16, B: 64}, [at(x, A, B)], at(out, B))]

    planned_ops = through(LAYOUTS, ops())
    planned = kernel(coarse_tile(planned_ops, [tiles(planned_ops, A, 16)]))
    x = torch.ones(16, 64)
    x[0] = 2048
    x[15] = -2048
    given_tensors = {b.name: torch.tensor(b.constant) for b in planned.constants}
    assert run_on_card(planned, x=x, **given_tensors)["out"].tolist() == [14.0] * 64


def product(m=8, n=64, k=256):
    x, y, out = buffer("x", m, k), buffer("y", k, n), buffer("out", m, n, dtype=FULL)
    return [op("batchmatmul", {A: m, B: n, C: k}, [at(x, A, C), at(y, C, B)], at(out, A, B))]


@pytest.mark.parametrize(
    "plan",
    [
        lambda ops: [tiles(ops, C, 4)],
        lambda ops: [tiles(ops, A, 2)],
        lambda ops: [tiles(ops, A, 2, tiles(ops, C, 2))],
        lambda ops: [tiles(ops, C, 2, tiles(ops, A, 4))],
        lambda ops: [tiles(ops, A, 8, tiles(ops, C, 4))],
        lambda ops: [tiles(ops, A, 3, tiles(ops, C, 4))],
    ],
    ids=["K", "M", "K in M", "M in K", "K in single rows", "K in M, uneven"],
)
def test_tiles_of_a_product(plan):
    run_everywhere(product, plan)


@pytest.mark.parametrize(
    "plan",
    [
        lambda ops: [tiles(ops, C, 2)],
        lambda ops: [tiles(ops, B, 2)],
        lambda ops: [tiles(ops, A, 3, tiles(ops, C, 2))],
        lambda ops: [tiles(ops, C, 3, tiles(ops, A, 3))],
        lambda ops: [tiles(ops, C, 2, tiles(ops, A, 5, tiles(ops, B, 2)))],
        lambda ops: [tiles(ops, A, 5, tiles(ops, C, 2))],
    ],
    ids=["K", "N", "K in M", "M in K", "all", "K in two loops over M"],
)
def test_uneven_tiles_of_a_product(plan):
    run_everywhere(lambda: product(m=8, n=72, k=136), plan)


def test_an_accumulator_inside_of_a_loop_is_as_large_as_its_tile():
    tiled, _ = run_everywhere(product, lambda ops: [tiles(ops, A, 2, tiles(ops, C, 2))])
    assert [b.size for b in buffers_of(tiled) if b.local] == [[4, 64]]


# ---------------------------------------------------------------------------------------- at random


@st.composite
def plans(draw):
    """Loops around all ops, nested in any order."""
    counts = {A: draw(st.sampled_from([1, 2, 3, 4, 5])), B: draw(st.sampled_from([1, 2, 3]))}
    counts[C] = draw(st.sampled_from([1, 2, 3]))
    return [(s, counts[s]) for s in draw(st.permutations([A, B, C])) if counts[s] > 1]


@given(
    plan=plans(),
    kept=st.sampled_from([(A,), (B,), (A, B), (A, C), (C,), (B, C)]),
    kind=st.sampled_from(["sum", "max"]),
)
@settings(max_examples=20)
def test_any_nest_of_loops_computes_the_same(plan, kept, kind):
    """A chain with a reduction in it, whose result meets what was reduced."""

    def ops():
        space = {A: 5, B: 3, C: 72}
        sizes = list(space.values())
        x = buffer("x", *sizes, dtype=FULL)
        y = buffer("y", *sizes, dtype=FULL)
        out, out2 = buffer("out", *sizes, dtype=FULL), buffer("out2", *sizes, dtype=FULL)
        one, two = local("one", *sizes, dtype=FULL), local("two", *sizes, dtype=FULL)
        reduced = local("r", *(space[s] for s in kept), dtype=FULL)
        return [
            op("add", space, [at(x, A, B, C), at(y, A, B, C)], at(one, A, B, C)),
            op(kind, space, [at(one, A, B, C)], at(reduced, *kept)),
            op("neg", space, [at(one, A, B, C)], at(out2, A, B, C)),
            op("sub", space, [at(one, A, B, C), at(reduced, *kept)], at(two, A, B, C)),
            op("add", space, [at(two, A, B, C), at(x, A, B, C)], at(out, A, B, C)),
        ]

    def nested(made):
        plan_so_far = []
        for symbol, count in reversed(plan):
            plan_so_far = [tiles(made, symbol, count, *plan_so_far)]
        return plan_so_far

    run_everywhere(ops, nested)


def test_a_chain_does_not_leave_its_loop_and_come_back():
    """Two large products with a long chain in between, and a mask of constants: all in one loop."""
    rows, columns = 4096, 4096
    space = {A: rows, B: columns}
    first, last = local("first", rows, columns), local("last", rows, columns)
    x, out = buffer("x", rows, columns), buffer("out", rows, columns)
    number = buffer("number")
    number.constant = 1.0
    ops = [op("neg", space, [at(x, A, B)], at(first, A, B))]
    value = first
    for i in range(12):  # more than are taken along just because they are near
        made = local(f"step{i}", rows, columns)
        ops.append(op("abs", space, [at(value, A, B)], at(made, A, B)))
        value = made
    mask = local("mask", rows, columns)
    ops.append(op("identity", space, [Access(number, LinearIndex(0, {}))], at(mask, A, B)))
    ops.append(op("add", space, [at(value, A, B), at(mask, A, B)], at(last, A, B)))
    ops.append(op("mul", space, [at(last, A, B), at(first, A, B)], at(out, A, B)))
    ops = through(LAYOUTS, ops)
    (plan,) = tilings(ops, {first, last}, cores=32)
    assert [each.op for each in plan.symbols] == [each.op for each in ops]


# ----------------------------------------------------------------------------------------- refusals


def refused(ops, plan):
    ops = through(LAYOUTS, ops)
    before = [str(each) for each in ops]
    with pytest.raises(NotTileable) as caught:
        coarse_tile(ops, plan(ops))
    assert [str(each) for each in ops] == before, "nothing is changed by a plan that is refused"
    return str(caught.value)


def test_no_tile_is_empty():
    text = refused(chain(), lambda ops: [tiles(ops, A, 9)])
    assert "9 tiles of dimension 'c0': its size 8 cannot be so many" in text
    assert "op: neg" in text


def test_tiles_do_not_cut_sticks():
    text = refused(chain(n=64), lambda ops: [tiles(ops, B, 2)])
    assert "its size 64 in whole sticks of 64 of x: float16[8, 64] cannot be" in text


def test_a_loop_is_tiled_once():
    text = refused(chain(), lambda ops: [tiles(ops, A, 2, tiles(ops, A, 2))])
    assert "it is tiled already, by a loop around" in text


def test_what_tiles_do_not_combine_to_is_refused():
    x, out = buffer("x", 8, 64), buffer("out", 64, dtype=torch.int64)
    ops = [op("argmax", {A: 8, B: 64}, [at(x, A, B)], at(out, B))]
    text = refused(ops, lambda ops: [tiles(ops, A, 2)])
    assert "argmax of tiles does not give argmax of all" in text
