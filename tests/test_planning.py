"""Passes over kernel ops: what they change, and that no number changes with it."""

import itertools
import math
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_ops import (
    FULL,
    HALF,
    LAYOUTS,
    A,
    B,
    C,
    D,
    at,
    buffer,
    interpret,
    local,
    numbered,
    op,
    run_on_card,
    through,
)

from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor import config
from torch_spyre._inductor.kernel_ir import Access, Buffer, Ramp
from torch_spyre._inductor.planning import PASSES, SETTLE, MustSplit, plan_kernel
from torch_spyre._inductor.planning.cut_loops import cut_loops
from torch_spyre._inductor.planning.dead_ops import drop_dead_ops
from torch_spyre._inductor.planning.elide_copies import elide_copies
from torch_spyre._inductor.planning.fold_casts import fold_casts
from torch_spyre._inductor.planning.order import products_first
from torch_spyre._inductor.planning.pool import place_in_pool
from torch_spyre._inductor.planning.products import write_out_products
from torch_spyre._inductor.planning.realign import expressible, realign
from torch_spyre._inductor.planning.restickify import insert_restickifies
from torch_spyre._inductor.planning.specs import kernel_of
from torch_spyre._inductor.planning.sticks import choose_layouts
from torch_spyre._inductor.views import LinearIndex, device_coordinates

# ----------------------------------------------------------------------------------------- the list


def test_the_page_has_all_passes_in_the_order_in_which_they_run():
    page = (Path(__file__).parents[1] / "docs/compiler.md").read_text()
    planning = page.partition("## Planning a kernel")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", planning, re.MULTILINE)
    assert listed == [run.__name__ for run in PASSES]


# ----------------------------------------------------------------------------------------- products

X, Y = (lambda *size: buffer("x", *size)), (lambda *size: buffer("y", *size))
SUMMED = {
    "no rows and no columns": ({A: 3, C: 5}, X(3, 5), (A, C), Y(3, 5), (A, C), 1),
    "K as two loops": ({A: 3, B: 4, C: 5, D: 2}, X(3, 5, 2), (A, C, D), Y(5, 2, 4), (C, D, B), 2),
    "a loop that no factor has": ({A: 3, B: 2, C: 5}, X(5), (C,), Y(5, 2), (C, B), 2),
    "one factor without K": ({A: 3, B: 2, C: 5}, X(3, 5), (A, C), Y(2), (B,), 2),
    "nothing to sum": ({A: 3, B: 2}, X(3), (A,), Y(2), (B,), 2),
}


@pytest.mark.parametrize("kind", SUMMED)
def test_what_no_pt_unit_multiplies_is_written_out(kind):
    space, x, of_x, y, of_y, kept = SUMMED[kind]
    outer = list(space)[:kept]
    out = buffer("out", *(space[s] for s in outer))
    product = op("batchmatmul", space, [at(x, *of_x), at(y, *of_y)], at(out, *outer))
    want = interpret([product], numbered(x, y))["out"]
    ops = write_out_products([product])
    assert [each.op for each in ops] == ["mul", "sum"][: 1 + (len(space) > kept)]
    assert interpret(ops, numbered(x, y))["out"] == want


def test_rows_or_columns_make_a_product():
    x, y, out = buffer("x", 3, 5), buffer("y", 5), buffer("out", 3)
    product = op("batchmatmul", {A: 3, C: 5}, [at(x, A, C), at(y, C)], at(out, A))
    assert write_out_products([product]) == [product]


# ---------------------------------------------------------------------------------------- cut_loops


def flattened_add(shape=(6, 10, 65)):
    """One loop over all elements of a tensor of three dimensions, and two ops that share it."""
    x, out, t = buffer("x", *shape), buffer("out", *shape), local("t", math.prod(shape))
    space = {A: math.prod(shape)}
    flat = LinearIndex(0, {A: 1})
    return [
        op("neg", space, [Access(x, flat)], Access(t, flat)),
        op("add", space, [Access(t, flat), Access(x, flat)], Access(out, flat)),
    ], (x,)


