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
from torch_spyre.environment import KNOBS, InvalidValue
from torch_spyre.machine import load
from torch_spyre.tools import layout_picture

ROOT = Path(__file__).parents[1]
NAMES = [name for knob in KNOBS.values() for name in knob.variables]

# Places that read variables whose names they do not know; all others go through the table.
READERS = {
    "environment.py",
    "environment.cpp",
    "spyre_environment.cpp",
    "logging_config.py",  # PyTorch's TORCH_LOGS
}
READS = re.compile(r"getenv\(|os\.environ|secure_getenv")


def sources() -> list[Path]:
    return [
        path
        for folder in ("torch_spyre", "card/src", "card/include")
        for pattern in ("*.py", "*.cpp", "*.h")
        for path in (ROOT / folder).rglob(pattern)
    ]


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


def test_only_the_readers_of_the_table_read_the_environment():
    found = {path.name for path in sources() if READS.search(path.read_text())}
    assert found == READERS


def test_every_knob_is_used():
    text = "\n".join(path.read_text() for path in sources())
    for knob in KNOBS.values():
        camel = "".join(word.capitalize() for word in knob.name.split("_"))
        names = [rf'KNOBS\["{knob.name}"\]', rf"knobs::k{camel}\b"]
        if knob.group == "compiler":
            names = [rf"config\.{knob.name}\b"]
        assert re.search("|".join(names), text), knob.name


def test_knobs_have_names_of_their_own_and_say_what_they_do():
    assert len(NAMES) == len(set(NAMES))
    given = {"AIU_WORLD_SIZE", "FLEX_DEVICE", "LOCAL_RANK", "DUMP_SPYRE_CODE",
             "IS_INDUCTOR_SPAWNED_SUBPROCESS"}  # fmt: skip
    for knob in KNOBS.values():
        assert knob.variable in given or re.match("(TORCH_)?SPYRE_", knob.variable)
        assert knob.default_text
        assert len(knob.meaning) > 10


def test_defaults_have_a_meaning():
    for knob in KNOBS.values():
        if knob.kind != "bytes" and knob.default is not None:
            assert knob.accepts(knob.default), knob


def test_the_solvers_are_those_of_the_table():
    from torch_spyre._inductor.scratchpad import SOLVERS

    assert KNOBS["layout_solver"].choices == tuple(SOLVERS)


def test_a_knob_knows_what_the_process_has(monkeypatch):
    knob = KNOBS["card_simd"]
    monkeypatch.delenv("SPYRE_CARD_SIMD", raising=False)
    assert knob.text is None
    monkeypatch.setenv("SPYRE_CARD_SIMD", "avx2")
    assert knob.text == "avx2"


def test_the_public_name_counts_if_the_other_one_is_not_set(monkeypatch):
    knob = KNOBS["sencores"]
    for name in knob.variables:
        monkeypatch.delenv(name, raising=False)
    assert knob.read() == 32
    monkeypatch.setenv("SENCORES", "4")
    assert knob.read() == 4
    monkeypatch.setenv("TORCH_SPYRE_SENCORES", "5")
    assert knob.read() == 5


@pytest.mark.parametrize(
    ("name", "text", "legal"),
    [
        ("sencores", "0", "a whole number from 1 to 32"),
        ("sencores", "many", "a whole number from 1 to 32"),
        ("max_buckets", "2.5", "a whole number from 1"),
        ("dxp_lx_frac_avail", "1.5", "a number from 0 to 1"),
        ("lx_planning", "maybe", "one of 1, true, yes, on, or of 0, false, no, off"),
        ("layout_solver", "nope", "default or greedy"),
    ],
)
def test_what_has_no_meaning_is_refused(name, text, legal, monkeypatch):
    monkeypatch.setenv(KNOBS[name].variable, text)
    with pytest.raises(InvalidValue) as caught:
        KNOBS[name].read()
    assert f"{KNOBS[name].variable} value {text!r}" in str(caught.value)
    assert legal in str(caught.value)


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
    pages += [
        page for part in ("card", "torch_spyre") for page in ROOT.glob(f"{part}/*/**/README.md")
    ]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


CPP_FOLDERS = sorted({path.parent for path in sources() if path.suffix != ".py"})


@pytest.mark.parametrize(
    "folder", ["torch_spyre", *(str(folder.relative_to(ROOT)) for folder in CPP_FOLDERS)]
)
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
    for name in NAMES:
        assert name in text
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
