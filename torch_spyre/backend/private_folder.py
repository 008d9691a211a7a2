"""Folders and files that this process can trust: only the user, or root, can write there."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import warnings
from pathlib import Path

MAX_LINKS = 40  # on the way to a folder, as Linux has it
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UnsafeFolderWarning(UserWarning):
    """A file or folder is not used, because others can write to it."""


class _Unsafe(Exception):
    """Why others could change what a folder holds."""


_told: set[str] = set()


def private_folder(path: Path) -> Path | None:
    """The folder, without links; None, with a warning, if others can write to it or put another in
    its place. It is made if it is missing, for the user alone, as is what is missing around it;
    not before all that is there is found safe. None without a warning where there can be no folder:
    the disk is full or read-only."""
    try:
        return _reached(path)
    except OSError:
        return None
    except _Unsafe as why:
        what = "Set TORCH_SPYRE_CACHE_DIR to a folder of your own, or TORCH_SPYRE_CACHE=0"
        _tell(f"{path} is not used to keep compiled kernels: {why}. {what}")
        return None


def is_private(folder: str) -> bool:
    """Whether a folder inside of a private one is there, and private too. If it is there and is
    not, there is a warning. Nobody can put another in its place: what was seen here stays so."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    why = _unsafe(status, stat.S_IFDIR, os.geteuid())
    if why:
        then = "Nothing in it is read, and kernels that belong there are compiled in every process"
        _tell(f"{folder} is not used: {why}. {then}. {_way_out(folder, status)}")
    return not why


def open_private(path: str) -> int | None:
    """A descriptor to read a file inside of a private folder; None if there is none to be read, and
    None with a warning if others could have written it. What is checked is what was opened."""
    user = os.geteuid()
    file = None
    try:
        # Neither a link nor a pipe nor a terminal leads us anywhere.
        flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        file = os.open(path, os.O_RDONLY | flags)
        status = os.fstat(file)
    except FileNotFoundError:
        return None
    except OSError:
        try:
            status = os.lstat(path)
        except OSError:
            return None
    why = _unsafe(status, stat.S_IFREG, user)
    if not why:
        return file
    if file is not None:
        os.close(file)
    _tell(f"{path} is not used: {why}. The kernel is compiled anew. {_way_out(path, status)}")
    return None


def forget() -> None:
    """Give warnings again that were given before."""
    _told.clear()


def _tell(text: str) -> None:
    """Warn, once for each path: a lookup comes across the same folder several times."""
    if text not in _told:
        _told.add(text)
        warnings.warn(text, UnsafeFolderWarning, stacklevel=3)


def _way_out(path: str, status: os.stat_result) -> str:
    """What the user can do."""
    linked = stat.S_ISLNK(status.st_mode)
    if linked or status.st_uid != os.geteuid() or not status.st_mode & OTHERS_WRITE:
        return "Delete it"
    return f"Delete it, or chmod go-w {path}"


def _unsafe(status: os.stat_result, kind: int, user: int) -> str:
    """Why others could have made something, or could change it; empty if they could not."""
    found = stat.S_IFMT(status.st_mode)
    if found != kind:
        expected = "folder" if kind == stat.S_IFDIR else "regular file"
        return "it is a link" if found == stat.S_IFLNK else f"it is no {expected}"
    if status.st_uid not in (0, user):
        return f"user {status.st_uid} owns it"
    if status.st_mode & OTHERS_WRITE:
        return "others can write to it"
    return ""


def _reached(path: Path) -> Path:
    """The folder at the end of a path, without links. Each folder on the way is looked at before
    anything in it: what is found there, nobody else can exchange later."""
    user = os.geteuid()
    full = path if path.is_absolute() else os.path.join(os.getcwd(), path)
    left = os.fspath(full).split("/")[::-1]  # the next one last
    here, links = "/", 0
    status = os.lstat(here)
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        _check_way(here, status, user)
        there = os.path.dirname(here) if name == ".." else os.path.join(here, name)
        try:
            status = os.lstat(there)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):  # whoever was faster: it is looked at too
                os.mkdir(there, 0o700)
            status = os.lstat(there)
        if not stat.S_ISLNK(status.st_mode):
            here = there
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(errno.ELOOP, "too many links", str(path))
        if status.st_uid not in (0, user):
            raise _Unsafe(f"user {status.st_uid} owns the link {there}")
        target = os.readlink(there)
        left += target.split("/")[::-1]
        here = "/" if target.startswith("/") else here
        status = os.lstat(here)
    why = _unsafe(status, stat.S_IFDIR, user)
    if why:
        raise _Unsafe(f"{why} (chmod go-w {here})" if "write" in why else why)
    return Path(here)


def _check_way(folder: str, status: os.stat_result, user: int) -> None:
    """Whether a folder keeps what is in it. Whom the owner lets write by its group is the owner's
    choice."""
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "no folder", folder)
    if status.st_uid not in (0, user):
        raise _Unsafe(f"user {status.st_uid} owns {folder}")
    # In a folder like /tmp, nobody can move what belongs to another user.
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        raise _Unsafe(f"everybody can write to {folder}")
