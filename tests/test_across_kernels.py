"""Intermediates that stay in LX from one kernel to the next: on a whole card, and not on a share.

Kernels of their own for every loop (``fusion`` off) hand over what a fused kernel keeps inside.
"""

import contextlib
import re
import shutil
import threading
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from compiling import assert_near, card, compiled, counted
from kernel_ops import A, B, at, buffer, interpret, numbered, op, softmax_ops
from subprocesses import forked
from torch._inductor import config as inductor_config
from torch._inductor.utils import run_and_get_code

import torch_spyre
from torch_spyre import _C
from torch_spyre.__main__ import main
from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor import config
from torch_spyre._inductor.cache_key import SpyreCacheKey
from torch_spyre._inductor.codegen.bundle import make_bundle
from torch_spyre._inductor.planning import plan_kernels, settle
from torch_spyre.backend import launch_jobplan, launch_together, prepare_kernel
from torch_spyre.backend.compiler import compile_to_spyrecode
from torch_spyre.backend.errors import MalformedBundle
from torch_spyre.execution import kernel_runner

pytestmark = pytest.mark.usefixtures("fresh_compiler")

GOLDEN = Path(__file__).parent / "golden" / "together"


@pytest.fixture(autouse=True)
def _a_kernel_for_every_loop():
    with config.patch(fusion=False):
        yield


def softmax(x):
    return F.softmax(x, -1)


def norm(x):
    return F.layer_norm(x, x.shape[-1:])


def mlp(x):
    return F.silu(x @ x[:128].t()) * (x @ x[:128].t())


def attention(x):
    q = x.reshape(1, 4, -1, 64)
    return F.scaled_dot_product_attention(q, q, q, is_causal=True)


FUNCTIONS = [softmax, norm, mlp, attention]


@contextlib.contextmanager
def launches():
    """Of compiled kernels inside; each a list of those launched together."""
    seen = []

    def watch(together):
        seen.append(list(together))
        return contextlib.nullcontext()

    with kernel_runner.watched_by(watch):
        yield seen


def spent(function, x, **knobs):
    with config.patch(knobs):
        torch._dynamo.reset()
        run = torch.compile(function, fullgraph=True, dynamic=False)
        return counted(lambda: run(x))


def traffic(counters):
    return counters.device_bytes_read + counters.device_bytes_written


# --------------------------------------------------------------------------------------- compiled


@pytest.mark.parametrize("function", FUNCTIONS)
def test_results_do_not_depend_on_what_stays_in_lx(function):
    x = card(256, 256)
    (want,) = compiled(function, x).results
    assert_near(want, function(x))
    tight = {"dxp_lx_frac_avail": 1 - 20 * 1024 / 2**21}
    for knobs in (
        *({"lx_across_kernels": False}, {"lx_planning": False}, {"fusion": True}, tight),
        *({"lx_ring_moves": False, "bundle_symbolic_args": False}, {"lx_boundary_clones": False}),
    ):
        with config.patch(knobs):
            (got,) = compiled(function, x).results
        assert torch.equal(got.cpu(), want.cpu()), knobs


@pytest.mark.parametrize("function", FUNCTIONS)
def test_less_goes_through_device_memory_and_takes_less_time(function):
    x = card(256, 256)
    off, on = spent(function, x, lx_across_kernels=False), spent(function, x)
    assert on.launches == off.launches > 1
    assert traffic(on) < traffic(off)
    assert on.modelled_ns < off.modelled_ns
    assert on.overhead_ns >= off.overhead_ns  # launches cost what they cost


def test_softmax_moves_its_input_and_its_result():
    x = card(256, 256)
    assert traffic(spent(softmax, x)) == 2 * 256 * 256 * 2


def test_what_stays_has_no_tensor():
    with config.patch(lx_across_kernels=False):
        _, (off,) = run_and_get_code(torch.compile(softmax), card(256, 256))
    torch._dynamo.reset()
    _, (on,) = run_and_get_code(torch.compile(softmax), card(256, 256))
    assert (off.count("= empty_strided_spyre(") > 1, off.count("run_together(")) == (True, 0)
    assert (on.count("= empty_strided_spyre("), on.count("run_together(")) == (1, 1)


def test_an_output_has_its_memory():
    def function(x):
        y = torch.exp(x)
        return y, y + 1, (y * 2).sum(-1)

    x = card(128, 128)
    for ours, right in zip(compiled(function, x).results, function(x), strict=True):
        assert_near(ours, right)


