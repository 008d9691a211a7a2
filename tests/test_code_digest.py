"""What is kept on disk is named after the code that made it: all of that, and nothing else."""

import ast
import shutil
import sys
from pathlib import Path

import pytest
from subprocesses import forked

import torch_spyre
from torch_spyre import code_digest
from torch_spyre._inductor.cache_key import compiler_digest
from torch_spyre.backend import kernel_cache
from torch_spyre.backend.compiler import compile_files

PACKAGE = Path(torch_spyre.__file__).parent
COMPILER = ("torch_spyre._inductor", "torch_spyre._inductor.compile")
BACK_END = (compile_files.__module__,)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The package elsewhere, to be changed."""
    target = tmp_path_factory.mktemp("copy") / "torch_spyre"
    ignored = shutil.ignore_patterns("__pycache__", "csrc", "zoo")
    return Path(shutil.copytree(PACKAGE, target, ignore=ignored))


@pytest.fixture
def digest_of(copy, monkeypatch):
    """The digests of the copy as it is."""

    def digest(*modules):
        code_digest.code_digest.cache_clear()
        return code_digest.code_digest(*modules)

    monkeypatch.setattr(code_digest, "PACKAGE", copy)
    yield digest
    code_digest.code_digest.cache_clear()


def changed(path):
    """A context in which a file has one more line at its end."""

    class Changed:
        def __enter__(self):
            self.content = path.read_bytes()
            path.write_bytes(self.content + b"\n# another version\n")

        def __exit__(self, *_):
            path.write_bytes(self.content)

    return Changed()


LIBRARIES = [
    str(path.relative_to(PACKAGE)) for path in (*PACKAGE.glob("*.so"), *PACKAGE.glob("lib/*.so"))
]


def test_there_are_two_libraries():
    assert len(LIBRARIES) == 2


@pytest.mark.parametrize(
    "file",
    ["cost.py", "partition/ring.py", "machine.py", "machine.toml", "ops/table.py", "ops/table.toml"]
    + ["backend/program.py", "backend/sdsc.py", *LIBRARIES],
)
def test_what_makes_programs_is_in_both_digests(file, copy, digest_of):
    before = digest_of(*BACK_END), digest_of(*COMPILER)
    with changed(copy / file):
        after = digest_of(*BACK_END), digest_of(*COMPILER)
    assert before[0] != after[0]
    assert before[1] != after[1]
    assert before == (digest_of(*BACK_END), digest_of(*COMPILER))


@pytest.mark.parametrize(
    "file",
    ["_inductor/planning/divide_work.py", "_inductor/scratchpad/value_solver.py"]
    + [
        "patches/scheduling.py",
        "_inductor/codegen/superdsc.py",
        "execution/template_runner.py",
        "ops/custom.py",
    ],
)
def test_the_compiler_is_in_its_digest(file, copy, digest_of):
    before = digest_of(*BACK_END), digest_of(*COMPILER)
    with changed(copy / file):
        assert digest_of(*COMPILER) != before[1]
        assert digest_of(*BACK_END) == before[0]


@pytest.mark.parametrize("file", ["explanation/charts.py", "tools/tables.py", "__main__.py"])
def test_what_no_kernel_is_made_by_is_not(file, copy, digest_of):
    before = digest_of(*COMPILER)
    with changed(copy / file):
        assert digest_of(*COMPILER) == before


def test_a_module_that_is_imported_anew_is_covered(copy, digest_of):
    new = copy / "backend" / "new.py"
    new.write_text("ONE = 1\n")
    user = copy / "backend" / "lower.py"
    content = user.read_bytes()
    user.write_bytes(content + b"\n\ndef late():\n    from torch_spyre.backend import new\n")
    try:
        before = digest_of(*BACK_END)
        with changed(new):
            assert digest_of(*BACK_END) != before
    finally:
        user.write_bytes(content)
        new.unlink()


def test_names_of_entries_hold_the_digests(copy, digest_of):
    def names():
        code_digest.code_digest.cache_clear()
        return kernel_cache._digest(["the same"]), compiler_digest()

    before = names()
    with changed(copy / "partition/ring.py"):
        after = names()
    assert before[0] != after[0]
    assert before[1] != after[1]


def imported(path, files):
    """Which modules of the package a file imports, by Python's own parser."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import, which nobody looks for"
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in files else node.module for name in inside}
    return found & files.keys()


def test_no_import_is_overlooked():
    files = code_digest._files(PACKAGE)
    assert files["torch_spyre.partition.ring"] == "partition/ring.py"
    for file in files.values():
        found = code_digest.imports((PACKAGE / file).read_text(), files)
        assert found >= imported(PACKAGE / file, files), file


PLANNED = """
    import json, sys, torch
    from pathlib import Path
    import torch_spyre

    sys.path.insert(0, {tests!r})
    package = str(Path(torch_spyre.__file__).parent)
    before, ran = set(sys.modules), set()

    x = torch.ones(64, 256, dtype=torch.float16, device="spyre")
    torch.compile(lambda x: torch.softmax(x, -1), dynamic={dynamic})(x)
    loaded = [sys.modules[name] for name in set(sys.modules) - before]
    ran = {{str(getattr(module, "__file__", None)) for module in loaded}}

    from kernel_ops import bundle_of, compile_files, softmax_ops
    from torch_spyre import code_digest
    from torch_spyre._inductor.planning import plan_kernel

    def note(frame, event, argument):
        ran.add(frame.f_code.co_filename)

    sys.setprofile(note)
    compile_files(bundle_of(plan_kernel(softmax_ops(64, 256))))
    sys.setprofile(None)
    files = {{file[len(package) + 1:] for file in ran if file.startswith(package + "/")}}
    covered = code_digest.contents_of(*{roots!r}, package=Path(package))
    print(json.dumps([sorted(files), sorted(files - covered.keys())]))
"""


@pytest.mark.parametrize("dynamic", [False, True])
def test_all_that_is_there_when_a_kernel_is_planned_is_covered(dynamic, tmp_path):
    """Modules that are loaded for it, and those of which some function runs."""
    tests = str(Path(__file__).parent)
    code = PLANNED.format(tests=tests, dynamic=dynamic, roots=COMPILER)
    ran, forgotten = forked(code, TORCHINDUCTOR_CACHE_DIR=tmp_path).value
    assert {"cost.py", "machine.py", "partition/ring.py", "backend/fuse.py"} <= set(ran)
    assert forgotten == []


def test_a_digest_is_made_in_no_time():
    """Less than a thousandth of the calls that a compilation takes."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    code_digest.contents_of(*COMPILER, package=PACKAGE)
    sys.setprofile(None)
    assert calls < 30_000
