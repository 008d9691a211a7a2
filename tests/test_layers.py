"""Nothing is used from above: every #include and every import keeps to `layers.toml`."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
TABLE = tomllib.loads((ROOT / "layers.toml").read_text())
INCLUDE = re.compile(r'\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')
PACKAGE = "torch_spyre"

Table = dict[str, Any]


@dataclass(frozen=True)
class Use:
    """A line of a file that uses something of a layer; None: of nothing that is known."""

    file: str  # from the root
    line: int
    text: str
    layer: str
    used: str | None


# ------------------------------------------------------------------------------------ what there is


def files(root: Path, table: Table, *suffixes: str) -> dict[str, Path]:
    """The files of a tree, by their paths from its sources."""
    return {
        path.relative_to(root / source).as_posix(): path
        for source in table["sources"]
        for path in sorted((root / source).rglob("*"))
        if path.suffix in suffixes
    }


def layer_of(file: str, table: Table) -> str:
    """A file is a layer of its own, or part of one, or belongs to its folder."""
    if file in table["layers"]:
        return file
    for part, members in table.get("parts", {}).items():
        if file in members:
            return part
    return file.rpartition("/")[0] or file


def includes(root: Path, table: Table) -> Iterator[Use]:
    found = files(root, table, ".cpp", ".h")
    for file, path in found.items():
        layer, name = layer_of(file, table), path.relative_to(root).as_posix()
        for number, text in enumerate(path.read_text().splitlines(), 1):
            if include := INCLUDE.match(text):
                ours, other = include.groups()
                if ours is None:
                    if other.startswith(tuple(table["never"])):
                        yield Use(name, number, text, layer, None)
                elif ours.startswith("spyre/"):  # some of these are generated
                    yield Use(name, number, text, layer, "spyre")
                else:
                    used = layer_of(ours, table) if ours in found else None
                    yield Use(name, number, text, layer, used)


def imports(root: Path, table: Table) -> Iterator[Use]:
    found = files(root, table, ".py", ".pyi")
    modules = {name_of(file): file for file in found}
    for file, path in found.items():
        if path.suffix == ".pyi":
            continue
        layer, text = layer_of(file, table), path.read_text()
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            for name in names_in(node, modules):
                module = name
                while module not in modules:  # an attribute of it
                    module = module.rpartition(".")[0]
                used = layer_of(modules[module], table)
                line = lines[node.lineno - 1].strip()
                yield Use(path.relative_to(root).as_posix(), node.lineno, line, layer, used)


def name_of(file: str) -> str:
    parts = [PACKAGE, *file.rpartition(".")[0].split("/")]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def names_in(node: ast.AST, modules: dict[str, str]) -> set[str]:
    """What of the package a node of the syntax imports."""
    names: set[str] = set()
    if isinstance(node, ast.Import):
        names = {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        inside = {f"{node.module}.{alias.name}" for alias in node.names}
        names = {name if name in modules else str(node.module) for name in inside}
    return {name for name in names if name == PACKAGE or name.startswith(f"{PACKAGE}.")}


READ = {"card": includes, "csrc": includes, "python": imports}


@functools.cache
def uses(tree: str) -> list[Use]:
    return list(READ[tree](ROOT, TABLE[tree]))


# ------------------------------------------------------------------------------------ what is wrong


def allowed(layer: str, table: Table) -> set[str]:
    return {layer, *table["layers"].get(layer, ()), *table.get("everywhere", ())}


def excepted(use: Use, table: Table) -> bool:
    return any(
        use.file == exception["file"] and use.used in exception["uses"]
        for exception in table.get("exceptions", ())
    )


def faults(found: Iterable[Use], table: Table) -> list[str]:
    """A line for each use that the table does not allow."""
    lines = []
    for use in found:
        may = allowed(use.layer, table)
        if use.used in may or excepted(use, table):
            continue
        if use.used is None:
            rule = f"is never to be included here, or is not found from {table['sources'][0]}"
        else:
            others = sorted(may - {use.layer}) or ["nothing else"]
            rule = f"is of {use.used!r}, and {use.layer!r} may use {', '.join(others)}"
        lines.append(f"{use.file}:{use.line}: {use.text}: {rule}")
    return lines


# -------------------------------------------------------------------------------------------- tests


@pytest.mark.parametrize("tree", TABLE)
def test_nothing_is_used_that_the_table_does_not_allow(tree):
    found = faults(uses(tree), TABLE[tree])
    assert not found, "see layers.toml:\n" + "\n".join(found)


@pytest.mark.parametrize("tree", TABLE)
def test_layers_use_only_what_lies_below_them(tree):
    layers = list(TABLE[tree]["layers"])
    for number, (layer, below) in enumerate(TABLE[tree]["layers"].items()):
        above = set(below) - set(layers[number + 1 :])
        assert not above, f"layers.toml: {layer!r} is not above {sorted(above)}"


@pytest.mark.parametrize("tree", TABLE)
def test_the_table_allows_nothing_that_is_not_used(tree):
    table = TABLE[tree]
    used = {(use.layer, use.used) for use in uses(tree) if not excepted(use, table)}
    for layer, below in table["layers"].items():
        unused = [name for name in below if (layer, name) not in used]
        assert not unused, f"layers.toml: {layer!r} uses nothing of {unused}"


@pytest.mark.parametrize("tree", TABLE)
def test_every_file_is_of_a_layer_and_every_layer_has_files(tree):
    table = TABLE[tree]
    found = files(ROOT, table, *((".py", ".pyi") if tree == "python" else (".cpp", ".h")))
    layers = {file: layer_of(file, table) for file in found}
    lost = sorted(file for file, layer in layers.items() if layer not in table["layers"])
    assert not lost, f"layers.toml, {tree}: no layer has {lost}"
    assert set(layers.values()) == set(table["layers"])
    members = {file for part in table.get("parts", {}).values() for file in part}
    assert members <= set(found), f"layers.toml: there is no {sorted(members - set(found))}"


def test_every_exception_is_needed_and_has_a_reason():
    table = TABLE["python"]
    upwards = {
        (use.file, use.used) for use in uses("python") if use.used not in allowed(use.layer, table)
    }
    for exception in table["exceptions"]:
        for used in exception["uses"]:
            needed = (exception["file"], used) in upwards
            assert needed, f"layers.toml: {exception['file']} uses nothing of {used!r}: drop it"
        assert exception["reason"].endswith(".")


@pytest.mark.parametrize(("tree", "readme"), [("card", "card"), ("csrc", "torch_spyre/csrc")])
def test_the_readme_has_the_folders_in_the_order_of_the_table(tree, readme):
    text = (ROOT / readme / "README.md").read_text()
    rows = re.findall(r"^\| \[`([\w/]+)/`\]", text, re.MULTILINE)
    layers = [row.removeprefix("src/").removeprefix("include/") for row in rows]
    assert layers == list(TABLE[tree]["layers"])


def test_the_picture_is_drawn_from_the_table(tmp_path):
    drawn = tmp_path / "layers.svg"
    subprocess.run([sys.executable, str(ROOT / "tools/draw_layers.py"), str(drawn)], check=True)
    same = drawn.read_text() == (ROOT / "docs/architecture.svg").read_text()
    assert same, "layers.toml has changed: run python tools/draw_layers.py"


# ------------------------------------------------------------------- the test finds what it is for


def write(root: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_an_include_from_above_is_named(tmp_path):
    table = {
        "sources": ["src"],
        "never": ["torch/"],
        "everywhere": ["spyre"],
        "layers": {"upper": ["lower"], "lower": []},
    }
    write(
        tmp_path,
        {
            "src/upper/a.h": '#include "lower/b.h"\n#include "spyre/card.h"\n#include <vector>\n',
            "src/lower/b.h": '// text\n#include "upper/a.h"\n#include "b.h"\n',
            "src/lower/c.cpp": "#include <torch/library.h>\n",
        },
    )
    above, elsewhere, torch = faults(includes(tmp_path, table), table)
    assert above == (
        "src/lower/b.h:2: #include \"upper/a.h\": is of 'upper', and 'lower' may use spyre"
    )
    assert elsewhere.startswith('src/lower/b.h:3: #include "b.h": is never')
    assert torch.startswith("src/lower/c.cpp:1: #include <torch/library.h>: is never")


def test_an_import_from_above_is_named_wherever_it_is(tmp_path):
    table = {
        "sources": [PACKAGE],
        "layers": {"__init__.py": [], "upper": ["lower", "words"], "lower": [], "words": []},
        "parts": {"words": ["upper/words.py"]},
        "exceptions": [{"file": "torch_spyre/lower/d.py", "uses": ["upper"], "reason": "A test."}],
    }
    write(
        tmp_path,
        {
            "torch_spyre/__init__.py": "",
            "torch_spyre/upper/__init__.py": "",
            "torch_spyre/upper/a.py": "import torch\nfrom torch_spyre.lower import b, name\n",
            "torch_spyre/upper/words.py": "from torch_spyre.upper import a\n",
            "torch_spyre/lower/__init__.py": "",
            "torch_spyre/lower/b.py": "def f():\n    from torch_spyre.upper.a import g\n",
            "torch_spyre/lower/c.py": "import torch_spyre.upper.words as words\n",
            "torch_spyre/lower/d.py": "from torch_spyre.upper import a\n",
        },
    )
    found = faults(imports(tmp_path, table), table)
    assert sorted(line.split(": ")[0] for line in found) == [
        "torch_spyre/lower/b.py:2",
        "torch_spyre/lower/c.py:1",
        "torch_spyre/upper/words.py:1",
    ]
    assert "may use nothing else" in found[0]
