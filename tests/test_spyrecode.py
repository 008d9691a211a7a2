"""SpyreCode directories: written, read, refused, and run as job plans."""

import json
import re
import timeit
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from kernels import KERNELS, add, check_result

from torch_spyre import _C
from torch_spyre.__main__ import main
from torch_spyre.backend.compiler import compile_bundle, compile_to_spyrecode
from torch_spyre.backend.errors import MalformedSpyreCode
from torch_spyre.backend.job_plan import launch_jobplan, prepare_kernel

GOLDEN = Path(__file__).parent / "golden" / "bundles"
BASE = 7 << 34


def compiled(name: str, directory: Path) -> Path:
    compile_to_spyrecode(GOLDEN / name, directory)
    return directory


def strings(value):
    """Every leaf of a JSON document."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings(inner)
    else:
        yield value


# ----------------------------------------------------------------------------------------- writing


def test_a_symbolic_bundle_corrects_the_program_before_it_runs(tmp_path):
    document = json.loads((compiled("add", tmp_path) / "spyrecode.json").read_text())
    program = (tmp_path / "init.bin").read_bytes()
    assert program == compile_bundle(GOLDEN / "add")
    allocate, transfer = document["JobPreparationPlan"]
    assert allocate["command"] == "Allocate"
    assert int(allocate["properties"]["size"]) >= len(program) + 3 * 8
    assert transfer == {
        "command": "InitTransfer",
        "properties": {
            "init_bin_file": "init.bin",
            "dev_ptr": str(BASE),
            "size": str(len(program)),
        },
    }
    host, copy, device = document["JobExecPlan"]
    assert [step["command"] for step in (host, copy, device)] == [
        "ComputeOnHost",
        "DataTransfer",
        "ComputeOnDevice",
    ]
    assert host["properties"]["ishape"] == ["3"]
    assert host["properties"]["hcm"]["arguments"][2] == {"parameter": "arg_2", "argument": "2"}
    assert copy["properties"]["host_handle"] == host["properties"]["ohandle"]
    assert copy["properties"]["dirn"] == "false"
    begin, size = (int(copy["properties"][name]) for name in ("dev_ptr", "size"))
    assert BASE + len(program) <= begin
    assert begin + size <= BASE + int(allocate["properties"]["size"])
    assert device["properties"] == {"job_bin_ptr": str(BASE)}
    assert all(isinstance(leaf, str) for leaf in strings(document))


def test_a_baked_bundle_only_computes(tmp_path):
    document = json.loads((compiled("loop_baked", tmp_path) / "spyrecode.json").read_text())
    assert [step["command"] for step in document["JobExecPlan"]] == ["ComputeOnDevice"]


def test_the_pool_is_the_first_argument(tmp_path):
    document = json.loads((compiled("broadcast", tmp_path) / "spyrecode.json").read_text())
    arguments = document["JobExecPlan"][0]["properties"]["hcm"]["arguments"]
    assert [(entry["parameter"], entry["argument"]) for entry in arguments] == [
        ("pool", "0"),
        ("arg_0", "1"),
        ("arg_1", "2"),
        ("arg_2", "3"),
        ("arg_3", "4"),
    ]


@pytest.mark.parametrize("name", ["softmax", "matmul_split_k"])
def test_equal_bundles_give_equal_bytes(name, tmp_path):
    first, second = compiled(name, tmp_path / "a"), compiled(name, tmp_path / "b")
    for file in ("spyrecode.json", "init.bin"):
        assert (first / file).read_bytes() == (second / file).read_bytes()


# ----------------------------------------------------------------------------------------- running


@pytest.mark.parametrize("name", KERNELS)
def test_a_plan_runs(name, tmp_path):
    plan = prepare_kernel(str(compiled(name, tmp_path)))
    check_result(KERNELS[name](), lambda tensors: launch_jobplan(plan, tensors))


def test_a_plan_says_what_it_does(tmp_path):
    plan = torch.spyre.prepare_kernel(compiled("add", tmp_path))
    assert isinstance(plan, torch.spyre.JobPlan)
    assert plan.num_steps == 3
    assert [plan.get_step_type(i) for i in range(3)] == ["HostCompute", "H2D", "Compute"]
    assert plan.job_allocation_size % 128 == 0
    assert "num_steps=3" in repr(plan)
    for index in (3, -1):
        with pytest.raises(IndexError, match="Step index out of range"):
            plan.get_step_type(index)


def test_one_plan_serves_several_devices_and_places(tmp_path):
    plan = prepare_kernel(compiled("add", tmp_path))
    for device in ("spyre:0", "spyre:1", "spyre:0"):
        x, y = (torch.randn(100, 200).half().to(device) for _ in range(2))
        out = torch.empty(100, 200, dtype=torch.float16, device=device)
        launch_jobplan(plan, [x, y, out])
        assert torch.equal(out.cpu(), (x + y).cpu())


def test_a_program_is_loaded_once_for_each_device(tmp_path):
    plan = prepare_kernel(compiled("add", tmp_path))
    kernel = add()
    before = torch.spyre.counters(0).programs_loaded
    for _ in range(3):
        check_result(kernel, lambda tensors: launch_jobplan(plan, tensors))
    assert torch.spyre.counters(0).programs_loaded == before + 1


def test_a_stream_brings_the_program_to_its_device(tmp_path):
    before = torch.spyre.counters(1).programs_loaded
    prepare_kernel(compiled("add", tmp_path), torch.spyre.Stream("spyre:1"))
    assert torch.spyre.counters(1).programs_loaded == before + 1


def test_a_plan_survives_free_runtime(tmp_path):
    plan = prepare_kernel(compiled("add", tmp_path))
    check_result(add(), lambda tensors: launch_jobplan(plan, tensors))
    _C.free_runtime()
    check_result(add(), lambda tensors: launch_jobplan(plan, tensors))


def test_bad_arguments(tmp_path):
    plan = prepare_kernel(compiled("add", tmp_path))
    x, y, out = add().tensors
    with pytest.raises(RuntimeError, match="there are none"):
        launch_jobplan(plan, [])
    with pytest.raises(RuntimeError, match="expected spyre tensors"):
        launch_jobplan(plan, [x.cpu(), y, out])
    with pytest.raises(RuntimeError, match="the kernel was loaded for spyre:0"):
        launch_jobplan(plan, [x, y.cpu(), out])
    with pytest.raises(RuntimeError, match="operand"):
        launch_jobplan(plan, [x, y])
    with pytest.raises(RuntimeError, match="operand 2 has"):
        launch_jobplan(plan, [x, y, torch.empty(3, dtype=torch.float16, device="spyre")])


def test_a_launch_costs_little_python(tmp_path):
    plan = prepare_kernel(compiled("add", tmp_path))
    tensors = add().tensors
    launch_jobplan(plan, tensors)
    (native,) = plan._loaded[0]
    plan._loaded[0] = [SimpleNamespace(launch=lambda args: None)]
    try:
        seconds = min(timeit.repeat(lambda: launch_jobplan(plan, tensors), number=1000, repeat=5))
    finally:
        plan._loaded[0] = [native]
    assert seconds / 1000 < 10e-6


# --------------------------------------------------------------------------------------- malformed

STEPS = {
    "host": {
        "command": "ComputeOnHost",
        "properties": {
            "ohandle": "h",
            "size": "8",
            "ishape": ["1"],
            "ihandle": "",
            "hcm": {"arguments": []},
        },
    },
    "h2d": {
        "command": "DataTransfer",
        "properties": {"dirn": "false", "dev_ptr": str(BASE), "size": "8", "host_handle": "h"},
    },
    "d2h": {
        "command": "DataTransfer",
        "properties": {"dirn": "true", "dev_ptr": str(BASE), "size": "8", "host_handle": "h"},
    },
    "compute": {"command": "ComputeOnDevice", "properties": {"job_bin_ptr": str(BASE)}},
}
PREPARATION = [
    {"command": "Allocate", "properties": {"size": "256"}},
    {
        "command": "InitTransfer",
        "properties": {"init_bin_file": "init.bin", "dev_ptr": str(BASE), "size": "128"},
    },
]


def written(directory, steps, preparation=PREPARATION):
    steps = [STEPS[step] if isinstance(step, str) else step for step in steps]
    document = {"JobPreparationPlan": preparation, "JobExecPlan": steps}
    (directory / "spyrecode.json").write_text(json.dumps(document))
    (directory / "init.bin").write_bytes(bytes(128))
    return directory


def changed(name, **properties):
    """A command with other properties; None leaves one out."""
    step = STEPS.get(name) or next(entry for entry in PREPARATION if entry["command"] == name)
    merged = step["properties"] | properties
    kept = {key: value for key, value in merged.items() if value is not None}
    return {"command": step["command"], "properties": kept}


def test_missing_files(tmp_path):
    with pytest.raises(RuntimeError, match="SpyreCode directory does not exist"):
        prepare_kernel(tmp_path / "nothing")
    with pytest.raises(RuntimeError, match=r"spyrecode\.json not found"):
        prepare_kernel(tmp_path)
    written(tmp_path, ["compute"])
    (tmp_path / "init.bin").unlink()
    with pytest.raises(RuntimeError, match=r"JobPreparationPlan\[1\]: no file 'init.bin'"):
        prepare_kernel(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"JobExecPlan": 3}'])
def test_bad_documents(text, tmp_path):
    (tmp_path / "spyrecode.json").write_text(text)
    with pytest.raises(MalformedSpyreCode):
        prepare_kernel(tmp_path)


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        (["host", "compute"], "Step ordering violation at step 0: HostCallback must be followed"),
        (["host", "d2h", "compute"], "HostCallback must be followed by H2D transfer"),
        (["host", "h2d", "h2d"], "H2D transfer must be followed by Compute"),
        (["host", "h2d", "compute", "d2h"], "H2D transfer must be followed by Compute"),
        (["host"], "Incomplete step sequence"),
        (["host", "h2d"], "Incomplete step sequence"),
        ([], "Incomplete step sequence"),
    ],
)
def test_steps_out_of_order(steps, why, tmp_path):
    with pytest.raises(RuntimeError, match=why):
        prepare_kernel(written(tmp_path, steps))


@pytest.mark.parametrize(
    ("step", "why"),
    [
        *(
            (changed("host", **{name: None}), f"ComputeOnHost command missing '{name}' property")
            for name in ("ohandle", "size", "ishape", "ihandle", "hcm")
        ),
        (changed("host", ishape="1"), "ComputeOnHost 'ishape' must be an array"),
        (changed("host", ishape=[1]), "elements must be strings"),
        (changed("host", hcm=[]), "'hcm' must be an object"),
        (changed("host", size=8), "'size' must be a string"),
        (changed("host", size="-8"), "'size' must be a decimal number"),
        (changed("h2d", dirn="up"), "'dirn' must be 'true' or 'false'"),
        (changed("h2d", dev_ptr="0"), "not in the program segment"),
        (changed("compute", job_bin_ptr=str(8 << 34)), "not in the program segment"),
        ({"command": "Dance", "properties": {}}, "unknown command 'Dance'"),
        ({"command": "Allocate", "properties": {"size": "1"}}, "unknown command 'Allocate'"),
        ({"command": "ComputeOnDevice"}, "'command' and 'properties'"),
        (7, "'command' and 'properties'"),
    ],
)
def test_bad_commands(step, why, tmp_path):
    with pytest.raises(RuntimeError) as caught:
        prepare_kernel(written(tmp_path, [step]))
    assert "Failed to parse SpyreCode command: " in str(caught.value)
    assert re.search(re.escape(why), str(caught.value))
    assert "spyrecode.json: JobExecPlan[0]: " in str(caught.value)


@pytest.mark.parametrize(
    ("preparation", "why"),
    [
        (PREPARATION[:1], "one Allocate, then InitTransfers"),
        (PREPARATION[::-1], "one Allocate, then InitTransfers"),
        ([*PREPARATION, PREPARATION[0]], "one Allocate, then InitTransfers"),
        ([PREPARATION[0], changed("InitTransfer", size="129")], "the file has 128 bytes"),
        ([PREPARATION[0], changed("InitTransfer", dev_ptr=str(BASE + 256))], "ends at byte 384"),
        ([PREPARATION[0], changed("InitTransfer", init_bin_file="../init.bin")], "no file"),
        ([PREPARATION[0], changed("InitTransfer", init_bin_file="a" * 300)], "no file"),
    ],
)
def test_bad_preparations(preparation, why, tmp_path):
    with pytest.raises(RuntimeError, match=why):
        prepare_kernel(written(tmp_path, ["compute"], preparation))


def test_plans_of_others_can_be_looked_at_but_not_launched(tmp_path):
    plan = prepare_kernel(written(tmp_path, ["compute", "d2h"]))
    assert [plan.get_step_type(i) for i in range(2)] == ["Compute", "D2H"]
    with pytest.raises(RuntimeError, match="not a transfer of this back end"):
        launch_jobplan(plan, add().tensors)
    plan = prepare_kernel(written(tmp_path, ["compute"]))
    with pytest.raises(RuntimeError, match="no program is at"):
        launch_jobplan(plan, add().tensors)


# ---------------------------------------------------------------------------------------- commands


def test_compile_bundle_command(tmp_path, capsys):
    assert main(["compile-bundle", str(GOLDEN / "softmax"), "-o", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    for name, value in {"ops": "5", "cores": "4", "steps": "1"}.items():
        assert re.search(rf"{name}\W+{value}\W", out)
    plan = prepare_kernel(tmp_path)
    check_result(KERNELS["softmax"](), lambda tensors: launch_jobplan(plan, tensors))


def test_compile_bundle_writes_beside_the_bundle(tmp_path, capsys):
    KERNELS["add"]().bundle().write(tmp_path)
    assert main(["compile-bundle", str(tmp_path)]) == 0
    assert {path.name for path in (tmp_path / "spyreCodeDir").iterdir()} == {
        "spyrecode.json",
        "init.bin",
    }


def test_bundle_command(capsys):
    assert main(["bundle", str(GOLDEN / "broadcast")]) == 0
    out = capsys.readouterr().out
    assert "2 ops on up to 4 cores" in out
    assert "arguments: pool, arg_0, arg_1, arg_2, arg_3" in out
    assert "mb=128 / 4 x 32" in out
    assert "Tensor1 SEN169_FP16 [mb, 1 of 64] at arg_2 + 0 .. 12288" in out
    assert "0: add, mul on 4 cores" in out


def test_bundle_command_shows_loops_and_uneven_parts(capsys):
    assert main(["bundle", str(GOLDEN / "loop")]) == 0
    assert "loop %i_0, 4 iterations" in capsys.readouterr().out
    assert main(["bundle", str(GOLDEN / "add")]) == 0
    assert "mb=100 / 3 x 34, last 32, out=200 (padded to 256) / 2 x 128" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["bundle", "compile-bundle"])
def test_commands_say_what_is_wrong(command, tmp_path, capsys):
    assert main([command, str(tmp_path)]) == 1
    assert "Bundle not found" in capsys.readouterr().err
