"""Planning of kernels: passes over kernel ops, without a graph, and what compiled graphs get of it.

The oracle runs kernel ops in plain Python, element by element, on storages that are dictionaries.
"""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Symbol

from torch_spyre._C import SpyreTensorLayout, _Program
from torch_spyre._inductor import config
from torch_spyre._inductor.codegen.bundle import make_bundle
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp, Ramp, contiguous_strides
from torch_spyre._inductor.planning import PASSES, MustSplit, plan_kernel
from torch_spyre._inductor.planning.cut_loops import cut_loops
from torch_spyre._inductor.planning.dead_ops import drop_dead_ops
from torch_spyre._inductor.planning.divide_work import divide_work
from torch_spyre._inductor.planning.elide_copies import elide_copies
from torch_spyre._inductor.planning.fold_casts import fold_casts
from torch_spyre._inductor.planning.footprints import OpShape
from torch_spyre._inductor.planning.matmul_cost import Product, divisions
from torch_spyre._inductor.planning.order import products_first
from torch_spyre._inductor.planning.pool import plan_pool
from torch_spyre._inductor.planning.realign import expressible, realign
from torch_spyre._inductor.planning.restickify import insert_restickifies
from torch_spyre._inductor.planning.specs import kernel_of
from torch_spyre._inductor.planning.sticks import choose_layouts
from torch_spyre._inductor.views import LinearIndex, device_coordinates
from torch_spyre.backend.bundle import BundleFiles, parse_bundle
from torch_spyre.backend.compiler import compile_files
from torch_spyre.backend.schedule import groups, works

HALF, FULL = torch.float16, torch.float32
A, B, C, D = (Symbol(f"c{i}", integer=True, nonnegative=True) for i in range(4))


# ------------------------------------------------------------------------------------ hand-made ops


def buffer(name, *size, dtype=HALF, stick=None, local=False):
    """A tensor with its sticks along a dimension, the last one unless said otherwise."""
    stride = contiguous_strides(size)
    made = Buffer(name, dtype, list(size), stride, local=local)
    dim = len(size) - 1 if stick is None else stick
    order = [d for d in range(len(size)) if d != dim] + [dim]
    made.layout = SpyreTensorLayout(list(size), stride, dtype, order if size else [])
    return made


def local(name, *size, dtype=HALF):
    """An intermediate whose layout is not chosen yet."""
    return Buffer(name, dtype, list(size), contiguous_strides(size), local=True)


def at(of, *symbols, offset=0):
    """The buffer, each dimension walked by a loop (None: by none)."""
    strides = {s: t for s, t in zip(symbols, of.stride, strict=True) if s is not None}
    return Access(of, LinearIndex(offset, strides))


def op(name, space, inputs, output, **more):
    return KernelOp(name, space, list(inputs), output, **more)


def through(passes, ops):
    for run in passes:
        ops = run(ops)
    return ops


LAYOUTS = [choose_layouts, realign, insert_restickifies]


# ------------------------------------------------------------------------------------------- oracle

MEANING = {
    "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "sub": lambda a, b: a - b,
    "exp": math.exp, "neg": lambda a: -a, "identity": lambda a: a, "ReStickifyOpHBM": lambda a: a,
    "dl16tofp32": lambda a: a, "fp32todl16": lambda a: a, "realdiv": lambda a, b: a / b,
}  # fmt: skip
REDUCES = {"sum": sum, "max": max, "batchmatmul": sum}


def interpret(ops, storages):
    """Runs ops on ``{buffer name: {storage offset: number}}``."""
    for each in ops:
        symbols = list(each.space)
        results = {}
        for point in itertools.product(*(range(n) for n in each.space.values())):
            where = dict(zip(symbols, point, strict=True))

            def offset(access, where=where):
                return access.index.offset + sum(
                    stride * where.get(s, 0) for s, stride in access.index.strides.items()
                )

            values = [storages[a.buffer.name][offset(a)] for a in each.inputs]
            if each.op == "batchmatmul":
                values = [values[0] * values[1]]
            results.setdefault(offset(each.output), []).append(values)
        target = storages.setdefault(each.output.buffer.name, {})
        for place, found in results.items():
            if each.op in REDUCES:
                target[place] = REDUCES[each.op](values[0] for values in found)
            else:
                (values,) = found
                target[place] = MEANING[each.op](*values)
    return storages


def numbered(*buffers):
    return {
        b.name: {i: (7 * i + 3 * n) % 11 - 4.0 for i in range(math.prod(b.size))}
        for n, b in enumerate(buffers)
    }


def bundle_of(kernel):
    made = make_bundle(kernel.specs)
    files = {f"sdsc_{i}.json": superdsc for i, superdsc in enumerate(made.superdscs)}
    return BundleFiles("memory", made.mlir, files)


def groups_of(kernel):
    """Names of the ops of each step between which cores wait."""
    return [
        [work.op.op.name for work in works(group.works)]
        for group in groups(parse_bundle(bundle_of(kernel)))
    ]


def run_on_card(kernel, **given_tensors):
    """Launches a kernel on tensors that lie as its buffers; returns all by name."""
    tensors = {}
    for arg in kernel.args:
        value = given_tensors.get(arg.name, torch.zeros(arg.size, dtype=arg.dtype))
        tensors[arg.name] = value.to(arg.dtype).to(device_layout=arg.layout)
    operands = list(tensors.values())
    if kernel.pool_bytes:
        operands.insert(0, torch.empty(kernel.pool_bytes, dtype=torch.int8, device="spyre"))
    _Program(compile_files(bundle_of(kernel))).launch(operands)
    return {name: tensor.cpu() for name, tensor in tensors.items()}


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
    assert all(device_coordinates(a.buffer.layout, a.index, ops[1].space)[1]
               for a in (ops[1].inputs[1], ops[1].output))  # fmt: skip
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
    untouched = through([p for p in PASSES if p is not fold_casts], widened_sum())
    apart = run_on_card(kernel_of(untouched, *plan_pool(untouched)), x=x, w=w)["out"]
    assert torch.equal(folded, apart)


