"""The pages that explain the whole: the glossary, and what it promises."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


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
