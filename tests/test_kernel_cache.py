"""Compiled kernels are found again: in the process, on disk, by other processes; or made anew."""

import os
import time
from pathlib import Path

import pytest
from kernels import KERNELS, check_result
from subprocesses import forked

from torch_spyre.backend import kernel_cache
from torch_spyre.backend.compiler import compile_files
from torch_spyre.execution.kernel_runner import SDSCKernelRunner, launch_kernel


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A directory of the test's own, and a process that remembers nothing."""
    monkeypatch.setenv("TORCH_SPYRE_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TORCH_SPYRE_CACHE", raising=False)
    kernel_cache.forget()
    yield tmp_path
    kernel_cache.forget()


@pytest.fixture
def compilations(monkeypatch):
    """Counts how often something is compiled."""
    made = []

    def counted(files):
        made.append(files)
        return compile_files(files)

    monkeypatch.setattr(kernel_cache, "compile_files", counted)
    return made


def entries(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_equal_bundles_compile_once(compilations):
    first = kernel_cache.compiled_program(KERNELS["add"]().bundle())
    assert kernel_cache.compiled_program(KERNELS["add"]().bundle()) is first
    assert kernel_cache.compiled_program(KERNELS["softmax"]().bundle()) != first
    assert len(compilations) == 2


def test_a_directory_has_the_entry_of_its_bundle(compilations, tmp_path):
    bundle = KERNELS["softmax"]().bundle()
    bundle.write(tmp_path / "bundle")
    program = kernel_cache.compiled_program(bundle)
    assert kernel_cache.compiled_directory(tmp_path / "bundle") is program
    assert len(compilations) == 1


def test_another_process_finds_the_entry(compilations, folder):
    program = kernel_cache.compiled_program(KERNELS["add"]().bundle())
    assert len(entries(folder)) == 1
    kernel_cache.forget()
    assert kernel_cache.compiled_program(KERNELS["add"]().bundle()) == program
    assert len(compilations) == 1


@pytest.mark.parametrize("name", ["broadcast", "softmax", "loop_baked"])
def test_a_known_source_needs_no_bundle(name, folder):
    made = []

    def make():
        made.append(name)
        return KERNELS[name]().bundle()

    first = kernel_cache.program_from(name, make)
    assert kernel_cache.program_from(name, make) is first
    kernel_cache.forget()
    program = kernel_cache.program_from(name, make)
    assert len(made) == 1
    assert program == first
    check_result(
        KERNELS[name](),
        lambda tensors: launch_kernel(SDSCKernelRunner(name, program), tuple(tensors)),
    )
    kernel_cache.program_from(name + "'", make)
    assert len(made) == 2


def test_sources_of_one_bundle_share_its_program(compilations):
    programs = {
        id(kernel_cache.program_from(source, lambda: KERNELS["add"]().bundle()))
        for source in ("one", "other")
    }
    assert len(programs) == 1
    assert len(compilations) == 1


def test_a_source_whose_bundle_is_gone_is_made_again(compilations, folder):
    kernel_cache.program_from("add", lambda: KERNELS["add"]().bundle())
    max(entries(folder), key=lambda path: path.stat().st_size).unlink()
    kernel_cache.forget()
    kernel_cache.program_from("add", lambda: KERNELS["add"]().bundle())
    assert len(compilations) == 2


def test_damaged_entries_of_sources_are_written_anew(folder):
    def make():
        return KERNELS["add"]().bundle()

    kernel_cache.program_from("add", make)
    good = {path: path.read_bytes() for path in entries(folder)}
    assert len(good) == 2
    for path, data in good.items():
        path.write_bytes(data[:-3])
    kernel_cache.forget()
    kernel_cache.program_from("add", make)
    assert {path: path.read_bytes() for path in entries(folder)} == good


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:],
        lambda data: b"something else",
    ],
    ids=["empty", "cut", "longer", "one bit", "foreign"],
)
def test_damaged_entries_are_written_anew(damage, compilations, folder):
    program = kernel_cache.compiled_program(KERNELS["add"]().bundle())
    (path,) = entries(folder)
    good = path.read_bytes()
    path.write_bytes(damage(good))
    kernel_cache.forget()
    assert kernel_cache.compiled_program(KERNELS["add"]().bundle()) == program
    assert len(compilations) == 2
    assert path.read_bytes() == good


