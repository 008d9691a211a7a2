"""Compiled kernels are found again: in the process, on disk, by other processes; or made anew."""

# ruff: noqa: F401, F811  (fixtures: imported by name, and names of arguments)

import os
import threading
import time
from pathlib import Path

import pytest
from kernel_caches import Source, compilations, entries, folder, program_of
from kernels import KERNELS, check_result
from subprocesses import forked

from torch_spyre.backend import kernel_cache
from torch_spyre.backend.cache_artifact import SpyreKernelArtifact
from torch_spyre.backend.compiler import compile_files
from torch_spyre.backend.errors import MalformedBundle
from torch_spyre.execution.kernel_runner import SDSCKernelRunner, launch_kernel


def test_equal_bundles_compile_once(compilations):
    first = program_of("add")
    assert program_of("add") is first
    assert program_of("softmax") != first
    assert len(compilations) == 2


def test_a_directory_has_the_entry_of_its_content(compilations, tmp_path):
    KERNELS["softmax"]().bundle().write(tmp_path / "one")
    KERNELS["softmax"]().bundle().write(tmp_path / "other")
    program = kernel_cache.compiled_directory(tmp_path / "one")
    assert kernel_cache.compiled_directory(tmp_path / "other") is program
    assert len(compilations) == 1
    (tmp_path / "one" / "sdsc_4.json").rename(tmp_path / "one" / "sdsc_5.json")
    with pytest.raises(MalformedBundle):
        kernel_cache.compiled_directory(tmp_path / "one")


def test_another_process_finds_the_entry(compilations, folder):
    program = program_of("add")
    assert len(entries(folder)) == 1
    kernel_cache.forget()
    assert program_of("add") == program
    assert len(compilations) == 1


@pytest.mark.parametrize("name", ["broadcast", "softmax", "loop_baked"])
def test_a_known_source_needs_no_bundle(name, folder):
    source = Source(name, name)
    first = source.program()
    assert source.program() is first
    kernel_cache.forget()
    program = source.program()
    assert len(source.made) == 1
    assert program == first
    check_result(
        KERNELS[name](),
        lambda tensors: launch_kernel(SDSCKernelRunner(name, program), tuple(tensors)),
    )
    source.text += "'"
    source.program()
    assert len(source.made) == 2


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
    program = program_of("add")
    (path,) = entries(folder)
    good = path.read_bytes()
    path.write_bytes(damage(good))
    kernel_cache.forget()
    assert program_of("add") == program
    assert len(compilations) == 2
    assert path.read_bytes() == good


def test_an_entry_under_another_name_is_damaged(compilations, folder):
    program_of("add")
    program_of("softmax")
    one, other = entries(folder)
    one.write_bytes(other.read_bytes())
    kernel_cache.forget()
    for name in ("add", "softmax"):
        program_of(name)
    assert len(compilations) == 3


NAMES = """
    from torch_spyre.backend import kernel_cache
    print(kernel_cache._digest(["a text"]))
"""


def test_the_numbers_of_the_card_are_part_of_the_name():
    """Whether its DLFloat16 has an Infinity decides which constants a program has."""
    ieee, again, merged = (
        forked(NAMES, SPYRE_DL16_SPECIALS=mode).output for mode in ("ieee", "ieee", "merged")
    )
    assert ieee == again
    assert ieee != merged


@pytest.mark.parametrize("value", ["0", "off"])
def test_the_directory_can_be_switched_off(value, monkeypatch, compilations, folder):
    monkeypatch.setenv("TORCH_SPYRE_CACHE", value)
    program_of("add")
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


# ------------------------------------------------------------------------------------ strange names


def test_names_in_artifacts_lead_nowhere_else(tmp_path, folder):
    outside = tmp_path / "victim.bin"
    with pytest.raises(ValueError, match="no name of a compiled kernel"):
        SpyreKernelArtifact("../../victim", b"content").populate_cache()
    assert not outside.exists()
    good = "ab" * 32
    SpyreKernelArtifact(good, b"content").populate_cache()
    assert [path.name for path in entries(folder)] == [f"{good}.bin"]


