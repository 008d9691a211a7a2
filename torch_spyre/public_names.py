"""Names that documentation and programs of the public package have, for things that are elsewhere.

Code that was written for that package imports them, so they stay importable. This is the one place
that says what they are for and where they lead; nothing in this package uses them.

Of ``torch_spyre._C``, the native module there; ``torch.spyre`` has all of its names, too:

* ``JobPlan``, ``prepare_kernel(spyrecode_dir, stream=None)`` and ``launch_jobplan(plan, args)`` run
  SpyreCode. Ours are Python: :mod:`torch_spyre.backend.job_plan`.
* ``launch_kernel(code_dir, args)`` runs the bundle in a directory: the same, one step earlier.
* ``_SpyreStreamBase`` is the base of streams, ``torch.spyre.Stream``, and
  ``get_stream_from_pool(device, priority)`` makes one. ``current_stream``, ``default_stream`` and
  ``synchronize`` are those of ``torch.spyre``.

Other names need nothing of this kind: their modules have the same names here as there.
"""

from typing import Any

from torch_spyre import _C

NATIVE = {  # where each name of the native module leads
    "JobPlan": "torch_spyre.backend.job_plan",
    "prepare_kernel": "torch_spyre.backend.job_plan",
    "launch_jobplan": "torch_spyre.backend.job_plan",
    "launch_kernel": "torch_spyre.backend.job_plan",
    "_SpyreStreamBase": "torch_spyre.streams",
    "get_stream_from_pool": "torch_spyre.streams",
    "current_stream": "torch_spyre.streams",
    "default_stream": "torch_spyre.streams",
    "synchronize": "torch_spyre.streams",
}
_CALLED_HERE = {"_SpyreStreamBase": "Stream", "get_stream_from_pool": "Stream"}


def _native(name: str) -> Any:
    if name not in NATIVE:
        raise AttributeError(f"module {_C.__name__!r} has no attribute {name!r}")
    import importlib

    # On first use: the back end is not cheap to import.
    found = getattr(importlib.import_module(NATIVE[name]), _CALLED_HERE.get(name, name))
    setattr(_C, name, found)
    return found


def open_doors() -> None:
    """Make the names of the native module importable from it."""
    _C.__getattr__ = _native  # type: ignore[method-assign]
