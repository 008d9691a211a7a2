"""A digest of code: of modules of this package, and of everything here that they are made of.

What is kept on disk is only good for the code that made it. So its name holds a digest of that
code. The code is found by following imports: so no module that is used can be forgotten.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

PACKAGE = Path(__file__).parent

# To parse all files takes a second. A test compares what this finds with what Python's parser does.
_FROM = re.compile(r"from torch_spyre([\w.]*) import (\([^)]*\)|[^\n]*)")
_IMPORT = re.compile(r"import torch_spyre([\w.]*)")
_ASIDE = re.compile(r"#[^\n]*|\bas \w+")  # comments, and local names of what is imported
_NAME = re.compile(r"\w+")


@functools.cache
def code_digest(*modules: str) -> str:
    """A digest of the modules, of all that they import, anywhere in their code, of the tables
    beside them, and of the compiled libraries. Read once a process: loaded code does not change."""
    digest = hashlib.sha256()
    for path, content in sorted(contents_of(*modules, package=PACKAGE).items()):
        digest.update(f"{path}\n".encode() + hashlib.sha256(content).digest())
    return digest.hexdigest()


def contents_of(*modules: str, package: Path) -> dict[str, bytes]:
    """The files that :func:`code_digest` covers, by their paths in the package."""
    files = _files(package)
    read: dict[str, bytes] = {}
    followed: set[str] = set()
    left = list(modules)
    while left:
        name = left.pop()
        if name in followed:
            continue
        followed.add(name)
        around = name.split(".")
        # Importing it runs the packages around it, so they count. Their imports do not.
        for i in range(1, len(around) + 1):
            file = files[".".join(around[:i])]
            if file not in read:
                read[file] = (package / file).read_bytes()
        left += imports(read[files[name]].decode(), files)
    folders = {(package / file).parent for file in read}
    others = [table for folder in folders for table in folder.glob("*.toml")]
    for path in (*others, *package.glob("*.so"), *package.glob("lib/*.so")):
        read[str(path.relative_to(package))] = path.read_bytes()
    return read


def _files(package: Path) -> dict[str, str]:
    """Where in the package each of its modules is."""
    found = {}
    for path in package.rglob("*.py"):
        file = str(path.relative_to(package))
        parts = ["torch_spyre", *file.removesuffix(".py").split("/")]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports(text: str, files: Mapping[str, str]) -> set[str]:
    """Which of the package's modules a text imports."""
    found = {f"torch_spyre{name}" for name in _IMPORT.findall(text)}
    for name, names in _FROM.findall(text):
        module = f"torch_spyre{name}"
        for each in _NAME.findall(_ASIDE.sub("", names)):
            inside = f"{module}.{each}"
            found.add(inside if inside in files else module)
    return {name for name in found if name in files}