def test_nothing_stays_while_something_else_runs():
    """An eager call, and a copy of a view that no op can touch in place."""
    for between in (lambda y: y.sort(-1).values, lambda y: y[:, 1:]):

        def function(x, between=between):
            return between((x + 1).exp()).exp() * 2

        x = card(64, 128)
        with launches() as seen:
            (got,) = compiled(function, x).results
        assert_near(got, function(x))
        first, *_, last = [[kernel.name for kernel, _ in together] for together in seen]
        assert first != last
        for together in seen:  # views are copied before launches
            assert len(together) == 1 or not any(kernel.views for kernel, _ in together)


def test_dynamic_sizes_are_planned_as_ever():
    run = torch.compile(softmax, dynamic=True)
    for rows in (64, 128):
        with launches() as seen:
            assert_near(run(card(rows, 128)), softmax(card(rows, 128)))
        assert all(len(together) == 1 for together in seen)


def test_arguments_that_lie_otherwise_are_copied_once():
    x = card(64, 128)
    with launches() as seen:
        (want,) = compiled(lambda x: torch.exp(x + 1) * x, x).results
    (together,) = seen
    turned = SpyreTensorLayout([64, 128], [128, 1], torch.float16, [1, 0])
    other = {id(tensor): tensor.to(device_layout=turned) for _, args in together for tensor in args}
    for tensor in other.values():
        if not torch.equal(tensor.cpu(), x.cpu()):
            tensor.zero_()
    kernel_runner.run_together(
        *((kernel, tuple(other[id(tensor)] for tensor in args)) for kernel, args in together)
    )
    kernel, args = together[-1]
    (written,) = kernel.outputs
    assert torch.equal(other[id(args[written])].cpu(), want.cpu())


def test_explain_shows_what_lives_across_kernels():
    report = torch_spyre.explain(softmax, card(256, 256))
    assert [len(kernel.across) > 0 for kernel in report.kernels] == [True] * len(report.kernels)
    first, *_, last = report.kernels
    assert {each.across for each in first.across} == {"left"}
    assert {each.across for each in last.across} == {"found"}
    assert sum(kernel.ns for kernel in report.kernels) == report.modelled_ns - sum(
        row.ns for row in report.ops if row.name == "(program)"
    )
    assert "across" in str(report)
    with config.patch(lx_across_kernels=False):
        torch._dynamo.reset()
        apart = torch_spyre.explain(softmax, card(256, 256))
    assert not any(kernel.across for kernel in apart.kernels)


# -------------------------------------------------------------------------- others on the same card


