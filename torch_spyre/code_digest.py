"""A digest of this package's code: what is kept on disk is only good for the code that made it."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

PACKAGE = Path(__file__).parent
SUFFIXES = {".py", ".toml", ".so"}  # modules, the tables that they read, compiled libraries


@functools.cache
def code_digest() -> str:
    """A digest of all files that decide what the package does. Read once a process: loaded code
    does not change."""
    digest = hashlib.sha256()
    for path in sorted(path for path in PACKAGE.rglob("*") if path.suffix in SUFFIXES):
        content = hashlib.sha256(path.read_bytes()).digest()
        digest.update(f"{path.relative_to(PACKAGE)}\n".encode() + content)
    return digest.hexdigest()