# ------------------------------------------------------------------------------------------- limits


def test_a_directory_that_cannot_be_written_costs_nothing_else(monkeypatch, compilations, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    monkeypatch.setenv("TORCH_SPYRE_CACHE_DIR", str(blocked))
    assert program_of("add")
    assert len(compilations) == 1


def test_old_entries_make_room(folder):
    names = ["add", "softmax", "loop", "restickify"]
    for age, name in enumerate(names):
        program_of(name)
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


def test_only_entries_make_room(tmp_path, folder):
    """Whatever else lies there, and wherever links lead."""
    program_of("add")
    (entry,) = entries(folder)
    shelf, name = entry.parent, entry.name
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "ab").mkdir(parents=True)
    other = "0" * 64 if shelf.name != "00" else "1" * 64
    theirs = [
        tmp_path / "thesis.tex",
        tmp_path / "ab" / f"{'ab' * 32}.bin",  # beside the folder
        folder / "notes.txt",
        folder / name,  # on no shelf
        folder / "photos" / "one.jpg",
        shelf / "notes.txt",
        shelf / f"{other}.bin",  # on a shelf of other names
        shelf / f".{entry.stem}.tmp",
        shelf / f"{name}.bak",
        elsewhere / "ab" / f"{'ab' * 32}.bin",
    ]
    for path in theirs:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"mine" * 1000)
        os.utime(path, (0, 0))
    (folder / "ff").symlink_to(elsewhere / "ab")
    linked = shelf / f"{shelf.name}{'0' * 62}.bin"
    linked.symlink_to(elsewhere / "ab" / f"{'ab' * 32}.bin")
    unfinished = shelf / f".{entry.stem}.abc_123.tmp"
    unfinished.write_bytes(b"died while writing")
    os.utime(unfinished, (0, time.time() - 7200))
    being_written = shelf / f".{entry.stem}.def_456.tmp"
    being_written.write_bytes(b"still at it")
    kernel_cache.trim(folder, 0)
    assert all(path.read_bytes() == b"mine" * 1000 for path in theirs)
    assert linked.is_symlink()
    assert being_written.exists()
    assert not entry.exists()
    assert not unfinished.exists()


def test_a_process_remembers_so_much_and_no_more(monkeypatch, folder):
    size = len(program_of("add"))
    monkeypatch.setattr(kernel_cache, "MAX_REMEMBERED", 4 * size)
    monkeypatch.setenv("TORCH_SPYRE_CACHE", "0")
    for i in range(100):
        Source(f"text {i}").program()
        kernel_cache._programs.add(f"program {i}", bytes(size))
    kept = kernel_cache._programs
    assert 0 < sum(map(len, kept._kept.values())) == kept._length <= 4 * size
    last = Source("text 99")
    last.program()
    assert last.made == []
    first = Source("text 0")
    assert first.program()
    assert first.made == ["add"]


def test_threads_share_what_a_process_remembers(monkeypatch, folder):
    """Few things are remembered, so that threads forget what others look for."""
    names = ["add", "softmax", "loop", "broadcast"]
    right = {name: compile_files(KERNELS[name]().bundle()) for name in names}
    monkeypatch.setattr(kernel_cache, "MAX_REMEMBERED", len(right["add"]))
    failed = []

    def work(shift):
        try:
            for i in range(24):
                name = names[(i + shift) % len(names)]
                assert Source(name, name).program() == right[name]
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


SHARED = """
    import hashlib, multiprocessing, sys, torch
    sys.path.insert(0, {tests!r})
    from kernels import KERNELS
    from torch_spyre.backend import kernel_cache

    def work(results):
        digest = hashlib.sha256()
        for _ in range(20):
            for path in kernel_cache.directory().rglob("*.bin"):
                path.unlink(missing_ok=True)  # so that writes meet
            kernel_cache.forget()
            for name in ("add", "softmax", "loop"):
                digest.update(kernel_cache.program_from([name], KERNELS[name]().bundle)[1])
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
