"""The op table, ``table.toml``, as typed values.

>>> from torch_spyre.ops.table import OPS
>>> OPS["clip"].constants
('clipMin', 'clipMax')
"""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

TABLE = Path(__file__).with_name("table.toml")

# The names the table uses for element formats, and what machine.toml calls them.
FORMATS = {
    "dl16": ("SEN169_FP16",),
    "fp32": ("IEEE_FP32",),
    "fp8": ("SEN143_FP8", "SEN152_FP8"),
    "int32": ("IEEE_INT32",),
}

UNITS = ("sfp", "pt")
COSTS = ("cheap", "divide", "transcendental", "reduce", "rows", "sort", "matmul", "move")
COMPUTE = {"fp32": (True, False), "int64": (False, True), "both": (True, True)}

# The kinds of op, each a section of the table, and the cost of a row that does not say.
KINDS = {
    "pointwise": "cheap",
    "reduce": "reduce",
    "rows": "rows",
    "scan": "reduce",
    "matmul": "matmul",
    "index": "move",
    "sort": "sort",
    "move": "move",
}


@dataclass(frozen=True)
class Op:
    """One OpFunc. See ``table.toml`` for what each field means."""

    name: str
    id: int
    kind: str
    inputs: int
    constants: tuple[str, ...]
    unit: str
    formats: tuple[str, ...]  # as machine.toml calls them; empty for an extension
    fp32: bool  # computes in fp32
    int64: bool  # computes in int64
    jumps: bool
    cost: str
    instead: str | None
    numerics: str

    @property
    def extension(self) -> bool:
        """Whether the op is not among the public OpFuncs."""
        return self.instead is not None


def _op(name: str, kind: str, row: dict[str, Any]) -> Op:
    instead = row.pop("instead", None)
    formats = row.pop("formats", ["dl16"] if instead is None else [])
    fp32, int64 = COMPUTE[row.pop("compute", "fp32")]
    op = Op(
        name=name,
        kind=kind,
        constants=tuple(row.pop("constants", ())),
        unit=row.pop("unit", "sfp"),
        formats=tuple(entry for short in formats for entry in FORMATS[short]),
        fp32=fp32,
        int64=int64,
        jumps=row.pop("jumps", False),
        cost=row.pop("cost", KINDS[kind]),
        instead=instead,
        **row,
    )
    if op.unit not in UNITS or op.cost not in COSTS:
        raise ValueError(f"op {name}: no unit {op.unit!r} or no cost {op.cost!r}")
    return op


@functools.cache
def load(path: Path = TABLE) -> Mapping[str, Op]:
    """Every op by its name, in the order of the table."""
    ops: dict[str, Op] = {}
    ids: dict[int, str] = {}
    for kind, rows in tomllib.loads(path.read_text()).items():
        for name, row in rows.items():
            op = _op(name, kind, dict(row))
            if name in ops or op.id in ids:
                raise ValueError(f"op {name} (id {op.id}) is in the table twice")
            ops[name] = op
            ids[op.id] = name
    return MappingProxyType(ops)


def __getattr__(name: str) -> Mapping[str, Op]:
    if name == "OPS":  # read on first use: importing torch must stay cheap
        return load()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
