"""Buffers of well-known blocks, as a planner of the scratchpad sees them.

A pattern is a small program: every op has the next time, reads tensors and writes one; a tensor
lives from its op to its last reader. Sizes are bytes of a core. What nobody reads leaves the
program, and takes no scratchpad.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from torch_spyre._inductor.scratchpad import LifetimeBoundBuffer
from torch_spyre.cost import OpCost, price

STICK = 128
KIB = 1024
CORES = 32
LX = 1_677_721  # that the planner has of a core's 2 MiB


class Program:
    """Ops in order."""

    def __init__(self) -> None:
        self.time = 0
        self._tensors: list[LifetimeBoundBuffer] = []
        self._pointwise: list[tuple[LifetimeBoundBuffer, tuple[LifetimeBoundBuffer, ...]]] = []

    def op(self, name: str, size: int, *inputs: LifetimeBoundBuffer) -> LifetimeBoundBuffer:
        """Reads tensors, writes one."""
        for tensor in inputs:
            if tensor.uses[-1] < self.time:
                tensor.uses.append(self.time)
        written = LifetimeBoundBuffer(f"{name}_{self.time}", size, [self.time])
        self._tensors.append(written)
        self.time += 1
        return written

    def pointwise(self, name: str, *inputs: LifetimeBoundBuffer) -> LifetimeBoundBuffer:
        """As large as the first input, and maybe in the place of one that is not read again."""
        written = self.op(name, inputs[0].size, *inputs)
        self._pointwise.append((written, inputs))
        return written

    def buffers(self) -> list[LifetimeBoundBuffer]:
        kept = [tensor for tensor in self._tensors if len(tensor.uses) > 1]
        for written, inputs in self._pointwise:
            written.in_place_parents = [
                tensor
                for tensor in dict.fromkeys(inputs)
                if tensor.size >= written.size and tensor.uses[-1] == written.start_time
            ]
        return kept


# ------------------------------------------------------------------------------------------- blocks


def softmax_of(program: Program, x: LifetimeBoundBuffer, statistic: int) -> LifetimeBoundBuffer:
    largest = program.op("max", statistic, x)
    shifted = program.pointwise("sub", x, largest)
    exponential = program.pointwise("exp", shifted)
    total = program.op("sum", statistic, exponential)
    inverse = program.pointwise("reciprocal", total)
    return program.pointwise("mul", exponential, inverse)


def rms_norm_of(program: Program, x: LifetimeBoundBuffer, statistic: int) -> LifetimeBoundBuffer:
    square = program.pointwise("square", x)
    mean = program.op("mean", statistic, square)
    root = program.pointwise("rsqrt", mean)
    scaled = program.pointwise("mul", x, root)
    return program.pointwise("weight", scaled)


def mlp_of(program: Program, x: LifetimeBoundBuffer, inner: int, outer: int) -> LifetimeBoundBuffer:
    gate = program.op("gate", inner, x)
    sigmoid = program.pointwise("sigmoid", gate)
    silu = program.pointwise("mul", gate, sigmoid)
    up = program.op("up", inner, x)
    return program.op("down", outer, program.pointwise("mul", silu, up))


def attention_of(
    program: Program,
    x: LifetimeBoundBuffer,
    groups: int,
    heads: int,
    head: int,
    scores: int,
    statistic: int,
) -> list[LifetimeBoundBuffer]:
    """Heads of a group share a key and a value. What all heads give."""
    keys = [program.op("key", head, x) for _ in range(groups)]
    values = [program.op("value", head, x) for _ in range(groups)]
    queries = [[program.op("query", head, x) for _ in range(heads)] for _ in range(groups)]
    given = []
    for key, value, group in zip(keys, values, queries, strict=True):
        for query in group:
            score = program.op("scores", scores, query, key)
            weights = softmax_of(program, score, statistic)
            given.append(program.op("attend", head, weights, value))
    return given


def softmax(rows: int = 384 * KIB, statistic: int = 3 * KIB) -> Program:
    program = Program()
    weights = softmax_of(program, program.op("load", rows), statistic)
    program.op("store", rows, weights)
    return program


def layer_norm(rows: int = 256 * KIB, statistic: int = 2 * KIB) -> Program:
    program = Program()
    x = program.op("load", rows)
    mean = program.op("mean", statistic, x)
    centred = program.pointwise("sub", x, mean)
    square = program.pointwise("square", centred)
    variance = program.op("mean", statistic, square)
    root = program.pointwise("rsqrt", variance)
    scaled = program.pointwise("mul", centred, root)
    weighted = program.pointwise("weight", scaled)
    program.op("store", rows, program.pointwise("bias", weighted))
    return program


def rms_norm(rows: int = 512 * KIB, statistic: int = 4 * KIB) -> Program:
    program = Program()
    program.op("store", rows, rms_norm_of(program, program.op("load", rows), statistic))
    return program


def swiglu_mlp(rows: int = 128 * KIB, inner: int = 448 * KIB) -> Program:
    program = Program()
    x = program.op("load", rows)
    down = mlp_of(program, rms_norm_of(program, x, STICK * 8), inner, rows)
    program.op("store", rows, program.pointwise("residual", down, x))
    return program


def gqa_attention(
    groups: int = 3,
    heads: int = 4,
    head: int = 32 * KIB,
    scores: int = 192 * KIB,
    statistic: int = 4 * KIB,
) -> Program:
    program = Program()
    x = program.op("load", groups * heads * head // 2)
    given = attention_of(program, x, groups, heads, head, scores, statistic)
    joined = program.op("cat", groups * heads * head, *given)
    program.op(
        "store", x.size, program.pointwise("residual", program.op("project", x.size, joined), x)
    )
    return program


def moe_mlp(experts: int = 8, rows: int = 160 * KIB, seed: int = 1) -> Program:
    """Rows are sorted by expert first, as many for each as the router says, and joined last."""
    rng = random.Random(seed)
    program = Program()
    x = program.op("load", rows)
    router = softmax_of(program, program.op("router", 16 * KIB, x), STICK * 4)
    shares = [rng.randrange(1, 8) * rows // 16 // STICK * STICK for _ in range(experts)]
    picked = [program.op("pick", share, x, router) for share in shares]
    given = []
    for mine in picked:
        down = mlp_of(program, mine, mine.size * 7 // 2 // STICK * STICK, mine.size)
        given.append(program.pointwise("mul", down, router))
    joined = program.op("join", rows, *given)
    program.op("store", rows, program.pointwise("residual", joined, x))
    return program


# ------------------------------------------------------------------------------------- hard shapes


def staircase(sizes: list[int], lives: tuple[int, ...]) -> Program:
    """Every step reads the one before, and those before that whose lives, in turn, are longer."""
    program = Program()
    steps: list[tuple[LifetimeBoundBuffer, int]] = []  # with its last reader
    for i, size in enumerate(sizes):
        inputs = [tensor for tensor, last in steps if last >= i]
        steps.append((program.op("step", size, *inputs), i + lives[i % len(lives)]))
    for i in range(len(sizes), len(sizes) + max(lives)):
        program.op("store", STICK, *(tensor for tensor, last in steps if last >= i))
    return program


def staircase_up(steps: int = 12, step: int = 64 * KIB) -> Program:
    return staircase([step * (i + 1) for i in range(steps)], lives=(1, 3))


def staircase_down(steps: int = 12, step: int = 64 * KIB) -> Program:
    return staircase([step * (steps - i) for i in range(steps)], lives=(1, 3))


def fragmentation(teeth: int = 8, tooth: int = 64 * KIB) -> Program:
    """Short and long tensors in turn, then one as large as all short ones: they leave a comb."""
    program = Program()
    short = []
    long = []
    for _ in range(teeth):
        short.append(program.op("short", tooth))
        long.append(program.op("long", tooth))
    for tensor in short:
        program.op("read", STICK, tensor)
    large = program.op("large", teeth * tooth)
    program.op("store", STICK, large, *long)
    return program


def random_program(ops: int = 60, seed: int = 0, largest: int = 256 * KIB) -> Program:
    """Pointwise ops, reductions and products over whatever is there."""
    rng = random.Random(seed)
    program = Program()
    tensors = [program.op("load", rng.randrange(1, largest // STICK) * STICK)]
    for _ in range(ops):
        inputs = rng.sample(tensors[-12:], k=min(len(tensors), rng.randrange(1, 4)))
        if rng.random() < 0.5:
            tensors.append(program.pointwise("pointwise", *inputs))
        else:
            size = rng.randrange(1, largest // STICK) * STICK
            tensors.append(program.op("op", size, *inputs))
    return program


def model(
    layers: int = 40,
    rows: int = 96 * KIB,
    inner: int = 288 * KIB,
    groups: int = 2,
    heads: int = 4,
    head: int = 16 * KIB,
    scores: int = 256 * KIB,
) -> Program:
    """Decoder layers: norm, grouped attention, norm, SwiGLU, on a residual stream."""
    program = Program()
    stream = program.op("embed", rows)
    for _ in range(layers):
        x = rms_norm_of(program, stream, STICK * 6)
        given = attention_of(program, x, groups, heads, head, scores, STICK * 16)
        joined = program.op("cat", groups * heads * head, *given)
        stream = program.pointwise("add", stream, program.op("project", rows, joined))
        x = rms_norm_of(program, stream, STICK * 6)
        stream = program.pointwise("add", stream, mlp_of(program, x, inner, rows))
    program.op("store", rows, stream)
    return program


# ------------------------------------------------------------------------------------------- suite


def peak(buffers: list[LifetimeBoundBuffer]) -> int:
    """Bytes that are alive at one time, a child in the place of its largest parent."""
    change: dict[int, int] = {}
    ends = {buffer: buffer.end_time for buffer in buffers}
    for child in buffers:
        free = [p for p in child.in_place_parents if ends.get(p) == p.end_time]
        if free:
            ends[max(free, key=lambda parent: parent.size)] -= 1
    for buffer in buffers:
        change[buffer.start_time] = change.get(buffer.start_time, 0) + buffer.size
        change[ends[buffer]] = change.get(ends[buffer], 0) - buffer.size
    alive = most = 0
    for time in sorted(change):
        alive += change[time]
        most = max(most, alive)
    return most


@dataclass(frozen=True)
class Pattern:
    """A program and how much memory there is for it."""

    name: str
    program: Callable[[], Program]
    share: float | None = None  # of the program's peak; None: what the planner has of LX

    def buffers(self) -> list[LifetimeBoundBuffer]:
        """New and unplanned ones."""
        return self.program().buffers()

    def limit(self) -> int:
        if self.share is None:
            return LX
        return int(self.share * peak(self.buffers()))


BLOCKS = {
    "softmax": softmax,
    "layer norm": layer_norm,
    "RMS norm": rms_norm,
    "SwiGLU MLP": swiglu_mlp,
    "GQA attention": gqa_attention,
    "MoE MLP": moe_mlp,
    "staircase up": staircase_up,
    "staircase down": staircase_down,
    "fragmentation": fragmentation,
    "random": random_program,
}
# All that is alive at one time fits, but only just; then not by far.
FITTING = [Pattern(name, program, 1.0) for name, program in BLOCKS.items()]
SHORT = [Pattern(f"{name}, 70%", program, 0.7) for name, program in BLOCKS.items()]
PATTERNS = [*FITTING, *SHORT]
MODEL = Pattern("40 layers", model)


# -------------------------------------------------------------------------------------------- time


def modelled_us(buffers: list[LifetimeBoundBuffer]) -> float:
    """What the ops take that do nothing but read and write the buffers, all cores alike."""
    ops = {moment: OpCost(cores=CORES) for buffer in buffers for moment in buffer.uses}
    for buffer in buffers:
        for moment in buffer.uses:
            cost = ops[moment]
            if buffer.address is not None:
                cost.lx_bytes += buffer.size
            elif moment == buffer.uses[0]:
                cost.written_bytes += CORES * buffer.size
            else:
                cost.read_bytes += CORES * buffer.size
    return sum(price(cost).total for cost in ops.values()) / 1e3
