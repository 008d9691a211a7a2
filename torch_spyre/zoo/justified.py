"""Fallbacks that a model may have, each with a reason: `fallbacks.toml`."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

_FILE = Path(__file__).with_name("fallbacks.toml")


def justified_fallbacks(model: str, file: Path = _FILE) -> dict[str, str]:
    """The ops that may run on the CPU in that model, with the reasons."""
    entries = tomllib.loads(file.read_text()).get("fallback", [])
    return {entry["op"]: entry["reason"] for entry in entries if entry["model"] == model}


def unjustified(model: str, counts: Mapping[str, int]) -> list[str]:
    """Ops that ran on the CPU in that model without a listed reason."""
    return sorted(set(counts) - set(justified_fallbacks(model)))
