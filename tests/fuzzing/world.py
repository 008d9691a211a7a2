"""The state of a run: which tensors there are, what they hold, and the steps that led there."""

import re
from dataclasses import dataclass, field

import numpy as np
import torch

from fuzzing.prelude import STREAMS, Difference, Sides

DTYPES = [
    torch.float32, torch.float16, torch.bfloat16, torch.int64,
    torch.int32, torch.int16, torch.uint8, torch.bool,
]  # fmt: skip
# Whole numbers up to this are exact in the dtype, on the card and on the CPU.
EXACT = {torch.bfloat16: 256, torch.float16: 1024, torch.float32: 1024, torch.uint8: 255}
LARGEST = 8  # what tensors hold between steps
MOST_BASES, MOST_NAMES = 6, 14

NAME = re.compile(r"\bt\d+\b")


def places(t):
    """Where in its storage the elements of a CPU tensor lie."""
    at = np.full(t.shape, t.storage_offset(), dtype=np.int64)
    for dim, (extent, stride) in enumerate(zip(t.shape, t.stride(), strict=True)):
        line = np.arange(extent, dtype=np.int64) * stride
        at += line.reshape([-1 if d == dim else 1 for d in range(t.dim())])
    return at.ravel()


def storage(t):
    return t.untyped_storage()._cdata


def distinct(t):
    """Whether all elements have a place of their own."""
    at = places(t)
    return np.unique(at).size == at.size


def touch(a, b):
    """Whether two CPU tensors share a place."""
    return storage(a) == storage(b) and np.intersect1d(places(a), places(b)).size > 0


def same_view(a, b):
    return (
        storage(a) == storage(b)
        and a.shape == b.shape
        and a.stride() == b.stride()
        and a.storage_offset() == b.storage_offset()
    )


@dataclass
class Use:
    """Who used the memory of a storage last, in a program with several streams."""

    writer: int | None = None
    readers: set[int] = field(default_factory=set)


