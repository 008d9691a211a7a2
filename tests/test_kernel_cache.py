"""Compiled kernels are found again: in the process, on disk, by other processes; or made anew."""

import hashlib
import os
import tempfile
import threading
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from kernels import KERNELS, check_result
from subprocesses import forked

from torch_spyre.backend import kernel_cache, private_folder
from torch_spyre.backend.cache_artifact import SpyreKernelArtifact
from torch_spyre.backend.compiler import compile_files
from torch_spyre.execution.kernel_runner import SDSCKernelRunner, launch_kernel


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A directory of the test's own, and a process that remembers nothing."""
    monkeypatch.setenv("TORCH_SPYRE_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TORCH_SPYRE_CACHE", raising=False)
    kernel_cache.forget()
    yield tmp_path / kernel_cache.FOLDER
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


@dataclass
class Source:
    """A text that stands for a kernel."""

    text: str
    kernel: str = "add"
    made: list = field(default_factory=list)

    def bundle(self):
        self.made.append(self.kernel)
        return KERNELS[self.kernel]().bundle()


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
    source = Source(name, name)
    first = kernel_cache.program_from(source)
    assert kernel_cache.program_from(source) is first
    kernel_cache.forget()
    program = kernel_cache.program_from(source)
    assert len(source.made) == 1
    assert program == first
    check_result(
        KERNELS[name](),
        lambda tensors: launch_kernel(SDSCKernelRunner(name, program), tuple(tensors)),
    )
    source.text += "'"
    kernel_cache.program_from(source)
    assert len(source.made) == 2


def test_sources_of_one_bundle_share_its_program(compilations):
    programs = {id(kernel_cache.program_from(Source(text))) for text in ("one", "other")}
    assert len(programs) == 1
    assert len(compilations) == 1


def test_a_source_whose_bundle_is_gone_is_made_again(compilations, folder):
    kernel_cache.program_from(Source("add"))
    max(entries(folder), key=lambda path: path.stat().st_size).unlink()
    kernel_cache.forget()
    kernel_cache.program_from(Source("add"))
    assert len(compilations) == 2


def test_damaged_entries_of_sources_are_written_anew(folder):
    kernel_cache.program_from(Source("add"))
    good = {path: path.read_bytes() for path in entries(folder)}
    assert len(good) == 2
    for path, data in good.items():
        path.write_bytes(data[:-3])
    kernel_cache.forget()
    kernel_cache.program_from(Source("add"))
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


NAMES = """
    from torch_spyre.backend import kernel_cache
    print(kernel_cache._digest(["a text"], b"source"))
"""


def test_the_numbers_of_the_card_are_part_of_the_name():
    """Whether its DLFloat16 has an Infinity decides which constants a program has."""
    ieee, again, merged = (
        forked(NAMES, SPYRE_DL16_SPECIALS=mode).output for mode in ("ieee", "ieee", "merged")
    )
    assert ieee == again
    assert ieee != merged


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


# ---------------------------------------------------------------------------- whose directory it is


def unsafe():
    return pytest.warns(private_folder.UnsafeFolderWarning)


def test_the_directory_is_made_for_the_user_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_SPYRE_CACHE_DIR", str(tmp_path / "new" / "one"))
    folder = kernel_cache.directory()
    for made in (folder, folder.parent, folder.parent.parent):
        assert made.stat().st_mode & 0o777 == 0o700
    kernel_cache.compiled_program(KERNELS["add"]().bundle())
    (path,) = entries(folder)
    assert path.stat().st_mode & 0o077 == path.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_directory_that_others_can_write_to_is_not_used(mode, compilations, folder):
    folder.mkdir()
    folder.chmod(mode)
    with unsafe() as caught:
        kernel_cache.compiled_program(KERNELS["add"]().bundle())
    assert "others can write to it" in str(caught[0].message)
    assert "TORCH_SPYRE_CACHE_DIR" in str(caught[0].message)
    assert entries(folder) == []
    kernel_cache.forget()
    with unsafe():
        kernel_cache.compiled_program(KERNELS["add"]().bundle())
    assert len(compilations) == 2


