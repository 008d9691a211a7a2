"""Python's collector of cycles, while something is compiled."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Without the collector: it would walk all that PyTorch and the model consist of again and
    again, for a tenth of the time, and find little."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