def test_an_entry_under_another_name_is_damaged(compilations, folder):
    kernel_cache.compiled_program(KERNELS["add"]().bundle())
    kernel_cache.compiled_program(KERNELS["softmax"]().bundle())
    one, other = entries(folder)
    one.write_bytes(other.read_bytes())
    kernel_cache.forget()
    for name in ("add", "softmax"):
        kernel_cache.compiled_program(KERNELS[name]().bundle())
    assert len(compilations) == 3


@pytest.mark.parametrize("what", ["format", "machine", "ops", "back end"])
def test_what_decides_is_part_of_the_name(what, monkeypatch, tmp_path, folder):
    files = kernel_cache._files(KERNELS["add"]().bundle())
    before = kernel_cache.key(files)
    assert before == kernel_cache.key(files)
    other = tmp_path / "other"
    other.write_text("another version")
    if what == "format":
        monkeypatch.setattr(kernel_cache, "VERSION", 99)
    elif what == "machine":
        monkeypatch.setattr(kernel_cache, "DESCRIPTION", other)
    elif what == "ops":
        monkeypatch.setattr(kernel_cache, "TABLE", other)
    else:
        monkeypatch.setattr(kernel_cache, "__file__", str(other))
    kernel_cache._environment.cache_clear()
    try:
        assert kernel_cache.key(files) != before
    finally:
        monkeypatch.undo()
        kernel_cache._environment.cache_clear()
    assert kernel_cache.key(files) == before


def test_files_do_not_run_into_each_other():
    bundle = KERNELS["softmax"]().bundle()
    files = kernel_cache._files(bundle)
    shorter = kernel_cache._files(bundle)
    shorter.superdscs.pop("sdsc_4.json")
    assert kernel_cache.key(files) != kernel_cache.key(shorter)


@pytest.mark.parametrize("value", ["0", "off"])
def test_the_directory_can_be_switched_off(value, monkeypatch, compilations, folder):
    monkeypatch.setenv("TORCH_SPYRE_CACHE", value)
    kernel_cache.compiled_program(KERNELS["add"]().bundle())
    assert kernel_cache.directory() is None
    assert entries(folder) == []


def test_inductors_switch_is_ours_too():
    import torch._inductor.config

    assert kernel_cache.directory() is not None
    with torch._inductor.config.patch(force_disable_caches=True):
        assert kernel_cache.directory() is None


def test_the_default_is_in_inductors_directory(monkeypatch, tmp_path):
    monkeypatch.delenv("TORCH_SPYRE_CACHE_DIR")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    assert kernel_cache.directory() == tmp_path / "inductor" / "spyre-kernels"


def test_a_directory_that_cannot_be_written_costs_nothing_else(monkeypatch, compilations, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    monkeypatch.setenv("TORCH_SPYRE_CACHE_DIR", str(blocked))
    assert kernel_cache.compiled_program(KERNELS["add"]().bundle())
    assert len(compilations) == 1


def test_old_entries_make_room(folder):
    names = ["add", "softmax", "loop", "restickify"]
    for age, name in enumerate(names):
        kernel_cache.compiled_program(KERNELS[name]().bundle())
        for path in entries(folder):
            if path.stat().st_mtime > time.time() - 1000:
                os.utime(path, (0, time.time() - 10_000 + age))
    ages = {path: path.stat().st_mtime for path in entries(folder)}
    total = sum(path.stat().st_size for path in ages)
    kernel_cache.trim(folder, total)
    assert len(entries(folder)) == len(names)
    kernel_cache.trim(folder, total - 1)
    left = entries(folder)
    assert 0 < len(left) < len(names)
    assert {ages[path] for path in left} == set(sorted(ages.values())[-len(left) :])


SHARED = """
    import hashlib, multiprocessing, sys, torch
    sys.path.insert(0, {tests!r})
    from kernels import KERNELS
    from torch_spyre.backend import kernel_cache

    def work(results):
        digest = hashlib.sha256()
        bundles = [KERNELS[name]().bundle() for name in ("add", "softmax", "loop")]
        for _ in range(20):
            for path in kernel_cache.directory().rglob("*.bin"):
                path.unlink(missing_ok=True)  # so that writes meet
            kernel_cache.forget()
            for bundle in bundles:
                digest.update(kernel_cache.compiled_program(bundle))
        results.put(digest.hexdigest())

    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    workers = [fork.Process(target=work, args=(results,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    print(len({{results.get(timeout=30) for _ in workers}}))
    for worker in workers:
        worker.join()
"""


def test_processes_share_the_directory(folder):
    code = SHARED.format(tests=str(Path(__file__).parent))
    assert forked(code, TORCH_SPYRE_CACHE_DIR=folder).output == "1"
    assert not [path for path in entries(folder) if path.suffix == ".tmp"]
