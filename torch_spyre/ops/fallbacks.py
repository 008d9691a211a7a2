"""Ops that run on the CPU because the card has no kernel for them.

Every such op is counted, and its first use warns. ``TORCH_SPYRE_FALLBACK=error`` refuses instead.
"""

import contextlib
import warnings
from collections.abc import Iterator

import torch  # noqa: F401  (first: it loads the libraries that _C needs)

from torch_spyre import _C

__all__ = ["FallbackWarning", "fallback_counts", "refused", "reset_fallback_counts"]


class FallbackWarning(UserWarning):
    """An op on spyre tensors ran on the CPU."""


def fallback_counts() -> dict[str, int]:
    """How often each op fell back to the CPU in this process."""
    return _C._fallback_counts()


def reset_fallback_counts() -> None:
    """Start counting anew; every op warns once more."""
    _C._reset_fallback_counts()


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """``with refused():`` an op that would fall back raises NotImplementedError."""
    _C._set_fallback_error(True)
    try:
        yield
    finally:
        _C._set_fallback_error(False)


def _warn(op: str) -> None:
    warnings.warn(
        f"{op} is falling back to cpu: the card has no kernel for it, so its inputs are copied to"
        " the host and its result back. torch_spyre.ops.fallbacks.fallback_counts() counts these"
        " calls; TORCH_SPYRE_FALLBACK=error refuses them.",
        FallbackWarning,
        stacklevel=2,
    )


_C._set_fallback_hook(_warn)
