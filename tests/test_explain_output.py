"""Reports of `torch_spyre.explain` as text, JSON and HTML; `python -m torch_spyre explain`."""

import json
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from compiling import card
from torch import nn

import torch_spyre
from torch_spyre.__main__ import main
from torch_spyre.explanation import Report

ROOT = Path(__file__).parents[1]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64), nn.Linear(64, 64)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.softmax(layer(x), -1)
        return x


# ----------------------------------------------------------------------------------------- outputs


@pytest.fixture(scope="module")
def report():
    with torch.no_grad():
        return torch_spyre.explain(Net().half().to("spyre"), card(100, 64))


def test_json_comes_back(report):
    text = report.to_json()
    assert Report.from_json(text) == report
    assert json.loads(text)["modelled_ns"] == report.modelled_ns


def test_the_text(report, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")  # of the terminal: narrow ones cut names short
    text = str(report)
    for part in ("Net", "By op", "By layer", "By source line", "batchmatmul", "layers.1"):
        assert part in text
    assert "CPU fallbacks: none" in text
    assert "the least possible" in text


def test_the_text_without_rich(report, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    text = str(report)
    assert "batchmatmul" in text
    assert "│" not in text


class Checker(HTMLParser):
    """Collects what a page needs from outside, and complains about what is not closed."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.outside = []
        self.tags = set()

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names))
        self.outside += [value for name, value in attributes if name in ("src", "href")]
        if tag == "link":
            self.outside.append(tag)
        if not self.get_starttag_text().endswith("/>"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def checked(page):
    parser = Checker()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    assert parser.outside == []
    assert "@import" not in page
    assert "url(" not in page
    assert "fetch(" not in page
    return parser.tags


def test_the_page_needs_nothing_else(report, tmp_path):
    path = tmp_path / "report.html"
    report.html(path)
    page = path.read_text(encoding="utf-8")
    tags = checked(page)
    assert {"svg", "table", "style", "script", "circle"} <= tags
    assert "prefers-color-scheme: dark" in page
    for name in ("batchmatmul", "layers.1", "Roofline"):
        assert name in page


def test_names_in_a_page_are_text(report, tmp_path):
    odd = Report.from_json(report.to_json())
    odd.title = odd.ops[0].name = odd.kernels[0].name = "<script>alert('&')</script>"
    odd.fallbacks = {"<b>": 1}
    odd.kernels[0].intermediates[0].where = "lx"
    path = tmp_path / "odd.html"
    odd.html(path)
    page = path.read_text(encoding="utf-8")
    checked(page)
    assert "<script>alert" not in page
    assert "LX while &lt;script&gt;" in page


def test_a_page_about_nothing(tmp_path):
    path = tmp_path / "nothing.html"
    Report("nothing").html(path)
    checked(path.read_text(encoding="utf-8"))


# ----------------------------------------------------------------------------------------- command


def test_the_command(tmp_path, capsys):
    page, numbers = tmp_path / "page.html", tmp_path / "numbers.json"
    example = str(ROOT / "examples" / "softmax.py")
    assert main(["explain", example, "--html", str(page), "--json", str(numbers)]) == 0
    printed = capsys.readouterr().out
    assert "softmax.py" in printed
    assert "modelled time" in printed
    checked(page.read_text(encoding="utf-8"))
    report = Report.from_json(numbers.read_text())
    assert report.modelled_ns == report.total.ns > 0
    assert report.transfers_to_card >= 1
    assert {"exp", "realdiv"} <= {row.name for row in report.ops}


@pytest.fixture
def script(tmp_path):
    def written(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return str(path)

    return written


def test_the_script_gets_its_arguments(script, tmp_path, capsys):
    path = script("import sys\nprint(sys.argv[1:], __name__)\n")
    outside = list(sys.argv)
    assert main(["explain", path, "--n", "3", "x", "--json", str(tmp_path / "r.json")]) == 0
    printed = capsys.readouterr().out
    assert "['--n', '3', 'x'] __main__" in printed
    assert "nothing ran on a card" in printed
    assert (tmp_path / "r.json").exists()
    assert sys.argv == outside


def test_a_script_that_fails_is_reported(script, capsys):
    text = "import torch\ntorch.ones(4, 64, device='spyre') + 1\n"
    assert main(["explain", script(text + "raise ValueError('mine')\n")]) == 1
    captured = capsys.readouterr()
    assert "ValueError: mine" in captured.err
    assert "aten.add" in captured.out
    assert main(["explain", script(text + "raise SystemExit(7)\n")]) == 7
    assert main(["explain", script(text + "raise SystemExit('no')\n")]) == 1


def test_there_is_no_such_script(capsys):
    with pytest.raises(SystemExit):
        main(["explain", "nowhere.py"])
    assert "there is no script 'nowhere.py'" in capsys.readouterr().err
