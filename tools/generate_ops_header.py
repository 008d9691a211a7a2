"""Write spyre/ops.h, the C++ side of the op table.

Usage: python tools/generate_ops_header.py torch_spyre/ops/table.toml OUTPUT
"""

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).parent.parent / "torch_spyre" / "ops" / "table.py"


def loader() -> ModuleType:
    """torch_spyre.ops.table, without the package around it, which needs what is built here."""
    spec = importlib.util.spec_from_file_location("op_table", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def enumeration(name: str, values: Iterable[str]) -> str:
    return f"enum class {name} : std::uint8_t {{ {', '.join(values)} }};"


def main() -> None:
    source, output = Path(sys.argv[1]), Path(sys.argv[2])
    table = loader()
    ops = sorted(table.load(source).values(), key=lambda op: op.id)
    boolean = ("false", "true")
    lines = [
        "// Generated from torch_spyre/ops/table.toml by tools/generate_ops_header.py.",
        "#pragma once",
        "",
        "#include <cstdint>",
        "#include <string_view>",
        "",
        "namespace spyre {",
        "",
        "/// What a program step computes; the values are those of a card program.",
        "enum class OpFunc : std::uint16_t {",
        *(f"  {op.name} = {op.id},  ///< {op.numerics}" for op in ops),
        "};",
        "",
        "/// The kind of program step that executes an op.",
        enumeration("OpKind", table.KINDS),
        enumeration("Unit", table.UNITS),
        enumeration("Cost", table.COSTS),
        "",
        "struct OpInfo {",
        "  OpFunc op;",
        "  const char* name;",
        "  OpKind kind;",
        "  int inputs;",
        "  int constants;",
        "  Unit unit;",
        "  bool extension;  ///< not among the public OpFuncs",
        "  Cost cost;",
        "  bool fp32;   ///< computes in fp32",
        "  bool int64;  ///< computes in int64",
        "  bool jumps;  ///< the result jumps where an operand differs in its last bit",
        "};",
        "",
        "inline constexpr OpInfo kOps[] = {",
        *(
            f'    {{OpFunc::{op.name}, "{op.name}", OpKind::{op.kind}, {op.inputs}, '
            f"{len(op.constants)}, Unit::{op.unit}, {boolean[op.extension]}, Cost::{op.cost}, "
            f"{boolean[op.fp32]}, {boolean[op.int64]}, {boolean[op.jumps]}}},"
            for op in ops
        ),
        "};",
        "",
        "/// The op with this number; null if there is none. Numbers come from programs.",
        "constexpr const OpInfo* find_op(std::uint64_t id) {",
        "  for (const OpInfo& info : kOps)",
        "    if (static_cast<std::uint64_t>(info.op) == id) return &info;",
        "  return nullptr;",
        "}",
        "",
        "/// The op with this name; null if there is none.",
        "constexpr const OpInfo* find_op(std::string_view name) {",
        "  for (const OpInfo& info : kOps)",
        "    if (name == info.name) return &info;",
        "  return nullptr;",
        "}",
        "",
        "constexpr const OpInfo& op_info(OpFunc op) {",
        "  return *find_op(static_cast<std::uint64_t>(op));",
        "}",
        "",
        "}  // namespace spyre",
        "",
    ]
    text = "\n".join(lines)
    output.parent.mkdir(parents=True, exist_ok=True)
    if not output.exists() or output.read_text() != text:
        output.write_text(text)


if __name__ == "__main__":
    main()
