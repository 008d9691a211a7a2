"""Compiled kernels, found by what they were compiled from: in this process, then on disk.

An entry's name is a digest of what its bundle is made from and of everything else that decides what
it compiles to, so entries are never out of date and never change. Processes share the directory
without locks: an entry appears whole, by renaming. One that is damaged, or that others could have
written, is as good as absent. What is in the directory besides entries is never touched.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from torch_spyre.backend import cache_artifact, private_folder
from torch_spyre.backend.bundle import BundleFiles, bundle_files
from torch_spyre.backend.compiler import compile_files
from torch_spyre.backend.constants import special_values
from torch_spyre.code_digest import code_digest
from torch_spyre.environment import KNOBS

MAGIC = b"SPYREKC1"
FOLDER = "spyre-kernels"
MAX_BYTES = 1 << 30  # of the directory; older entries go
MAX_REMEMBERED = 1 << 26  # bytes of programs that this process keeps beside those in use
_TRIM_EVERY = 64  # entries written by this process
_ABANDONED = 3600  # seconds after which nobody is still writing a file
_NAME = re.compile(r"[0-9a-f]{64}")
_SHELF = re.compile(r"[0-9a-f]{2}")  # a folder: how names begin
_ENTRY = re.compile(r"(?P<name>[0-9a-f]{64})\.bin|\.(?P<unfinished>[0-9a-f]{64})\.\w+\.tmp")


class Remembered:
    """The programs used last, by name; what is longer than the limit is forgotten."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._length = 0

    def get(self, name: str) -> bytes | None:
        found = self._kept.get(name)
        if found is not None:
            self._kept.move_to_end(name)
        return found

    def add(self, name: str, value: bytes) -> None:
        self._length += len(value) - len(self._kept.pop(name, b""))
        self._kept[name] = value
        while self._length > MAX_REMEMBERED and len(self._kept) > 1:
            self._length -= len(self._kept.popitem(last=False)[1])

    def clear(self) -> None:
        self._kept.clear()
        self._length = 0


_lock = threading.RLock()  # around all of these
_programs = Remembered()
_written = 0


def program(name: str) -> bytes | None:
    """The program of a bundle that has this name, if it was compiled before."""
    _check_name(name)
    with _lock:
        folder = directory()
        found = _known(folder, name)
        if found is not None and folder:
            cache_artifact.record(name, found)
        return found


def program_from(text: Sequence[str], files: Callable[[], BundleFiles]) -> tuple[str, bytes]:
    """The name of a bundle's program, and the program. Raises ``MalformedBundle``.

    The text is everything that decides what the bundle is, besides our code: the bundle of a known
    one is not made.
    """
    name = _digest(text)
    with _lock:  # compiling is Python: two threads would only get into each other's way
        folder = directory()
        program = _known(folder, name)
        if program is None:
            program = compile_files(files())
            _programs.add(name, program)
            if folder:
                _write(folder, name, program)
        if folder:
            cache_artifact.record(name, program)
        return name, program


def compiled_directory(directory: Path) -> bytes:
    """The program of a bundle directory. Raises ``MalformedBundle``."""
    files = bundle_files(directory)
    parts = [files.mlir]
    for name, superdsc in files.superdscs.items():
        parts += [name, json.dumps(superdsc, separators=(",", ":"))]
    return program_from(parts, lambda: files)[1]


def add_entry(name: str, content: bytes) -> None:
    """An entry that another process made, perhaps on another machine."""
    _check_name(name)
    folder = directory()
    if folder and _read(folder, name) != content:
        _write(folder, name, content)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a compiled kernel")


def _digest(parts: Sequence[str]) -> str:
    # The code that makes bundles and programs (machine and ops are parts of it), and what it asks
    # the card.
    maker = f"{code_digest()} {special_values()}"
    digest = hashlib.sha256(maker.encode())
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def forget() -> None:
    """Empty what this process remembers; the directory stays."""
    with _lock:
        _programs.clear()
        private_folder.forget()


def directory() -> Path | None:
    """Where entries are on disk; None if they are not kept. Nobody else can write there."""
    if not KNOBS["cache"].read():
        return None
    inductor = sys.modules.get("torch._inductor.config")
    if inductor is not None and inductor.force_disable_caches:
        return None
    chosen = KNOBS["cache_dir"].read()
    if not chosen:
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        chosen = cache_dir()
    return private_folder.private_folder(Path(chosen) / FOLDER)


def _known(folder: Path | None, name: str) -> bytes | None:
    """The program of a bundle that was compiled before."""
    program = _programs.get(name)
    if program is None and folder:
        program = _read(folder, name)
        if program is not None:
            _programs.add(name, program)
    return program


def _path(folder: Path, name: str) -> str:
    return os.path.join(folder, name[:2], f"{name}.bin")


def _seal(name: str, program: bytes) -> bytes:
    return MAGIC + hashlib.sha256(name.encode() + program).digest()


def _read(folder: Path, name: str) -> bytes | None:
    path = _path(folder, name)
    if not private_folder.is_private(os.path.dirname(path)):
        return None
    handle = private_folder.open_private(path)
    if handle is None:
        return None
    head = len(MAGIC) + hashlib.sha256().digest_size
    with open(handle, "rb", buffering=0) as file:
        try:
            data = file.read()
        except OSError:
            return None
        if data[:head] != _seal(name, data[head:]):
            return None
        with contextlib.suppress(OSError):
            os.utime(handle)  # entries in use are young
    return data[head:]


def _write(folder: Path, name: str, program: bytes) -> None:
    """Add an entry. A disk that is full or read-only costs speed, nothing else."""
    global _written
    path = _path(folder, name)
    shelf = os.path.dirname(path)
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileExistsError):
            os.mkdir(shelf, 0o700)
        if not private_folder.is_private(shelf):
            return
        handle, temporary = tempfile.mkstemp(prefix=f".{name}.", suffix=".tmp", dir=shelf)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_seal(name, program) + program)
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
        _written += 1
        if _written % _TRIM_EVERY == 0:
            trim(folder, MAX_BYTES)


def trim(folder: Path, max_bytes: int) -> None:
    """Delete the entries not used for longest until a quarter of the limit is free again."""
    entries = sorted(_entries(folder))
    total = sum(size for _, size, _ in entries)
    if total <= max_bytes:
        return
    for _, size, path in entries:
        if total <= max_bytes * 3 // 4:
            return
        with contextlib.suppress(OSError):
            os.unlink(path)
            total -= size


def _entries(folder: Path) -> Iterator[tuple[float, int, str]]:
    """When each was used last, its size and path. Links lead elsewhere, and are none; what a
    process left that died while it was writing is one."""
    for shelf in _listed(folder):
        if not _SHELF.fullmatch(shelf.name) or not shelf.is_dir(follow_symlinks=False):
            continue
        for file in _listed(shelf.path):
            match = _ENTRY.fullmatch(file.name)
            if match is None or not file.is_file(follow_symlinks=False):
                continue
            if (match["name"] or match["unfinished"])[:2] != shelf.name:
                continue
            with contextlib.suppress(OSError):
                status = file.stat(follow_symlinks=False)
                if match["name"] or status.st_mtime < time.time() - _ABANDONED:
                    yield status.st_mtime, status.st_size, file.path


def _listed(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []
