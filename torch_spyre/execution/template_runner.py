"""Launches templates: an instance for each set of sizes and layouts, made when first needed."""

from __future__ import annotations

import inspect
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from torch_spyre import _C
from torch_spyre._inductor import config, debug, programs
from torch_spyre._inductor.errors import Unsupported, describe_tensor
from torch_spyre._inductor.kernel_ir import Buffer
from torch_spyre._inductor.kernel_template import Instance, Placement, filled, plan_template
from torch_spyre._inductor.planning import Kernel
from torch_spyre.execution.kernel_runner import SDSCKernelRunner

# A graph that runs cannot be run op by op from its middle on: some of its results are written.
WAY_OUT = (
    "compute such sizes outside of the compiled function, or compile for fixed ones "
    "(torch.compile(dynamic=False)): where that is not possible, the graph runs op by op"
)

log = logging.getLogger("spyre.execution")


class _Instance:
    """A template compiled for sizes and layouts."""

    def __init__(self, name: str, plan: Instance, arguments: Sequence[str]) -> None:
        self.shared = plan.shared
        names = [*arguments, *(buffer.name for buffer in plan.shared)]
        self.launches = [
            (compiled(name, kernel), [names.index(operand) for operand in kernel.operands])
            for kernel in plan.kernels
        ]

    def run(self, args: Sequence[torch.Tensor]) -> None:
        tensors = list(args)
        for buffer in self.shared:
            size, stride, device = buffer.size, buffer.stride, args[0].device
            tensors.append(torch.empty_strided(size, stride, dtype=buffer.dtype, device=device))
        for runner, places in self.launches:
            runner.run(*[tensors[place] for place in places])


def compiled(name: str, kernel: Kernel) -> SDSCKernelRunner:
    """A planned kernel, ready to be launched."""
    _, binary = programs.compiled(name, kernel.specs, kernel.handover)
    return SDSCKernelRunner(
        name,
        binary,
        expected=[(b.layout, b.stride, b.offset) for b in kernel.tensors],  # type: ignore[misc]
        outputs=kernel.outputs,
        constants=[(b.constant, b.dtype) for b in kernel.constants],  # type: ignore[misc]
        pool_bytes=kernel.pool_bytes,
        views=kernel.views,
        sources=kernel.sources,
        residents=kernel.residents,
    )


class SDSCTemplateRunner:
    """A kernel of a graph with dynamic shapes."""

    def __init__(
        self,
        name: str,
        numbers: Callable[..., Sequence[int]],  # that the data lacks, of the sizes
        data: bytes,
        kept: int,  # instances; those not used for longest go
        origins: Sequence[str] = (),  # the user's line of each nest
    ) -> None:
        self.name = name
        self.numbers = numbers
        self.data = data
        self.kept = kept
        self.origins = origins
        self.folder = debug.folder_of(name)  # wrappers are loaded while their graph is compiled
        self.sizes = list(inspect.signature(numbers).parameters)
        # Instances are as their graph was compiled, whoever launches them first, and when: a thread
        # has knobs of its own.
        self.knobs = config.get_config_copy()
        self.instances: OrderedDict[Any, _Instance] = OrderedDict()
        self.lock = threading.Lock()  # around these

    def run(self, *args: Any) -> None:
        """Launch; the sizes follow the tensors."""
        count = len(args) - len(self.sizes)  # a kernel of no sizes may be a template, too
        tensors, sizes = args[:count], args[count:]
        where = [(t.device_tensor_layout(), t.storage_offset()) for t in tensors]
        key = (sizes, *where)
        with self.lock:
            instance = self.instances.get(key)
            if instance is not None and len(self.instances) > self.kept // 2:  # else none goes soon
                self.instances.move_to_end(key)
        if instance is None:
            made = self._made(sizes, where)
            with self.lock:
                instance = self.instances.setdefault(key, made)
                while len(self.instances) > self.kept:
                    self.instances.popitem(last=False)
        instance.run(tensors)

    def _made(self, sizes: tuple[int, ...], where: Sequence[Placement]) -> _Instance:
        numbers = self.numbers(*sizes)
        _, arguments, _ = filled(self.data, numbers)
        placements = {}
        for buffer, (layout, offset) in zip(arguments, where, strict=True):
            buffer.layout, buffer.offset = layout, offset
            if _C._follows_strides(layout):  # else the launch copies it
                placements[buffer.name] = layout, offset
        named = dict(zip(self.sizes, sizes, strict=True))
        with (
            config.patch(self.knobs),
            debug.watching_instance(self.folder, named) as kernels,
            self._about(sizes, arguments),
        ):
            plan = plan_template(self.data, numbers, placements, self.origins)
            kernels += plan.kernels
            made = _Instance(self.name, plan, [buffer.name for buffer in arguments])
        log.info("%s: planned for sizes %s, instance %d", self.name, sizes, len(self.instances) + 1)
        return made

    @contextmanager
    def _about(self, sizes: tuple[int, ...], arguments: Sequence[Buffer]) -> Iterator[None]:
        """Errors inside are about a launch with these sizes."""
        try:
            yield
        except Unsupported as error:
            source = next(filter(None, self.origins), "")
            error.add(f"{self.name} for sizes {sizes}", map(describe_tensor, arguments), source)
            error.hint = error.hint or WAY_OUT
            raise
