"""From a bundle to a program: which ops the cores run one after the other without waiting.

Ops go into one ``cores`` step as long as every core reads only what it wrote itself. That is so if
an earlier op of the step and a later one touch a piece of memory in the same places on every core,
or touch different pieces. Anything else needs the cores to wait for each other: a new step. An op
by which cores take from the scratchpads of others is a step of its own: those others have written
it before, and do not write there until all is taken.

Launch arguments are taken to be different memory; a kernel names memory it uses twice once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torch_spyre.backend.bundle import Bundle, Execute, Loop, Node
from torch_spyre.backend.errors import MalformedBundle
from torch_spyre.backend.places import Place, Region, place_of, region_of
from torch_spyre.backend.program import (
    MAX_OPERANDS,
    SCRATCHPAD,
)
from torch_spyre.backend.work import Work

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
    exchanges: bool = False

    def accepts(self, touches: list[Touch]) -> bool:
        if self.works and (self.exchanges or _exchange(touches)):
            return False
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
        self.exchanges |= _exchange(touches)
        for touch in touches:
            self.places.add(touch.region.place)
            known = self.touches.setdefault(touch.region.place.operand, {})
            if known.setdefault(touch.key, touch).writes < touch.writes:
                known[touch.key] = touch


def _exchange(touches: list[Touch]) -> bool:
    return any(touch.region.tensor.held for touch in touches)


def groups(bundle: Bundle) -> list[Group]:
    """The works of the bundle, in the groups that become steps."""
    return [group for group in _Scheduler(bundle).run() if group.works]


def works(entries: Sequence[Work | WorkLoop]) -> Iterator[Work]:
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

    def run(self) -> list[Group]:
        for node in self.bundle.nodes:
            self._add(node, {})
        return self.groups

    def _add(self, node: Node, fixed: dict[str, int]) -> None:
        """Append a node; ``fixed`` are variables of loops that had to be written out."""
        tried = self._try(node, {}, fixed)
        if tried is not None:
            work, touches = tried
            if not self.groups[-1].accepts(touches):
                self.groups.append(Group())
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
