"""Replacing something of PyTorch's for a while."""

import contextlib
from collections.abc import Iterator
from typing import Any

from torch_spyre.constants import DEVICE_NAME

_NOTHING = object()


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """While it lasts, an attribute of a module, a class or an object has another value.

    All threads see that. So this holds Dynamo's lock until the old value is back: otherwise two
    threads that compile could undo each other's changes.
    """
    from torch._dynamo.convert_frame import compile_lock

    with compile_lock:
        before = vars(owner).get(name, _NOTHING)  # what is inherited comes back by itself
        setattr(owner, name, value)
        try:
            yield
        finally:
            if before is _NOTHING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


@contextlib.contextmanager
def replaced_items(table: dict[Any, Any], changed: dict[Any, Any]) -> Iterator[None]:
    """While it lasts, some items of a table have other values. Holds Dynamo's lock, too."""
    from torch._dynamo.convert_frame import compile_lock

    with compile_lock:
        before = dict(table)
        table.update(changed)
        try:
            yield
        finally:
            table.clear()
            table.update(before)


def on_card(node: Any) -> bool:
    """Whether one of Inductor's nodes lies on a card."""
    device = node.get_device()
    return device is not None and device.type == DEVICE_NAME
