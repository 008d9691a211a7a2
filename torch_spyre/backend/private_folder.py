"""Folders for what this process will believe: only the user can write there."""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path


class UnsafeFolderWarning(UserWarning):
    """A folder that others can write to is not used."""


def private_folder(path: Path) -> Path | None:
    """The folder, without links; None, with a warning, if others can write to it or put another in
    its place. It is made if it is missing, for the user alone, as is what is missing around it.
    None without a warning where there can be no folder: the disk is full or read-only."""
    try:
        for missing in reversed([p for p in (path, *path.parents) if not p.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
        real = path.resolve(strict=True)
        why = _unsafe(real)
    except OSError:
        return None
    if why is None:
        return real
    warnings.warn(
        f"{path} is not used to keep compiled kernels: {why}. Set TORCH_SPYRE_CACHE_DIR to a "
        "folder of your own, or TORCH_SPYRE_CACHE=0",
        UnsafeFolderWarning,
        stacklevel=2,
    )
    return None


def _unsafe(folder: Path) -> str | None:
    """Why others could change what the folder holds."""
    status = folder.stat()
    if not stat.S_ISDIR(status.st_mode):
        return "it is no folder"
    if status.st_uid != os.geteuid():
        return f"user {status.st_uid} owns it"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others can write to it (chmod go-w {folder})"
    for parent in folder.parents:
        status = parent.stat()
        if status.st_uid not in (0, os.geteuid()):
            return f"user {status.st_uid} owns {parent}"
        # In a folder like /tmp, nobody moves what is another's.
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            return f"everybody can write to {parent}"
    return None
