"""What kernels and eager ops cost: accounts of bundles, published measurements, counters."""

import math
from pathlib import Path

import pytest
import sympy
import torch
from compiling import counted
from kernels import (
    FP16,
    arg,
    bundle_of,
    c0,
    c1,
    c2,
    card,
    empty,
    files_of,
    gather,
    local,
    op,
    space,
)
from subprocesses import forked

from torch_spyre._C import _Program
from torch_spyre._inductor.op_spec import LoopSpec, TensorArg
from torch_spyre.backend.account import accounts_in, accounts_of
from torch_spyre.backend.bundle import parse_bundle
from torch_spyre.backend.compiler import compile_files, compile_to_spyrecode
from torch_spyre.backend.job_plan import launch_jobplan, prepare_kernel
from torch_spyre.cost import Account, OpCost, launch_ns, multicast_bytes, price, transfer_ns
from torch_spyre.execution.kernel_runner import SDSCKernelRunner
from torch_spyre.machine import load
from torch_spyre.tools.cost_table import cost_table

LAUNCH, OP = (int(load().value(f"overhead.{name}_ns")) for name in ("launch", "op"))
MIB = 1 << 20


def accounts(entries, **options):
    return accounts_of(parse_bundle(files_of(entries, **options)))


def only(entries):
    (account,) = accounts(entries)
    return account.cost


def busy_ns(counters):
    parts = ("memory", "compute", "lx", "ring", "overhead")
    return sum(getattr(counters, f"{part}_ns") for part in parts)


# -------------------------------------------------------------------------- the published softmax

ROWS, COLUMNS = 512, 1024


def matrix(offset, memory, output=False):
    return local(offset, ROWS, COLUMNS, memory=memory, output=output)


