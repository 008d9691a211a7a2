"""The pages that explain the whole: the glossary, and the ways through the layers."""

from __future__ import annotations

import importlib.util
import platform
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGE = (DOCS / "architecture.md").read_text()
RENEW = "python tools/walk.py --write puts the numbers into docs/architecture.md"


def _load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


walk = _load(ROOT / "tools" / "walk.py")


def test_the_glossary_is_short_and_has_each_word_once():
    text = (DOCS / "glossary.md").read_text()
    words = re.findall(r"^\| (\*\*.+?) \|", text, re.MULTILINE)
    names = [name for word in words for name in re.findall(r"\*\*(.+?)\*\*", word)]
    assert 20 < len(words) <= 40
    assert len(set(names)) == len(names)


def test_the_overview_leads_to_every_page():
    overview = (DOCS / "README.md").read_text()
    linked = set(re.findall(r"^\| \[[^]]+\]\(([\w-]+\.md)\)", overview, re.MULTILINE))
    assert linked == {page.name for page in DOCS.glob("*.md")} - {"README.md"}


# ------------------------------------------------------------------------------------------- walks


@pytest.mark.parametrize("name", walk.WALKS)
def test_a_walk_comes_by_the_steps_of_the_page_and_is_no_longer_than_it_says(name):
    steps, traced = walk.steps(PAGE)[name], walk.walk(name)
    numbers = walk.numbers(PAGE, name)
    if platform.machine() != "x86_64":  # where nothing of C++ is seen
        steps = [step for step in steps if step.endswith(".py")]
    strays = walk.strays(steps, traced)
    assert not strays, (
        f"docs/architecture.md: the walk {name!r} does not come by {strays}, or not in this order. "
        "If `make build` has nothing to do, this is where it comes by:\n" + "\n".join(traced.files)
    )
    found = (len(traced.files), len(traced.folders), traced.changes)
    # Another compiler puts other functions into their callers.
    assert all(a <= 1.1 * b for a, b in zip(found, numbers, strict=True)), (
        f"the walk {name!r} has become longer: files, folders and changes are {found}, "
        f"the page has {numbers}. If it has to be so: {RENEW}."
    )


def test_the_page_has_a_walk_of_every_kind():
    assert all(len(steps) >= 5 for steps in walk.steps(PAGE).values())
    assert set(walk.steps(PAGE)) == set(walk.WALKS) == set(walk.TITLES)


def test_steps_out_of_order_are_found():
    traced = walk.Walk(("a/x.py", "b/y.py", "a/x.py", "a/z.py"))
    assert traced.files == ("a/x.py", "b/y.py", "a/z.py")
    assert (traced.folders, traced.changes) == ({"a", "b"}, 2)
    assert walk.strays(["a/x.py", "a/z.py"], traced) == []
    assert walk.strays(["b/y.py", "a/x.py", "c/w.py"], traced) == ["a/x.py", "c/w.py"]


def test_the_numbers_of_a_page_are_written_and_read():
    page = f"Before.\n\n{walk.HEAD}| copy, both ways | 9 | 9 | 9 |\n\nAfter.\n"
    written = walk.with_numbers(page, {"copy": walk.Walk(("a/x.py", "b/y.py"))})
    assert walk.numbers(written, "copy") == (2, 2, 1)
    assert written.startswith("Before.\n")
    assert written.endswith("|\n\nAfter.\n")


CPP = """
namespace card {
namespace {
int hidden(int a) { return a; }
}  // namespace

void declared(int a);

std::vector<int> Stream::launch(const Operands& operands,
                                int count) {
  if (count) declared(1);
  return {};
}

class Queue final : public Base {
 public:
  explicit Queue(int threads) : threads_(threads) {}
  void run(std::function<void(int)> work) override { work(threads_); }
  int count() const;
};
}  // namespace card
"""


def test_functions_are_found_where_cpp_defines_them():
    found = set(walk.defined_in(CPP))
    assert {"hidden", "Stream::launch", "Queue::Queue", "Queue::run"} <= found
    assert not found & {"declared", "Queue::count"}


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("spyre::card::SoftStream::launch(spyre::Launch const&)", "SoftStream::launch"),
        ("void spyre::eager::run<(spyre::OpFunc)16>(at::Tensor&)", "run"),
        ("spyre::(anonymous namespace)::f(int)::{lambda(int)#1}::operator()(int) const", "f"),
        ("spyre::card::Told::text[abi:cxx11](unsigned long) const [clone .isra.0]", "Told::text"),
        ("std::vector<spyre::Loop>::push_back(spyre::Loop const&)", None),
    ],
)
def test_names_of_symbols_are_those_of_the_source(symbol, name):
    assert walk.name_of(symbol) == name