def test_launches_of_other_threads_do_not_come_in_between():
    torch._dynamo.reset()
    run = torch.compile(softmax)
    inputs = [card(128, 256, seed=seed) for seed in range(3)]
    with launches() as seen:
        wanted = [run(x).cpu() for x in inputs]
    assert all(len(together) > 1 for together in seen)
    right = []

    def work(x, want):
        with torch.spyre.stream(torch.spyre.Stream()):
            right.append(all(torch.equal(run(x).cpu(), want) for _ in range(30)))

    threads = [
        threading.Thread(target=work, args=each) for each in zip(inputs, wanted, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * len(threads)


def test_a_kernel_without_the_one_before_it_is_refused():
    x = card(256, 256)
    with launches() as seen:
        compiled(softmax, x)
    (together,) = seen
    kernel, args = together[-1]
    with pytest.raises(RuntimeError, match=r"has to leave there; launch both together"):
        kernel.run(*args)
    with pytest.raises(RuntimeError, match=r"does not leave there"):
        kernel_runner.run_together(together[0], together[-1])


# --------------------------------------------------------------------------------------- PF and VF

ON_A_SHARE = """
import json
import torch
from torch._inductor.utils import run_and_get_code
from torch_spyre._inductor import config

with config.patch(fusion=False):
    x = torch.linspace(-3, 3, 64 * 256).reshape(64, 256).half().to("spyre")
    run = torch.compile(lambda x: torch.softmax(x, -1), fullgraph=True, dynamic=False)
    got, (code,) = run_and_get_code(run, x)
    torch.spyre.reset()
    run(x)
    torch.spyre.synchronize()
    spent = torch.spyre.counters()
traffic = spent.device_bytes_read + spent.device_bytes_written
bits = got.cpu().view(torch.int16).tolist()
print(json.dumps([code.count("run_together("), traffic, bits]))
"""


def test_a_share_of_a_card_plans_every_kernel_for_itself():
    together, share, bits = forked(
        ON_A_SHARE, FLEX_DEVICE="VF", TORCH_SPYRE_LX_ACROSS_KERNELS=1
    ).value
    assert together == 0
    x = torch.linspace(-3, 3, 64 * 256).reshape(64, 256).half().to("spyre")
    assert traffic(spent(softmax, x)) < share
    assert traffic(spent(softmax, x, lx_across_kernels=False)) == share
    (got,) = compiled(softmax, x).results
    assert got.cpu().view(torch.int16).tolist() == bits


def test_keys_of_graphs_tell_a_share_of_a_card_from_the_whole(monkeypatch):
    whole = SpyreCacheKey().uuid()
    monkeypatch.setattr(_C, "_scratchpads_survive", lambda: False)
    assert SpyreCacheKey().uuid() != whole


def test_a_share_of_a_card_refuses_what_was_compiled_for_the_whole(tmp_path):
    _, (*_, folder) = written(chain(), tmp_path)
    code = f"""
        import torch
        from torch_spyre.backend import prepare_kernel
        x = torch.zeros(64, 128, dtype=torch.float16, device="spyre")
        try:
            prepare_kernel({str(folder)!r}).load(0)
        except RuntimeError as error:
            print(error)
    """
    assert "compile it for VF" in forked(code, FLEX_DEVICE="VF").output
    assert forked(code, FLEX_DEVICE="PF").output == ""


# ------------------------------------------------------------------------- kernels by hand, on disk


def chain():
    """exp(x + x) * x, each op a kernel."""
    x, y, z, out = (buffer(name, 64, 128) for name in ("x", "y", "z", "out"))
    space = {A: 64, B: 128}
    return [
        op("add", space, [at(x, A, B), at(x, A, B)], at(y, A, B)),
        op("exp", dict(space), [at(y, A, B)], at(z, A, B)),
        op("mul", dict(space), [at(z, A, B), at(x, A, B)], at(out, A, B)),
    ]


def softmax_of_rows():
    """Each op a kernel."""
    ops = softmax_ops(128, 128)
    for each in {access.buffer for one in ops for access in (*one.inputs, one.output)}:
        each.local, each.layout = False, buffer(each.name, *each.size).layout
    return ops


def planned(ops, between=True):
    names = {access.buffer.name for one in ops for access in (*one.inputs, one.output)}
    kept = sorted(names - {"x", "out"}) if between else ()
    return plan_kernels([settle([one]) for one in ops], kept)


def written(ops, directory):
    """The kernels, and their directories with bundles and SpyreCode."""
    kernels, folders = planned(ops), []
    for number, kernel in enumerate(kernels):
        folder = directory / f"kernel_{number}"
        make_bundle(kernel.specs, kernel.handover).write(folder)
        compile_to_spyrecode(folder, folder / "spyreCodeDir")
        folders.append(folder / "spyreCodeDir")
    return kernels, folders


def run_from_disk(kernels, folders, x):
    tensors = {"x": x}
    for kernel in kernels:
        for arg in kernel.args:
            if arg.name not in tensors:
                made = torch.zeros(arg.size, dtype=arg.dtype)
                tensors[arg.name] = made.to(device_layout=arg.layout)
    launch_together(
        [
            (prepare_kernel(folder), [tensors[arg.name] for arg in kernel.args])
            for kernel, folder in zip(kernels, folders, strict=True)
        ]
    )
    return tensors["out"].cpu()


@pytest.mark.parametrize("ops", [chain, softmax_of_rows])
def test_bundles_read_from_disk_hand_over_in_lx(ops, tmp_path):
    kernels, folders = written(ops(), tmp_path)
    assert [kernel.operands for kernel in kernels][1:-1] == [[]] * (len(kernels) - 2)
    storages = numbered(buffer("x", *kernels[0].args[0].size))
    x = torch.tensor([*storages["x"].values()]).reshape(-1, 128).half().to("spyre") / 8
    storages["x"] = {i: value / 8 for i, value in storages["x"].items()}
    right = interpret(ops(), storages)["out"]
    got = run_from_disk(kernels, folders, x)
    assert_near(got.flatten(), torch.tensor([right[i] for i in range(got.numel())]))


def test_the_summary_of_a_bundle_says_what_it_finds_and_leaves(capsys):
    assert main(["bundle", str(GOLDEN / "kernel_1")]) == 0
    text = capsys.readouterr().out
    assert "finds in LX: bytes 8192..16384 of 2 cores" in text
    assert "leaves in LX: bytes 16384..24576 of 2 cores" in text


def test_a_plan_alone_says_what_is_missing(tmp_path):
    kernels, folders = written(chain(), tmp_path)
    x = card(64, 128)
    with pytest.raises(RuntimeError, match="launch both together"):
        launch_jobplan(prepare_kernel(folders[-1]), [x, x.clone()])
    with pytest.raises(RuntimeError, match="does not leave there"):
        launch_together(
            [(prepare_kernel(folders[0]), [x]), (prepare_kernel(folders[2]), [x, x.clone()])]
        )
    assert all(kernel.handover for kernel in kernels)


def test_the_bundles_are_the_golden_ones(tmp_path, update_golden):
    with config.patch(sencores=2):
        kernels, folders = written(chain(), tmp_path)

    def texts(directory):
        files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
        kept = [path for path in files if path.parent.name != "spyreCodeDir"]
        return {str(path.relative_to(directory)): path.read_text() for path in kept}

    if update_golden:
        shutil.rmtree(GOLDEN, ignore_errors=True)
        for name, text in texts(tmp_path).items():
            (GOLDEN / name).parent.mkdir(parents=True, exist_ok=True)
            (GOLDEN / name).write_text(text)
    assert texts(tmp_path) == texts(GOLDEN)
    golden = [tmp_path / f"golden_{i}" for i in range(len(kernels))]
    for i, folder in enumerate(golden):
        compile_to_spyrecode(GOLDEN / f"kernel_{i}", folder)
    x = card(64, 128)
    assert torch.equal(run_from_disk(kernels, golden, x), run_from_disk(kernels, folders, x))


def test_kernels_for_themselves_where_others_look_or_there_is_no_room():
    kernels = planned(chain(), between=False)
    assert not any(kernel.handover for kernel in kernels)
    assert [len(kernel.operands) for kernel in kernels] == [2, 2, 3]
    with config.patch(dxp_lx_frac_avail=1.0):  # no room
        assert not any(kernel.handover for kernel in planned(chain()))


def test_debug_directories_show_what_lives_across_kernels(tmp_path):
    with inductor_config.patch({"trace.enabled": True, "trace.debug_dir": str(tmp_path)}):
        compiled(softmax, card(128, 128))
    texts = [path.read_text() for path in tmp_path.glob("torchinductor/*/spyre/*/residents.txt")]
    assert any("left across kernels" in text for text in texts)
    assert any("found across kernels" in text for text in texts)
    bundles = [path.read_text() for path in tmp_path.glob("torchinductor/*/spyre/*/bundle.mlir")]
    assert any("sdscbundle.lx_found" in text for text in bundles)


# ------------------------------------------------------------------------------------ bad bundles


@pytest.mark.parametrize(
    ("number", "old", "new", "why"),
    [
        (1, "\t\tsdscbundle.lx_found {.*}\n", "", "only if sdscbundle.lx_found says so"),
        (1, "lx_found {begin=\\d+, end=\\d+", "lx_found {begin=512, end=640", "no op before wrote"),
        (1, "lx_found {begin=\\d+", "lx_found {begin=64", "are no sticks of LX"),
        (1, "lx_found {begin=\\d+, end=\\d+", "lx_found {begin=0, end=2097280", "are no sticks"),
        (1, "lx_found {begin=\\d+, end=\\d+", "lx_found {begin=256, end=256", "are no sticks"),
        (1, "cores=2", "cores=1", "no op before wrote"),
        (0, "lx_left {begin=0, end=8192", "lx_left {begin=0, end=16384", "leave what is there"),
        (
            0,
            r"(?s)(\t\tsdscbundle\.sdsc_execute.*?)(\t\tsdscbundle\.lx_left)",
            r"\t\tsdscbundle.lx_found {begin=4096, end=12288, cores=2}\n\1"
            r"\t\tsdscbundle.lx_left {begin=4096, end=12288, cores=2}\n\2",
            "wrote there last",
        ),
        (1, "cores=2", "cores=33", "33 cores: a card has 32"),
        (
            0,
            "lx_left {begin=\\d+, end=\\d+",
            "lx_left {begin=0, end=2097152",
            "leave what is there",
        ),
        (
            0,
            "(\t\tsdscbundle.sdsc_execute.*\n)((?:.*\n)*)(\t\treturn)",
            r"\2\1\3",
            "behind all ops",
        ),
        (1, "(\t\tsdscbundle.lx_found.*\n)(\t\tsdscbundle.sdsc.*\n)", r"\2\1", "before all ops"),
    ],
)
def test_bundles_that_declare_something_else_are_refused(number, old, new, why, tmp_path):
    folder = tmp_path / "kernel"
    shutil.copytree(GOLDEN / f"kernel_{number}", folder)
    mlir = (folder / "bundle.mlir").read_text()
    changed = re.sub(old, new, mlir)
    assert changed != mlir
    (folder / "bundle.mlir").write_text(changed)
    with pytest.raises(MalformedBundle, match=re.escape(why)):
        compile_to_spyrecode(folder, tmp_path / "code")
