"""Which ops cores run without waiting for each other, and that waiting happens where it must."""

import pytest
import sympy
import torch
from kernels import arg, c0, c1, c2, card, empty, files_of, local, op, softmax, space

from torch_spyre._C import _Program
from torch_spyre._inductor.op_spec import LoopSpec
from torch_spyre.backend.bundle import BundleFiles, parse_bundle
from torch_spyre.backend.compiler import compile_files
from torch_spyre.backend.schedule import groups, works

ROWS = space(c0=(128, 4), c1=(192, 1))
COLUMNS = space(c0=(128, 1), c1=(192, 3))
POOL = 128 * 192 * 2


def scheduled(files):
    """The names of the ops in each group."""
    return [
        [work.op.op.name for work in works(group.works)] for group in groups(parse_bundle(files))
    ]


def run(files, tensors):
    _Program(compile_files(files)).launch(tensors)


def pool(count=1):
    return torch.empty(POOL * count, dtype=torch.int8, device="spyre")


def between(output=False, number=0):
    return local(number * POOL, 128, 192, output=output, memory="pool")


def test_a_chain_on_the_same_slices_is_one_group():
    kernel = softmax()
    assert scheduled(files_of(kernel.entries)) == [["max", "sub", "exp", "sum", "realdiv"]]


@pytest.mark.parametrize("symbolic", [True, False])
def test_other_slices_wait(symbolic):
    x, out = card(128, 192), empty(128, 192)
    x_arg, out_arg = arg(x, 0, (c0, c1)), arg(out, 1, (c0, c1), output=True)
    x_arg.allocation, out_arg.allocation = {"hbm": 1 << 34}, {"hbm": 2 << 34}
    kernel = [
        op("exp", ROWS, x_arg, between(output=True)),
        op("neg", COLUMNS, between(), out_arg),
    ]
    files = files_of(kernel, symbolic=symbolic)
    assert scheduled(files) == [["exp"], ["neg"]]
    run(files, [pool(), x, out])
    assert torch.equal(out.cpu(), x.exp().neg().cpu())


def test_what_two_ops_only_read_needs_no_waiting():
    x, a, b = card(128, 192), empty(128, 192), empty(128, 192)
    kernel = [
        op("exp", ROWS, arg(x, 0, (c0, c1)), arg(a, 1, (c0, c1), output=True)),
        op("neg", COLUMNS, arg(x, 0, (c0, c1)), arg(b, 2, (c0, c1), output=True)),
    ]
    files = files_of(kernel)
    assert scheduled(files) == [["exp", "neg"]]
    run(files, [x, a, b])
    assert torch.equal(a.cpu(), x.exp().cpu())
    assert torch.equal(b.cpu(), x.neg().cpu())


def test_overwriting_what_others_still_read_waits():
    x, out = card(128, 192), empty(128, 192)
    kernel = [
        op("exp", COLUMNS, arg(x, 0, (c0, c1)), arg(out, 1, (c0, c1), output=True)),
        op("neg", ROWS, arg(x, 0, (c0, c1)), arg(x, 0, (c0, c1), output=True)),
    ]
    files = files_of(kernel)
    assert scheduled(files) == [["exp"], ["neg"]]
    expected = x.exp(), x.neg()
    run(files, [x, out])
    assert torch.equal(out.cpu(), expected[0].cpu())
    assert torch.equal(x.cpu(), expected[1].cpu())


def test_cohorts_wait_on_both_sides():
    x, y, out = card(128, 192), card(192, 192), empty(128, 192)
    rows = space(c0=(128, 4), c1=(192, 1))
    product = space(c0=(128, 4), c1=(192, 1), c2=(192, 3))
    kernel = [
        op("neg", rows, arg(x, 0, (c0, c1)), arg(x, 0, (c0, c1), output=True)),
        op(
            "batchmatmul",
            product,
            arg(x, 0, (c0, c2)),
            arg(y, 1, (c2, c1)),
            arg(out, 2, (c0, c1), output=True),
            reduction=True,
        ),
        op("neg", rows, arg(out, 2, (c0, c1)), arg(out, 2, (c0, c1), output=True)),
    ]
    files = files_of(kernel)
    assert scheduled(files) == [["neg"], ["batchmatmul"], ["neg"]]
    expected = (x.neg() @ y).neg()
    run(files, [x, y, out])
    assert torch.equal(out.cpu(), expected.cpu())


def test_interleaved_parts_of_a_tensor_are_different_memory():
    """Rows 0..63 and 64..127 alternate stick column by stick column."""
    x, y, out = card(64, 192), card(64, 192), empty(128, 192)
    where = space(c0=(64, 4), c1=(192, 1))
    kernel = [
        op("exp", where, arg(x, 0, (c0, c1)), arg(out[:64], 2, (c0, c1), output=True)),
        op("exp", where, arg(y, 1, (c0, c1)), arg(out[64:], 2, (c0, c1), output=True)),
    ]
    files = files_of(kernel)
    assert scheduled(files) == [["exp", "exp"]]
    run(files, [x, y, out])
    assert torch.equal(out.cpu(), torch.cat([x.exp().cpu(), y.exp().cpu()]))


