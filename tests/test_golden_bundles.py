"""Bundles of representative kernels, as text beside the tests (``pytest --update-golden``).

The files are also executed: what is read from disk gives the bits of the eager ops.
"""

from pathlib import Path

import pytest
import torch
from kernels import KERNELS, check_result

from torch_spyre._C import _Program
from torch_spyre.backend.compiler import compile_bundle, compile_files

GOLDEN = Path(__file__).parent / "golden" / "bundles"


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def texts(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(directory.iterdir())}


@pytest.mark.parametrize("name", KERNELS)
def test_the_bundle_is_the_golden_one(name, tmp_path, update_golden):
    bundle = KERNELS[name]().bundle()
    bundle.write(tmp_path)
    if update_golden:
        for path in (GOLDEN / name).glob("*"):
            path.unlink()
        bundle.write(GOLDEN / name)
    assert texts(tmp_path) == texts(GOLDEN / name)


@pytest.mark.parametrize("name", KERNELS)
def test_the_golden_bundle_runs(name):
    kernel = KERNELS[name]()
    check_result(kernel, _Program(compile_bundle(GOLDEN / name)).launch)


@pytest.mark.parametrize("name", KERNELS)
def test_files_and_memory_compile_to_the_same_program(name):
    assert compile_files(KERNELS[name]().bundle()) == compile_bundle(GOLDEN / name)


def test_there_is_no_golden_bundle_without_a_kernel():
    assert {path.name for path in GOLDEN.iterdir()} == set(KERNELS)
