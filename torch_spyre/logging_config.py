"""What the package logs, and where to: Python loggers that ``TORCH_LOGS`` knows by name.

``TORCH_LOGS="+spyre"`` shows all of it, ``TORCH_LOGS="spyre.inductor.stickify"`` one stage at INFO;
``+`` means DEBUG and ``-`` only errors, as for PyTorch's own names. The functions below do the same
from a program. The runtime below Python writes lines of its own, as ``TORCH_SPYRE_DEBUG=1`` does,
while ``spyre.runtime`` is at DEBUG.
"""

from __future__ import annotations

import enum
import logging
import os
from typing import Any

from torch_spyre.environment import KNOBS

FORMAT = "[%(levelname)s] [%(name)s] %(message)s"  # of log files

COMPONENTS = {
    "spyre": "everything below",
    "spyre.inductor": "torch.compile: graphs that run op by op, and all stages",
    "spyre.inductor.lowering": "which nodes of a graph became which kernel",
    "spyre.inductor.stickify": "layouts of tensors, and copies to other sticks with their bytes",
    "spyre.inductor.passes": "each pass over a kernel, splits over cores, the pool",
    "spyre.inductor.codegen": "kernels written, equal ones found, bundles",
    "spyre.runtime": "allocations, copies, device starts",
    "spyre.execution": "kernels found, compiled and launched; arguments that had to be copied",
    "spyre.device": "devices: which, how many, current",
}


class LogLevel(enum.IntEnum):
    """Levels of Python's logging, and none at all."""

    DEBUG = logging.DEBUG
    INFO = logging.INFO
    WARNING = logging.WARNING
    ERROR = logging.ERROR
    CRITICAL = logging.CRITICAL
    DISABLED = 60


_set_by_program: set[str] = set()
_file: logging.FileHandler | None = None


def initialize() -> None:
    """Tell ``TORCH_LOGS`` our names. ``import torch`` does it, just before it reads them."""
    from torch._logging._internal import log_registry, register_log

    for component in COMPONENTS:
        if not log_registry.is_log(component):
            register_log(component, component)
    _follow_legacy()
    if {"+spyre", "+spyre.runtime"} & set(_entries()):
        _tell_runtime(True)


def configure_python_logging() -> None:
    """Apply ``TORCH_LOGS`` as it is now; what the program chose is forgotten."""
    import torch

    initialize()
    torch._logging._init_logs()
    _set_by_program.clear()
    _follow_runtime()
    set_log_file(get_log_file())


def list_components() -> list[str]:
    return list(COMPONENTS)


def get_log_level(component: str = "spyre") -> LogLevel:
    """The level that counts, be it the component's own or one above it."""
    level = _logger(component).getEffectiveLevel()
    return min(LogLevel, key=lambda known: (abs(known - level), -known))


def set_log_level(component: str, level: LogLevel | int | str) -> None:
    """Of a component and of those below it that have none of their own."""
    if isinstance(level, str):
        level = LogLevel[level.upper()]
    _logger(component).setLevel(LogLevel(level))
    _set_by_program.add(component)
    _follow_runtime()


def enable(component: str = "spyre", level: LogLevel | int | str = LogLevel.INFO) -> None:
    set_log_level(component, level)


def disable(component: str = "spyre") -> None:
    set_log_level(component, LogLevel.DISABLED)


def get_log_file() -> str | None:
    """Where messages go besides stderr."""
    return _file.baseFilename if _file is not None else None


def set_log_file(path: str | os.PathLike[str] | None) -> None:
    """Append messages to a file too; None ends it."""
    global _file
    for component in COMPONENTS:
        if _file is not None:
            _logger(component).removeHandler(_file)
    if _file is not None:
        _file.close()
        _file = None
    if path is not None:
        _file = logging.FileHandler(path, delay=True)
        _file.setFormatter(logging.Formatter(FORMAT))
        for component in COMPONENTS:  # none hands its messages to the one above
            _logger(component).addHandler(_file)


def get_effective_config() -> dict[str, str]:
    """The level of every component."""
    return {component: get_log_level(component).name for component in COMPONENTS}


def get_output_config() -> dict[str, Any]:
    """Where messages go, and in which form they are in a file."""
    return {"stderr": True, "file": get_log_file(), "format": FORMAT}


def get_config_source() -> str:
    """Who decided last: "programmatic", "TORCH_LOGS", "legacy:SPYRE_INDUCTOR_LOG" or "default"."""
    if _set_by_program:
        return "programmatic"
    if any(entry.lstrip("+-") in (*COMPONENTS, "all") for entry in _entries()):
        return "TORCH_LOGS"
    return "legacy:SPYRE_INDUCTOR_LOG" if _legacy_level() is not None else "default"


def get_config_for_cpp() -> dict[str, int]:
    """Levels as numbers. The runtime below Python writes at DEBUG of ``spyre.runtime``."""
    return {component: int(get_log_level(component)) for component in COMPONENTS}


def _logger(component: str) -> logging.Logger:
    if component not in COMPONENTS:
        known = ", ".join(COMPONENTS)
        raise ValueError(f"no component of the log is called {component!r}; there are {known}")
    return logging.getLogger(component)


def _entries() -> list[str]:
    from torch._logging._internal import LOG_ENV_VAR

    return "".join(os.environ.get(LOG_ENV_VAR, "").split()).split(",")


def _legacy_level() -> LogLevel | None:
    """Of ``spyre.inductor``, by variables older than our names in ``TORCH_LOGS``; that one, if it
    is set, decides alone."""
    if any(_entries()) or not KNOBS["inductor_log"].read():
        return None
    name = KNOBS["inductor_log_level"].read().upper()
    if name not in LogLevel.__members__:
        known = ", ".join(LogLevel.__members__)
        raise ValueError(f"invalid SPYRE_INDUCTOR_LOG_LEVEL value {name!r}: one of {known}")
    return LogLevel[name]


def _follow_legacy() -> None:
    from torch._logging._internal import log_state

    level = _legacy_level()
    if level is not None:  # PyTorch sets the levels of all names after us, from this state
        log_state.enable_log("spyre.inductor", level)
    path = KNOBS["log_file"].read()
    if path:
        set_log_file(path)


def _follow_runtime() -> None:
    _tell_runtime(get_log_level("spyre.runtime") <= LogLevel.DEBUG)


def _tell_runtime(on: bool) -> None:
    from torch_spyre import _C

    _C._set_debug_log(on)
