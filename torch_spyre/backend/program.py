"""Card programs, written from Python: ``docs/program-format.md`` in dataclasses.

>>> nest = Nest([Loop(64, [1, 1])], [0, 0])
>>> step = Pointwise("exp", [Operand(0, FP16)], Operand(1, FP16), [nest])
>>> binary = program([step])
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from torch_spyre._C import DataFormats
from torch_spyre.ops.table import OPS

MAGIC = b"SPYREPRG"
VERSION = 1
OPCODES = {
    "move": 1,
    "pointwise": 3,
    "reduce": 4,
    "rows": 5,
    "scan": 6,
    "matmul": 7,
    "index": 8,
    "cores": 10,
    "chain": 11,
    "accounts": 12,
    "handover": 13,
}
NARROW_NONE, NARROW_BOOL, NARROW_UINT8 = 0, 1, 2
FP32, INT64 = 0, 1  # compute types
SCRATCHPAD = -1  # the core's own
ALL_SCRATCHPADS = -2  # those of all cores, one after the other
MAX_OPERANDS = 1024
FP16 = DataFormats.SEN169_FP16

Words = list[int]


def real_bits(value: float) -> int:
    """The word that holds a double."""
    return struct.unpack("<q", struct.pack("<d", value))[0]


@dataclass
class Loop:
    """One loop of a nest: how often, and how far each operand moves on."""

    size: int
    stride: Sequence[int]


@dataclass
class Nest:
    loops: list[Loop]  # innermost first
    offset: Sequence[int]  # one an operand

    def words(self) -> Words:
        words = [len(self.loops), *self.offset]
        for loop in self.loops:
            words += [loop.size, *loop.stride]
        return words


def _nests(nests: Sequence[Nest]) -> Words:
    return [len(nests), *(word for nest in nests for word in nest.words())]


@dataclass
class Operand:
    """A tensor of a step; ``operand`` -1 where an optional one is absent."""

    operand: int
    format: DataFormats

    def words(self) -> Words:
        return [self.operand, self.format.value]


ABSENT = Operand(-1, FP16)


@dataclass
class Pointwise:
    op: str
    inputs: list[Operand]
    output: Operand
    nests: list[Nest]  # over the inputs, then the output
    constants: Sequence[float] = ()
    compute: int = FP32
    narrow: int = NARROW_NONE
    opcode = OPCODES["pointwise"]

    def words(self) -> Words:
        words = [OPS[self.op].id, len(self.inputs)]
        for input in self.inputs:
            words += input.words()
        words += [*self.output.words(), self.narrow, self.compute]
        words += [len(self.constants), *map(real_bits, self.constants)]
        return words + _nests(self.nests)


@dataclass
class Reduce:
    op: str
    input: Operand
    output: Operand
    accumulators: int
    extent: int
    lines: list[Nest]  # of (input, accumulator, position)
    results: list[Nest]  # of (accumulator, output) or (accumulator, output, second)
    second: Operand = field(default_factory=lambda: ABSENT)
    constants: Sequence[float] = ()
    compute: int = FP32
    narrow: int = NARROW_NONE
    opcode = OPCODES["reduce"]

    def words(self) -> Words:
        words = [OPS[self.op].id, *self.input.words(), *self.output.words(), self.narrow]
        words += [*self.second.words(), self.compute]
        words += [len(self.constants), *map(real_bits, self.constants)]
        words += [self.accumulators, self.extent]
        return words + _nests(self.lines) + _nests(self.results)


@dataclass
class Move:
    source: Operand
    target: Operand
    nests: list[Nest]  # of (source, target)
    narrow: int = NARROW_NONE
    opcode = OPCODES["move"]

    def words(self) -> Words:
        words = [self.source.operand, self.target.operand]
        words += [self.source.format.value, self.target.format.value, self.narrow]
        return words + _nests(self.nests)


@dataclass
class Matmul:
    """Strides as in the table of the payload; those of ``batch`` are (size, a, b, c)."""

    a: Operand
    b: Operand
    c: Operand
    m: int
    n: int
    k: int
    a_strides: tuple[int, int]  # m, stick of k
    b_strides: tuple[int, int]  # k, n; one of them of a stick
    c_strides: tuple[int, int]  # m, stick of n
    batch: list[tuple[int, int, int, int]] = field(default_factory=list)
    op: str = "batchmatmul"
    sticks_along_k: bool = False  # of b: a transposed weight
    opcode = OPCODES["matmul"]

    def words(self) -> Words:
        words = [OPS[self.op].id, *self.a.words(), *self.b.words(), *self.c.words(), NARROW_NONE]
        words += [*ABSENT.words(), real_bits(1.0), real_bits(0.0), self.m, self.n, self.k]
        words += [0, *self.a_strides, 1]
        k, n = self.b_strides
        words += [1, 0, n, k] if self.sticks_along_k else [0, 0, k, n]
        words += [0, *self.c_strides]
        words += [0, 0, 0, 1]
        words += [len(self.batch)]
        for size, a, b, c in self.batch:
            words += [size, a, b, c, 0]
        return words


@dataclass
class Gather:
    """``dense = values[index]`` along one dimension of the values; indices below 0 are refused."""

    dense: Operand
    values: Operand
    index: int  # operand of 32-bit integers
    size: int  # of the dimension that is indexed
    stride: int
    nests: list[Nest]  # of (dense, values, index)
    opcode = OPCODES["index"]

    def words(self) -> Words:
        words = [OPS["gather"].id, *self.dense.words(), *self.values.words(), NARROW_NONE, FP32]
        words += [0, 1, self.index, self.size, 0, 1, 1, self.stride]
        return words + _nests(self.nests)


@dataclass
class ChainTensor:
    """A tensor of a chain; without lines or positions its nests stay at number 0 of them."""

    operand: Operand
    lines: list[Nest]  # of (tensor, line, position)
    has_lines: bool = True
    has_positions: bool = True
    narrow: int = NARROW_NONE  # of stores

    def words(self) -> Words:
        words = [*self.operand.words(), self.narrow, int(self.has_lines), int(self.has_positions)]
        return words + _nests(self.lines)


@dataclass
class ChainLoad:
    """The value that is a tensor, by its number in the chain."""

    tensor: int

    def words(self) -> Words:
        return [0, self.tensor]


@dataclass
class ChainOp:
    """A pointwise op of values, by their numbers in the chain.

    ``format`` and ``narrow`` are those that the value would have in memory.
    """

    op: str
    inputs: Sequence[int]
    format: DataFormats = FP16
    constants: Sequence[float] = ()
    narrow: int = NARROW_NONE

    def words(self) -> Words:
        words = [1, OPS[self.op].id, len(self.inputs)]
        for input in self.inputs:
            words += [input, 0]
        words += [len(self.constants), *map(real_bits, self.constants)]
        return [*words, self.format.value, self.narrow]


@dataclass
class ChainReduce:
    """A reduction of the positions of a value."""

    op: str
    input: int
    format: DataFormats = FP16
    constants: Sequence[float] = ()
    narrow: int = NARROW_NONE

    def words(self) -> Words:
        words = [2, OPS[self.op].id, self.input]
        words += [len(self.constants), *map(real_bits, self.constants)]
        return [*words, self.format.value, self.narrow]


@dataclass
class Chain:
    """Ops over one set of lines whose values go to memory only where they are stored."""

    lines: int
    length: int
    tensors: list[ChainTensor]
    values: list[ChainLoad | ChainOp | ChainReduce]  # each of values before it
    stores: list[tuple[int, int]]  # value, tensor
    opcode = OPCODES["chain"]

    def words(self) -> Words:
        words = [self.lines, self.length, len(self.tensors)]
        for tensor in self.tensors:
            words += tensor.words()
        words += [len(self.values)]
        for value in self.values:
            words += value.words()
        return [*words, len(self.stores), *(word for store in self.stores for word in store)]


Step = Pointwise | Reduce | Move | Matmul | Gather | Chain


@dataclass
class CoreStep:
    """A step of the cores in [first, end)."""

    step: Step
    first: int
    end: int

    def words(self) -> Words:
        return [0, self.first, self.end, *_headed(self.step)]


@dataclass
class CoreLoop:
    """A body that runs ``count`` times; operands move on by so many bytes after each."""

    count: int
    advances: dict[int, int]
    body: list[CoreStep | CoreLoop]

    def words(self) -> Words:
        words = [1, self.count, len(self.advances)]
        for operand, stride in self.advances.items():
            words += [operand, stride]
        return words + _nodes(self.body)


@dataclass
class CoreOperand:
    """Memory as the steps of a core see it: of a program's operand, or the scratchpad."""

    operand: int
    offset: Sequence[int]  # bytes, one a core