def row(offset, memory, output=False):
    where = [sympy.floor(c1 / 64), sympy.Mod(c1, 64)]
    return TensorArg(not output, -1, FP16, [COLUMNS // 64, 64], where, {memory: offset})


def softmax_dim0(cores=1, *, rows="pool", between="pool", in_place=False, cloned=False):
    """softmax(x, 0) as five ops, with intermediates in the memories that are named."""
    x, out = card(ROWS, COLUMNS), empty(ROWS, COLUMNS)
    x_arg, out_arg = arg(x, 0, (c0, c1)), arg(out, 1, (c0, c1), output=True)
    pool = [torch.empty(2 * MIB + 8192, dtype=torch.int8, device="spyre")]
    if "pool" not in (rows, between):
        pool = []
    for number, tensor in enumerate((x_arg, out_arg), len(pool)):
        tensor.allocation = {"hbm": number << 34}
    where = space(c1=(COLUMNS, cores), c0=(ROWS, 1))
    at = [0, 0] if in_place else [0, MIB]
    first = [2 * MIB, 2 * MIB + 4096] if rows == "pool" else [MIB + 4096, MIB + 8192]
    given_ = matrix(0, "lx") if cloned else x_arg
    ops = [op("identity", where, x_arg, matrix(0, "lx", True))] if cloned else []
    ops += [
        op("max", where, given_, row(first[0], rows, True), reduction=True),
        op("sub", where, given_, row(first[0], rows), matrix(at[0], between, True)),
        op("exp", where, matrix(at[0], between), matrix(at[1], between, True)),
        op("sum", where, matrix(at[1], between), row(first[1], rows, True), reduction=True),
        op("realdiv", where, matrix(at[1], between), row(first[1], rows), out_arg),
    ]
    return ops, [*pool, x, out]


IN_LX = {"rows": "lx", "between": "lx", "in_place": True}
PUBLISHED = {
    "all in device memory": ({}, 32.5),
    "reductions in LX": ({"rows": "lx"}, 27.7),
    "in place in LX": (IN_LX, 23.9),
    "input cloned": (IN_LX | {"cloned": True}, 23.7),
    "four cores": ({"cores": 4}, 32.2),
}


@pytest.mark.parametrize("stage", PUBLISHED)
def test_published_softmax_times_are_met(stage):
    options, published = PUBLISHED[stage]
    entries, tensors = softmax_dim0(**options)
    files = files_of(entries)
    program = _Program(compile_files(files))
    counters = counted(lambda: program.launch(tensors))
    listed = accounts_of(parse_bundle(files))
    assert counters.modelled_ns == busy_ns(counters) == launch_ns(listed)
    assert counters.modelled_ns / 1000 == pytest.approx(published, rel=0.15)
    expected = torch.softmax(tensors[-2].cpu().float(), 0)
    torch.testing.assert_close(tensors[-1].cpu().float(), expected, rtol=0.02, atol=1e-4)


def test_planning_in_lx_leaves_one_read_and_one_write():
    entries, _ = softmax_dim0(rows="lx", between="lx", in_place=True, cloned=True)
    costs = [account.cost for account in accounts(entries)]
    assert sum(cost.read_bytes for cost in costs) == MIB
    assert sum(cost.written_bytes for cost in costs) == MIB
    # identity w; max r; sub r, w; exp r, w; sum r; realdiv r: 1 MiB each, and rows of 2048 bytes
    assert sum(cost.all_lx_bytes for cost in costs) == 8 * MIB + 4 * 2048


# ------------------------------------------------------------------------------ accounts of bundles


def test_an_add_on_uneven_parts():
    x, y, out = card(100, 200), card(100, 200), empty(100, 200)
    args = [arg(x, 0, (c0, c1)), arg(y, 1, (c0, c1)), arg(out, 2, (c0, c1), output=True)]
    cost = only([op("add", space(c0=(100, 3), c1=(200, 2)), *args)])
    assert (cost.unit, cost.passes, cost.cores, cost.element_bytes) == ("sfp", 1, 6, 2)
    assert cost.written_bytes == 100 * 4 * 128  # 200 columns are 4 sticks
    assert cost.read_bytes == 2 * cost.written_bytes
    assert cost.all_points == 100 * 200
    assert cost.points == 34 * 128  # of the largest core: 34 rows, two sticks
    assert cost.partial_sums == cost.all_lx_bytes == cost.ring_bytes == 0


@pytest.mark.parametrize("cores", [1, 8, 16, 32])
def test_what_cores_share_is_read_once_for_every_eight(cores):
    x, line, out = card(128, 192), card(192), empty(128, 192)
    args = [arg(x, 0, (c0, c1)), arg(line, 1, (c1,)), arg(out, 2, (c0, c1), output=True)]
    cost = only([op("add", space(c0=(128, cores), c1=(192, 1)), *args)])
    assert cost.read_bytes == 128 * 3 * 128 + multicast_bytes(3 * 128, cores)
    assert multicast_bytes(3 * 128, cores) == 3 * 128 * math.ceil(cores / 8)


def product(m, n, k, splits):
    x, y, out = card(m, k), card(k, n), empty(m, n)
    args = [arg(x, 0, (c0, c2)), arg(y, 1, (c2, c1)), arg(out, 2, (c0, c1), output=True)]
    where = space(c0=(m, splits[0]), c1=(n, splits[1]), c2=(k, splits[2]))
    return [op("batchmatmul", where, *args, reduction=True)], [x, y, out]


def test_a_product():
    cost = only(product(128, 256, 512, (4, 2, 1))[0])
    assert (cost.unit, cost.cores, cost.rows) == ("pt", 8, 32)
    assert cost.points * 8 == cost.all_points == 128 * 256 * 512
    assert cost.read_bytes == 2 * (128 * 512 + 512 * 256)  # 2 and 4 cores share
    assert cost.written_bytes == 2 * 128 * 256
    assert cost.partial_sums == 0


def test_a_k_split_adds_partial_sums():
    entries, tensors = product(128, 256, 512, (2, 2, 4))
    cost = only(entries)
    assert cost.partial_sums == 3 * 128 * 256
    assert cost.points * 16 == cost.all_points
    sums = math.ceil(3 * 128 * 256 * 0.14)
    assert price(cost).overhead == sums + load().value("overhead.op_ns")
    program = _Program(compile_files(files_of(entries)))
    counters = counted(lambda: program.launch(tensors))
    assert counters.ring_bytes == 4 * cost.partial_sums
    assert counters.macs == cost.all_points
    assert counters.overhead_ns >= sums


def test_a_reduction_writes_whole_sticks():
    x, out = card(100, 200), empty(100, 1)
    args = [arg(x, 0, (c0, c1)), arg(out, 1, (c0, None), output=True)]
    cost = only([op("sum", space(c0=(100, 4), c1=(200, 1)), *args, reduction=True)])
    assert cost.read_bytes == 100 * 4 * 128
    assert cost.written_bytes == 100 * 128  # one value in each
    assert cost.points == 25 * 256


def test_a_gather_reads_what_the_indices_choose():
    kernel = gather()
    cost = only(kernel.entries)
    out = kernel.tensors[-1]
    sticks = math.prod(out.device_tensor_layout().device_size[:-1])
    index_bytes = kernel.tensors[0].device_tensor_layout().device_bytes()
    assert cost.written_bytes == sticks * 128
    assert cost.read_bytes <= cost.written_bytes + 4 * index_bytes
    assert cost.read_bytes > cost.written_bytes


def test_loops_count_as_often_as_they_run():
    x, out = card(128, 192), empty(128, 192)
    tile, counts = 32, 4
    args = [arg(x, 0, (c0, c1)), arg(out, 1, (c0, c1), output=True)]
    entry = op("exp", space(c0=(tile, 2), c1=(192, 1)), *args, tiled_symbols=[c0])
    (account,) = accounts([LoopSpec(sympy.Integer(counts), [entry])], unroll_loops=False)
    assert account.count == counts
    assert account.cost.read_bytes == tile * 3 * 128
    assert account.ns == counts * account.price.total


def test_accounts_travel_with_the_program(tmp_path):
    entries, tensors = softmax_dim0(rows="lx")
    bundle_of(entries).write(tmp_path / "bundle")
    compile_to_spyrecode(tmp_path / "bundle", tmp_path / "code")
    plan = prepare_kernel(tmp_path / "code")
    listed = accounts(entries)
    fields = [name for name in dir(OpCost) if not name.startswith("_")]

    def words(all):
        return [(a.name, a.count, *(getattr(a.cost, field) for field in fields)) for a in all]

    assert words(plan.accounts) == words(listed)
    assert [account.name for account in listed] == ["max", "sub", "exp", "sum", "realdiv"]
    counters = counted(lambda: launch_jobplan(plan, tensors))
    assert counters.modelled_ns == launch_ns(plan.accounts)
    assert accounts_in(b"") == []


def test_a_compiled_kernel_knows_its_costs_and_the_users_lines(monkeypatch):
    kernels = []
    run = SDSCKernelRunner.run

    def watched(kernel, *args):
        kernels.append(kernel)
        run(kernel, *args)

    monkeypatch.setattr(SDSCKernelRunner, "run", watched)

    def function(x):
        y = torch.exp(x)
        return y.sum(1)

    torch._dynamo.reset()
    x = card(256, 512)
    # A graph from Inductor's cache names the lines it was first compiled from.
    with torch._inductor.config.patch(force_disable_caches=True):
        counters = counted(lambda: torch.compile(function)(x))
    listed = kernels[-1].accounts
    assert [account.name for account in listed] == ["exp", "sum"]
    assert listed[0].source.endswith("y = torch.exp(x)")
    assert listed[1].source.endswith("return y.sum(1)")
    assert Path(__file__).name in listed[0].source
    assert counters.modelled_ns == launch_ns(listed)
    assert listed[0].cost.read_bytes == 256 * 512 * 2


def test_a_table_for_people():
    listed = [
        Account("add", OpCost(cores=32, points=1 << 14, read_bytes=2 * MIB, written_bytes=MIB)),
        Account("batchmatmul", OpCost(unit="pt", points=1 << 30, all_points=1 << 30, rows=64), 3),
    ]
    table = cost_table(listed)
    assert table.rows[0] == (
        *("add", "1", "32", "2 MiB", "1 MiB", "0 B", "0 B"),
        *("10.34", "0%", "memory"),
    )
    assert table.rows[1][-3:] == ("2097.45", "3%", "compute")  # one core of 32


# ---------------------------------------------------------------------- eager, compiled, counters

UNARY = {
    "exp": torch.exp,
    "sum": lambda x: x.sum(1),
    "max": lambda x: x.amax(0),
    "sigmoid": torch.sigmoid,
}


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("size", [(256, 512), (100, 200)], ids=str)
def test_eager_and_compiled_move_the_same_bytes(name, size):
    function, x = UNARY[name], card(*size)
    eager = counted(lambda: function(x))
    torch._dynamo.reset()
    compiled_function = torch.compile(function)
    compiled = counted(lambda: compiled_function(x))
    assert eager.device_bytes_read == compiled.device_bytes_read > 0
    assert compiled.device_bytes_written == eager.device_bytes_written > 0


def test_eager_and_compiled_broadcasts_read_an_operand_once():
    x, line = card(256, 512), card(512)
    eager = counted(lambda: x + line)
    torch._dynamo.reset()
    function = torch.compile(torch.add)
    compiled = counted(lambda: function(x, line))
    assert eager.device_bytes_read == 256 * 1024 + 1024
    assert eager.device_bytes_read <= compiled.device_bytes_read <= 256 * 1024 + 4 * 1024
    assert eager.device_bytes_written == compiled.device_bytes_written == 256 * 1024


@pytest.mark.parametrize("size", [(256, 512, 1024), (1, 4096, 512)], ids=str)
def test_eager_and_compiled_products_multiply_the_same(size):
    m, k, n = size
    x, y = card(m, k), card(k, n)
    eager = counted(lambda: x @ y)
    torch._dynamo.reset()
    function = torch.compile(torch.matmul)
    compiled = counted(lambda: function(x, y))
    assert eager.macs == compiled.macs == m * k * n
    assert eager.device_bytes_written == compiled.device_bytes_written == 2 * m * n
    least = 2 * (m * k + k * n)
    assert least <= eager.device_bytes_read <= 2 * least
    assert least <= compiled.device_bytes_read <= 4 * least
    assert eager.modelled_ns <= compiled.modelled_ns * 1.05


def test_a_decoded_token_is_bound_by_memory():
    x, w = card(1, 4096), card(4096, 1024)
    counters = counted(lambda: x @ w)
    least = 4096 * 1024 * 2 / 204.8
    assert least <= counters.memory_ns <= 1.01 * least
    assert counters.compute_ns == 0


def test_counters_of_many_launches_add_up():
    x, y = card(256, 512), card(512, 256)

    def work():
        z = torch.softmax((x @ y).exp(), -1)
        return z.sum(0) + z[0]

    once = counted(work)
    assert once.modelled_ns == busy_ns(once)
    assert once.overhead_ns >= once.launches * (LAUNCH + OP)
    torch.spyre.reset()
    for _ in range(3):
        work()
    torch.spyre.synchronize()
    thrice = torch.spyre.counters()
    assert {name: 3 * value for name, value in vars(once).items()} == vars(thrice)


def test_a_program_is_sent_before_its_first_launch():
    entries, tensors = product(64, 64, 64, (1, 1, 1))
    program = _Program(compile_files(files_of(entries)))
    torch.spyre.reset()
    program.launch(tensors)
    first = torch.spyre.counters()
    assert first.program_bytes == program.bytes
    assert first.modelled_ns == transfer_ns(program.bytes) + busy_ns(first)
    program.launch(tensors)
    second = torch.spyre.counters()
    assert second.program_bytes == first.program_bytes
    assert second.modelled_ns - first.modelled_ns == busy_ns(first)


def test_host_threads_change_no_number():
    code = """
    import json, torch
    x = torch.randn(300, 500).half().to("spyre")
    y = torch.randn(500, 200).half().to("spyre")
    torch.softmax(x @ y, 0).sum().cpu()
    print(json.dumps(vars(torch.spyre.counters())))
    """
    one, two = (forked(code, SPYRE_CARD_THREADS=threads).value for threads in (1, 2))
    assert one == two
    assert one["modelled_ns"] > 0
