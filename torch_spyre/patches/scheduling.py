"""Between lowering and Inductor's scheduler."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch_spyre.patches.replacing import on_card, replaced


@contextlib.contextmanager
def before_scheduling(run: Callable[[Any], None]) -> Iterator[None]:
    """While a spyre graph is compiled: ``run`` sees the graph's loops before the scheduler does.

    Missing upstream: a hook between lowering and the scheduler.
    """
    from torch._inductor.graph import GraphLowering

    original = GraphLowering._update_scheduler

    @functools.wraps(original)
    def _update_scheduler(self: Any) -> None:
        run(self)
        original(self)

    with replaced(GraphLowering, "_update_scheduler", _update_scheduler):
        yield


@contextlib.contextmanager
def loops_as_lowered() -> Iterator[None]:
    """While a spyre graph is compiled: Inductor leaves the loops of the card's buffers as they are,
    and schedules them by the names of what they read.

    Missing upstream: a way for a device to choose the order of loops and of dimensions in memory.
    Planning decides both itself, from what lowering left. Inductor would trace every loop twice
    more for it, and the index of every read once more, to no use.
    """
    from torch._inductor.dependencies import Dep, ReadWrites, StarDep
    from torch._inductor.ir import ComputedBuffer, Pointwise, Reduction
    from torch._inductor.scheduler import SchedulerNode
    from torch.utils._ordered_set import OrderedSet

    fill_order, compute_attrs = ComputedBuffer.get_fill_order, SchedulerNode._compute_attrs

    @functools.wraps(fill_order)
    def get_fill_order(self: ComputedBuffer) -> Any:
        return None if on_card(self) else fill_order(self)

    @functools.wraps(compute_attrs)
    def _compute_attrs(self: Any, *args: Any, **kwargs: Any) -> None:
        buffer = self.node
        if not (isinstance(buffer, ComputedBuffer) and on_card(buffer)):
            return compute_attrs(self, *args, **kwargs)
        loops = buffer.data
        if type(loops) not in (Pointwise, Reduction):  # such as scatters
            return compute_attrs(self, *args, **kwargs)
        self._sizes = loops.get_pointwise_size(), loops.get_reduction_size()
        self._body = None
        device = buffer.get_device_or_error()
        self.group = (device, self.scheduler.get_backend(device).group_fn(self._sizes))
        reads = OrderedSet[Dep](StarDep(name) for name in loops.get_read_names())
        writes = OrderedSet[Dep]([StarDep(buffer.get_name())])
        self.set_read_writes(ReadWrites(reads, writes, OrderedSet()))

    with (
        replaced(ComputedBuffer, "get_fill_order", get_fill_order),
        replaced(SchedulerNode, "_compute_attrs", _compute_attrs),
    ):
        yield