def test_loops_are_cut_where_layouts_have_dimensions():
    ops, inputs = flattened_add()
    want = interpret(ops, numbered(*inputs))["out"]
    ops = cut_loops(ops)
    assert ops[0].space is ops[1].space
    assert sorted(ops[0].space.values()) == [6, 10, 65]
    for access in (ops[1].inputs[1], ops[1].output):
        assert device_coordinates(access.buffer.layout, access.index, ops[1].space) is not None
    assert interpret(ops, numbered(*inputs))["out"] == want


@given(st.lists(st.integers(2, 5), min_size=1, max_size=4))
def test_cutting_changes_no_number(shape):
    ops, inputs = flattened_add(tuple(shape))
    want = interpret(ops, numbered(*inputs))["out"]
    assert interpret(cut_loops(ops), numbered(*inputs))["out"] == want


def test_k_of_a_product_is_not_cut():
    x, y, out = buffer("x", 8, 4, 65), buffer("y", 260, 64), buffer("out", 8, 64)
    flat = LinearIndex(0, {A: 260, C: 1})
    product = op(
        "batchmatmul", {A: 8, B: 64, C: 260}, [Access(x, flat), at(y, C, B)], at(out, A, B)
    )
    assert cut_loops([product])[0].space[C] == 260
    assert realign([product])[0].inputs[0].buffer.view is not None  # a copy with K whole


def test_n_of_a_product_may_be_cut():
    x, y, out = buffer("x", 3, 70), buffer("y", 4, 64, 70), buffer("out", 3, 256)
    flat = LinearIndex(0, {B: 70, C: 1})
    product = op(
        "batchmatmul", {A: 3, B: 256, C: 70}, [at(x, A, C), Access(y, flat)], at(out, A, B)
    )
    kernel = plan_kernel([product])
    a, b = torch.randn(3, 70), torch.randn(4, 64, 70)
    got = run_on_card(kernel, x=a, y=b)["out"].float()
    torch.testing.assert_close(got, a @ b.reshape(256, 70).t(), rtol=1e-2, atol=1e-1)


# ------------------------------------------------------------------------------- dead ops and casts


def test_what_nobody_reads_is_dropped():
    x, out, t, u = buffer("x", 5), buffer("out", 5), local("t", 5), local("u", 5)
    space = {A: 5}
    ops = [
        op("exp", space, [at(x, A)], at(t, A)),
        op("neg", space, [at(t, A)], at(u, A)),
        op("neg", space, [at(x, A)], at(out, A)),
    ]
    assert [each.output.buffer for each in drop_dead_ops(ops)] == [out]


def widened_sum(mutated=False):
    """float32 arithmetic on halves: out = half(float(x) * float(w))."""
    x, w, out = buffer("x", 4, 70), buffer("w", 70), buffer("out", 4, 70)
    xf, wf, t = (local(name, *size, dtype=FULL) for name, size in
                 (("xf", (4, 70)), ("wf", (70,)), ("t", (4, 70))))  # fmt: skip
    space = {A: 4, B: 70}
    ops = [
        op("dl16tofp32", space, [at(x, A, B)], at(xf, A, B)),
        op("dl16tofp32", {B: 70}, [at(w, B)], at(wf, B)),
        op("neg", {B: 70}, [at(w, B)], at(w, B)),
        op("mul", space, [at(xf, A, B), at(wf, B)], at(t, A, B)),
        op("fp32todl16", space, [at(t, A, B)], at(out, A, B)),
    ]
    return ops if mutated else [*ops[:2], *ops[3:]]


def test_conversions_are_done_by_neighbours():
    ops = drop_dead_ops(fold_casts(widened_sum()))
    assert [each.op for each in ops] == ["mul"]
    assert [a.buffer.name for a in ops[0].inputs] == ["x", "w"]
    x, w = torch.randn(4, 70).half(), torch.randn(70).half()
    folded = run_on_card(plan_kernel(widened_sum()), x=x, w=w)["out"]
    untouched = through([p for p in SETTLE if p is not fold_casts], widened_sum())
    apart = run_on_card(kernel_of(place_in_pool(untouched)), x=x, w=w)["out"]
    assert torch.equal(folded, apart)


