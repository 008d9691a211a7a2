"""What can be seen of a compilation: debug directories, the log, provenance."""

import importlib
import json
from pathlib import Path

import pytest
import torch
from compiling import card
from subprocesses import fresh

from torch_spyre import logging_config
from torch_spyre._inductor import config
from torch_spyre._inductor.errors import Unsupported
from torch_spyre.backend import compile_bundle

FUNCTION = """
    import torch

    def function(x, w):
        y = torch.relu(x @ w) * 2
        return (y + y.t()).sum(0)

    x = torch.ones(128, 70, dtype=torch.float16, device="spyre")
    w = torch.ones(70, 128, dtype=torch.float16, device="spyre")
    torch.compile(function)(x, w)
"""


pytestmark = pytest.mark.usefixtures("empty_caches", "log_as_before")


@pytest.fixture(scope="module")
def debug_directory(tmp_path_factory) -> Path:
    """What ``TORCH_COMPILE_DEBUG=1`` leaves of a graph."""
    root = tmp_path_factory.mktemp("debug")
    environment = {
        "TORCH_COMPILE_DEBUG": "1",
        "TORCH_COMPILE_DEBUG_DIR": str(root),
        "TORCHINDUCTOR_CACHE_DIR": str(root / "inductor"),
    }
    # The second time Inductor could take the graph from its cache.
    again = FUNCTION + "\n    torch._dynamo.reset()\n    torch.compile(function)(x, w)\n"
    result = fresh(again, **environment)
    assert result.returncode == 0, result.stderr
    graphs = sorted(root.glob("torch_compile_debug/run_*/torchinductor/model__*"))
    assert len(graphs) == 2
    return graphs[-1]


def log_of(tmp_path, component, level, function, *args) -> list[str]:
    """The messages of a component while a function is compiled and runs."""
    file = tmp_path / "log.txt"
    logging_config.set_log_file(file)
    logging_config.enable(component, level)
    torch.compile(function)(*args)
    logging_config.set_log_file(None)
    return file.read_text().splitlines() if file.exists() else []


# --------------------------------------------------------------------------------- debug directory


def test_inductor_leaves_its_own_files(debug_directory):
    names = {path.name for path in debug_directory.iterdir()}
    assert {"output_code.py", "fx_graph_readable.py", "ir_post_fusion.txt", "spyre"} <= names


def test_every_kernel_of_the_code_has_a_directory(debug_directory):
    code = (debug_directory / "output_code.py").read_text()
    kernels = [path.name for path in (debug_directory / "spyre").iterdir()]
    assert kernels
    for kernel in kernels:
        assert f"{kernel}.run(" in code
        assert f"[Provenance debug handles] {kernel}:" in code


def test_passes_leave_the_ops_before_and_after(debug_directory):
    (kernel,) = (debug_directory / "spyre").iterdir()
    before = sorted(kernel.glob("ir_*_before.txt"))
    after = sorted(kernel.glob("ir_*_after.txt"))
    assert len(before) == len(after) >= 3
    for earlier, later in zip(after, before[1:], strict=False):
        assert earlier.read_text() == later.read_text()  # nothing happens between passes
    first, last = before[0].read_text(), after[-1].read_text()
    assert "batchmatmul(" in first
    assert "ReStickifyOpHBM" not in first
    assert "ReStickifyOpHBM" in last
    assert "cores split c0 by " in last
    assert "y = torch.relu(x @ w) * 2" in first
    assert "float16[128, 70], stride [70, 1], device size [2, 128, 64]" in first


def test_the_bundle_and_the_spyrecode_are_there(debug_directory):
    (kernel,) = (debug_directory / "spyre").iterdir()
    count = len(list(kernel.glob("sdsc_*.json")))
    assert count >= 5
    for number in range(count):
        json.loads((kernel / f"sdsc_{number}.json").read_text())
        assert f"sdsc_{number}.json" in (kernel / "bundle.mlir").read_text()
    assert "OpSpec('batchmatmul'" in (kernel / "op_specs.txt").read_text()
    written = (kernel / "spyrecode" / "init.bin").read_bytes()
    assert compile_bundle(kernel) in written  # the directory compiles to the same again


def test_where_intermediates_live_is_there(debug_directory):
    (kernel,) = (debug_directory / "spyre").iterdir()
    text = (kernel / "residents.txt").read_text()
    assert " bytes in lx at " in text
    assert "; not in LX: " in text
    assert "a pool of " in text
    assert list(kernel.glob("ir_*_share_reads_after.txt"))


def test_kernels_of_dynamic_sizes_leave_a_directory_for_each(tmp_path):
    function = torch.compile(lambda x: (x * 2 + 1).sum(-1), dynamic=True)
    with (
        torch._dynamo.config.patch(debug_dir_root=str(tmp_path)),
        torch._inductor.config.patch({"trace.enabled": True}),
    ):
        for rows in (5, 66):
            function(card(rows, 70))
    (kernel,) = tmp_path.glob("run_*/torchinductor/*/spyre/*")
    assert "= sum(" in (kernel / "template.txt").read_text()
    for rows in (5, 66):
        (folder,) = kernel.glob(f"*={rows}")
        assert "=70," in folder.name
        first, *_ = sorted(folder.glob("ir_*_before.txt"))
        assert f"c0<{rows}" in first.read_text()
        written = (folder / "spyrecode" / "init.bin").read_bytes()
        assert compile_bundle(folder) in written
        assert (folder / "residents.txt").exists()


