"""The back-end compiler: a bundle directory in, a SpyreCode directory out, and its runtime.

The public package has ``JobPlan``, ``prepare_kernel``, ``launch_jobplan`` and ``launch_kernel`` in
its native module; here they are Python (``torch_spyre.public_names`` is the door).
``launch_together`` is ours.
"""

from typing import Any

__all__ = [
    "JobPlan",
    "MalformedBundle",
    "MalformedSpyreCode",
    "compile_bundle",
    "launch_jobplan",
    "launch_kernel",
    "launch_together",
    "prepare_kernel",
]

_HOMES = {
    "compile_bundle": "compiler",
    "MalformedBundle": "errors",
    "MalformedSpyreCode": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    home = _HOMES.get(name, "job_plan")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