def test_what_is_written_in_between_stays_converted():
    ops = drop_dead_ops(fold_casts(widened_sum(mutated=True)))
    assert [each.op for each in ops] == ["dl16tofp32", "neg", "mul"]
    assert interpret(ops, numbered(ops[-1].inputs[0].buffer, ops[1].output.buffer))["out"]


def repeated_heads():
    """scores = q @ expand(k).T as grouped heads have it, and a transposed copy of the result."""
    q, k = buffer("q", 2, 3, 4, 64), buffer("k", 2, 5, 64)
    wide, t, out = local("wide", 2, 3, 5, 64), local("t", 2, 3, 4, 5), buffer("out", 4, 2, 3, 5)
    h, g, m, n, e = (Symbol(name, integer=True, nonnegative=True) for name in "hgmne")
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


# ------------------------------------------------------------------------------------ work division


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
    crossed = any(sticks[0][i] & sticks[1][j] for i in sticks[0] for j in sticks[1] if i != j)
    if crossed:
        assert footprint.clashes(again)


def softmax_ops(rows, columns, dtype=HALF):
    x, out = buffer("x", rows, columns, dtype=dtype), buffer("out", rows, columns, dtype=dtype)
    m, s = local("m", rows, dtype=FULL), local("s", rows, dtype=FULL)
    d, e = local("d", rows, columns, dtype=FULL), local("e", rows, columns, dtype=FULL)
    space = {A: rows, B: columns}
    return [
        op("max", space, [at(x, A, B)], at(m, A)),
        op("sub", space, [at(x, A, B), at(m, A)], at(d, A, B)),
        op("exp", space, [at(d, A, B)], at(e, A, B)),
        op("sum", space, [at(e, A, B)], at(s, A)),
        op("realdiv", space, [at(e, A, B), at(s, A)], at(out, A, B)),
    ]


@pytest.mark.parametrize("shape", [(256, 512), (100, 500), (33, 4096), (7, 70), (1, 64)])
def test_softmax_needs_no_wait(shape):
    ops = softmax_ops(*shape)
    kernel = plan_kernel(ops)
    assert len(groups_of(kernel)) == 1
    assert {each.splits[A] for each in ops} == {math.ceil(shape[0] / math.ceil(shape[0] / 32))}
    x = torch.randn(shape).half()
    got = run_on_card(kernel, x=x)["out"].float()
    torch.testing.assert_close(got, x.float().softmax(1), rtol=1e-2, atol=1e-3)


def test_few_long_rows_are_worth_a_wait():
    ops = through(LAYOUTS, softmax_ops(2, 1 << 23, FULL))
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
        for each in through([*LAYOUTS, divide_work], softmax_ops(100, 130)):
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


def test_the_cost_model_by_hand():
    # 512 x 4096 x 1024 on (m 8, n 4): 8 passes of the rows, so no penalty.
    product = Product(1, 512, 4096, 1024)
    compute = 512 * 4096 * 1024 / 32 / 1.536e6
    memory = 2 * (512 * 1024 + 1024 * 4096 + 512 * 4096) / 204800
    assert product.microseconds(1, 8, 4, 1) == pytest.approx(compute + memory)
    # n 32: every byte of memory counts four times. 2 cores of K: partial sums.
    assert product.microseconds(1, 1, 32, 1) == pytest.approx(compute + 4 * memory)
    assert product.microseconds(1, 8, 2, 2) == pytest.approx(compute + memory + 512 * 4096 * 1.4e-4)
    # 4 rows a core: half a pass counts as one, an eighth of the best.
    few = Product(1, 32, 4096, 1024).microseconds(1, 8, 4, 1)
    assert few == pytest.approx(
        32 * 4096 * 1024 / 32 / 1.536e6 * math.sqrt(8)
        + 2 * (32 * 1024 + 1024 * 4096 + 32 * 4096) / 204800
        + 150
    )


@pytest.mark.parametrize("sizes", [(512, 4096, 1024), (128, 256, 512), (1, 4096, 4096)])
def test_a_product_is_split_as_the_cost_model_says(sizes):
    m, n, k = sizes
    product = Product(1, *sizes)
    each = through([*LAYOUTS, divide_work], [matmul_op(m, n, k)])[0]
    best = min(
        product.microseconds(*division)
        for division in divisions((1, m, n // 64, k // 64), 32)
        if math.prod(division) == 32
    )
    assert product.microseconds(1, *each.splits.values()) == pytest.approx(best)


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
        places, size = plan_pool(ops)
    spans = {}
    for time, each in enumerate(ops):
        for access in (*each.inputs, each.output):
            if access.buffer.local:
                spans.setdefault(access.buffer, []).append(time)
    bytes_of = {b: 128 * math.prod(b.layout.device_size[:-1]) for b in spans}
    assert set(places) == set(spans)
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


def test_a_chain_of_ops_lives_in_one_place():
    x, ops = buffer("x", 64, 128), []
    value = x
    for i in range(5):
        into = local(f"t{i}", 64, 128)
        ops.append(op("neg", {A: 64, B: 128}, [at(value, A, B)], at(into, A, B)))
        value = into
    ops.append(op("neg", {A: 64, B: 128}, [at(value, A, B)], at(buffer("out", 64, 128), A, B)))
    assert plan_kernel(ops).pool_bytes == 64 * 128 * 2


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