def test_what_is_written_in_between_stays_converted():
    ops = drop_dead_ops(fold_casts(widened_sum(mutated=True)))
    assert [each.op for each in ops] == ["dl16tofp32", "neg", "mul"]
    assert interpret(ops, numbered(ops[-1].inputs[0].buffer, ops[1].output.buffer))["out"]


def repeated_heads():
    """scores = q @ expand(k).T as grouped heads have it, and a transposed copy of the result."""
    q, k = buffer("q", 2, 3, 4, 64), buffer("k", 2, 5, 64)
    wide, t, out = local("wide", 2, 3, 5, 64), local("t", 2, 3, 4, 5), buffer("out", 4, 2, 3, 5)
    h, g, m, n, e = "hgmne"
    return [
        op("identity", {h: 2, g: 3, n: 5, e: 64}, [at(k, h, n, e)], at(wide, h, g, n, e)),
        op("batchmatmul", {h: 2, g: 3, m: 4, n: 5, e: 64},
           [at(q, h, g, m, e), at(wide, h, g, n, e)], at(t, h, g, m, n)),
        op("identity", {m: 4, h: 2, g: 3, n: 5}, [at(t, h, g, m, n)], at(out, m, h, g, n)),
    ]  # fmt: skip


def test_copies_that_repeat_or_transpose_are_elided():
    inputs = repeated_heads()[1].inputs[0].buffer, repeated_heads()[0].inputs[0].buffer
    want = interpret(repeated_heads(), numbered(*inputs))["out"]
    ops = drop_dead_ops(elide_copies(repeated_heads()))
    assert [each.op for each in ops] == ["batchmatmul"]
    assert interpret(ops, numbered(*inputs))["out"] == want
    q, k = torch.randn(2, 3, 4, 64), torch.randn(2, 5, 64)
    got = run_on_card(plan_kernel(repeated_heads()), q=q, k=k)["out"].float()
    scores = torch.einsum("hgme,hne->mhgn", q, k)
    torch.testing.assert_close(got, scores, rtol=1e-2, atol=0.2)


def test_a_copy_of_what_changes_stays():
    x, t, out = buffer("x", 4, 64), local("t", 4, 64), buffer("out", 4, 64)
    space = {A: 4, B: 64}
    ops = [
        op("identity", space, [at(x, A, B)], at(t, A, B)),
        op("neg", space, [at(x, A, B)], at(x, A, B)),
        op("add", space, [at(t, A, B), at(x, A, B)], at(out, A, B)),
    ]
    want = interpret(ops, numbered(x))["out"]
    assert interpret(drop_dead_ops(elide_copies(ops)), numbered(x))["out"] == want


def test_a_copy_that_turns_sticks_stays():
    x, t, out = buffer("x", 64, 128), local("t", 128, 64), buffer("out", 128, 64)
    ops = [
        op("identity", {A: 128, B: 64}, [at(x, B, A)], at(t, A, B)),
        op("neg", {A: 128, B: 64}, [at(t, A, B)], at(out, A, B)),
    ]
    assert len(drop_dead_ops(elide_copies(ops))) == 2


def test_products_come_before_chains_they_do_not_need():
    x, w = buffer("x", 4, 64), buffer("w", 64, 64)
    g, u, s = (local(name, 4, 64) for name in "gus")
    out = buffer("out", 4, 64)
    space, square = {A: 4, B: 64, C: 64}, {A: 4, B: 64}
    ops = [
        op("batchmatmul", space, [at(x, A, C), at(w, B, C)], at(g, A, B)),
        op("exp", square, [at(g, A, B)], at(s, A, B)),
        op("batchmatmul", space, [at(x, A, C), at(w, C, B)], at(u, A, B)),
        op("mul", square, [at(s, A, B), at(u, A, B)], at(out, A, B)),
    ]
    names = [each.op for each in products_first(ops)]
    assert names == ["batchmatmul", "batchmatmul", "exp", "mul"]
    chained = [ops[0], ops[1], op("batchmatmul", space, [at(s, A, C), at(w, B, C)], at(u, A, B)),
               ops[3]]  # fmt: skip
    assert products_first(chained) == chained