def test_sizes_that_cannot_be_planned_leave_what_is_known(tmp_path):
    """When they come, and when a graph is compiled with them."""
    run = torch.compile(lambda x: x.sum(1), dynamic=True)
    with (
        torch._dynamo.config.patch(debug_dir_root=str(tmp_path)),
        torch._inductor.config.patch({"trace.enabled": True}),
    ):
        run(card(3, 70))
        large = torch.empty(3, 1 << 30, dtype=torch.float16, device="spyre")
        with pytest.raises(Unsupported, match="would span"):
            run(large)
        torch._dynamo.reset()
        with config.patch(compile_fallback="error"), pytest.raises(Unsupported):
            run(large)
    when_it_came, compiled_with = (
        next(tmp_path.glob(f"run_*/torchinductor/*/spyre/{name}"))
        for name in (f"*/*={1 << 30}*", "not_compiled_0")
    )
    for folder in (when_it_came, compiled_with):
        assert "would span" in (folder / "error.txt").read_text()
        assert "sum(" in next(folder.glob("ir_*_divide_work_before.txt")).read_text()


def test_a_kernel_that_cannot_be_planned_leaves_what_is_known(tmp_path, monkeypatch):
    from torch_spyre._inductor import scheduling
    from torch_spyre._inductor.observe import observed

    def stubborn(ops):
        raise Unsupported("it will not", op=ops[0])

    monkeypatch.setattr(scheduling, "settle", lambda ops: observed(stubborn, ops))
    with (
        torch._dynamo.config.patch(debug_dir_root=str(tmp_path)),
        torch._inductor.config.patch({"trace.enabled": True}),
        pytest.warns(match="it will not"),
    ):
        torch.compile(lambda x: x.exp() + 1)(card(5))
    (folder,) = tmp_path.glob("run_*/torchinductor/*/spyre/not_compiled_0")
    assert "it will not" in (folder / "error.txt").read_text()
    assert "exp(" in (folder / "ir_00_stubborn_before.txt").read_text()
    assert "did not end" in (folder / "ir_00_stubborn_after.txt").read_text()


def test_nothing_is_written_unless_asked_for(tmp_path):
    with torch._dynamo.config.patch(debug_dir_root=str(tmp_path / "debug")):
        torch.compile(lambda x: x + 1)(card(5))
    assert not list(tmp_path.glob("debug/*"))


# --------------------------------------------------------------------------------------------- log


def turned(x):
    return (x * 2) + (x + 1).t()


@pytest.mark.parametrize(
    ("component", "words"),
    [
        ("spyre.inductor.lowering", ["computes buf0", "aten.mul.Tensor"]),
        ("spyre.inductor.stickify", ["32768 bytes restickified"]),
        ("spyre.inductor.passes", ["add on 32 cores", "a pool of"]),
        ("spyre.inductor.codegen", ["sdsc_fused", "restickifies)", "2 arguments", "2 constants"]),
    ],
)
def test_each_stage_says_what_it_did(component, words, tmp_path):
    lines = log_of(tmp_path, component, "INFO", turned, card(128, 128))
    assert lines
    assert all(line.startswith(f"[INFO] [{component}] ") for line in lines)
    for word in words:
        assert any(word in line for line in lines), word


def test_debug_shows_ops_of_every_pass_and_layouts(tmp_path):
    text = "\n".join(log_of(tmp_path, "spyre.inductor", "DEBUG", turned, card(128, 128)))
    assert "insert_restickifies: " in text
    assert "float16[128, 128], stride [128, 1], device size [2, 128, 64]" in text


def test_templates_say_for_which_sizes_they_are_planned(tmp_path):
    def grown(x):
        return x * 2 + 1

    file = tmp_path / "log.txt"
    logging_config.set_log_file(file)
    logging_config.enable("spyre")
    function = torch.compile(grown, dynamic=True)
    for rows in (5, 7, 5):
        assert torch.equal(function(card(rows, 70)).cpu(), grown(card(rows, 70)).cpu())
    lines = file.read_text().splitlines()
    assert sum("a template" in line for line in lines) == 1
    planned = [line for line in lines if "planned for sizes" in line]
    assert [line.split(", ")[-1] for line in planned[-2:]] == ["instance 1", "instance 2"]


def test_fallbacks_are_in_the_log(tmp_path, monkeypatch):
    divide_work = importlib.import_module("torch_spyre._inductor.planning.divide_work")
    monkeypatch.setattr(divide_work, "SPAN_BYTES", 64)
    with pytest.warns(match="op by op"):
        lines = log_of(tmp_path, "spyre.inductor", "INFO", torch.neg, card(5))
    assert any("1 nodes runs op by op" in line for line in lines)


# -------------------------------------------------------------------------------------- provenance


def test_provenance_maps_kernels_to_nodes_and_back(debug_directory):
    file = debug_directory / "inductor_provenance_tracking_node_mappings.json"
    found = json.loads(file.read_text())
    ((kernel, nodes),) = found["cppCodeToPost"].items()
    assert kernel.startswith("sdsc_fused_")
    assert {"mm", "relu", "mul", "sum_1"} <= set(nodes)
    assert found["postToCppCode"]["mm"] == [kernel]
    assert "y" in found["postToPre"]["mul"]  # the user's name


def test_provenance_alone_leaves_handles_in_the_code():
    result = fresh(
        FUNCTION,
        INDUCTOR_PROVENANCE=1,
        TORCH_LOGS="output_code",
        TORCHINDUCTOR_FORCE_DISABLE_CACHES=1,
    )
    assert "[Provenance debug handles] sdsc_fused_" in result.stderr