def test_a_part_may_be_computed_from_another_part_of_the_tensor():
    x = card(128, 192)
    where = space(c0=(64, 4), c1=(192, 1))
    kernel = [op("exp", where, arg(x[64:], 0, (c0, c1)), arg(x[:64], 0, (c0, c1), output=True))]
    expected = torch.cat([x[64:].exp().cpu(), x[64:].cpu()])
    run(files_of(kernel), [x])
    assert torch.equal(x.cpu(), expected)


# ------------------------------------------------------------------------------------------- loops


def tiles(names, first, last, *, count=4):
    """Ops on tiles of 64 rows, with what is in between in the pool, at one place."""
    where = space(c0=(64, 2), c1=(192, 1))
    middle = [local(i * POOL, 64, 192, memory="pool") for i in range(len(names) - 1)]
    for tensor in middle:
        tensor.per_tile_fixed = True
    ends = zip([first, *middle], [*middle, last], strict=True)
    body = [
        op(name, where, a, b, tiled_symbols=[c0]) for name, (a, b) in zip(names, ends, strict=True)
    ]
    return LoopSpec(sympy.Integer(count), body)


def test_a_loop_stays_a_loop():
    x, out = card(256, 192), empty(256, 192)
    loop = tiles(["exp", "neg"], arg(x, 0, (c0, c1)), arg(out, 1, (c0, c1), output=True))
    files = files_of([loop])
    assert scheduled(files) == [["exp", "neg"]]
    run(files, [pool(2), x, out])
    assert torch.equal(out.cpu(), x.exp().neg().cpu())


def test_a_loop_in_which_cores_exchange_data_is_written_out():
    x, out = card(256, 192), empty(256, 192)
    loop = tiles(["exp", "neg"], arg(x, 0, (c0, c1)), arg(out, 1, (c0, c1), output=True))
    loop.body[1].iteration_space = space(c0=(64, 1), c1=(192, 3))
    files = files_of([loop])
    assert scheduled(files) == [["exp"], ["neg"]] * 4
    run(files, [pool(2), x, out])
    assert torch.equal(out.cpu(), x.exp().neg().cpu())


def test_tiles_that_overlap_are_written_out():
    """Every iteration begins where the second core of the one before did."""
    x = torch.ones(256, 192, dtype=torch.float16, device="spyre")
    loop = tiles(["neg"], arg(x, 0, (c0, c1)), arg(x, 0, (c0, c1), output=True))
    files = files_of([loop])
    moved = BundleFiles("test", files.mlir.replace("8192*d0", "4096*d0"), files.superdscs)
    assert moved.mlir != files.mlir
    assert scheduled(files) == [["neg"]]
    assert scheduled(moved) == [["neg"]] * 4
    run(moved, [x])
    expected = torch.ones(256, 192)
    expected[:32] = -1
    expected[128:160] = -1
    assert torch.equal(x.float().cpu(), expected)


def test_a_loop_of_no_iterations_does_nothing():
    x, out = card(256, 192), torch.ones(256, 192, dtype=torch.float16, device="spyre")
    loop = tiles(["exp"], arg(x, 0, (c0, c1)), arg(out, 1, (c0, c1), output=True), count=0)
    run(files_of([loop]), [x, out])
    assert torch.equal(out.cpu(), torch.ones(256, 192).half())


@pytest.mark.parametrize("symbolic", [True, False])
def test_loops_in_loops(symbolic):
    """Rows in tiles of 128, these in tiles of 32, and columns in the middle."""
    x, out = card(256, 192), empty(256, 192)
    args = [arg(x, 0, (c0, c1)), arg(out, 1, (c0, c1), output=True)]
    inner = op("exp", space(c0=(32, 2), c1=(64, 1)), *args, tiled_symbols=[c0])
    columns = LoopSpec(sympy.Integer(3), [inner], tiled_symbols=[c1])
    rows = LoopSpec(sympy.Integer(8), [columns], tiled_symbols=[c0])
    files = files_of([rows], symbolic=symbolic)
    assert scheduled(files) == [["exp"]]
    run(files, [x, out])
    assert torch.equal(out.cpu(), x.exp().cpu())


def test_more_places_than_a_step_can_name():
    x, out = card(1, 64), torch.empty(1200, 64, dtype=torch.float16, device="spyre")
    where = space(c0=(1, 1), c1=(64, 1))
    kernel = [
        op("identity", where, arg(x, 0, (c0, c1)), arg(out[i : i + 1], 1, (c0, c1), output=True))
        for i in range(1200)
    ]
    files = files_of(kernel)
    assert len(scheduled(files)) == 2
    run(files, [x, out])
    assert torch.equal(out.cpu(), x.cpu().expand(1200, 64))
