"""Which files of ours a program walks through: in the order in which functions are first called.

Python's functions are seen by `sys.setprofile`. Those of `torch_spyre._C` and of the card are seen
by breakpoints (first_calls.cpp) where the symbols of the libraries say that functions begin. The
file of a function is the one that its symbol stands behind, or that defines one of its name.

What the compiler put into its callers is not seen. On other machines than x86-64 no C++ is.
Run `make build` before: files are looked up in the sources as they are now.

Usage: python tools/walk.py [eager|compiled|launch|copy]   prints a walk
       python tools/walk.py --write                        writes all into docs/architecture.md
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from torch_spyre.environment import KNOBS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
PACKAGE = ROOT / "torch_spyre"

# What runs before a walk begins, so that everything is loaded and started; and the walk.
START = (
    "import torch; x = torch.rand(256, 128, dtype=torch.float16).to('spyre'); x[0].clone().cpu()"
)
COMPILER = "torch.compile(lambda x: x + 1)(x)"
SOFTMAX = "w = x.T.contiguous(); f = torch.compile(lambda x, w: torch.softmax(x, -1) @ w)"
WALKS = {
    "eager": (START, "x + x"),
    "compiled": (f"{START}; {COMPILER}; {SOFTMAX}", "f(x, w)"),
    "launch": (f"{START}; {SOFTMAX}; f(x, w); f(x, w)", "f(x, w)"),
    "copy": (f"{START}; h = torch.rand(64, 64)", "h.to('spyre').cpu()"),
}


@dataclass(frozen=True)
class Walk:
    """Files by their paths from the root, one for each function, in the order of first calls."""

    calls: tuple[str, ...]

    @functools.cached_property
    def files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.calls))

    @property
    def folders(self) -> set[str]:
        return {folder(file) for file in self.files}

    @property
    def changes(self) -> int:
        """How often the next function is in another folder."""
        folders = [folder(file) for file in self.calls]
        return sum(a != b for a, b in itertools.pairwise(folders))


def folder(file: str) -> str:
    return file.rpartition("/")[0]


# ------------------------------------------------------------------------------------ C++ functions

LIBRARIES = {  # and where their sources are
    "torch_spyre/_C.*.so": ("torch_spyre/csrc",),
    "torch_spyre/lib/libspyre_card.so": ("card/src", "card/include"),
}


@dataclass(frozen=True)
class Function:
    address: int  # from the beginning of the library
    file: str


def functions(library: Path, sources: Iterable[str]) -> Iterator[Function]:
    """Those of ours, by the table of symbols."""
    paths = [path for source in sources for path in (ROOT / source).rglob("*")]
    defined = definitions(path for path in paths if path.suffix in (".h", ".cpp"))
    by_name = {path.name: path.relative_to(ROOT).as_posix() for path in paths}
    unit: list[str] = []
    symbols = []
    for line in run("readelf", "--wide", "--symbols", str(library)).splitlines():
        match line.split():
            case [_, _, _, "FILE", _, _, _, *name]:  # without a name: what follows is of no file
                unit = members(name[0]) if name else []
            case [_, value, _, "FUNC", _, _, section, name, *_] if section != "UND":
                symbols.append((int(value, 16), unit, name))
    names = run("c++filt", input="\n".join(name for _, _, name in symbols)).splitlines()
    for (address, unit, _), symbol in zip(symbols, names, strict=True):
        function = name_of(symbol)
        if function is None or ".cold" in symbol:
            continue
        files = [by_name[file] for file in unit if file in by_name]
        if len(files) != 1:
            files = [file for file in defined.get(function, []) if file in (files or [file])]
            files.sort(key=lambda file: function not in visible(file, not unit))
        if files:
            yield Function(address, files[0])


@functools.cache
def visible(file: str, outside: bool) -> set[str]:
    """The functions that others can call, or those that they cannot."""
    text = (ROOT / file).read_text()
    hidden = "\n".join(ANONYMOUS.findall(text))
    return set(defined_in(ANONYMOUS.sub("", text) if outside else hidden))


def run(*command: str, input: str | None = None) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, input=input).stdout


def members(unit: str) -> list[str]:
    """The files of a translation unit: CMake joins several of csrc."""
    if not unit.startswith("unity_"):
        return [unit]
    joined = next((ROOT / "build" / "dev").glob(f"torch_spyre/csrc/**/{unit}"), None)
    if joined is None:
        raise FileNotFoundError(f"build/dev has no {unit}: run make build")
    return re.findall(r'#include ".*/(.+)"', joined.read_text())


def name_of(symbol: str) -> str | None:
    """`Class::function`, or `function`, of a demangled symbol of ours; of a lambda, where it is."""
    text = symbol.replace("(anonymous namespace)::", "").split("::{lambda")[0]
    text = re.sub(r"\[[^]]*\]", "", text)
    while (shorter := re.sub(r"<[^<>]*>", "", text)) != text:  # arguments of templates
        text = shorter
    name = text.split("(")[0].split(" ")[-1]
    if not name.startswith(("spyre::", "torch_spyre::")):
        return None
    scope, _, function = name.rpartition("::")
    inner = scope.rpartition("::")[2]
    return f"{inner}::{function}" if inner[0].isupper() else function


def definitions(paths: Iterable[Path]) -> dict[str, list[str]]:
    """Files by the names of the functions that they define."""
    found: dict[str, list[str]] = {}
    for path in paths:
        file = path.relative_to(ROOT).as_posix()
        for name in dict.fromkeys(defined_in(path.read_text())):
            found.setdefault(name, []).append(file)
    return found


ANONYMOUS = re.compile(r"^namespace \{$.*?^\}  // namespace$", re.MULTILINE | re.DOTALL)
CLASS = re.compile(
    r"^(?:class|struct) (?:SPYRE_\w+ )?(\w+)[^;{]*\{$.*?^\};", re.MULTILINE | re.DOTALL
)
OUTSIDE = re.compile(r"^(?=[A-Za-z_])[^\n(;={]*?((?:\w+::)?~?\w+)\(", re.MULTILINE)
INSIDE = re.compile(r"^ +(?=[A-Za-z_~])[^\n(;={]*?(~?\w+)\(", re.MULTILINE)


def defined_in(text: str) -> Iterator[str]:
    """The names of functions in C++ as clang-format writes it: bodies begin in column 0."""
    for found in OUTSIDE.finditer(text):
        if has_body(text, found.end()):
            yield found[1]
    for scope in CLASS.finditer(text):
        for found in INSIDE.finditer(scope[0]):
            if has_body(scope[0], found.end()):
                yield f"{scope[1]}::{found[1]}"


def has_body(text: str, position: int) -> bool:
    """Whether `{` follows the parameters that begin here, and not `;`."""
    depth = 1
    while depth and position < len(text):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        position += 1
    end = re.compile(r"[;{]").search(text, position)
    return end is not None and end[0] == "{"


# ------------------------------------------------------------------------------------------ tracing


class FirstCalls:
    """Breakpoints where the functions of the libraries begin."""

    def __init__(self) -> None:
        self.library: ctypes.CDLL | None = None
        self.files: list[str] = []

    def watch(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "first_calls.so"
            source = Path(__file__).with_name("first_calls.cpp")
            flags = ["-std=c++20", "-O1", "-shared", "-fPIC"]
            run(os.environ.get("CXX", "c++"), *flags, str(source), "-o", str(library))
            calls = ctypes.CDLL(str(library))
        places: dict[int, str] = {}
        for pattern, sources in LIBRARIES.items():
            for library in ROOT.glob(pattern):
                base = open_pages(calls, library)
                places |= {base + f.address: f.file for f in functions(library, sources)}
        addresses = sorted(places)
        self.files = [places[address] for address in addresses]
        calls.watch((ctypes.c_void_p * len(addresses))(*addresses), len(addresses))
        self.library = calls

    def count(self) -> int:
        return int(self.library.calls()) if self.library else 0

    def stop(self) -> list[str]:
        """The files of the functions that were called, in order."""
        if self.library is None:
            return []
        self.library.stop()
        return [self.files[self.library.call(n)] for n in range(self.count())]


def open_pages(calls: ctypes.CDLL, library: Path) -> int:
    """Lets code of a library be changed. Returns where the library begins."""
    begins = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(f" {library}"):
            span, rights, *_ = line.split()
            begin, end = (int(address, 16) for address in span.split("-"))
            begins.append(begin)
            size = ctypes.c_size_t(end - begin)
            if "x" in rights and not calls.open_pages(ctypes.c_void_p(begin), size):
                raise OSError(f"{library}: its code cannot be made writable")
    return min(begins)


def trace(start: str, walk: str) -> list[str]:
    """Runs both in this process; returns the file of each function of the walk."""
    names: dict[str, Any] = {}
    exec(start, names)
    breakpoints = FirstCalls()
    python: list[tuple[int, str]] = []  # how many functions of C++ were called before
    seen: set[object] = set()

    def on_call(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code not in seen:
            seen.add(code)
            path = Path(code.co_filename)
            if path.is_relative_to(PACKAGE):
                python.append((breakpoints.count(), path.relative_to(ROOT).as_posix()))

    if platform.machine() == "x86_64":
        breakpoints.watch()
    threading.setprofile(on_call)
    sys.setprofile(on_call)
    exec(walk, names)
    sys.setprofile(None)
    threading.setprofile(None)
    found = [(n, file) for n, file in enumerate(breakpoints.stop(), 1)]
    # Of those with one number the function of C++ came first.
    return [file for _, file in sorted([*found, *python], key=lambda call: call[0])]


def walk(name: str) -> Walk:
    """In a process of its own, with none of our variables set and caches that are empty."""
    with tempfile.TemporaryDirectory() as cache:
        ours = {name for knob in KNOBS.values() for name in knob.variables}
        environment = {name: value for name, value in os.environ.items() if name not in ours}
        command = [sys.executable, __file__, "--trace", *WALKS[name]]
        environment["TORCHINDUCTOR_CACHE_DIR"] = cache
        # The same files on every machine.
        environment |= {"SPYRE_CARD_SIMD": "baseline", "SPYRE_CARD_THREADS": "1"}
        result = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
    return Walk(tuple(json.loads(result.stdout.splitlines()[-1])))


def show(walk: Walk) -> str:
    numbers = f"{len(walk.files)} files, {len(walk.folders)} folders, {walk.changes} changes"
    return "\n".join([*walk.files, numbers])


# ----------------------------------------------------------------------------------------- the page

TITLES = {
    "eager": "eager op",
    "compiled": "compiled graph, first call",
    "launch": "compiled graph, later calls",
    "copy": "copy, both ways",
}
HEAD = "| walk | files | folders | changes of folder |\n|---|---|---|---|\n"


def row(name: str, walk: Walk) -> str:
    numbers = (len(walk.files), len(walk.folders), walk.changes)
    return " | ".join(["| " + TITLES[name], *map(str, numbers)]) + " |\n"


def with_numbers(page: str, walks: dict[str, Walk]) -> str:
    """The page with the numbers of these walks in its table."""
    begin = page.index(HEAD) + len(HEAD)
    end = page.index("\n", begin - 1) + 1
    while page[end:].startswith("|"):
        end = page.index("\n", end) + 1
    return page[:begin] + "".join(row(name, walk) for name, walk in walks.items()) + page[end:]


def numbers(page: str, name: str) -> tuple[int, int, int]:
    """Files, folders and changes of a walk, as the page has them."""
    found = re.search(rf"^\| {TITLES[name]} \| (\d+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    if found is None:
        raise ValueError(f"the page has no numbers of {TITLES[name]!r}")
    files, folders, changes = map(int, found.groups())
    return files, folders, changes


def steps(page: str) -> dict[str, list[str]]:
    """The files that the page leads to, by walk, in its order."""
    eager, compiled, copy = page.split("\n## ")[2:5]
    compiled, launch = compiled.split("every later call")
    texts = {"eager": eager, "compiled": compiled, "launch": launch, "copy": copy}
    return {name: re.findall(r"\]\(\.\./(.+?)\)", text) for name, text in texts.items()}


def strays(steps: list[str], walk: Walk) -> list[str]:
    """Those of the steps that the walk does not visit, or not in this order."""
    found, rest = [], list(walk.files)
    for step in steps:
        if step in rest:
            rest = rest[rest.index(step) + 1 :]
        else:
            found.append(step)
    return found


def write() -> None:
    page = PAGE.read_text()
    walks = {name: walk(name) for name in WALKS}
    PAGE.write_text(with_numbers(page, walks))
    for name, files in steps(page).items():
        for file in strays(files, walks[name]):
            print(f"{PAGE.name}, {name}: the walk does not come by {file} here")


def main(arguments: list[str]) -> None:
    match arguments:
        case ["--trace", start, way]:
            print(json.dumps(trace(start, way)))
        case ["--write"]:
            write()
        case [name] if name in WALKS:
            print(show(walk(name)))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
