"""Compiled kernels are read only where nobody else could have put them."""

# ruff: noqa: F401, F811  (fixtures: imported by name, and names of arguments)

import hashlib
import os
import tempfile
import warnings

import pytest
from kernel_caches import Source, compilations, entries, folder, program_of
from kernels import KERNELS
from subprocesses import forked

from torch_spyre.backend import kernel_cache, private_folder
from torch_spyre.backend.compiler import compile_files

# ---------------------------------------------------------------------------- whose directory it is


def unsafe():
    return pytest.warns(private_folder.UnsafeFolderWarning)


def test_the_directory_is_made_for_the_user_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_SPYRE_CACHE_DIR", str(tmp_path / "new" / "one"))
    folder = kernel_cache.directory()
    for made in (folder, folder.parent, folder.parent.parent):
        assert made.stat().st_mode & 0o777 == 0o700
    program_of("add")
    (path,) = entries(folder)
    assert path.stat().st_mode & 0o077 == path.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_directory_that_others_can_write_to_is_not_used(mode, compilations, folder):
    folder.mkdir()
    folder.chmod(mode)
    with unsafe() as caught:
        program_of("add")
    assert "others can write to it" in str(caught[0].message)
    assert "TORCH_SPYRE_CACHE_DIR" in str(caught[0].message)
    assert entries(folder) == []
    kernel_cache.forget()
    with unsafe():
        program_of("add")
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
    program_of("add")
    (path,) = entries(folder)
    digest = hashlib.sha256(path.stem.encode() + PLANTED).digest()
    path.write_bytes(kernel_cache.MAGIC + digest + PLANTED)
    kernel_cache.forget()
    return path


def looked_up():
    """What the cache gives for the kernel, and what it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = program_of("add")
    return program, [str(warning.message) for warning in caught]


def right():
    return compile_files(KERNELS["add"]().bundle())


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
            Source("a text").program()
            kernel_cache._programs.clear()
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
    program_of("add")
    inside = [call for call in calls if call[1].startswith(f"{folder}/")]
    assert inside == [("lstat", str(planted.parent)), ("open", str(planted))]
    assert sum(name == "fstat" for name, _ in calls) == 1
    around = [call for call in calls if call not in inside and call[0] != "fstat"]
    assert around == [("lstat", str(p)) for p in (*reversed(folder.parents), folder)]
