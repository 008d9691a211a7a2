"""Compiled blocks of models as text beside the tests (``pytest --update-golden``).

A golden directory is what ``TORCH_COMPILE_DEBUG=1`` leaves of the block's kernel, on four cores so
that the files stay small: OpSpecs, SuperDSCs, ``bundle.mlir``. It is also executed: what is read
from disk gives the bits of the compiled run.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from blocks import BLOCKS
from compiling import compiled
from torch._inductor import config as inductor_config

from torch_spyre._inductor import config
from torch_spyre.backend import compile_bundle, launch_jobplan, prepare_kernel
from torch_spyre.backend.compiler import compile_to_spyrecode
from torch_spyre.execution import kernel_runner
from torch_spyre.execution.kernel_runner import SDSCKernelRunner

GOLDEN = Path(__file__).parent / "golden" / "blocks"
CORES = 4


@dataclass
class Run:
    """A block that was compiled and ran once."""

    directory: Path  # what was left of its kernel
    runner: SDSCKernelRunner
    tensors: list[torch.Tensor]  # of the launch

    @property
    def outputs(self) -> list[torch.Tensor]:
        return [self.tensors[number] for number in sorted(self.runner.outputs)]

    def operands(self) -> list[torch.Tensor]:
        pool = [torch.empty(self.runner.pool_bytes, dtype=torch.int8, device="spyre")]
        constants = [
            kernel_runner.constant_tensor(value, dtype, 0) for value, dtype in self.runner.constants
        ]
        return [*(pool if self.runner.pool_bytes else []), *self.tensors, *constants]


@pytest.fixture(scope="module", params=BLOCKS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def run(name, tmp_path_factory):
    """Compile and run a block."""
    directory = tmp_path_factory.mktemp(name)
    block = BLOCKS[name]()
    launches = []

    def launch(runner, args):
        launches.append((runner, list(args)))
        original(runner, args)

    settings = {"trace.enabled": True, "trace.debug_dir": str(directory)}
    with (
        pytest.MonkeyPatch.context() as patch,
        config.patch(sencores=CORES),
        inductor_config.patch(settings),
    ):
        original = kernel_runner.launch_kernel
        patch.setattr(kernel_runner, "launch_kernel", launch)
        outcome = compiled(block.function, *block.args)
    assert outcome.eager_calls == list(block.eager_calls)
    (made,) = directory.glob("torchinductor/*/spyre/*")
    (launched,) = launches
    return Run(made, *launched)


def texts(directory: Path) -> dict[str, str]:
    """OpSpecs and bundle; a debug directory has more."""
    wanted = {"op_specs.txt", "bundle.mlir"}
    return {
        path.name: path.read_text()
        for path in sorted(directory.iterdir())
        if path.name in wanted or path.match("sdsc_*.json")
    }


def test_the_kernel_is_the_golden_one(name, run, update_golden):
    ours = texts(run.directory)
    if update_golden:
        shutil.rmtree(GOLDEN / name, ignore_errors=True)
        (GOLDEN / name).mkdir(parents=True)
        for file, text in ours.items():
            (GOLDEN / name / file).write_text(text)
    golden = texts(GOLDEN / name)
    assert ours["op_specs.txt"] == golden["op_specs.txt"]  # the shortest of the differences
    assert ours == golden


def test_the_compiled_run_is_what_the_golden_files_say(name, run):
    assert compile_bundle(GOLDEN / name) == run.runner.binary


def test_the_golden_bundle_gives_the_bits_of_the_compiled_run(name, run, tmp_path):
    compile_to_spyrecode(GOLDEN / name, tmp_path)
    plan = prepare_kernel(tmp_path)
    want = [output.cpu() for output in run.outputs]
    for output in run.outputs:
        output.fill_(-7)
    launch_jobplan(plan, run.operands())
    for output, right in zip(run.outputs, want, strict=True):
        torch.testing.assert_close(output.cpu(), right, rtol=0, atol=0)


def test_there_is_no_golden_directory_without_a_block():
    assert {path.name for path in GOLDEN.iterdir()} == set(BLOCKS)