def test_counted_numbers_are_made_as_wanted():
    """rows >= columns, of two ramps: neither is restickified."""
    ramps = []
    for size, name in ((70, "k0"), (130, "k1")):
        ramp = buffer(name, size, dtype=FULL)
        ramp.constant = Ramp((size,), (1,), 0)
        ramps.append(ramp)
    out = buffer("out", 70, 130, dtype=FULL)
    each = op("sub", {A: 70, B: 130}, [at(ramps[0], A), at(ramps[1], B)], at(out, A, B))
    kernel = plan_kernel([each])
    assert [spec.op for spec in kernel.specs] == ["sub"]
    made = {b.name: b.constant.tensor(FULL) for b in kernel.constants}
    got = run_on_card(kernel, **made)["out"]
    assert torch.equal(got, torch.arange(70.0)[:, None] - torch.arange(130.0))


# --------------------------------------------------------------------------------- views and copies


def test_a_divided_coordinate_needs_a_stick():
    sparse = Buffer("x", HALF, [2, 3], [3, 1])
    sparse.layout = SpyreTensorLayout([2, 3], [3, 1], HALF, [0, 1, -1])
    assert expressible(at(sparse, A, B), {A: 2, B: 3})
    assert not expressible(Access(sparse, LinearIndex(0, {A: 1})), {A: 6})


def test_a_kernel_does_not_copy_what_it_has_just_written():
    x, y, out = buffer("x", 4, 130), buffer("y", 4, 130), buffer("out", 4, 125)
    part = LinearIndex(5, {A: 130, B: 1})
    ops = [
        op("neg", {A: 4, B: 130}, [at(x, A, B)], at(y, A, B)),
        op("neg", {A: 4, B: 125}, [Access(y, part)], at(out, A, B), node=1),
    ]
    with pytest.raises(MustSplit) as split:
        realign(ops)
    assert (split.value.node, split.value.writes) == (1, False)


# ------------------------------------------------------------------------------------------- sticks


def restickified(ops):
    return [each.inputs[0].buffer.name for each in ops if each.op == "ReStickifyOpHBM"]


def product_then_sum():
    """(x @ y.t() + b) with the sum's sticks along the rows: the product may have them there too."""
    x, y, t = buffer("x", 64, 128), buffer("y", 192, 128), local("t", 64, 192)
    b, out = buffer("b", 64, 192, stick=0), buffer("out", 64, 192, stick=0)
    return [
        op("batchmatmul", {A: 64, B: 192, C: 128}, [at(x, A, C), at(y, B, C)], at(t, A, B)),
        op("add", {A: 64, B: 192}, [at(t, A, B), at(b, A, B)], at(out, A, B)),
    ]


def test_sticks_are_chosen_for_all_ops_together():
    assert restickified(through(LAYOUTS, product_then_sum())) == []
    with config.patch(global_stick_optimizer=False):
        assert restickified(through(LAYOUTS, product_then_sum())) == ["t"]
    x, y, b = torch.randn(64, 128), torch.randn(192, 128), torch.randn(64, 192)
    for together in (True, False):
        with config.patch(global_stick_optimizer=together):
            got = run_on_card(plan_kernel(product_then_sum()), x=x, y=y, b=b)["out"].float()
        torch.testing.assert_close(got, x @ y.t() + b, rtol=1e-2, atol=0.2)


def test_the_smaller_tensor_is_restickified():
    x, y, out = buffer("x", 128, 64), buffer("y", 128, 64, stick=0), buffer("out", 128, 64)
    t = local("t", 128, 64)
    space = {A: 128, B: 64}
    ops = [
        op("mul", space, [at(x, A, B), at(x, A, B)], at(t, A, B)),
        op("add", space, [at(t, A, B), at(y, A, B)], at(out, A, B)),
    ]
    assert restickified(through(LAYOUTS, ops)) == ["y"]


