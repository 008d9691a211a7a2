"""What has to happen before the interpreter goes away."""

import time
from pathlib import Path

from torch_spyre import _C

POLL_SECONDS = 0.0005
PATIENCE_SECONDS = 1.0


def shut_down() -> None:
    """Let autograd's threads come to rest, then stop the device."""
    _wait_for_autograd()
    _C._shutdown()


def _wait_for_autograd() -> None:
    """Wait until autograd's device threads sleep.

    A thread that has run the last backward still drops Python objects when the caller goes on. If
    the interpreter is finalized meanwhile, Python 3.11 ends the thread by unwinding through C++
    code that forbids it, which aborts the process. PyTorch has no way to join these threads.
    """
    threads = [task for task in Path("/proc/self/task").iterdir() if _is_autograd(task)]
    deadline = time.monotonic() + PATIENCE_SECONDS
    quiet = 0
    while threads and quiet < 2 and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)  # gives up the GIL, which the threads may be waiting for
        quiet = quiet + 1 if all(map(_sleeps, threads)) else 0


def _is_autograd(task: Path) -> bool:
    return _read(task / "comm").startswith("pt_autograd")


def _sleeps(task: Path) -> bool:
    # "tid (name) state ...": a thread that is gone has no file.
    return _read(task / "stat").rpartition(")")[2].split()[:1] in ([], ["S"])


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
