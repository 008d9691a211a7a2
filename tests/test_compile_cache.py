"""A graph that was compiled before is not compiled again; one that differs is."""

import contextlib
import shutil
from dataclasses import replace

import pytest
import torch
from compiling import card
from subprocesses import forked
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import FakeTensorMode

from torch_spyre import _C, code_digest, declare_tensor_dim, spyre_hint
from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor import config, programs
from torch_spyre._inductor.cache_key import SpyreCacheKey, compiled_for, given
from torch_spyre._inductor.propagate_named_dims import reset as reset_names
from torch_spyre.backend import kernel_cache
from torch_spyre.execution import async_compile, kernel_runner

HALF = torch.float16


@pytest.fixture(autouse=True)
def fresh_caches(tmp_path, monkeypatch):
    """Empty caches of the test's own."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.delenv("TORCH_SPYRE_CACHE_DIR", raising=False)
    forget()
    yield
    forget()


def forget():
    """Like a new process."""
    torch._dynamo.reset()
    kernel_cache.forget()
    counters.clear()


@pytest.fixture
def written(monkeypatch):
    """The kernels that bundles were written of, because no program of theirs was found."""
    kernels = []
    bundle_of = programs.bundle_of

    def counted(specs, *more):
        kernels.append(specs)
        return bundle_of(specs, *more)

    monkeypatch.setattr(programs, "bundle_of", counted)
    return kernels


@pytest.fixture
def kernels():
    """Those that were launched."""
    seen = []

    def watch(launches):
        seen.extend(kernel for kernel, _ in launches)
        return contextlib.nullcontext()

    with kernel_runner.watched_by(watch):
        yield seen


def work(x, y):
    return torch.relu(x + y) * 2, x.sum(-1)


def hits():
    found = counters["aot_autograd"]["autograd_cache_hit"]
    counters.clear()
    return found


def check(function, *args):
    """The compiled function gives the eager result."""
    for ours, eager in zip(torch.compile(function)(*args), function(*args), strict=True):
        assert torch.equal(ours.cpu(), eager.cpu())


def test_a_graph_is_compiled_once(written):
    check(work, card(3, 200), card(3, 200))
    assert hits() == 0
    assert len(written) == 1
    forget()
    check(work, card(3, 200), card(3, 200))
    assert hits() == 1
    assert len(written) == 1


def test_a_graph_whose_programs_are_gone_is_compiled_again(written, tmp_path):
    check(work, card(3, 200), card(3, 200))
    forget()
    shutil.rmtree(tmp_path / "inductor" / kernel_cache.FOLDER)
    check(work, card(3, 200), card(3, 200))
    assert hits() == 0
    assert len(written) == 2
    forget()
    check(work, card(3, 200), card(3, 200))
    assert hits() == 1


def test_programs_stay_until_they_are_launched(monkeypatch):
    """Also where nothing keeps them, neither a disk nor the process."""
    monkeypatch.setenv("TORCH_SPYRE_CACHE", "0")
    monkeypatch.setattr(kernel_cache, "MAX_REMEMBERED", 1)
    x = card(3, 200)
    check(lambda x: (x.exp() + torch.nonzero(x).numel(), x.cpu().to(x.device).sum(0) * 2), x)


def test_generated_code_launches_by_one_function(kernels):
    check(work, card(3, 200), card(3, 200))
    assert len(kernels) == 1
    assert kernels[0].name.startswith("sdsc_fused_")


def test_equal_kernels_of_different_graphs_are_written_once(written):
    check(lambda x: (x + 1,), card(4, 64))
    check(lambda x: (x + 1, torch.nonzero(x)), card(4, 64))
    assert len(written) == 1


def test_where_an_input_begins_is_part_of_the_key():
    base = card(4, 200)
    check(work, base[0:2], card(2, 200))
    forget()
    check(work, base[2:4], card(2, 200))
    assert hits() == 0
    forget()
    check(work, base[2:4], card(2, 200))
    assert hits() == 1


def transposed(x):
    """The same numbers, with the sticks along the first dimension."""
    layout = SpyreTensorLayout(list(x.shape), list(x.stride()), x.dtype, [1, 0])
    moved = x.to(device_layout=layout)
    assert moved.device_tensor_layout() != x.device_tensor_layout()
    return moved


def test_the_layout_of_an_input_is_part_of_the_key():
    check(work, card(64, 128), card(64, 128))
    forget()
    check(work, transposed(card(64, 128)), card(64, 128))
    assert hits() == 0


@pytest.mark.parametrize("knob", ["sencores", "unroll_loops", "core_id_k_fast_emission"])
def test_knobs_are_part_of_the_key(knob):
    check(work, card(3, 200), card(3, 200))
    forget()
    changed = 4 if knob == "sencores" else not getattr(config, knob)
    with config.patch({knob: changed}):
        check(work, card(3, 200), card(3, 200))
        assert hits() == 0
    forget()
    check(work, card(3, 200), card(3, 200))
    assert hits() == 1


def test_our_own_code_is_part_of_the_key(monkeypatch, tmp_path):
    check(work, card(3, 200), card(3, 200))
    forget()
    copy = tmp_path / "torch_spyre"
    shutil.copytree(code_digest.PACKAGE, copy, ignore=shutil.ignore_patterns("csrc", "__pycache__"))
    with (copy / "partition/ring.py").open("a") as file:
        file.write("# another version\n")
    code_digest.code_digest.cache_clear()
    monkeypatch.setattr(code_digest, "PACKAGE", copy)
    try:
        check(work, card(3, 200), card(3, 200))
        assert hits() == 0
    finally:
        code_digest.code_digest.cache_clear()


@pytest.mark.parametrize("changed", ["scratchpads_survive", "special_values"])
def test_what_the_card_is_asked_is_part_of_the_key(changed):
    now = given()
    for each in (now, replace(now, **{changed: "something else"})):
        with compiled_for(each):
            key = SpyreCacheKey().uuid()
        assert (key == SpyreCacheKey().uuid()) == (each is now)


def test_sizes_that_hints_give_to_names_are_part_of_the_key():
    """The names A and B of a dimension of 12 mean something else when A is 2, and when it is 4."""

    def function(x):
        with spyre_hint(named_dims=["A", "B", "N"], num_tiles_per_dim={"A": 2}):
            return (x * 2,)

    found = []
    for size in (2, 4, 2):
        forget()
        reset_names()
        declare_tensor_dim("A", size)
        declare_tensor_dim("B", 12 // size)
        check(function, card(12, 64))
        found.append(hits())
    reset_names()
    assert found == [0, 0, 1]


def test_backward_graphs_are_compiled_with_the_knobs_of_forward(kernels):
    """Though they are compiled later, and by threads of autograd, which have knobs of their own."""
    x = card(64, 256).requires_grad_()
    with config.patch(sencores=4):
        result = torch.compile(lambda x: torch.softmax(x * 2, -1))(x)
    result.sum().backward()
    cores = [account.cost.cores for kernel in kernels for account in kernel.accounts]
    assert len(kernels) > 1
    assert max(cores) == 4


def test_a_tensor_of_another_layout_is_another_graph(kernels):
    compiled = torch.compile(work)
    plain, turned = card(64, 128), transposed(card(64, 128))
    for x in (plain, turned, plain, turned):
        for ours, eager in zip(compiled(x, plain), work(x, plain), strict=True):
            torch.testing.assert_close(ours.cpu(), eager.cpu(), rtol=2**-8, atol=2**-3)
    assert counters["stats"]["unique_graphs"] == 2
    assert len(kernels) == 4  # none on copies


def test_tensors_of_equal_layouts_are_one_graph():
    compiled = torch.compile(work)
    base = card(4, 64, 128)
    for x in base:  # they begin elsewhere: copied, not compiled again
        for ours, eager in zip(compiled(x, x), work(x, x), strict=True):
            assert torch.equal(ours.cpu(), eager.cpu())
    assert counters["stats"]["unique_graphs"] == 1


def test_layouts_are_not_compared_where_sizes_vary():
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=True)
    for rows in (3, 70, 200):
        compiled(card(rows, 8))
    assert counters["stats"]["unique_graphs"] == 1


def test_a_guard_knows_what_lies_so():
    x = card(64, 128)
    guard = _C._layout_guard(x.device_tensor_layout())
    assert guard(x)
    assert guard(card(64, 128))
    assert guard(x[1:, 1:])
    assert not guard(transposed(x))
    assert not guard(card(128, 64))
    assert not guard(x.cpu())
    assert not guard("x")
    with FakeTensorMode() as mode:
        assert not guard(mode.from_tensor(x))


@pytest.mark.parametrize(
    "geometry", [((3, 70), (70, 1)), ((), ()), ((4, 5), (1, 4)), ((0, 3), (3, 1))]
)
@pytest.mark.parametrize("dtype", [HALF, torch.float32, torch.bool])
def test_graphs_allocate_what_empty_strided_does(geometry, dtype):
    ours = _C._empty_strided(*geometry, dtype, 0)
    dispatched = torch.empty_strided(*geometry, dtype=dtype, device="spyre")
    assert (ours.shape, ours.stride(), ours.dtype, ours.device) == (
        dispatched.shape,
        dispatched.stride(),
        dispatched.dtype,
        dispatched.device,
    )
    assert ours.device_tensor_layout() == dispatched.device_tensor_layout()


@pytest.mark.parametrize(
    "arguments",
    [
        ((3,), (1, 1), HALF, 0),
        ((3,), (-1,), HALF, 0),
        ((-3,), (1,), HALF, 0),
        ((3,), (1,), HALF, 99),
        ([3], [1], HALF, 0),
        ((3,), (1,), "float16", 0),
        ((3,), (1,), HALF),
    ],
)
def test_what_cannot_be_allocated_is_refused(arguments):
    with pytest.raises((RuntimeError, TypeError, ValueError, IndexError)):
        _C._empty_strided(*arguments)


ARTIFACTS = """
    import os, sys, torch
    from pathlib import Path
    from torch._dynamo.utils import counters
    from torch_spyre.backend import kernel_cache

    made, compile_files = [], kernel_cache.compile_files
    kernel_cache.compile_files = lambda files: made.append(files) or compile_files(files)
    path, role = Path({path!r}), {role!r}
    if role == "reader":
        torch.compiler.load_cache_artifacts(path.read_bytes())
    x = (torch.arange(600.0).reshape(3, 200) / 100).half().to("spyre")

    def f(x):
        return torch.relu(x - 2) * 2, x.sum(-1)

    got = torch.compile(f)(x)
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(got, f(x)))
    if role == "writer":
        data, info = torch.compiler.save_cache_artifacts()
        path.write_bytes(data)
        print(len(info.spyre_kernel_artifacts), len(made))
    else:
        print(counters["aot_autograd"]["autograd_cache_hit"], len(made))
"""


def test_artifacts_give_another_machine_a_warm_start(tmp_path):
    def run(role):
        code = ARTIFACTS.format(path=str(tmp_path / "artifacts"), role=role)
        return forked(code, TORCHINDUCTOR_CACHE_DIR=tmp_path / role).output

    assert run("writer") == "1 1"
    assert run("reader") == "1 0"


def test_a_kernel_with_an_op_that_is_missing_fails_when_it_runs():
    from torch_spyre._inductor.op_spec import UnimplementedOp

    kernel = async_compile.SpyreAsyncCompile().sdsc("sdsc_fused_fft_0", [UnimplementedOp("fft")])
    with pytest.raises(RuntimeError, match=r"sdsc_fused_fft_0 .* unimplemented operation fft"):
        kernel.run(card(3))
