"""Runs of ops that the back end makes one step of: the same bits as op by op, and nothing extra."""

import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import KERNELS, arg, c0, c1, c2, card, empty, files_of, op, space

from torch_spyre._C import DataFormats, _Program
from torch_spyre._inductor.op_spec import TensorArg
from torch_spyre.backend.bundle import parse_bundle
from torch_spyre.backend.compiler import compile_files
from torch_spyre.backend.emit import steps_of
from torch_spyre.backend.program import Chain, CoreLoop
from torch_spyre.backend.schedule import groups

FP16, FP32 = DataFormats.SEN169_FP16, DataFormats.IEEE_FP32
UNARY = ["neg", "abs", "sigmoid", "exp", "square"]
BINARY = ["add", "sub", "mul", "maximum", "realdiv"]
REDUCTIONS = ["sum", "max", "min"]


def steps(entries):
    """The kinds of the steps that cores run, by group."""
    bundle = parse_bundle(files_of(entries))

    def kinds(nodes):
        for node in nodes:
            if isinstance(node, CoreLoop):
                yield from kinds(node.body)
            else:
                yield type(node.step).__name__

    return [list(kinds(step.nodes)) for step in steps_of(bundle, groups(bundle))]


def chains(entries):
    bundle = parse_bundle(files_of(entries))
    return [
        node.step
        for step in steps_of(bundle, groups(bundle))
        for node in step.nodes
        if isinstance(node.step, Chain)
    ]


