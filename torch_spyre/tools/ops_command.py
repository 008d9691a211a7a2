"""``python -m torch_spyre ops``: the supported operations, as tables or JSON."""

import argparse
import dataclasses
import json
import sys
from typing import TYPE_CHECKING

from torch_spyre.ops.table import Op, load
from torch_spyre.tools.tables import Table

if TYPE_CHECKING:  # torch takes seconds to import, and the parser needs none of it
    from torch_spyre.tools.operations import Operation

_WAYS = {
    "native": "runs on the card",
    "composite": "PyTorch expresses it by other ops, which are listed themselves",
    "fallback": "runs on the CPU, with a warning",
    "refused": "an error: neither the card nor the CPU has a kernel",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("filter", nargs="?", default="", help="only ops with this in their name")
    parser.add_argument("--only", choices=_WAYS, help="only ATen ops that run this way")
    parser.add_argument(
        "--all", action="store_true", help="also private ops and those of other devices"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON, with every overload")
    form.add_argument("--markdown", action="store_true", help="print Markdown tables")


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from torch_spyre.tools.operations import device_dtypes, operations, totals

    everything = operations(options.filter)
    shown = [
        operation
        for operation in everything
        if options.only in (None, operation.way)
        and (options.all or options.filter or options.only or not operation.internal)
    ]
    of_card = [op for op in load().values() if options.filter in op.name and not options.only]
    if not shown and not of_card:
        print(f"error: no op has {options.filter!r} in its name.", file=sys.stderr)
        return 1
    dtypes = device_dtypes()
    if options.json:
        print(json.dumps(_as_json(shown, of_card, dtypes), indent=1))
        return 0

    tables = []
    if shown:
        tables += [_aten(shown)]
    if of_card:
        tables += [_card(of_card)]
    if shown:
        counts = Table(["way", "ops", "overloads", "meaning"], "Counts", frozenset({1, 2}))
        for way, ops, overloads in totals(shown):
            counts.add(way, str(ops), str(overloads), _WAYS[way])
        tables += [counts]
    for table in tables:
        if options.markdown:
            print(table.markdown(), end="\n\n")
        else:
            table.show()
    hidden = len(everything) - len(shown)
    if hidden and not options.only:
        print(f"{hidden} more ops are private or of other devices: --all shows them.")
    print("Dtypes of spyre tensors:", ", ".join(n for n, there in dtypes.items() if there) + ".")
    print("Others, such as float64 and complex64, are refused whatever the op.")
    return 0


def _aten(found: "list[Operation]") -> Table:
    table = Table(["op", "on spyre", "but"], title="ATen ops")
    for operation in found:
        worse = ", ".join(f"{name}: {way}" for name, way in operation.exceptions.items())
        table.add(operation.name, operation.way, worse)
    return table


def _card(ops: list[Op]) -> Table:
    table = Table(
        ["op of the card", "kind", "unit", "floats", "integers", "a real card"],
        title="Ops of the card (docs/program-format.md)",
    )
    for op in ops:
        table.add(op.name, op.kind, op.unit, *_by_dtype(op), _real(op))
    return table


def _by_dtype(op: Op) -> tuple[str, str]:
    """How it computes with floating and with integer tensors (bool is one of these)."""
    floats = "in fp32" if op.fp32 else "no"
    return floats, "exact" if op.int64 else "in fp32"


def _real(op: Op) -> str:
    if op.instead is not None:
        return f"extension; instead: {op.instead}"
    return f"OpFunc for {', '.join(op.formats)}"


def _as_json(
    found: "list[Operation]", of_card: list[Op], dtypes: dict[str, bool]
) -> dict[str, object]:
    return {
        "aten": {
            operation.name: {"way": operation.way, "overloads": operation.overloads}
            for operation in found
        },
        "card": {op.name: dataclasses.asdict(op) | {"extension": op.extension} for op in of_card},
        "dtypes": dtypes,
    }
