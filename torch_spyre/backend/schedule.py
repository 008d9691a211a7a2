"""From a bundle to a program: which ops the cores run one after the other without waiting.

Ops go into one ``cores`` step as long as every core reads only what it wrote itself. That is so if
an earlier op of the step and a later one touch a piece of memory in the same places on every core,
or touch different pieces. Anything else needs the cores to wait for each other: a new step. So does
a matrix product whose cores share a factor: the card reads it once if it sees the whole product.

Launch arguments are taken to be different memory; a kernel names memory it uses twice once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torch_spyre.backend.bundle import Bundle, Execute, Loop, Node
from torch_spyre.backend.chain import chains
from torch_spyre.backend.errors import MalformedBundle
from torch_spyre.backend.fuse import Run
from torch_spyre.backend.lower import lower
from torch_spyre.backend.places import Place, Region, place_of, region_of
from torch_spyre.backend.program import (
    MAX_OPERANDS,
    SCRATCHPAD,
    CoreLoop,
    CoreOperand,
    Cores,
    CoreStep,
)
from torch_spyre.backend.work import Readers, Work

# A bundle that needs more steps is written out too far to be run in reasonable time.
MAX_WRITTEN_OUT = 1 << 16


@dataclass
class Touch:
    """What an op does to a piece of memory."""

    region: Region
    writes: bool
    # The first core of a cohort works for all of it: it touches what is the others'.
    cohort: bool

    @property
    def key(self) -> tuple[Place, object]:
        """Equal for touches of the same sticks by the same cores."""
        region = self.region
        return region.place, (region.pattern, id(region) if self.cohort else None)

    def clashes(self, other: Touch) -> bool:
        """Whether one core may touch what another touches, and one of them writes."""
        if not (self.writes or other.writes):
            return False
        if not (self.cohort or other.cohort) and self.region.alike(other.region):
            return False
        return self.region.overlaps(other.region)


@dataclass
class WorkLoop:
    loop: Loop
    body: list[Work | WorkLoop]


@dataclass
class Group:
    """Works that a core runs without waiting for another."""

    works: list[Work | WorkLoop] = field(default_factory=list)
    # By operand, those of one key together.
    touches: dict[int, dict[object, Touch]] = field(default_factory=dict)
    places: set[Place] = field(default_factory=set)

    def accepts(self, touches: list[Touch]) -> bool:
        if len(self.places) + len(touches) > MAX_OPERANDS:
            return False
        for new in touches:
            operand = new.region.place.operand
            if operand == SCRATCHPAD:  # cores have their own, and never meet
                continue
            if any(new.clashes(old) for old in self.touches.get(operand, {}).values()):
                return False
        return True

    def add(self, work: Work | WorkLoop, touches: list[Touch]) -> None:
        self.works.append(work)
        for touch in touches:
            self.places.add(touch.region.place)
            known = self.touches.setdefault(touch.region.place.operand, {})
            if known.setdefault(touch.key, touch).writes < touch.writes:
                known[touch.key] = touch


def groups(bundle: Bundle) -> list[Group]:
    """The works of the bundle, in the groups that become steps."""
    return [group for group in _Scheduler(bundle).run() if group.works]


def steps_of(bundle: Bundle, groups: list[Group]) -> list[Cores]:
    """The steps of the program, in order."""
    emitter = _Emitter(bundle, groups)
    return [emitter.cores(group) for group in groups]


def works(entries: list[Work | WorkLoop]) -> Iterator[Work]:
    """The works of a group in order, loop bodies once."""
    for entry in entries:
        if isinstance(entry, Work):
            yield entry
        else:
            yield from works(entry.body)


class _Scheduler:
    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.groups: list[Group] = [Group()]
        self.written_out = 0
        self.closed = False  # the last group takes no more works

    def run(self) -> list[Group]:
        for node in self._late(self.bundle.nodes):
            self._add(node, {})
        return self.groups

    def _late(self, nodes: list[Node]) -> list[Node]:
        """Ops that read other than pointwise ops' results directly before what needs theirs."""
        made: list[tuple[Node, Work | None]] = []  # last first
        works = []
        for node in nodes:
            tried = self._work(node, {}, {}) if isinstance(node, Execute) else None
            works.append(tried[0] if tried else None)
        for i in reversed(range(len(nodes))):
            work, place = works[i], len(made)
            if work is not None and work.is_elementwise and not _continues(work, works[:i]):
                while place > 0:
                    other = made[place - 1][1]
                    if other is None or work.meets(other):
                        break
                    place -= 1
                if place == 0:  # nobody needs it: it stays
                    place = len(made)
            made.insert(place, (nodes[i], work))
        return [node for node, _ in reversed(made)]

    def _add(self, node: Node, fixed: dict[str, int]) -> None:
        """Append a node; ``fixed`` are variables of loops that had to be written out."""
        tried = self._try(node, {}, fixed)
        if tried is not None:
            work, touches = tried
            alone = isinstance(work, Work) and work.runs_best_alone
            if alone or self.closed or not self.groups[-1].accepts(touches):
                self.groups.append(Group())
            self.closed = alone
            self.groups[-1].add(work, touches)
            return
        assert isinstance(node, Loop)  # an op outside of loops is always possible
        # Cores must wait for each other inside: one iteration after the other.
        for iteration in range(node.count):
            self.written_out += 1
            if self.written_out > MAX_WRITTEN_OUT:
                raise MalformedBundle(
                    self.bundle.where,
                    node.variable,
                    f"the loop's {node.count} iterations exchange data between cores, too many "
                    "to be written out one by one; keep each core in its own part of the tensors",
                )
            for inner in node.body:
                self._add(inner, fixed | {node.variable: iteration})

    def _try(
        self, node: Node, counts: dict[str, int], fixed: dict[str, int]
    ) -> tuple[Work | WorkLoop, list[Touch]] | None:
        """A node as part of a group, unless cores would have to wait for each other inside."""
        if isinstance(node, Execute):
            return self._work(node, counts, fixed)
        if node.count == 0:
            return WorkLoop(node, []), []
        counts = counts | {node.variable: node.count}
        group = Group()
        for inner in node.body:
            tried = self._try(inner, counts, fixed)
            if tried is None:
                return None
            work, touches = tried
            if not group.accepts(touches):
                return None
            group.add(work, touches)
        everything = [touch for touches in group.touches.values() for touch in touches.values()]
        return WorkLoop(node, group.works), everything

    def _work(
        self, node: Execute, counts: dict[str, int], fixed: dict[str, int]
    ) -> tuple[Work, list[Touch]] | None:
        op = node.op
        places = [place_of(self.bundle, node, tensor, fixed) for tensor in op.tensors]
        regions = [
            region_of(op, tensor, place, counts)
            for tensor, place in zip(op.tensors, places, strict=True)
        ]
        if counts and not regions[-1].cores_are_apart():
            return None
        touches = [Touch(region, region is regions[-1], op.splits_k) for region in regions]
        return Work(op, places, regions), touches