def between(offset, format, rows, columns=None, *, output=False, memory="pool"):
    """A matrix of c0 and c1, or a column of c0, in the pool."""
    elems = format.elems_per_stick()
    sticks = -(-columns // elems) if columns else 1
    stick = [sympy.floor(c1 / elems), sympy.Mod(c1, elems)] if columns else [sympy.Integer(0)] * 2
    where = [stick[0], c0, stick[1]]
    return TensorArg(not output, -1, format, [sticks, rows, elems], where, {memory: offset})


def run_fused(entries, tensors):
    _Program(compile_files(files_of(entries))).launch(tensors)


def run_one_by_one(entries, pool, tensors):
    """Every op in a bundle of its own: nothing can be left out in between."""
    for entry in entries:
        uses_pool = any("pool" in argument.allocation for argument in entry.args)
        _Program(compile_files(files_of([entry]))).launch(
            [pool, *tensors] if uses_pool else tensors
        )


def same_bits(a, b):
    assert torch.equal(a.cpu().isnan(), b.cpu().isnan())
    assert torch.equal(a.cpu().nan_to_num(), b.cpu().nan_to_num())


@st.composite
def kernels(draw):
    """Ops over a matrix x, a row and a column, the last of which writes out; and sizes, splits."""
    rows, columns = draw(st.integers(1, 40)), draw(st.sampled_from([1, 30, 64, 100, 128, 200]))
    splits = draw(st.integers(1, min(rows, 4)))
    slot = rows * 4 * 2 * 128
    values = [("x", "full", FP16), ("row", "row", FP16), ("column", "column", FP16)]
    plan = []
    for number in range(draw(st.integers(2, 7))):
        format = draw(st.sampled_from([FP16, FP32]))
        wide = [i for i, value in enumerate(values) if value[1] == "full"]
        kind = draw(st.sampled_from(["unary", "binary", "binary", "reduce"]))
        if kind == "reduce":
            plan.append((draw(st.sampled_from(REDUCTIONS)), [draw(st.sampled_from(wide))]))
            values.append((number, "column", format))
            continue
        count = 1 if kind == "unary" else 2
        chosen = [draw(st.integers(0, len(values) - 1)) for _ in range(count)]
        # Every result has the rows; those of columns only are columns.
        shapes = {values[i][1] for i in chosen}
        if shapes <= {"row"}:
            chosen[0] = draw(st.sampled_from(wide))
            shapes = {values[i][1] for i in chosen}
        plan.append((draw(st.sampled_from(UNARY if count == 1 else BINARY)), chosen))
        values.append((number, "column" if shapes == {"column"} else "full", format))
    last = draw(st.sampled_from([i for i, value in enumerate(values) if value[1] == "full"]))
    plan.append(("identity", [last]))
    return rows, columns, splits, slot, values, plan


def built(kernel):
    rows, columns, splits, slot, values, plan = kernel
    x, row, column, out = card(rows, columns), card(columns), card(rows, 1), empty(rows, columns)
    where = space(c0=(rows, splits), c1=(columns, 1))

    def argument(i, output=False):
        name, shape, format = values[i]
        if name == "x":
            return arg(x, 0, (c0, c1))
        if name == "row":
            return arg(row, 1, (c1,))
        if name == "column":
            return arg(column, 2, (c0, None))
        width = columns if shape == "full" else None
        return between(name * slot, format, rows, width, output=output)

    entries = []
    for number, (name, chosen) in enumerate(plan):
        if number < len(plan) - 1:
            target = argument(3 + number, output=True)
        else:
            target = arg(out, 3, (c0, c1), output=True)
        space_of_op = where
        narrow = all(values[i][1] == "column" for i in chosen) and number < len(plan) - 1
        if narrow:
            space_of_op = space(c0=(rows, splits))
        inputs = [argument(i) for i in chosen]
        entries.append(op(name, space_of_op, *inputs, target, reduction=name in REDUCTIONS))
    return entries, [x, row, column, out], slot * len(plan)


@settings(max_examples=60, deadline=None)
@given(kernels())
def test_random_runs_have_the_bits_of_single_ops(kernel):
    entries, tensors, pool_bytes = built(kernel)
    pool = torch.zeros(pool_bytes, dtype=torch.int8, device="spyre")
    uses_pool = any("pool" in a.allocation for e in entries for a in e.args)
    run_fused(entries, [pool, *tensors] if uses_pool else tensors)
    fused = tensors[-1].clone()
    tensors[-1].zero_()
    run_one_by_one(entries, pool, tensors)
    same_bits(fused, tensors[-1])


def test_softmax_is_one_chain_that_stores_its_result_only():
    entries = KERNELS["softmax"]().entries
    assert steps(entries) == [["Chain"]]
    (chain,) = chains(entries)
    assert [type(value).__name__ for value in chain.values].count("ChainLoad") == 1
    assert len(chain.stores) == 1


@pytest.mark.parametrize("name", ["broadcast", "softmax"])
def test_kernels_with_several_ops(name):
    kernel = KERNELS[name]()
    run_fused(kernel.entries, kernel.tensors)
    same_bits(kernel.tensors[-1], kernel.expected)


def test_what_a_later_op_reads_is_stored():
    """The product reads a result that the chain has in its registers."""
    x, y, out = card(64, 64), card(64, 128), empty(64, 128)
    middle = between(0, FP16, 64, 64)
    read = between(0, FP16, 64, 64)
    read.device_coordinates = [sympy.floor(c2 / 64), c0, sympy.Mod(c2, 64)]
    where = space(c0=(64, 1), c1=(64, 1))
    entries = [
        op("neg", where, arg(x, 0, (c0, c1)), between(8192, FP16, 64, 64, output=True)),
        op("exp", where, between(8192, FP16, 64, 64), between(0, FP16, 64, 64, output=True)),
        op(
            "batchmatmul",
            space(c0=(64, 1), c1=(128, 1), c2=(64, 1)),
            read,
            arg(y, 1, (c2, c1)),
            arg(out, 2, (c0, c1), output=True),
            reduction=True,
        ),
    ]
    assert middle.allocation == {"pool": 0}
    assert steps(entries) == [["Chain", "Matmul"]]
    pool = torch.empty(2 * 8192, dtype=torch.int8, device="spyre")
    run_fused(entries, [pool, x, y, out])
    same_bits(out, (-x).exp() @ y)


def test_an_op_that_reads_other_elements_of_a_result_is_not_part_of_its_run():
    """The second op reads one row further: a block of lines would not have it yet."""
    x, out = card(65, 64), empty(64, 64)
    where = space(c0=(65, 1), c1=(64, 1))
    shifted = between(0, FP16, 65, 64, memory="lx")
    shifted.device_coordinates = [sympy.floor(c1 / 64), c0 + 1, sympy.Mod(c1, 64)]
    whole = between(0, FP16, 65, 64, output=True, memory="lx")
    entries = [
        op("neg", where, arg(x, 0, (c0, c1)), whole),
        op("exp", space(c0=(64, 1), c1=(64, 1)), shifted, arg(out, 1, (c0, c1), output=True)),
    ]
    assert steps(entries) == [["Pointwise", "Pointwise"]]
    run_fused(entries, [x, out])
    same_bits(out, (-x).exp()[1:])


def test_memory_that_is_used_again_for_something_else():
    """The third op writes where the first one's result was, in another format."""
    x, out = card(32, 64), empty(32, 64)
    where = space(c0=(32, 2), c1=(64, 1))

    def lx(offset, format, output=False):
        return between(offset, format, 16, 64, output=output, memory="lx")

    entries = [
        op("neg", where, arg(x, 0, (c0, c1)), lx(0, FP16, True)),
        op("exp", where, lx(0, FP16), lx(16384, FP32, True)),
        op("square", where, lx(16384, FP32), lx(0, FP32, True)),
        op("abs", where, lx(0, FP32), arg(out, 1, (c0, c1), output=True)),
    ]
    run_fused(entries, [x, out])
    same_bits(out, (-x).float().exp().square().abs().half())
    (chain,) = chains(entries)
    assert len(chain.stores) == 1


def test_dimensions_that_another_op_sees_as_one():
    """Four times eight rows for the first op, 32 rows for the others."""
    x, row, out = card(32, 64), card(8, 64), empty(32, 64)

    def cut(argument, outer, inner):
        argument.device_size = [1, outer, inner, 64]
        argument.device_coordinates = [sympy.Integer(0), c0, c1, sympy.Mod(c2, 64)]
        return argument

    three = space(c0=(4, 1), c1=(8, 1), c2=(64, 1))
    rows = arg(row, 1, (c1, c2))
    whole = space(c0=(32, 1), c1=(64, 1))
    entries = [
        op(
            "add",
            three,
            cut(arg(x, 0, (c0, c1)), 4, 8),
            rows,
            cut(between(0, FP16, 32, 64, output=True), 4, 8),
        ),
        op("sum", whole, between(0, FP16, 32, 64), between(8192, FP16, 32, output=True)),
        op(
            "sub",
            whole,
            between(0, FP16, 32, 64),
            between(8192, FP16, 32),
            arg(out, 2, (c0, c1), output=True),
        ),
    ]
    entries[1].is_reduction = True
    assert steps(entries) == [["Chain"]]
    pool = torch.empty(3 * 8192, dtype=torch.int8, device="spyre")
    run_fused(entries, [pool, x, row, out])
    added = x + row.repeat(4, 1)
    same_bits(out, added - added.sum(1, keepdim=True))


@pytest.mark.parametrize("spread", ["over lines", "along lines"])
def test_values_that_several_lines_share(spread):
    """Rows against columns, for all heads, as in the mask of attention: computed in the chain. But
    what has one value a line is not spread along it."""
    x, column, row, out = card(3, 8, 64), card(8, 1), card(64), empty(3, 8, 64)
    where = space(c0=(3, 1), c1=(8, 1), c2=(64, 1))

    def mask(output=False):
        places = [sympy.Integer(0), c0, c1, sympy.Mod(c2, 64)]
        return TensorArg(not output, -1, FP16, [1, 3, 8, 64], places, {"pool": 0})

    by_row, by_position = arg(column, 1, (c1, None)), arg(row, 2, (c2,))
    if spread == "over lines":
        first = op("greaterequal", where, by_row, by_position, mask(output=True))
        expected = x * (column >= row).half()
    else:
        first = op("neg", where, by_row, mask(output=True))
        expected = x * -column
    cubes = [arg(tensor, i, (c0, c1, c2), output=i == 3) for i, tensor in ((0, x), (3, out))]
    entries = [first, op("mul", where, cubes[0], mask(), cubes[1])]
    separate = [["Pointwise", "Pointwise"]]
    assert steps(entries) == ([["Chain"]] if spread == "over lines" else separate)
    pool = torch.empty(3 * 8 * 128, dtype=torch.int8, device="spyre")
    run_fused(entries, [pool, x, column, row, out])
    same_bits(out, expected)
