"""Compiled kernels, found by what they were compiled from: in this process, then on disk.

An entry's name is a digest of the bundle and of everything else that decides what it compiles to,
so entries are never out of date and never change. Processes share the directory without locks: an
entry appears whole, by renaming. One that is damaged, or not ours, is as good as absent.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch_spyre.backend import cache_artifact
from torch_spyre.backend.bundle import BundleFiles, bundle_files
from torch_spyre.backend.compiler import compile_files
from torch_spyre.backend.program import VERSION
from torch_spyre.machine import DESCRIPTION
from torch_spyre.ops.table import TABLE

MAGIC = b"SPYREKC1"
FOLDER = "spyre-kernels"
MAX_BYTES = 1 << 30  # of the directory; older entries go
_TRIM_EVERY = 64  # entries written by this process


class Bundle(Protocol):
    """What the compiler's code generator makes."""

    mlir: str

    @property
    def superdscs(self) -> Sequence[Mapping[str, Any]]:
        """sdsc_0.json, sdsc_1.json, ..."""


_lock = threading.RLock()
_programs: dict[str, bytes] = {}
_sources: dict[str, str] = {}  # known texts, and their bundles
_written = 0


def compiled_program(bundle: Bundle) -> bytes:
    """The program of a bundle in memory. Raises ``MalformedBundle``."""
    return _compiled(_files(bundle))[1]


def compiled_directory(directory: Path) -> bytes:
    """The program of a bundle directory. Raises ``MalformedBundle``."""
    return _compiled(bundle_files(directory))[1]


def program_from(source: str, make: Callable[[], Bundle]) -> bytes:
    """The program of the bundle that ``make`` would return, without calling it if it is known.

    ``source`` is everything that decides what the bundle is: of the kernel, the options, and the
    code that makes bundles. To find an entry costs no more than to hash this text. The entry of a
    source is the name of its bundle's.
    """
    name = _digest([source], b"source")
    with _lock:
        folder = directory()
        bundle_name = _sources.get(name)
        if bundle_name is None and folder:
            bundle_name = (_read(folder, name) or b"").decode()
        program = _known(folder, bundle_name) if bundle_name else None
        if bundle_name is None or program is None:
            bundle_name, program = _compiled(_files(make()))
            if folder:
                _write(folder, name, bundle_name.encode())
        _sources[name] = bundle_name
        if folder:
            cache_artifact.record(name, bundle_name.encode())
            cache_artifact.record(bundle_name, program)
        return program


def add_entry(name: str, content: bytes) -> None:
    """An entry that another process made, perhaps on another machine."""
    folder = directory()
    if folder and _read(folder, name) != content:
        _write(folder, name, content)


def key(files: BundleFiles) -> str:
    """The name of an entry."""
    parts = [files.mlir]
    for name, superdsc in files.superdscs.items():
        parts += [name, json.dumps(superdsc, separators=(",", ":"))]
    return _digest(parts, b"bundle")


def _digest(parts: Sequence[str], kind: bytes) -> str:
    digest = hashlib.sha256(kind + _environment())
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def forget() -> None:
    """Empty what this process remembers; the directory stays."""
    with _lock:
        _programs.clear()
        _sources.clear()


def directory() -> Path | None:
    """Where entries are on disk; None if they are not kept."""
    if os.environ.get("TORCH_SPYRE_CACHE", "1").lower() in ("0", "false", "off", "no"):
        return None
    inductor = sys.modules.get("torch._inductor.config")
    if inductor is not None and inductor.force_disable_caches:
        return None
    chosen = os.environ.get("TORCH_SPYRE_CACHE_DIR")
    if chosen:
        return Path(chosen)
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    return Path(cache_dir()) / FOLDER


@functools.cache
def _environment() -> bytes:
    """What decides besides the bundle: the back end, the program format, the machine, the ops."""
    digest = hashlib.sha256(f"{VERSION}".encode())
    for path in [*sorted(Path(__file__).parent.glob("*.py")), DESCRIPTION, TABLE]:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.digest()


def _files(bundle: Bundle) -> BundleFiles:
    superdscs = {f"sdsc_{i}.json": superdsc for i, superdsc in enumerate(bundle.superdscs)}
    return BundleFiles("bundle", bundle.mlir, superdscs)


def _compiled(files: BundleFiles) -> tuple[str, bytes]:
    name = key(files)
    with _lock:  # compiling is Python: two threads would only get into each other's way
        folder = directory()
        program = _known(folder, name)
        if program is None:
            program = _programs[name] = compile_files(files)
            if folder:
                _write(folder, name, program)
        return name, program


def _known(folder: Path | None, name: str) -> bytes | None:
    """The program of a bundle that was compiled before."""
    if name not in _programs:
        program = _read(folder, name) if folder else None
        if program is None:
            return None
        _programs[name] = program
    return _programs[name]


def _path(folder: Path, name: str) -> Path:
    return folder / name[:2] / f"{name}.bin"


def _seal(name: str, program: bytes) -> bytes:
    return MAGIC + hashlib.sha256(name.encode() + program).digest()


def _read(folder: Path, name: str) -> bytes | None:
    path = _path(folder, name)
    try:
        data = path.read_bytes()
    except OSError:
        return None
    head = len(MAGIC) + hashlib.sha256().digest_size
    if data[:head] != _seal(name, data[head:]):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # entries in use are young
    return data[head:]


def _write(folder: Path, name: str, program: bytes) -> None:
    """Add an entry. A disk that is full or read-only costs speed, nothing else."""
    global _written
    path = _path(folder, name)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
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
    entries = []
    for path in folder.glob("*/*"):  # also what a process left that died while writing
        with contextlib.suppress(OSError):
            status = path.stat()
            entries.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in entries)
    if total <= max_bytes:
        return
    for _, size, path in sorted(entries):
        if total <= max_bytes * 3 // 4:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size
