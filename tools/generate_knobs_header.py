"""Write spyre/knobs.h, the C++ side of the table of knobs: those that C++ reads.

Usage: python tools/generate_knobs_header.py torch_spyre/knobs.toml OUTPUT
"""

import sys
import tomllib
from pathlib import Path
from typing import Any

HEAD = """\
// Generated from torch_spyre/knobs.toml by tools/generate_knobs_header.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

namespace spyre::knobs {

struct Flag {
  const char* variable;
  bool otherwise;  ///< if the variable is not set
};

struct Number {
  const char* variable;
  std::int64_t otherwise, lowest, highest;
};

struct Bytes {
  const char* variable;
  std::uint64_t otherwise, lowest, highest;
};

struct Choice {
  const char* variable;
  std::size_t otherwise;  ///< which of the words
  std::span<const std::string_view> words;
};

struct Text {
  const char* variable;
};
"""
LIMIT = "std::numeric_limits<std::int64_t>::{}()"


def in_bytes(text: str) -> str:
    unit = " KMG".find(text[-1])
    return f"std::uint64_t{{{int(text[:-1]) << 10 * unit}}}" if unit > 0 else text


def constant(name: str, knob: dict[str, Any]) -> list[str]:
    """The lines of one knob."""
    kind, default = knob["kind"], knob.get("default")
    camel = "k" + "".join(word.capitalize() for word in name.split("_"))
    fields, words = [f'"{knob["variable"]}"'], []
    if kind == "flag":
        fields.append(str(default).lower())
    elif kind == "number":
        least, most = (*knob.get("range", ()), None, None)[:2]
        fields.append(str(default or 0))
        fields.append(LIMIT.format("lowest") if least is None else str(least))
        fields.append(LIMIT.format("max") if most is None else str(most))
    elif kind == "bytes":
        fields += [in_bytes(text) for text in (default, *knob["range"])]
    elif kind == "choice":
        listed = ", ".join(f'"{word}"' for word in knob["choices"])
        words = [f"inline constexpr std::string_view {camel}Words[] = {{{listed}}};"]
        fields += [str(knob["choices"].index(default)), f"{camel}Words"]
    value = f"inline constexpr {kind.capitalize()} {camel}{{{', '.join(fields)}}};"
    return ["", f"/// {knob['meaning']}", *words, value]


def main() -> None:
    source, output = Path(sys.argv[1]), Path(sys.argv[2])
    table = tomllib.loads(source.read_text())
    lines = [
        line
        for group in ("card", "runtime")
        for name, knob in table[group].items()
        for line in constant(name, knob)
    ]
    text = "\n".join([HEAD, *lines[1:], "", "}  // namespace spyre::knobs", ""])
    output.parent.mkdir(parents=True, exist_ok=True)
    if not output.exists() or output.read_text() != text:
        output.write_text(text)


if __name__ == "__main__":
    main()
