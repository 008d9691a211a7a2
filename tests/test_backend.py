"""Kernels written as OpSpecs, through a bundle on disk and the back end, run on the card."""

import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import arg, bundle_of, c0, c1, c2, card, coordinates_of, empty, gather, space

from torch_spyre._C import _Program
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.op_spec import LoopSpec, OpSpec
from torch_spyre.backend.compiler import compile_bundle


def run(kernel, tensors, tmp_path, **options):
    bundle_of(kernel, **options).write(tmp_path)
    _Program(compile_bundle(tmp_path)).launch(list(tensors))


FORMS = [{"symbolic": True}, {"symbolic": False}]


@pytest.mark.parametrize("form", FORMS, ids=["symbolic", "baked"])
@pytest.mark.parametrize("size", [(128, 256), (128, 200), (7, 64), (8, 130)])
@pytest.mark.parametrize("splits", [(1, 1), (4, 1), (4, 2), (3, 3), (5, 2)])
def test_add(size, splits, form, tmp_path):
    rows, columns = size
    x, y, out = card(*size), card(*size), torch.empty(size, dtype=torch.float16, device="spyre")
    args = [arg(x, 0, (c0, c1)), arg(y, 1, (c0, c1)), arg(out, 2, (c0, c1), output=True)]
    spec = OpSpec("add", False, space(c0=(rows, splits[0]), c1=(columns, splits[1])), args)
    run([spec], [x, y, out], tmp_path, **form)
    assert torch.equal(out.cpu(), (x + y).cpu())


def test_broadcast_row_and_column(tmp_path):
    x, row = card(128, 192), card(192)
    column = torch.randn(128, 1).half().to("spyre")
    out = torch.empty(128, 192, dtype=torch.float16, device="spyre")
    between = torch.empty_like(out)
    where = space(c0=(128, 4), c1=(192, 1))
    first = [arg(x, 0, (c0, c1)), arg(row, 1, (c1,)), arg(between, 3, (c0, c1), output=True)]
    second = [arg(between, 3, (c0, c1)), arg(column, 2, (c0, None)), arg(out, 4, (c0, c1))]
    second[-1].is_input = False
    kernel = [OpSpec("add", False, where, first), OpSpec("mul", False, where, second)]
    run(kernel, [x, row, column, between, out], tmp_path)
    assert torch.equal(out.cpu(), ((x + row) * column).cpu())


@pytest.mark.parametrize("splits", [4, 7])
@pytest.mark.parametrize("columns", [256, 200, 40])
@pytest.mark.parametrize("op", ["sum", "max"])
def test_reduction_along_the_stick(columns, op, splits, tmp_path):
    x = card(128, columns)
    out = torch.empty(128, 1, dtype=torch.float16, device="spyre")
    args = [arg(x, 0, (c0, c1)), arg(out, 1, (c0, None), output=True)]
    run([OpSpec(op, True, space(c0=(128, splits), c1=(columns, 1)), args)], [x, out], tmp_path)
    expected = x.sum(1, keepdim=True) if op == "sum" else x.amax(1, keepdim=True)
    assert torch.equal(out.cpu(), expected.cpu())


@pytest.mark.parametrize("splits", [4, 3])
def test_reduction_across_sticks(splits, tmp_path):
    x, out = card(100, 256), torch.empty(256, dtype=torch.float16, device="spyre")
    args = [arg(x, 0, (c0, c1)), arg(out, 1, (c1,), output=True)]
    run([OpSpec("sum", True, space(c1=(256, splits), c0=(100, 1)), args)], [x, out], tmp_path)
    assert torch.equal(out.cpu(), x.sum(0).cpu())


@pytest.mark.parametrize("k", [192, 100])
@pytest.mark.parametrize("splits", [(1, 1, 1), (4, 2, 1), (4, 2, 3), (3, 1, 2), (5, 3, 2)])
def test_matmul(k, splits, tmp_path):
    x, y = card(128, k), card(k, 256)
    out = torch.empty(128, 256, dtype=torch.float16, device="spyre")
    args = [arg(x, 0, (c0, c2)), arg(y, 1, (c2, c1)), arg(out, 2, (c0, c1), output=True)]
    where = space(c0=(128, splits[0]), c1=(256, splits[1]), c2=(k, splits[2]))
    run([OpSpec("batchmatmul", True, where, args)], [x, y, out], tmp_path)
    assert torch.equal(out.cpu(), (x @ y).cpu())


