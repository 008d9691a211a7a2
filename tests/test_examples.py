"""What the documentation shows works: examples run, and Python in its pages gives what it says."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest
from subprocesses import clean_environment, forked

from torch_spyre import zoo

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
PAGES = sorted(
    page
    for page in (*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("docs/*.md"))
    if "```python" in page.read_text()
)


def test_there_are_examples_and_pages():
    assert ROOT / "examples" / "tensor_allocate.py" in EXAMPLES
    assert {"README.md", "tensors-and-layouts.md", "runtime.md"} <= {page.name for page in PAGES}


# The demo's own model takes half a minute to compile.
ARGUMENTS = {"granite_generate": ["--size", "tiny", "--tokens", "8"]}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(example):
    result = subprocess.run(
        [sys.executable, str(example), *ARGUMENTS.get(example.stem, [])],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout
    assert "Traceback" not in result.stderr


@pytest.mark.long
def test_the_demo_takes_a_checkpoint(tmp_path):
    demo = [sys.executable, str(ROOT / "examples" / "granite_generate.py"), "--tokens", "4"]

    def run(directory):
        command = [*demo, "--checkpoint", str(directory)]
        return subprocess.run(
            command, env=clean_environment(), capture_output=True, text=True, timeout=300
        )

    missing = run(tmp_path / "none")
    assert missing.returncode == 2
    assert "it has no config.json" in missing.stderr
    assert "Traceback" not in missing.stderr
    narrow = dataclasses.replace(zoo.SIZES["tiny"], layers=1, vocabulary=384)
    zoo.get("granite").build(narrow).save_pretrained(tmp_path)
    saved = run(tmp_path)
    assert saved.returncode == 0, saved.stderr
    assert "1 layers of 128, vocabulary 384" in saved.stdout


def test_every_example_is_explained():
    text = (ROOT / "examples" / "README.md").read_text()
    for example in EXAMPLES:
        assert example.name in text


def python_blocks(page: Path) -> str:
    """The page's Python as one doctest: blocks of a page share their names."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S))


# An example without output is executed; one with output must print it. "..." stands for any text.
RUN_PAGE = """
import doctest, sys, warnings
warnings.simplefilter("ignore")
parser = doctest.DocTestParser()
test = parser.get_doctest({text!r}, {{}}, {name!r}, {name!r}, 0)
flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

class Checker(doctest.OutputChecker):
    def check_output(self, want, got, options):
        return not want or super().check_output(want, got, options)

runner = doctest.DocTestRunner(checker=Checker(), optionflags=flags)
runner.run(test)
print(runner.tries, "examples")
sys.exit(1 if runner.failures else 0)
"""


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_python_in_the_page_gives_what_it_says(page):
    result = forked(RUN_PAGE.format(text=python_blocks(page), name=page.name))
    assert "SystemExit: 1" not in result.stderr, result.stdout
    tried = re.search(r"(\d+) examples", result.stdout)
    assert tried, result.stderr
    assert int(tried[1]) > 0