class World:
    """Runs statements on both sides, keeps the list of them, and knows the tensors they made.

    With `streams`, every statement goes to a stream of its own choice, after waiting for what it
    depends on and for nothing else, and the sides are compared when the program settles.
    With `card=False` only the CPU runs: the program is for later.
    """

    def __init__(self, choose, record=lambda statement: None, streams=False, cards=1, card=True):
        self.choose = choose
        self.record = record
        self.sides = Sides(card)
        self.streams, self.cards, self.card = streams, cards, card
        self.compiled_gradients = 12  # one in so many
        self.statements: list[str] = []
        self.device: dict[str, int] = {}  # of each name, the oldest first
        self.whole: set[str] = set()  # names that cover their storage
        self.uses: dict[int, Use] = {}
        self.stream: int | None = None  # of the last statement
        self.drop_later: list[str] = []
        self.count = 0

    # ------------------------------------------------------------------------------- names

    def new_name(self):
        self.count += 1
        return f"t{self.count - 1}"

    def __getitem__(self, name):
        return self.sides.cpu[name]

    def peek(self, expression):
        """The value of an expression, on the CPU."""
        return eval(expression, self.sides.cpu)

    def names(self, device=None, dtypes=None):
        return [
            name
            for name, place in self.device.items()
            if (device is None or place == device)
            and (dtypes is None or self[name].dtype in dtypes)
        ]

    def device_of(self, expression):
        """The card of the tensors in an expression."""
        return next((self.device[n] for n in NAME.findall(expression) if n in self.device), 0)

    def bases(self):
        return [name for name in self.device if name in self.whole]

    # ------------------------------------------------------------------------------- steps

    def make(self, expression, device=None, writes=()):
        """A step that gives a name to a new tensor, view or not; None if it raised or made none."""
        name, device = self.new_name(), self.device_of(expression) if device is None else device
        if not self.do(f"{name} = {expression}", writes):
            return None
        if not isinstance(self[name], torch.Tensor):
            self.drop_later.append(name)
            return None
        self._adopt(name, device)
        for changed in [name, *filter(NAME.match, writes)]:
            self.bound(changed)
        self.make_room()
        return name

    def _adopt(self, name, device):
        """Takes a tensor up into the list, and checks that it shares memory with whom it should."""
        t = self[name]
        relatives = [n for n in self.device if storage(self[n]) == storage(t)]
        if self.card:
            ours = self.sides.card
            shared = [n for n in self.device if storage(ours[n]) == storage(ours[name])]
            if shared != relatives:
                raise Difference(f"{name} shares memory with {shared}, on the CPU {relatives}")
        if not relatives:
            self.whole.add(name)
            self.uses[storage(t)] = Use(self.stream)
        self.device[name] = device

    def do(self, statement, writes=()):
        """Runs a statement on both sides; whether it ran. `writes`: names of what it changes."""
        if self.streams:
            statement = self._on_a_stream(statement, writes)
        return self._step(statement)

    def _step(self, statement):
        raised = self.sides.on_cpu(statement)
        if isinstance(raised, NotImplementedError):
            return False  # the CPU has no kernel for the dtype; the card may have one
        self.statements.append(statement)
        self.record(statement)
        if self.card:
            self.sides.on_card(statement, raised)
            if not self.streams:
                self.compare(statement)
        if self.drop_later and not self.streams:
            self._drop_others()
        return raised is None

    def _drop_others(self):
        """Results that are no tensors are compared once."""
        gone, self.drop_later = self.drop_later, []
        self._step(f"del {', '.join(gone)}")

    def compare(self, statement=""):
        """Every element of every base, and what the statement names."""
        named = {n for n in NAME.findall(statement) if n in self.sides.cpu}
        self.sides.compare([n for n in self.sides.tensors() if n in named or self._needed(n)])

    def _needed(self, name):
        if name in self.whole or name not in self.device:
            return True
        here = storage(self[name])
        return not any(storage(self[base]) == here for base in self.whole)

    def bound(self, expression):
        """Makes the numbers small again if a step made them large."""
        t = self.peek(expression)
        if t.numel() and t.dtype != torch.bool and t.detach().abs().max() > LARGEST:
            self.do(f"{expression}.remainder_(7)", [expression])

    def make_room(self):
        while len(self.bases()) > MOST_BASES:
            self.drop(self.choose(self.bases()))
        while len(self.device) > MOST_NAMES:
            self.drop(self.choose([n for n in self.device if n not in self.whole]))

    def drop(self, name):
        """Forgets a tensor; a base together with its views."""
        gone = [name]
        if name in self.whole:
            gone = [n for n in self.device if storage(self[n]) == storage(self[name])]
        for one in gone:
            del self.device[one]
            self.whole.discard(one)
        self._step(f"del {', '.join(gone)}")

    def find_bases(self):
        """After set_ and resize_: tensors that cover each storage, if need be new views of it."""
        for name in list(self.device):
            t = self[name]
            size = t.untyped_storage().nbytes() // t.itemsize
            if t.numel() == size and distinct(t):
                self.whole.add(name)
            else:
                self.whole.discard(name)
        for name in list(self.device):
            if name in self.device and self._needed(name) and name not in self.whole:
                size = self[name].untyped_storage().nbytes() // self[name].itemsize
                view = self.make(f"{name}.as_strided(({size},), (1,), 0)")
                if view in self.device:  # and did not make room for others at once
                    self.whole.add(view)

    # ------------------------------------------------------------------------------- streams

    def _on_a_stream(self, statement, writes):
        mine = self.choose(range(STREAMS))
        named = [n for n in NAME.findall(statement) if n in self.device]
        written = {storage(self[n]) for w in writes for n in NAME.findall(w)}
        for name in dict.fromkeys(named):
            use = self.uses.setdefault(storage(self[name]), Use())
            others = {use.writer} if use.writer is not None else set()
            if storage(self[name]) in written:
                others |= use.readers
            for other in sorted(others - {mine}):
                self._step(self.choose([
                    f"streams[{mine}].wait_stream(streams[{other}])",
                    f"streams[{mine}].wait_event(streams[{other}].record_event())",
                ]))  # fmt: skip
            if storage(self[name]) in written:
                self.uses[storage(self[name])] = Use(mine)
            else:
                use.readers.add(mine)
        self.stream = mine
        lines = statement.splitlines()
        return f"with streams[{mine}]:\n" + "\n".join(f"    {line}" for line in lines)

    def nap(self):
        self._step(f"nap(streams[{self.choose(range(STREAMS))}], 0.002)")

    def settle(self):
        self._step("settle()")
        self.uses.clear()
        if self.card:
            self.compare()
        if self.drop_later:
            self._drop_others()