def test_a_directory_around_that_everybody_can_write_to_must_be_sticky(tmp_path, folder):
    tmp_path.chmod(0o777)
    with unsafe() as caught:
        assert kernel_cache.directory() is None
    assert f"everybody can write to {tmp_path}" in str(caught[0].message)
    tmp_path.chmod(0o1777)
    assert kernel_cache.directory() == folder


OTHERS = """
    import os, sys, warnings
    from pathlib import Path
    from torch_spyre.backend.private_folder import private_folder

    warnings.simplefilter("always")
    folder = Path({folder!r})
    if {owner!r} == "folder":
        folder.mkdir(parents=True)
    else:
        folder.parent.mkdir(parents=True, mode=0o755)
    os.chown(folder if {owner!r} == "folder" else folder.parent, 4711, 4711)
    if {link!r}:
        os.symlink(folder.parent, {link!r})
        folder = Path({link!r}) / folder.name
    print(private_folder(folder))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders to others")
@pytest.mark.parametrize("owner", ["folder", "parent"])
@pytest.mark.parametrize("linked", [False, True])
def test_a_directory_of_somebody_else_is_not_used(owner, linked, tmp_path):
    folder, link = tmp_path / "theirs" / "cache", tmp_path / "link"
    code = OTHERS.format(folder=str(folder), owner=owner, link=str(link) if linked else "")
    result = forked(code)
    assert result.output == "None"
    assert "UnsafeFolderWarning" in result.stderr
    assert "user 4711 owns" in result.stderr


def test_links_to_a_folder_of_ones_own_are_fine(monkeypatch, tmp_path):
    (tmp_path / "disk").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("TORCH_SPYRE_CACHE_DIR", str(tmp_path / "link"))
    assert kernel_cache.directory() == tmp_path / "disk" / kernel_cache.FOLDER


def test_links_of_ones_own_may_lead_to_what_is_missing(monkeypatch, tmp_path):
    (tmp_path / "one").symlink_to("two/../two")  # relative, to another link
    (tmp_path / "two").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("TORCH_SPYRE_CACHE_DIR", str(tmp_path / "one"))
    folder = kernel_cache.directory()
    assert folder == tmp_path / "disk" / kernel_cache.FOLDER
    assert folder.parent.stat().st_mode & 0o777 == 0o700


def test_links_in_a_circle_lead_nowhere(monkeypatch, tmp_path):
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    monkeypatch.setenv("TORCH_SPYRE_CACHE_DIR", str(tmp_path / "one"))
    assert kernel_cache.directory() is None


def test_a_link_that_everybody_can_exchange_is_not_followed(monkeypatch, tmp_path):
    (tmp_path / "disk").mkdir(mode=0o700)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "open" / "link").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("TORCH_SPYRE_CACHE_DIR", str(tmp_path / "open" / "link"))
    with unsafe() as caught:
        assert kernel_cache.directory() is None
    assert f"everybody can write to {tmp_path / 'open'}" in str(caught[0].message)
    assert list((tmp_path / "disk").iterdir()) == []


def test_nothing_is_made_where_everybody_can_write(monkeypatch, tmp_path):
    tmp_path.chmod(0o777)
    monkeypatch.setenv("TORCH_SPYRE_CACHE_DIR", str(tmp_path / "new" / "one"))
    with unsafe():
        assert kernel_cache.directory() is None
    assert list(tmp_path.iterdir()) == []


def test_relative_paths_are_those_of_the_current_directory(monkeypatch, tmp_path):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("TORCH_SPYRE_CACHE_DIR", "../new/../other")
    assert kernel_cache.directory() == tmp_path / "other" / kernel_cache.FOLDER


# -------------------------------------------------------------------------- whose entries these are

PLANTED = b"what somebody else wants the kernel to be"


@pytest.fixture
def planted(folder):
    """The entry of a kernel, with another program in it, which is whole."""
    kernel_cache.compiled_program(KERNELS["add"]().bundle())
    (path,) = entries(folder)
    digest = hashlib.sha256(path.stem.encode() + PLANTED).digest()
    path.write_bytes(kernel_cache.MAGIC + digest + PLANTED)
    kernel_cache.forget()
    return path


def looked_up():
    """What the cache gives for the kernel, and what it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = kernel_cache.compiled_program(KERNELS["add"]().bundle())
    return program, [str(warning.message) for warning in caught]