@dataclass
class Cores:
    cores: int
    operands: list[CoreOperand]
    nodes: list[CoreStep | CoreLoop]
    opcode = OPCODES["cores"]

    def words(self) -> Words:
        words = [self.cores, len(self.operands)]
        for operand in self.operands:
            words += [operand.operand, *operand.offset]
        return words + _nodes(self.nodes)


def _nodes(nodes: Iterable[CoreStep | CoreLoop]) -> Words:
    nodes = list(nodes)
    return [len(nodes), *(word for node in nodes for word in node.words())]


class LxBytes(NamedTuple):
    """The same bytes of the scratchpads of cores 0, 1, ..."""

    begin: int
    end: int
    cores: int

    def meets(self, other: LxBytes) -> bool:
        return self.begin < other.end and other.begin < self.end

    def covers(self, other: LxBytes) -> bool:
        return self.begin <= other.begin and other.end <= self.end and other.cores <= self.cores


@dataclass(frozen=True)
class Handover:
    """What a program finds in the scratchpads, and what it leaves there: for the program that is
    launched together with it, directly before or after. False if it is nothing."""

    found: Sequence[LxBytes] = ()
    left: Sequence[LxBytes] = ()
    opcode = OPCODES["handover"]

    def __bool__(self) -> bool:
        return bool(self.found or self.left)

    def words(self) -> Words:
        ranges = [[len(each), *itertools.chain(*each)] for each in (self.found, self.left)]
        return [*itertools.chain(*ranges)]