@pytest.mark.parametrize("splits", [(1, 1, 1), (3, 2, 2)])
def test_matmul_with_a_transposed_weight(splits, tmp_path):
    """Sticks of the weight along K: the card reads them as they are."""
    x, y = card(100, 200), card(150, 200)
    out = torch.empty(100, 150, dtype=torch.float16, device="spyre")
    args = [arg(x, 0, (c0, c2)), arg(y, 1, (c1, c2)), arg(out, 2, (c0, c1), output=True)]
    where = space(c0=(100, splits[0]), c1=(150, splits[1]), c2=(200, splits[2]))
    run([OpSpec("batchmatmul", True, where, args)], [x, y, out], tmp_path)
    assert torch.equal(out.cpu(), (x @ y.t()).cpu())


@pytest.mark.parametrize("splits", [(1, 1, 1, 1), (2, 3, 2, 1), (3, 2, 1, 2)])
@pytest.mark.parametrize("shared", [None, 0, 1])
def test_batched_matmul(splits, shared, tmp_path):
    """Batches on both sides, or a matrix on one of them that serves every batch."""
    batch, m, n, k = sympy.symbols("c0:4")
    x = card(70, 100) if shared == 0 else card(5, 70, 100)
    y = card(100, 130) if shared == 1 else card(5, 100, 130)
    out = torch.empty(5, 70, 130, dtype=torch.float16, device="spyre")
    args = [
        arg(x, 0, (m, k) if shared == 0 else (batch, m, k)),
        arg(y, 1, (k, n) if shared == 1 else (batch, k, n)),
        arg(out, 2, (batch, m, n), output=True),
    ]
    sizes = dict(
        zip(("c0", "c1", "c2", "c3"), zip((5, 70, 130, 100), splits, strict=True), strict=True)
    )
    run([OpSpec("batchmatmul", True, space(**sizes), args)], [x, y, out], tmp_path)
    expected = x.float().cpu() @ y.float().cpu()
    torch.testing.assert_close(out.float().cpu(), expected, rtol=2**-8, atol=2e-2)


@pytest.mark.parametrize("unroll", [True, False])
@pytest.mark.parametrize("form", FORMS, ids=["symbolic", "baked"])
def test_loop_over_tiles(unroll, form, tmp_path):
    x, out = card(256, 192), torch.empty(256, 192, dtype=torch.float16, device="spyre")
    args = [arg(x, 0, (c0, c1)), arg(out, 1, (c0, c1), output=True)]
    op = OpSpec("exp", False, space(c0=(64, 2), c1=(192, 1)), args, tiled_symbols=[c0])
    run([LoopSpec(sympy.Integer(4), [op])], [x, out], tmp_path, unroll_loops=unroll, **form)
    assert torch.equal(out.cpu(), x.exp().cpu())


VIEWS = {
    "one of many matrices": lambda: card(5, 100, 130)[3],
    "one row of each matrix": lambda: card(100, 5, 130)[:, 3],
    "every second row": lambda: card(200, 130)[::2],
    "rows in the middle": lambda: card(200, 130)[37:137],
    "transposed twice": lambda: card(130, 100).t().contiguous(),
    "columns from a stick on": lambda: card(100, 258)[:, 128:],
}


@pytest.mark.parametrize("splits", [(1, 1), (3, 2)])
@pytest.mark.parametrize("view", VIEWS)
def test_views_are_read_and_written_where_they_are(view, splits, tmp_path):
    x, y = VIEWS[view](), VIEWS[view]()
    before = y._base.cpu() if y._base is not None else y.cpu()
    out = empty(100, 130)
    where = space(c0=(100, splits[0]), c1=(130, splits[1]))
    kernel = [
        OpSpec("exp", False, where, [arg(x, 0, (c0, c1)), arg(out, 1, (c0, c1), output=True)]),
        OpSpec("neg", False, where, [arg(x, 0, (c0, c1)), arg(y, 2, (c0, c1), output=True)]),
    ]
    run(kernel, [x, out, y], tmp_path)
    assert torch.equal(out.cpu(), x.exp().cpu())
    expected = before.clone()
    torch.as_strided(expected, y.size(), y.stride(), y.storage_offset()).copy_(x.neg().cpu())
    assert torch.equal(y._base.cpu() if y._base is not None else y.cpu(), expected)


