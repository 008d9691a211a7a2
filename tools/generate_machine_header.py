"""Write spyre/machine.h, the C++ side of the machine description.

Usage: python tools/generate_machine_header.py torch_spyre/machine.toml OUTPUT
"""

import sys
import tomllib
from pathlib import Path
from typing import Any

INTEGER, REAL = "std::int64_t", "double"


def constants(description: dict[str, Any]) -> list[str]:
    lines = []
    for section, entries in description.items():
        if section == "formats":
            continue
        lines.append(f"// {section}")
        for name, entry in entries.items():
            kind = REAL if isinstance(entry["value"], float) else INTEGER
            camel = "".join(word.capitalize() for word in name.split("_"))
            note = f"{entry['unit']}; {entry['source']}"
            lines.append(f"/// {note}")
            lines.append(f"inline constexpr {kind} k{camel} = {entry['value']};")
    return lines


def formats(table: dict[str, Any]) -> list[str]:
    lines = [
        "/// Element formats; values are those of the public DataFormats enum.",
        "enum class DataFormat : std::uint8_t {",
    ]
    lines += [f"  {name} = {entry['id']},  ///< {entry['note']}" for name, entry in table.items()]
    lines += [
        "};",
        "",
        "enum class FormatKind : std::uint8_t { none, floating, signed_, unsigned_, boolean };",
        "",
        "struct FormatInfo {",
        "  DataFormat format;",
        "  const char* name;",
        "  int bits;             ///< storage width of one element; 0 if unused",
        "  int elems_per_stick;  ///< 0 if no device tensor can have it",
        "  FormatKind kind;",
        "};",
        "",
        "inline constexpr FormatInfo kFormats[] = {",
    ]
    kinds = {
        "none": "none",
        "float": "floating",
        "signed": "signed_",
        "unsigned": "unsigned_",
        "bool": "boolean",
    }
    lines += [
        f'    {{DataFormat::{name}, "{name}", {entry["bits"]}, {entry["elems_per_stick"]}, '
        f"FormatKind::{kinds[entry['kind']]}}},"
        for name, entry in table.items()
    ]
    lines += [
        "};",
        "",
        "constexpr const FormatInfo& format_info(DataFormat format) {",
        "  for (const FormatInfo& info : kFormats)",
        "    if (info.format == format) return info;",
        f"  return kFormats[{list(table).index('INVALID')}];",
        "}",
    ]
    return lines


def main() -> None:
    source, output = Path(sys.argv[1]), Path(sys.argv[2])
    description = tomllib.loads(source.read_text())
    text = "\n".join(
        [
            "// Generated from torch_spyre/machine.toml by tools/generate_machine_header.py.",
            "#pragma once",
            "",
            "#include <cstdint>",
            "",
            "namespace spyre {",
            "",
            *constants(description),
            "",
            *formats(description["formats"]),
            "",
            "}  // namespace spyre",
            "",
        ]
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    if not output.exists() or output.read_text() != text:
        output.write_text(text)


if __name__ == "__main__":
    main()