NO_HANDOVER = Handover()


class Entry(Protocol):
    """What a program is made of: steps, the accounts of ``account.py``, a handover."""

    opcode: int

    def words(self) -> Words: ...


def _headed(step: Entry) -> Words:
    payload = step.words()
    return [step.opcode | len(payload) << 32, *payload]


def program(steps: Sequence[Entry]) -> bytes:
    """The binary that ``Card::load_program()`` takes."""
    words = [word for step in steps for word in _headed(step)]
    body = struct.pack(f"<{len(words)}q", *words)
    header = struct.pack("<8sIIQQ", MAGIC, VERSION, len(steps), 32 + len(body), checksum(words))
    return header + body


def program_bytes(binary: bytes) -> int:
    """How long a program is that begins here, by its header."""
    return int.from_bytes(binary[16:24], "little")


_PRIME = 0x100000001B3
_MASK = 0xFFFFFFFFFFFFFFFF
_POWERS = [pow(_PRIME, i, 1 << 64) for i in range(9)]


def checksum(words: Iterable[int]) -> int:
    """FNV-1a, 64 bits, of the bytes of ``words``.

    A zero byte only multiplies, and most bytes of a program are the zeros above small numbers: all
    zeros at the end of a word are one multiplication.
    """
    whole = _POWERS[8]
    value = 0xCBF29CE484222325
    for word in words:
        if 0 <= word < 256:
            value = (value ^ word) * whole & _MASK
            continue
        word &= _MASK
        left = 8
        while word:
            value = (value ^ word & 0xFF) * _PRIME & _MASK
            word >>= 8
            left -= 1
        value = value * _POWERS[left] & _MASK
    return value
