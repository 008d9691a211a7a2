"""Environment variables are listed and documented; `python -m torch_spyre` shows what there is."""

import itertools
import re
import sys
from pathlib import Path

import pytest
import torch
from subprocesses import Result, forked, fresh

from torch_spyre.__main__ import main
from torch_spyre._C import SpyreTensorLayout
from torch_spyre.environment import VARIABLES
from torch_spyre.machine import load
from torch_spyre.tools import layout_picture

ROOT = Path(__file__).parents[1]
NAMES = [variable.name for variable in VARIABLES]

# Calls that read a variable, in C++ and Python, and texts that look like the name of one.
READS = re.compile(
    r"""(?:getenv|environment(?:_\w+)?|environ\.get)\(\s*["'](\w+)["']|environ\[["'](\w+)["']\]"""
)
NAME_LIKE = re.compile(r'"((?:SPYRE_|TORCH_SPYRE_|AIU_|FLEX_|LOCAL_RANK|IS_INDUCTOR_)[A-Z0-9_]*)"')


def sources() -> list[Path]:
    files = [
        path
        for folder in ("torch_spyre", "card/src", "card/include")
        for pattern in ("*.py", "*.cpp", "*.h")
        for path in (ROOT / folder).rglob(pattern)
    ]
    return [path for path in files if path.name != "environment.py"]


def found_in_sources() -> dict[str, Path]:
    found = {}
    for path in sources():
        text = path.read_text()
        for match in READS.finditer(text):
            found[match[1] or match[2]] = path
        for match in NAME_LIKE.finditer(text):
            found[match[1]] = path
    return found


def output(capsys, *arguments: str) -> str:
    """What a command prints, run in this process."""
    assert main(list(arguments)) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def command(*arguments: str, **environment: object) -> Result:
    """A command run in a process of its own."""
    code = f"import sys; from torch_spyre.__main__ import main; sys.exit(main({list(arguments)!r}))"
    return forked(
        f"try:\n    exec({code!r})\nexcept SystemExit as end:\n    print(end.code)", **environment
    )


# ----------------------------------------------------------------------------- the list is complete


def test_the_sources_are_found():
    names = {path.name for path in sources()}
    assert {"spyre_runtime.cpp", "environment.cpp", "__init__.py", "convert.cpp"} <= names


def test_every_variable_that_is_read_is_listed():
    unlisted = {name: path.name for name, path in found_in_sources().items() if name not in NAMES}
    assert not unlisted


def test_every_variable_that_is_listed_is_read():
    assert not set(NAMES) - set(found_in_sources())


def test_variables_are_listed_once_and_say_what_they_do():
    assert len(NAMES) == len(set(NAMES))
    for variable in VARIABLES:
        assert variable.default
        assert len(variable.meaning) > 10


def test_a_variable_knows_its_value(monkeypatch):
    variable = next(v for v in VARIABLES if v.name == "SPYRE_CARD_SIMD")
    monkeypatch.delenv("SPYRE_CARD_SIMD", raising=False)
    assert variable.value is None
    monkeypatch.setenv("SPYRE_CARD_SIMD", "avx2")
    assert variable.value == "avx2"


# ----------------------------------------------------------------------- documentation cannot drift


@pytest.mark.parametrize("what", ["env", "machine"])
def test_the_generated_table_in_the_documentation_is_current(what, capsys):
    page = {"env": "environment.md", "machine": "machine.md"}[what]
    text = (ROOT / "docs" / page).read_text()
    assert output(capsys, what, "--markdown").strip() in text


def test_documentation_names_no_variable_that_does_not_exist():
    named = re.compile(r"\b(?:TORCH_SPYRE|SPYRE|AIU|FLEX)_[A-Z][A-Z0-9_]+\b")
    for page in (*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("docs/*.md")):
        assert set(named.findall(page.read_text())) <= {*NAMES, "SPYRE_CARD_API"}, page.name


def test_documentation_links_lead_somewhere():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("docs/*.md")]
    pages.append(ROOT / "torch_spyre" / "csrc" / "README.md")
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


@pytest.mark.parametrize("folder", ["torch_spyre", "torch_spyre/csrc"])
def test_the_readme_of_a_folder_names_every_file_in_it(folder):
    text = (ROOT / folder / "README.md").read_text()
    for path in sorted((ROOT / folder).iterdir()):
        if path.suffix in (".py", ".pyi", ".toml", ".cpp", ".h"):
            named = path.name in text or f"`{path.stem}`" in text
            assert named, f"{folder}/README.md says nothing about {path.name}"


# ---------------------------------------------------------------------------------------------- CLI


def test_the_module_can_be_run():
    result = fresh(
        "import runpy, sys; sys.argv = ['x']; runpy.run_module('torch_spyre', run_name='__main__')"
    )
    assert result.returncode == 0
    for name in ("info", "env", "machine", "layout"):
        assert name in result.stdout


@pytest.mark.parametrize("name", ["info", "env", "machine", "layout"])
def test_every_command_has_help(name, capsys):
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    assert len(capsys.readouterr().out.splitlines()) > 3


