"""What is kept on disk is named after the code that made it."""

import shutil
import sys
from pathlib import Path

import pytest

import torch_spyre
from torch_spyre import code_digest
from torch_spyre._inductor.cache_key import compiler_digest
from torch_spyre.backend import kernel_cache

PACKAGE = Path(torch_spyre.__file__).parent
LIBRARIES = [
    str(path.relative_to(PACKAGE)) for path in (*PACKAGE.glob("*.so"), *PACKAGE.glob("lib/*.so"))
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The package elsewhere, to be changed."""
    target = tmp_path_factory.mktemp("copy") / "torch_spyre"
    ignored = shutil.ignore_patterns("__pycache__", "csrc", "zoo")
    return Path(shutil.copytree(PACKAGE, target, ignore=ignored))


@pytest.fixture
def names(copy, monkeypatch):
    """What entries of the caches are named after, for the copy as it is."""

    def names():
        code_digest.code_digest.cache_clear()
        return kernel_cache._digest(["the same"]), compiler_digest()

    monkeypatch.setattr(code_digest, "PACKAGE", copy)
    yield names
    code_digest.code_digest.cache_clear()


def test_there_are_two_libraries():
    assert len(LIBRARIES) == 2


@pytest.mark.parametrize(
    "file",
    ["cost.py", "machine.toml", "ops/table.toml", "backend/program.py", *LIBRARIES]
    + ["_inductor/planning/divide_work.py", "patches/scheduling.py", "execution/kernel_runner.py"],
)
def test_a_change_of_any_file_changes_the_names(file, copy, names):
    before = names()
    content = (copy / file).read_bytes()
    (copy / file).write_bytes(content + b"\n# another version\n")
    after = names()
    (copy / file).write_bytes(content)
    assert before[0] != after[0]
    assert before[1] != after[1]
    assert names() == before


def test_a_file_more_changes_the_names(copy, names):
    before = names()
    (copy / "backend" / "new.py").touch()
    after = names()
    (copy / "backend" / "new.py").unlink()
    assert before[0] != after[0]
    assert names() == before


def test_a_digest_is_made_in_no_time():
    """Less than a thousandth of the calls that a compilation takes."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    code_digest.code_digest.__wrapped__()
    sys.setprofile(None)
    assert calls < 30_000