def right():
    return compile_files(kernel_cache._files(KERNELS["add"]().bundle()))


def test_entries_of_ones_own_are_used(planted):
    """What the tests below plant is believed, were it not for what they change."""
    planted.chmod(0o644)
    planted.parent.chmod(0o755)
    planted.parent.parent.chmod(0o755)
    assert looked_up() == (PLANTED, [])


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_shelf_that_others_can_write_to_is_not_used(mode, planted, folder):
    shelf = planted.parent
    shelf.chmod(mode)
    folder.chmod(0o755)
    before = planted.read_bytes()
    program, (told,) = looked_up()
    assert program == right()
    assert told.startswith(f"{shelf} is not used: others can write to it")
    assert f"chmod go-w {shelf}" in told
    assert planted.read_bytes() == before, "nothing is written there"
    assert entries(folder) == [planted]


def test_a_shelf_that_is_a_link_is_not_used(planted, folder, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    planted.parent.rename(elsewhere)
    planted.parent.symlink_to(elsewhere)
    before = (elsewhere / planted.name).read_bytes()
    program, (told,) = looked_up()
    assert program == right()
    assert told.startswith(f"{planted.parent} is not used: it is a link")
    assert "Delete it" in told
    assert [path.read_bytes() for path in elsewhere.iterdir()] == [before]


@pytest.mark.parametrize("mode", [0o660, 0o606, 0o666])
def test_an_entry_that_others_can_write_to_is_not_used(mode, planted):
    planted.chmod(mode)
    program, (told,) = looked_up()
    assert program == right()
    assert told.startswith(f"{planted} is not used: others can write to it")
    assert f"chmod go-w {planted}" in told
    # The one that took its place is good.
    assert planted.stat().st_mode & 0o077 == 0
    kernel_cache.forget()
    assert looked_up() == (right(), [])


def test_an_entry_that_is_a_link_is_not_used(planted, tmp_path):
    target = planted.rename(tmp_path / "target")
    planted.symlink_to(target)
    before = target.read_bytes()
    program, (told,) = looked_up()
    assert program == right()
    assert told.startswith(f"{planted} is not used: it is a link")
    assert "Delete it" in told
    assert target.read_bytes() == before


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_an_entry_that_is_no_file_is_not_used(make, planted):
    """Nobody ever writes into the pipe: to wait for it would take forever."""
    planted.unlink()
    make(planted)
    program, (told,) = looked_up()
    assert program == right()
    assert told.startswith(f"{planted} is not used: it is no regular file")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
@pytest.mark.parametrize("whose", ["shelf", "entry"])
def test_what_somebody_else_owns_is_not_used(whose, planted):
    theirs = planted if whose == "entry" else planted.parent
    os.chown(theirs, 4711, 4711)
    program, (told,) = looked_up()
    assert program == right()
    assert told.startswith(f"{theirs} is not used: user 4711 owns it")
    assert "Delete it" in told


OF_ROOT = """
    import os
    from torch_spyre.backend import kernel_cache

    folder = kernel_cache.directory()
    kernel_cache._write(folder, {name!r}, b"of root")
    for path in (folder, folder / "ab"):
        path.chmod(0o755)
    (folder / "ab" / ({name!r} + ".bin")).chmod(0o644)
    folder.parent.chmod(0o755)
    os.seteuid(4711)
    print(kernel_cache.directory() == folder, kernel_cache._read(folder, {name!r}))
    kernel_cache._write(folder, "cd" * 32, b"of another")  # has no right to, and goes on
    os.seteuid(0)
    os.chown(folder / "ab", 1234, 1234)
    os.seteuid(4711)
    print(kernel_cache._read(folder, {name!r}))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become others")
def test_what_root_owns_is_used(tmp_path):
    """The folders of pytest are for its user alone: this one is elsewhere."""
    with tempfile.TemporaryDirectory() as elsewhere:
        os.chmod(elsewhere, 0o755)
        result = forked(OF_ROOT.format(name="ab" * 32), TORCH_SPYRE_CACHE_DIR=elsewhere)
    assert result.output.splitlines() == ["True b'of root'", "None"]
    assert "user 1234 owns it" in result.stderr


def test_what_is_not_used_is_told_of_once(planted):
    """A source and its bundle are looked for and written: four times the same folder."""
    for shelf in (planted.parent.parent / f"{i:02x}" for i in range(256)):
        shelf.mkdir(exist_ok=True)
        shelf.chmod(0o777)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            kernel_cache.program_from(Source("a text"))
            kernel_cache._programs.clear()
            kernel_cache._bundle_names.clear()
    told = [str(warning.message) for warning in caught]
    assert 1 <= len(told) <= 2, "one for the shelf of each"
    assert len(set(told)) == len(told)


def test_a_lookup_opens_one_file(monkeypatch, planted):
    """What checks cost: the shelf is looked at once, and the open file once."""
    calls = []

    def counted(name):
        original = getattr(os, name)

        def call(path, *args, **kwargs):
            calls.append((name, str(path)))
            return original(path, *args, **kwargs)

        monkeypatch.setattr(os, name, call)

    folder = kernel_cache.directory()
    for name in ("open", "stat", "lstat", "fstat", "readlink", "mkdir"):
        counted(name)
    kernel_cache.compiled_program(KERNELS["add"]().bundle())
    inside = [call for call in calls if call[1].startswith(f"{folder}/")]
    assert inside == [("lstat", str(planted.parent)), ("open", str(planted))]
    assert sum(name == "fstat" for name, _ in calls) == 1
    around = [call for call in calls if call not in inside and call[0] != "fstat"]
    assert around == [("lstat", str(p)) for p in (*reversed(folder.parents), folder)]


def test_names_in_artifacts_lead_nowhere_else(tmp_path, folder):
    outside = tmp_path / "victim.bin"
    with pytest.raises(ValueError, match="no name of a compiled kernel"):
        SpyreKernelArtifact("../../victim", b"content").populate_cache()
    assert not outside.exists()
    good = "ab" * 32
    SpyreKernelArtifact(good, b"content").populate_cache()
    assert [path.name for path in entries(folder)] == [f"{good}.bin"]


@pytest.mark.parametrize("content", [b"../../../etc/passwd", b"\xff\xfe", b""])
def test_an_entry_that_names_no_bundle_is_made_again(content, folder):
    source = Source("a kernel")
    name = kernel_cache._digest([source.text], b"source")
    kernel_cache.add_entry(name, content)
    program = kernel_cache.program_from(source)
    assert program == compile_files(kernel_cache._files(KERNELS["add"]().bundle()))


# ------------------------------------------------------------------------------------------- limits


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


def test_only_entries_make_room(tmp_path, folder):
    """Whatever else lies there, and wherever links lead."""
    kernel_cache.compiled_program(KERNELS["add"]().bundle())
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
    size = len(kernel_cache.compiled_program(KERNELS["add"]().bundle()))
    monkeypatch.setattr(kernel_cache, "MAX_REMEMBERED", 4 * size)
    monkeypatch.setenv("TORCH_SPYRE_CACHE", "0")
    for i in range(100):
        kernel_cache.program_from(Source(f"text {i}"))
        kernel_cache._programs.add(f"program {i}", bytes(size))
    for kept in (kernel_cache._programs, kernel_cache._bundle_names):
        assert 0 < sum(map(len, kept._kept.values())) == kept._length <= 4 * size
    last = Source("text 99")
    kernel_cache.program_from(last)
    assert last.made == []
    first = Source("text 0")
    assert kernel_cache.program_from(first)
    assert first.made == ["add"]


def test_threads_share_what_a_process_remembers(monkeypatch, folder):
    """Few things are remembered, so that threads forget what others look for."""
    names = ["add", "softmax", "loop", "broadcast"]
    right = {name: compile_files(kernel_cache._files(KERNELS[name]().bundle())) for name in names}
    monkeypatch.setattr(kernel_cache, "MAX_REMEMBERED", len(right["add"]))
    failed = []

    def work(shift):
        try:
            for i in range(24):
                name = names[(i + shift) % len(names)]
                assert kernel_cache.program_from(Source(name, name)) == right[name]
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