def test_a_reduction_leaves_what_its_reader_broadcasts():
    x, out, t = buffer("x", 70, 130), buffer("out", 70, 130), local("t", 70)
    space = {A: 70, B: 130}
    ops = [
        op("sum", space, [at(x, A, B)], at(t, A)),
        op("sub", space, [at(x, A, B), at(t, A)], at(out, A, B)),
    ]
    kernel = plan_kernel(ops)
    assert [spec.op for spec in kernel.specs] == ["sum", "sub"]
    x = torch.randn(70, 130).half()
    got = run_on_card(kernel, x=x)["out"].float()
    torch.testing.assert_close(got, x.float() - x.float().sum(1, True), rtol=1e-2, atol=0.1)


@pytest.mark.parametrize("rows", [1, 2])
def test_a_product_has_sticks_where_one_factor_has_a_loop(rows):
    """Columns of 32 x 16, flat in the result: sticks of 32 would be of two loops.

    The batches, which both factors have, would be nearest; but no product writes such sticks.
    """
    x, y = buffer("x", 8, rows, 2, dtype=FULL), buffer("y", 2, 8, 32, 16, dtype=FULL)
    z, out = buffer("z", 24, 8, 16, dtype=FULL), buffer("out", 8, 24, 32, dtype=FULL)
    t = buffer("t", 8, rows, 512, dtype=FULL, local=True)
    u = buffer("u", 8, 24, 32, dtype=FULL, local=True)
    columns = Access(y, LinearIndex(0, {A: 512, C: 1, D: 4096}))
    last = Access(t, LinearIndex(512 * (rows - 1), {A: 512 * rows, C: 16, D: 1}))
    first = {A: 8, B: rows, C: 512, D: 2} if rows > 1 else {A: 8, C: 512, D: 2}
    wide, into = ((of, A, B if rows > 1 else None) for of in (x, t))
    second = {A: 8, B: 24, C: 32, D: 16}
    kernel = plan_kernel(
        [
            op("batchmatmul", first, [at(*wide, D), columns], at(*into, C)),
            op("batchmatmul", second, [at(z, B, A, D), last], at(u, A, B, C)),
            op("neg", {A: 8, B: 24, C: 32}, [at(u, A, B, C)], at(out, A, B, C)),
        ]
    )
    assert [spec.op for spec in kernel.specs].count("batchmatmul") == 2
    x, y, z = torch.randn(8, rows, 2), torch.randn(2, 8, 32, 16), torch.randn(24, 8, 16)
    got = run_on_card(kernel, x=x, y=y, z=z)["out"]
    want = -torch.einsum("hz,zhpn,lhn->hlp", x[:, -1], y, z)
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 1), st.booleans()), min_size=1, max_size=5))
def test_the_search_finds_the_fewest_restickified_bytes(steps):
    """A chain of sums with tensors of given sticks, held against every choice there is."""

    def chain():
        value, ops = buffer("x", 64, 64), []
        for i, (stick, flips) in enumerate(steps):
            last = i == len(steps) - 1
            into = buffer("out", 64, 64) if last else local(f"t{i}", 64, 64)
            symbols = (B, A) if flips else (A, B)
            other = buffer(f"b{i}", 64, 64, stick=stick)
            ops.append(op("add", {A: 64, B: 64}, [at(value, *symbols), at(other, A, B)],
                          at(into, A, B)))  # fmt: skip
            value = into
        return ops

    def cost(ops):
        return len(restickified(insert_restickifies(ops)))

    best = math.inf
    for choice in itertools.product((0, 1), repeat=len(steps) - 1):
        ops = chain()
        for each, stick in zip(ops, choice, strict=False):
            each.output.buffer.layout = buffer("", 64, 64, stick=stick).layout
        best = min(best, cost(ops))
    assert cost(choose_layouts(chain())) == best