def test_one_dimension_as_two(tmp_path):
    x, out = card(128, 192), empty(4, 32, 192)
    args = [arg(x.view(4, 32, 192), 0, (c0, c1, c2)), arg(out, 1, (c0, c1, c2), output=True)]
    where = space(c0=(4, 2), c1=(32, 3), c2=(192, 1))
    run([OpSpec("exp", False, where, args)], [x, out], tmp_path)
    assert torch.equal(out.cpu(), x.exp().view(4, 32, 192).cpu())


splits_of = st.integers(1, 6)


@settings(max_examples=25)
@given(
    rows=st.integers(1, 70),
    columns=st.integers(1, 300),
    cores=st.tuples(splits_of, st.integers(1, 5)),
)
def test_any_split_of_any_shape(rows, columns, cores, tmp_path_factory):
    """Pointwise, and reductions along either dimension, where no part need be like another."""
    x = card(rows, columns)
    outs = [empty(rows, columns), empty(rows, 1), empty(columns)]
    axes = [(c0, c1), (c0, None), (c1,)]
    ins = arg(x, 0, (c0, c1))
    out_args = [
        arg(out, 1 + i, axis, output=True)
        for i, (out, axis) in enumerate(zip(outs, axes, strict=True))
    ]
    kernel = [
        OpSpec(
            "exp", False, space(c0=(rows, cores[0]), c1=(columns, cores[1])), [ins, out_args[0]]
        ),
        OpSpec("sum", True, space(c0=(rows, cores[0]), c1=(columns, 1)), [ins, out_args[1]]),
        OpSpec("max", True, space(c1=(columns, cores[1]), c0=(rows, 1)), [ins, out_args[2]]),
    ]
    run(kernel, [x, *outs], tmp_path_factory.mktemp("bundle"))
    expected = [x.exp(), x.sum(1, keepdim=True), x.amax(0)]
    for out, right in zip(outs, expected, strict=True):
        assert torch.equal(out.cpu(), right.cpu())


sizes_of = st.sampled_from([1, 2, 33, 64, 65, 130])


@settings(max_examples=25)
@given(
    sizes=st.tuples(sizes_of, sizes_of, sizes_of),
    cores=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
)
def test_any_split_of_any_matmul(sizes, cores, tmp_path_factory):
    m, n, k = sizes
    x, y, out = card(m, k), card(k, n), empty(m, n)
    args = [arg(x, 0, (c0, c2)), arg(y, 1, (c2, c1)), arg(out, 2, (c0, c1), output=True)]
    where = space(c0=(m, cores[0]), c1=(n, cores[1]), c2=(k, cores[2]))
    spec = OpSpec("batchmatmul", True, where, args)
    run([spec], [x, y, out], tmp_path_factory.mktemp("bundle"))
    assert torch.equal(out.cpu(), (x @ y).cpu())


def refused(args, where, why):
    with pytest.raises(Unsupported, match=why):
        bundle_of([OpSpec("exp", False, where, args)])


def test_a_slice_inside_a_stick(tmp_path):
    x, out = card(100, 256), empty(100, 60)
    args = [arg(x, 0, (c0, c1)), arg(out, 1, (c0, c1), output=True)]
    args[0].device_coordinates = coordinates_of(
        x.device_tensor_layout(), 3, {c0: 256, c1: 1}, {c0: 100, c1: 60}
    )
    run([OpSpec("exp", False, space(c0=(100, 4), c1=(60, 1)), args)], [x, out], tmp_path)
    assert torch.equal(out.cpu(), x[:, 3:63].exp().cpu())


def test_two_dimensions_as_one_are_refused():
    """Rows 0..99 are (5, 20) in memory: an iteration over both has two symbols."""
    x, out = card(5, 20, 130).view(100, 130), empty(100, 130)
    args = [arg(x, 0, (c0, c1)), arg(out, 1, (c0, c1), output=True)]
    refused(args, space(c0=(100, 1), c1=(130, 1)), "not linear in c0")


def test_bad_indices_are_reported(tmp_path):
    kernel = gather()
    kernel.tensors[0].fill_(100)
    kernel.bundle().write(tmp_path)
    program = _Program(compile_bundle(tmp_path))

    def launch():
        program.launch(kernel.tensors)
        torch.spyre.synchronize()

    with pytest.raises((RuntimeError, IndexError), match="index 100 is out of bounds"):
        launch()