def _continues(work: Work, before: list[Work | None]) -> bool:
    """Whether it works on what the last op before that it needs, an elementwise one, has made."""
    for other in reversed(before):
        if other is None:
            return False
        if work.meets(other):
            return other.is_elementwise
    return False


class _Emitter:
    """Steps from groups."""

    def __init__(self, bundle: Bundle, groups: list[Group]) -> None:
        everything = [entry for group in groups for entry in _with_loops(group.works)]
        local = {SCRATCHPAD, 0} if bundle.has_pool else {SCRATCHPAD}
        self.readers = Readers(everything, local.__contains__)

    def cores(self, group: Group) -> Cores:
        entries: list[Work | WorkLoop] = group.works
        if len(self._runs(entries)) == 1 and isinstance(entries[0], Work):
            # One step for all: the card itself shares the work out best.
            joined = [work.as_one_core() for work in works(entries)]
            entries = [work for work in joined if work] if None not in joined else entries
        operands: dict[Place, int] = {}
        count = max((work.op.cores for work in works(entries)), default=1)
        nodes = self._nodes(entries, operands)
        table = [CoreOperand(place.operand, _padded(place.offsets, count)) for place in operands]
        return Cores(count, table, nodes)

    def _runs(self, entries: Sequence[Work | WorkLoop]) -> list[Run | Work | WorkLoop]:
        """The entries, those that a chain can compute together in one.

        A work joins the latest chain that takes it, if it needs nothing that comes after that one.
        """
        runs: list[Run | Work | WorkLoop] = []
        for entry in entries:
            if isinstance(entry, WorkLoop) or not self._joined(entry, runs):
                run = Run(self.readers.needed)
                linked = isinstance(entry, Work) and run.add(entry)
                runs.append(run if linked else entry)
        return runs

    @staticmethod
    def _joined(work: Work, runs: list[Run | Work | WorkLoop]) -> bool:
        for run in reversed(runs):
            if isinstance(run, WorkLoop):
                return False
            if isinstance(run, Run) and run.add(work):
                return True
            if any(map(work.meets, run.works if isinstance(run, Run) else [run])):
                return False
        return False

    def _nodes(
        self, entries: Sequence[Work | WorkLoop], operands: dict[Place, int]
    ) -> list[CoreStep | CoreLoop]:
        nodes: list[CoreStep | CoreLoop] = []
        for entry in self._runs(entries):
            if isinstance(entry, WorkLoop):
                nodes.append(self._loop(entry, operands))
            elif isinstance(entry, Run) and len(entry.links) > 1:
                nodes += chains(entry, operands)
            else:
                work = entry.works[0] if isinstance(entry, Run) else entry
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


def _with_loops(
    entries: Sequence[Work | WorkLoop], loop: int | None = None
) -> Iterator[tuple[Work, int | None]]:
    """The works in order, with what tells the outermost loop around them from others."""
    for entry in entries:
        if isinstance(entry, Work):
            yield entry, loop
        else:
            yield from _with_loops(entry.body, loop or id(entry))


def _padded(offsets: tuple[int, ...], cores: int) -> tuple[int, ...]:
    """Cores beyond those of an op do not run it; their offset is never looked at."""
    return offsets + (0,) * (cores - len(offsets))
