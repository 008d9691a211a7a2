"""Where Inductor hands over its loops: consecutive nodes become one kernel."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby, pairwise
from typing import Any

import sympy
from torch._inductor import ir
from torch._inductor.scheduler import BaseSchedulerNode, BaseScheduling, SchedulerNode
from torch._inductor.utils import get_fused_kernel_name, get_kernel_metadata, sympy_product
from torch._inductor.virtualized import V

from torch_spyre._inductor import config, debug
from torch_spyre._inductor.build_kernel import (
    KernelBuilder,
    check_template,
    has_dynamic_sizes,
    is_product,
    template_source,
)
from torch_spyre._inductor.cache_key import given
from torch_spyre._inductor.codegen.source import launch_source, specs_text
from torch_spyre._inductor.errors import Unsupported, about, about_kernel, source_of
from torch_spyre._inductor.hinted_graph import graph_hints
from torch_spyre._inductor.kernel_ir import Buffer, KernelOp
from torch_spyre._inductor.kernel_template import template_of
from torch_spyre._inductor.observe import Pass
from torch_spyre._inductor.planning import Kernel, MustSplit, plan_kernels, settle
from torch_spyre._inductor.programs import compiled, keep_for_loading

MIN_FIXED_NODES = 8  # of a kernel between those of dynamic sizes
FIRST_LOOK = 256  # nodes that are planned to see how many of them can be one kernel
LOOK_AHEAD = 32  # as many more for the next kernel; for fewer, layouts are chosen that end it early


@dataclass
class _Settled:
    """A kernel of which splits and places are not planned yet."""

    ops: list[KernelOp]
    nodes: list[SchedulerNode]
    inside: list[str]  # buffers that only the kernel knows
    buffers: dict[str, Buffer]
    passes: list[Pass]  # what a debug directory shows

    @property
    def copies_views(self) -> bool:
        """Whether something is done before its launch or after it."""
        return any(a.buffer.view for op in self.ops for a in (*op.inputs, op.output))


class SuperDSCScheduling(BaseScheduling):
    """Writes kernels for the spyre device."""

    scheduler: Any

    def __init__(self, scheduler: Any) -> None:
        super().__init__(scheduler)
        self.pending: list[SchedulerNode] = []

    # Ops go into kernels here, not by Inductor's fusion: each stays an op of its own.
    def can_fuse_vertical(self, node1: BaseSchedulerNode, node2: BaseSchedulerNode) -> bool:
        return False

    def can_fuse_horizontal(self, node1: BaseSchedulerNode, node2: BaseSchedulerNode) -> bool:
        return False

    def group_fn(self, sizes: Sequence[Sequence[sympy.Expr]]) -> tuple[sympy.Expr, ...]:
        return tuple(V.graph.sizevars.simplify(sympy_product(size)) for size in sizes)

    def codegen_node(self, node: Any) -> None:
        self.pending += node.get_nodes()

    def codegen_sync(self) -> None:
        pass

    def ready_to_flush(self) -> bool:
        return self.scheduler.current_node in self._not_to_be_overtaken

    @cached_property
    def _not_to_be_overtaken(self) -> set[BaseSchedulerNode]:
        """What Inductor does not ask to write before it changes streams, or calls something that
        has no device, such as to record an event."""
        streams = self.scheduler.node_to_stream

        def waits(following: BaseSchedulerNode) -> bool:
            return following.get_device() is None and isinstance(following.node, ir.FallbackKernel)

        return {
            node
            for node, following in pairwise(self.scheduler.nodes)
            if waits(following) or streams.get(following) != streams.get(node)
        }

    def flush(self) -> None:
        nodes, self.pending = self.pending, []
        if not nodes:
            return
        settled: list[_Settled] = []
        for kernel in [nodes] if config.fusion else [[node] for node in nodes]:
            for dynamic, run in _runs(kernel):
                if dynamic:
                    self._write_kernels(settled)
                    settled = []
                    self._write_template(run)
                else:
                    settled += self._settled(run)
        self._write_kernels(settled)
        self.free_buffers_in_scheduler()

    def _settled(self, nodes: list[SchedulerNode]) -> Iterator[_Settled]:
        """Kernels for all nodes, each as long as it can be.

        How long that is turns out by planning. Mostly all of them are one; if not, it looks no
        further ahead than needed, or long graphs would be planned again for each of their kernels.
        """
        builder = self._built(nodes)
        begin, ahead = 0, FIRST_LOOK
        while begin < len(nodes):
            kernel = self._longest_kernel(builder, nodes, begin, begin + ahead)
            count = len(kernel.nodes)
            if begin + count < len(nodes) and count == ahead:
                ahead *= 2
                continue
            yield kernel
            begin += count
            ahead = count + LOOK_AHEAD  # layers are alike

    def _write_kernels(self, settled: list[_Settled]) -> None:
        """Plans and writes kernels that are launched one after the other."""
        keep = config.lx_planning and config.lx_across_kernels and given().scratchpads_survive
        for alone, run in groupby(settled, lambda kernel: not keep or kernel.copies_views):
            for kernels in [[kernel] for kernel in run] if alone else [list(run)]:
                self._write_together(kernels)

    def _write_together(self, settled: list[_Settled]) -> None:
        """Kernels with nothing in between, so that what one hands to the next may stay in LX."""
        nodes = [node for each in settled for node in each.nodes]
        inside = {name for each in settled for name in each.inside}
        between = [name for name in self._seen_only_by(nodes) if name not in inside]
        buffers = {name: buffer for each in settled for name, buffer in each.buffers.items()}
        with debug.watching_passes(settled[0].passes), about_kernel(nodes, buffers):
            kernels = plan_kernels([each.ops for each in settled], between)
        outside = {name for kernel in kernels for name in kernel.operands}
        self._mark_run(nodes, [*inside, *(name for name in between if name not in outside)])
        launches: list[tuple[str, list[str]]] = []
        for each, kernel in zip(settled, kernels, strict=True):
            called, line = _called(each.nodes), source_of(node.node for node in each.nodes)
            program, binary = compiled(called, kernel.specs, kernel.handover, line)
            keep_for_loading(program, binary)
            source, about = f"{program!r}, {launch_source(kernel)}", _for_people(kernel)
            text = partial(specs_text, kernel)
            name = self._define("async_compile.sdsc", source, each.nodes, about, text)
            debug.kernel_made(name, kernel, each.nodes, each.passes)
            launches.append((name, [_on_card(operand) for operand in kernel.operands]))
            if not kernel.handover.left:
                V.graph.wrapper_code.writeline(_call(launches))
                launches = []

    def _longest_kernel(
        self,
        builder: KernelBuilder,
        all_nodes: list[SchedulerNode],
        begin: int,
        end: int,
        known_outside: Collection[str] = (),
    ) -> _Settled:
        """A kernel of as many nodes as can be, of those from the first to the last one."""
        nodes = all_nodes[begin:end]
        inside = [name for name in self._seen_only_by(nodes) if name not in known_outside]
        ops, buffers = builder.part(begin, end, inside)
        passes: list[Pass] = []
        try:
            with debug.watching_passes(passes), about_kernel(nodes, buffers):
                return _Settled(settle(ops), nodes, inside, buffers, passes)
        except MustSplit as split:
            if split.writes:
                outside = {*known_outside, split.buffer}
            else:
                end, outside = begin + split.node, {*known_outside}
            return self._longest_kernel(builder, all_nodes, begin, end, outside)

    def _write_template(self, nodes: list[SchedulerNode]) -> None:
        inside = self._seen_only_by(nodes)
        ops, buffers = self._built(nodes).part(0, len(nodes), inside)
        template = template_of(ops, buffers)
        source = template_source(template)
        if source not in V.graph.wrapper_code.src_to_kernel:
            with debug.watching_passes([]), about_kernel(nodes, buffers):
                check_template(template)
        self._mark_run(nodes, inside)
        origins, text = f", origins={template.origins}", "\n".join(map(str, ops))
        name = self._define("async_compile.sdsc_template", source, nodes, origins, lambda: text)
        debug.template_made(name, text, nodes)
        args = [*map(_on_card, template.tensors), *template.sizes]
        V.graph.wrapper_code.writeline(f"{name}.run({', '.join(args)})")

    def _built(self, nodes: list[SchedulerNode]) -> KernelBuilder:
        builder = KernelBuilder()
        for node in nodes:
            if not isinstance(node.node, ir.ComputedBuffer):
                raise Unsupported(f"{node.get_name()} is no loop", op=type(node.node).__name__)
            with about(node.node, builder.buffers):
                builder.add(node.node)
        return builder

    def _mark_run(self, nodes: list[SchedulerNode], inside: list[str]) -> None:
        V.graph.removed_buffers.update(inside)
        for node in nodes:
            node.mark_run()

    def _define(
        self,
        make: str,
        source: str,
        nodes: list[SchedulerNode],
        about: str,
        text: Callable[[], str],
    ) -> str:
        """The name of the kernel in the wrapper; equal kernels have one, whoever made them.
        ``text`` is what it does, for people."""
        wrapper = V.graph.wrapper_code
        name = wrapper.src_to_kernel.get(source)
        if name is None:
            name = f"{_called(nodes)}_{wrapper.next_kernel_suffix()}"
            wrapper.src_to_kernel[source] = name
            origins, detailed = get_kernel_metadata(nodes, wrapper)
            comments = [origins, detailed, *(f"# {line}" for line in text().splitlines())]
            body = f"{make}({name!r}, {source}{about})"
            wrapper.define_kernel(name, body, "\n".join(comments), gpu=False)
        return name

    def _seen_only_by(self, nodes: list[SchedulerNode]) -> list[str]:
        """Buffers that nobody outside of the nodes reads."""
        own = {node.get_name() for node in nodes}
        # Who reads a buffer after a later write is a user of the write.
        outputs = {*V.graph.get_output_names(), *V.graph.mutated_buffers}
        names = []
        for node in nodes:
            for buffer in node.get_outputs():
                users = {user.node.get_name() for user in buffer.users}
                aliases = buffer.get_aliases() or buffer.get_mutations()
                if users <= own and buffer.get_name() not in outputs and not aliases:
                    names.append(buffer.get_name())
        return names


def _called(nodes: Sequence[SchedulerNode]) -> str:
    """A kernel, without its number."""
    return f"sdsc_{get_fused_kernel_name(nodes, 'original_aten')}"


def _call(launches: list[tuple[str, list[str]]]) -> str:
    """The line of the wrapper that launches kernels with their arguments."""
    if len(launches) == 1:
        ((name, args),) = launches
        return f"{name}.run({', '.join(args)})"
    texts = (f"({name}, ({''.join(f'{arg}, ' for arg in args)}))" for name, args in launches)
    return f"run_together({', '.join(texts)})"


def _for_people(kernel: Kernel) -> str:
    """What else a kernel is told: where its ops come from, and where intermediates live."""
    residents = [tuple(resident) for resident in kernel.residents]
    return f", sources={kernel.sources}, residents={residents}"


def _runs(nodes: list[SchedulerNode]) -> list[tuple[bool, list[SchedulerNode]]]:
    """The nodes in kernels, and whether these have dynamic sizes.

    What has fixed sizes is compiled now, and not again for every size of the rest, if it is much.
    Kernels of dynamic sizes begin at products of matrices, as the card does anyway: layers that are
    alike then share them, and a new size costs as much as one layer. What hints want in one loop
    stays in one kernel.
    """
    runs: list[tuple[bool, list[SchedulerNode]]] = []
    for dynamic, group in groupby(nodes, has_dynamic_sizes):
        run = list(group)
        if runs and runs[-1][0] and (dynamic or len(run) < MIN_FIXED_NODES):
            runs[-1][1].extend(run)
        elif dynamic and runs and len(runs[-1][1]) < MIN_FIXED_NODES:
            runs[-1] = (True, runs[-1][1] + run)
        else:
            runs.append((dynamic, run))
    return [(dynamic, part) for dynamic, run in runs for part in (_cut(run) if dynamic else [run])]


def _cut(nodes: list[SchedulerNode]) -> list[list[SchedulerNode]]:
    parts: list[list[SchedulerNode]] = [[]]
    for node in nodes:
        if is_product(node) and parts[-1] and not graph_hints().tile(parts[-1][-1].node, node.node):
            parts.append([])
        parts[-1].append(node)
    return parts


def _on_card(name: str) -> str:
    """A buffer as an argument: PyTorch lets numbers in tensors of the host meet those of a card."""
    buffer = V.graph.get_buffer(name)
    card = V.graph.get_current_device_or_throw()
    return name if buffer.get_device() == card else f"{name}.to({str(card)!r})"
