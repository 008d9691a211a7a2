"""Reading a bundle: ``bundle.mlir`` and the SuperDSCs it names.

The text is a small part of MLIR: constants, sums, affine maps, loops and ``sdsc_execute``. Every
address it computes is linear: an argument's address, plus a constant, plus strides times loop
variables.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_spyre.backend.errors import MalformedBundle
from torch_spyre.backend.program import NO_HANDOVER, Handover, LxBytes
from torch_spyre.backend.sdsc import CARD_BYTES, CoreMaps, DeviceOp, read_superdsc
from torch_spyre.machine import load as load_machine
from torch_spyre.partition.dims import STICK_BYTES

FILE = "bundle.mlir"
MAX_LOOP_DEPTH = 16  # of the card
LINE_LENGTH = 100  # of a JSON file
CORES = int(load_machine().value("card.cores"))
LX_BYTES = int(load_machine().value("memory.lx_bytes_per_core"))


@dataclass(frozen=True)
class BundleFiles:
    """The content of a bundle directory, wherever it is."""

    where: str  # for messages
    mlir: str
    superdscs: Mapping[str, Any]  # JSON documents by file name

    def write(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for name, superdsc in self.superdscs.items():
            (directory / name).write_text(readable_json(superdsc) + "\n")
        (directory / FILE).write_text(self.mlir)


def readable_json(value: Any, indent: str = "") -> str:
    """JSON for people and for diffs: what fits on a line is on one."""
    line = json.dumps(value)
    if not isinstance(value, (dict, list)) or len(indent) + len(line) <= LINE_LENGTH:
        return line
    inner = indent + "  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {readable_json(v, inner)}" for key, v in value.items()]
        begin, end = "{", "}"
    else:
        parts = [readable_json(v, inner) for v in value]
        begin, end = "[", "]"
    lines = ",\n".join(inner + part for part in parts)
    return f"{begin}\n{lines}\n{indent}{end}"


@dataclass(frozen=True)
class Address:
    """A place in device memory, in bytes."""

    parameter: str | None = None  # "pool" or "arg_3", which it is relative to; None: absolute
    offset: int = 0
    strides: tuple[tuple[str, int], ...] = ()  # (loop variable, bytes an iteration), outer first


@dataclass
class Execute:
    op: DeviceOp
    symbols: dict[int, Address]
    line: str  # of the bundle, for messages
    places: dict[int, Any] = field(default_factory=dict, repr=False)  # kept by places.py


@dataclass
class Loop:
    variable: str
    count: int
    body: list[Node]


Node = Execute | Loop


@dataclass
class Bundle:
    where: str
    parameters: list[str]
    nodes: list[Node] = field(default_factory=list)
    handover: Handover = NO_HANDOVER

    @property
    def has_pool(self) -> bool:
        return "pool" in self.parameters


def bundle_files(directory: Path) -> BundleFiles:
    """The files of a bundle directory. Raises :class:`MalformedBundle`."""
    path = Path(directory) / FILE
    if not path.is_file():
        raise MalformedBundle(str(directory), FILE, f"Bundle not found: {path}")
    mlir = _read(path)
    superdscs: dict[str, Any] = {}
    for name in dict.fromkeys(re.findall(r'sdsc_filename="([^"]*)"', mlir)):
        file = path.parent / name
        if file.parent != path.parent or not os.path.isfile(file):  # of any name, however long
            continue  # the parser knows in which line it is missed
        try:
            superdscs[name] = json.loads(_read(file))
        except (ValueError, RecursionError) as error:
            raise MalformedBundle(str(file), "JSON", str(error)) from None
    return BundleFiles(str(directory), mlir, superdscs)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise MalformedBundle(str(path), "text", str(error)) from None


def parse_bundle(files: BundleFiles) -> Bundle:
    """What the files say. Raises :class:`MalformedBundle`."""
    return _Parser(files).parse()


def read_bundle(directory: Path) -> Bundle:
    """The bundle in a directory. Raises :class:`MalformedBundle`."""
    return parse_bundle(bundle_files(directory))


_NAME = r"(%\w+)"
_NUMBER = r"-?\d{1,18}"
_MAP = re.compile(r"(#\w+) = affine_map<\(([^)]*)\)\[s0\] -> \(s0((?: \+ \d{1,18}\*d\d+)*)\)>$")
_FUNCTION = re.compile(r"func\.func @sdsc_bundle\((.*)\) \{$")
_PARAMETER = re.compile(r"%(pool|arg_\d{1,4})_base_addr$")
_SYMBOL_IDS = re.compile(r"-[1-9]\d{0,17}(, *-[1-9]\d{0,17})*$")
_STATEMENTS = {
    "constant": re.compile(rf"{_NAME} = arith\.constant ({_NUMBER}) : index$"),
    "sum": re.compile(rf"{_NAME} = arith\.addi {_NAME}, {_NAME} : index$"),
    "apply": re.compile(rf"{_NAME} = affine\.apply (#\w+)\(([^)]*)\)\[{_NAME}\]$"),
    "execute": re.compile(
        r"sdscbundle\.sdsc_execute \(([^)]*)\) "
        r'\{sdsc_filename="([^"]+)"(?:, "symbol_ids"=\[([^\]]*)\])?\}$'
    ),
    "for": re.compile(rf"scf\.for {_NAME} = {_NAME} to {_NAME} step {_NAME} \{{$"),
    "lx": re.compile(
        r"sdscbundle\.lx_(found|left) \{begin=(\d{1,18}), end=(\d{1,18}), cores=(\d{1,18})\}$"
    ),
    "extract": re.compile(rf"{_NAME} = sdscbundle\.input_arg_extract value from {_NAME} : .*$"),
}


class _Parser:
    def __init__(self, files: BundleFiles) -> None:
        self.files = files
        lines = ((number, line.strip()) for number, line in enumerate(files.mlir.split("\n"), 1))
        self.lines = [(number, line) for number, line in lines if line]
        self.at = 0
        self.number = 0
        self.maps: dict[str, tuple[int, ...]] = {}
        self.values: dict[str, Address] = {}
        self.loops: list[str] = []  # variables of the loops around
        self.parameters: dict[str, str] = {}  # name of the argument -> whose address
        self.ops: dict[str, DeviceOp] = {}
        self.core_maps: CoreMaps = {}
        self.lx: dict[str, list[LxBytes]] = {"found": [], "left": []}

    def refuse(self, why: str) -> MalformedBundle:
        return MalformedBundle(f"{self.files.where}/{FILE}", f"line {self.number}", why)

    def next(self) -> str:
        if self.at == len(self.lines):
            raise self.refuse("the text ends too early")
        self.number, line = self.lines[self.at]
        self.at += 1
        return line

    def parse(self) -> Bundle:
        line = self.next()
        while match := _MAP.match(line):
            terms = re.findall(r"(\d+)\*d(\d+)", match[3])
            names = [f"d{i}" for i in range(len(terms))]
            if _parts(match[2]) != names or [f"d{number}" for _, number in terms] != names:
                raise self.refuse("a map has the dimensions d0, d1, ... in order, each once")
            self.maps[match[1]] = tuple(int(stride) for stride, _ in terms)
            line = self.next()
        if line != "module {":
            raise self.refuse(f"expected 'module {{', found {line!r}")
        function = _FUNCTION.match(self.next())
        if not function:
            raise self.refuse("expected the function @sdsc_bundle")
        for text in _parts(function[1]):
            name = text.split(":")[0].strip()
            known = _PARAMETER.match(name)
            if not known or name in self.parameters:
                raise self.refuse(f"{name}: parameters are %pool_base_addr, %arg_0_base_addr, ...")
            self.parameters[name] = known[1]
        nodes = self.body("return")
        for expected in ("}", "}"):
            if self.next() != expected:
                raise self.refuse(f"expected {expected!r}")
        if self.at != len(self.lines):
            self.next()
            raise self.refuse("text after the end of the module")
        handover = Handover(**self.lx)
        return Bundle(self.files.where, list(self.parameters.values()), nodes, handover)

    def body(self, end: str) -> list[Node]:
        nodes: list[Node] = []
        while (line := self.next()) != end:
            for kind, pattern in _STATEMENTS.items():
                if match := pattern.match(line):
                    node = getattr(self, f"_{kind}")(match)
                    nodes += [node] if node else []
                    break
            else:
                raise self.refuse(f"not understood: {line!r}")
        return nodes

    def value(self, name: str) -> Address:
        if name not in self.values:
            raise self.refuse(f"{name} has no value here")
        return self.values[name]

    def number_of(self, name: str) -> int:
        value = self.value(name)
        if value.parameter or value.strides:
            raise self.refuse(f"{name} is not a constant")
        return value.offset

    def _extract(self, match: re.Match[str]) -> None:
        if match[2] not in self.parameters:
            raise self.refuse(f"{match[2]} is not a parameter")
        self.values[match[1]] = Address(self.parameters[match[2]])

    def _lx(self, match: re.Match[str]) -> None:
        if self.loops or (match[1] == "found" and self.ops):
            raise self.refuse("what is found in LX stands before all ops, what is left behind them")
        begin, end, cores = map(int, match.groups()[1:])
        if not begin < end <= LX_BYTES or begin % STICK_BYTES or end % STICK_BYTES:
            raise self.refuse(f"bytes {begin}..{end} are no sticks of LX, which has {LX_BYTES}")
        if not 1 <= cores <= CORES:
            raise self.refuse(f"{cores} cores: a card has {CORES}")
        self.lx[match[1]].append(LxBytes(begin, end, cores))

    def _constant(self, match: re.Match[str]) -> None:
        self.values[match[1]] = Address(offset=int(match[2]))

    def _sum(self, match: re.Match[str]) -> None:
        left, right = self.value(match[2]), self.value(match[3])
        if left.parameter and right.parameter:
            raise self.refuse("the sum of two addresses is not an address")
        self.values[match[1]] = self._moved(
            Address(left.parameter or right.parameter, left.offset + right.offset, left.strides),
            right.strides,
        )

    def _apply(self, match: re.Match[str]) -> None:
        if match[2] not in self.maps:
            raise self.refuse(f"no map is called {match[2]}")
        strides, variables = self.maps[match[2]], _parts(match[3])
        if len(strides) != len(variables):
            raise self.refuse(f"{match[2]} has {len(strides)} dimensions, not {len(variables)}")
        for variable in variables:
            if variable not in self.loops:
                raise self.refuse(f"{variable} is not the variable of a loop around")
        own = tuple(zip(variables, strides, strict=True))
        self.values[match[1]] = self._moved(self.value(match[4]), own)

    def _moved(self, base: Address, strides: tuple[tuple[str, int], ...]) -> Address:
        """``base`` with more strides; those of one variable are added."""
        total = dict.fromkeys(self.loops, 0)
        for variable, stride in base.strides + strides:
            total[variable] += stride
        kept = tuple((variable, stride) for variable, stride in total.items() if stride)
        return Address(base.parameter, base.offset, kept)

    def _for(self, match: re.Match[str]) -> Loop:
        first, count, step = (self.number_of(match[i]) for i in (2, 3, 4))
        if first != 0 or step != 1:
            raise self.refuse("loops count from 0 in steps of 1")
        if not 0 <= count <= CARD_BYTES:
            raise self.refuse(f"a loop of {count} iterations")
        if match[1] in self.loops or match[1] in self.values:
            raise self.refuse(f"{match[1]} has another meaning already")
        if len(self.loops) == MAX_LOOP_DEPTH:
            raise self.refuse(f"loops are nested more than {MAX_LOOP_DEPTH} deep")
        outside = dict(self.values)
        self.loops.append(match[1])
        body = self.body("}")
        self.loops.pop()
        self.values = outside
        return Loop(match[1], count, body)

    def _execute(self, match: re.Match[str]) -> Execute:
        if self.lx["left"]:
            raise self.refuse("an op after what is left in LX: that stands behind all ops")
        operands, texts = _parts(match[1]), _parts(match[3] or "")
        if len(operands) != len(texts):
            raise self.refuse(f"{len(operands)} operands, but {len(texts)} symbol ids")
        if texts and not _SYMBOL_IDS.match(match[3]):
            raise self.refuse("symbol ids are negative numbers")
        symbols = {int(text): self.value(name) for text, name in zip(texts, operands, strict=True)}
        if len(symbols) != len(texts):
            raise self.refuse("every symbol id is named once")
        return Execute(self._op(match[2]), symbols, f"{FILE} line {self.number}")

    def _op(self, name: str) -> DeviceOp:
        if name not in self.ops:
            if name not in self.files.superdscs:
                raise self.refuse(f"there is no file {name!r} in the bundle")
            document = self.files.superdscs[name]
            self.ops[name] = read_superdsc(f"{self.files.where}/{name}", document, self.core_maps)
        return self.ops[name]


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
