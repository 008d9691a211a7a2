"""From groups of works to the steps of a program.

If all cores work on their parts of device memory, the result is the same as if one core worked on
the whole; and the software card divides the work of a single step best by itself. So works without
scratchpads and loops are joined for all cores, moved next to works that they share tensors with,
and made into as few passes over memory as possible. The rest runs core by core.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from torch_spyre.backend.bundle import Bundle
from torch_spyre.backend.chain import chains
from torch_spyre.backend.exchange import exchange
from torch_spyre.backend.fuse import Run
from torch_spyre.backend.lower import lower
from torch_spyre.backend.places import Place
from torch_spyre.backend.program import (
    MAX_OPERANDS,
    SCRATCHPAD,
    CoreLoop,
    CoreOperand,
    Cores,
    CoreStep,
)
from torch_spyre.backend.schedule import Group, WorkLoop, works
from torch_spyre.backend.work import Readers, Work

# How many works are looked at for one that a work can be computed together with.
LOOK_AHEAD = 32

Entries = Sequence[Work | WorkLoop]


def steps_of(bundle: Bundle, groups: list[Group]) -> list[Cores]:
    """The steps of the program, in order."""
    emitter = _Emitter(bundle, groups)
    return [emitter.cores(entries) for entries in _joined_groups(groups)]


def _joined_groups(groups: list[Group]) -> Iterator[Entries]:
    """The works of groups. Works that need not run core by core are joined."""
    whole: list[Work] = []
    places: set[Place] = set()
    for group in groups:
        joined = [entry.as_one_core() if isinstance(entry, Work) else None for entry in group.works]
        if None in joined:
            yield from ([late(whole)] if whole else [])
            whole, places = [], set()
            yield group.works
            continue
        for work in joined:
            assert work is not None
            if len(places) + len(work.places) > MAX_OPERANDS:
                yield late(whole)
                whole, places = [], set()
            whole.append(work)
            places.update(work.places)
    yield from ([late(whole)] if whole else [])


def late(entries: Sequence[Work]) -> list[Work]:
    """The works, with those that begin a chain moved directly before what needs their results."""
    made: list[Work] = []  # last first
    for i in reversed(range(len(entries))):
        work, place = entries[i], len(made)
        if work.is_elementwise and not _continues(work, entries[max(0, i - LOOK_AHEAD) : i]):
            nearest = max(0, place - LOOK_AHEAD)
            while place > nearest and not work.meets(made[place - 1]):
                place -= 1
            if place == nearest:  # none that was looked at needs it: it stays
                place = len(made)
        made.insert(place, work)
    return made[::-1]


def _continues(work: Work, before: Sequence[Work]) -> bool:
    """Whether the last of the works before that it needs is elementwise."""
    for other in reversed(before):
        if work.meets(other):
            return other.is_elementwise
    return False


class _Emitter:
    def __init__(self, bundle: Bundle, groups: list[Group]) -> None:
        everything = [entry for group in groups for entry in _with_loops(group.works)]
        local = {SCRATCHPAD, 0} if bundle.has_pool else {SCRATCHPAD}
        self.readers = Readers(everything, local.__contains__, bundle.handover.left)

    def cores(self, entries: Entries) -> Cores:
        operands: dict[Place, int] = {}
        count = max((work.op.cores for work in works(entries)), default=1)
        nodes = self._nodes(entries, operands)
        table = [CoreOperand(place.operand, _padded(place.offsets, count)) for place in operands]
        return Cores(count, table, nodes)

    def _runs(self, entries: Entries) -> list[Run | Work | WorkLoop]:
        """The entries, those that a chain can compute together in one.

        A work joins the latest chain that takes it, if it needs nothing that comes after that one.
        """
        result: list[Run | Work | WorkLoop] = []
        for run in self._joined(entries, careful=False):
            if isinstance(run, Run) and not run.is_sound():
                result += self._joined(run.works, careful=True)
            else:
                result.append(run)
        return result

    def _joined(self, entries: Entries, careful: bool) -> list[Run | Work | WorkLoop]:
        runs: list[Run | Work | WorkLoop] = []
        for entry in entries:
            if isinstance(entry, WorkLoop) or not _joins(entry, runs[-LOOK_AHEAD:]):
                run = Run(self.readers.needed, careful)
                linked = isinstance(entry, Work) and run.add(entry)
                runs.append(run if linked else entry)
        return runs

    def _nodes(self, entries: Entries, operands: dict[Place, int]) -> list[CoreStep | CoreLoop]:
        nodes: list[CoreStep | CoreLoop] = []
        for entry in self._runs(entries):
            if isinstance(entry, WorkLoop):
                nodes.append(self._loop(entry, operands))
            elif isinstance(entry, Run) and len(entry.links) > 1:
                nodes += chains(entry, operands)
            else:
                work = entry.works[0] if isinstance(entry, Run) else entry
                if work.op.exchanges:
                    nodes += exchange(work, operands)
                    continue
                numbers = [operands.setdefault(place, len(operands)) for place in work.places]
                nodes += lower(work.op, numbers)
        return nodes

    def _loop(self, entry: WorkLoop, operands: dict[Place, int]) -> CoreLoop:
        body = self._nodes(entry.body, operands)
        advances = {
            number: stride
            for place, number in operands.items()
            for name, stride in place.strides
            if name == entry.loop.variable
        }
        return CoreLoop(entry.loop.count, advances, body)


def _joins(work: Work, runs: Iterable[Run | Work | WorkLoop]) -> bool:
    """Whether one of the runs takes the work; it may come before all that it does not meet."""
    for run in reversed(list(runs)):
        if isinstance(run, WorkLoop):
            return False
        if isinstance(run, Run) and run.add(work):
            return True
        if any(map(work.meets, run.works if isinstance(run, Run) else [run])):
            return False
    return False


def _with_loops(entries: Entries, loop: int | None = None) -> Iterator[tuple[Work, int | None]]:
    """The works in order, with what tells the outermost loop around them from others."""
    for entry in entries:
        if isinstance(entry, Work):
            yield entry, loop
        else:
            yield from _with_loops(entry.body, loop or id(entry))


def _padded(offsets: tuple[int, ...], cores: int) -> tuple[int, ...]:
    """The offsets for all cores. Cores that do not run an op have any: they are never used."""
    return offsets + (0,) * (cores - len(offsets))