def test_info_shows_every_device():
    text = command("info", SPYRE_SOFT_CARDS=2, SPYRE_CARD_MEMORY="1G", COLUMNS=160).output
    for words in ("spyre:0", "spyre:1", "IBM Spyre", "32", "torch-spyre", "2.13.0"):
        assert words in text


def test_info_without_devices_says_so():
    result = command("info", SPYRE_DEVICES="7")
    assert result.output == "1"
    assert "no device" in result.stderr


def test_info_with_a_senseless_environment_names_the_variable():
    result = command("info", FLEX_DEVICE="NONSENSE")
    assert result.output == "1"
    assert "FLEX_DEVICE" in result.stderr


def test_env_shows_values_and_defaults(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("SPYRE_CARD_THREADS", "123")
    text = output(capsys, "env")
    for variable in VARIABLES:
        assert variable.name in text
    line = next(line for line in text.splitlines() if "SPYRE_CARD_THREADS" in line)
    assert "123" in line


def test_env_needs_no_torch_and_no_device():
    result = fresh(
        """
        import sys
        from torch_spyre.__main__ import main
        main(["env", "--markdown"])
        print("torch" in sys.modules)
        """,
        SPYRE_CARD_LIBRARY="/does/not/exist.so",
    )
    assert result.output.endswith("False")


def test_machine_shows_every_number_with_its_source(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = output(capsys, "machine")
    for name, number in load().numbers.items():
        assert name in text
        assert number.source.split(":")[0] in text
    assert "SEN169_FP16" in text


def test_layout_describes_the_layout(capsys):
    text = output(capsys, "layout", "512,240")
    assert "[4, 512, 64]" in text
    assert "[64, 240, 1]" in text
    assert "SEN169_FP16" in text
    assert "6.25 %" in text  # 240 of 256 columns are used


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("512,256", "--dim-order", "1,0"), "[8, 256, 64]"),
        (("5x100x150",), "[100, 3, 5, 64]"),
        (("120", "--dtype", "float32"), "[4, 32]"),
        (("512,256", "--dim-order", "0,1,-1"), "[256, 1, 512, 64]"),
        (("scalar",), "[1, 64]"),
        (("0,5",), "[1, 0, 64]"),
    ],
    ids=str,
)
def test_layout_takes_shapes_dtypes_and_orders(arguments, expected, capsys):
    assert expected in output(capsys, "layout", *arguments)


def test_layout_shows_where_elements_lie(capsys):
    lines = output(capsys, "layout", "3,70").splitlines()
    assert "stick    0  0,0  0,1  0,2  ...  0,62  0,63" in lines
    assert "stick    3  0,64  0,65  0,66  0,67  0,68  0,69  + 58 padding" in lines
    lines = output(capsys, "layout", "3,70", "--dim-order", "1,0").splitlines()
    assert "stick    1  0,1  1,1  2,1  + 61 padding" in lines


SHAPES = [(), (1,), (120,), (3, 70), (2, 3, 5), (5, 1, 66), (2, 3, 2, 65), (1, 1), (4, 0)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_picture_agrees_with_the_layout_of_the_runtime(shape):
    """Stick by stick, the picture's host offsets are those the layout's strides give."""
    orders = itertools.permutations(range(len(shape)))
    for order in (*orders, (*range(len(shape)), -1)):
        if not shape and order:
            continue
        strides = torch.empty(shape).contiguous().stride()
        layout = SpyreTensorLayout(list(shape), list(strides), torch.float32, list(order))
        sizes = layout_picture.device_size(shape, order, 32)
        assert sizes == layout.device_size
        drawn = layout_picture.sticks(shape, order, 32)
        for outside, stick in zip(itertools.product(*map(range, sizes[:-1])), drawn, strict=True):
            for inside, index in enumerate(stick):
                if index is not None:
                    at = zip((*outside, inside), layout.stride_map, strict=True)
                    place = sum(c * s for c, s in at if s > 0)
                    assert place == sum(i * s for i, s in zip(index, strides, strict=True))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["banana"], "shape"),
        (["3,4", "--dtype", "float64"], "float64"),
        (["3,4", "--dtype", "nonsense"], "nonsense"),
        (["3,4", "--dim-order", "0,0"], "permutation"),
        (["3,4", "--dim-order", "0"], "dim_order"),
        (["--", "-3,4"], "negative"),
        ([",".join(["2"] * 9)], "rank"),
    ],
    ids=str,
)
def test_layout_refuses_nonsense_in_one_line(arguments, words, capsys):
    with pytest.raises(SystemExit) as end:
        main(["layout", *arguments])
    assert end.value.code == 2
    assert words in capsys.readouterr().err.splitlines()[-1]


def test_every_command_works_without_rich(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    for arguments, words in (
        (["env"], "SPYRE_SOFT_CARDS"),
        (["machine"], "SEN169_FP16"),
        (["layout", "3,70"], "[2, 3, 64]"),
        (["info"], "spyre:1"),
    ):
        assert words in output(capsys, *arguments)
