"""Python snippets in processes of their own: for the environment, forks, crashes and exits.

Starting an interpreter and importing torch takes two seconds. `forked` avoids that: a helper
process imports torch once, which starts no runtime and reads no variable of the device, and forks
a child for each snippet. `fresh` starts a real interpreter, for what happens at import.

Both run the snippet with a clean environment (none of the variables this package reads, except
those given) and fail if it has not ended in time. A forked snippet ends after its atexit functions;
what is to be said about the rest of an interpreter's end needs `fresh`.
"""

import atexit
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

TIMEOUT = 180.0  # seconds; every snippet takes a small part of it, also on a busy machine


@dataclass(frozen=True)
class Result:
    """How a process ended. A negative returncode is the signal that killed it."""

    stdout: str
    stderr: str
    returncode: int

    @property
    def output(self) -> str:
        """What a snippet printed; fails if it did not end well."""
        assert self.returncode == 0, f"returncode {self.returncode}\n{self.stdout}\n{self.stderr}"
        return self.stdout.strip()

    @property
    def value(self) -> object:
        """What a snippet printed as JSON; fails if it did not end well."""
        return json.loads(self.output)


def clean_environment(**changes: object) -> dict[str, str]:
    """This process's environment without the package's variables, plus `changes`."""
    from torch_spyre.environment import KNOBS

    ours = {name for knob in KNOBS.values() for name in knob.variables}
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    return environment | {name: str(value) for name, value in changes.items()}


def fresh(code: str, timeout: float = TIMEOUT, **environment: object) -> Result:
    """Run a script in a new interpreter."""
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory, "snippet.py")
        script.write_text(textwrap.dedent(code))
        process = subprocess.Popen(
            [sys.executable, str(script)],
            env=clean_environment(**environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
            raise AssertionError(f"no end after {timeout} s\n{stdout}\n{stderr}") from None
        return Result(stdout, stderr, process.returncode)


def forked(code: str, timeout: float = TIMEOUT, **environment: object) -> Result:
    """Run a snippet in a process that has imported torch and nothing more."""
    request = {
        "code": textwrap.dedent(code),
        "environment": {name: str(value) for name, value in environment.items()},
        "timeout": timeout,
    }
    server = _server()
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    answer = server.stdout.readline()
    assert answer, "the fork server died"
    reply = json.loads(answer)
    hung = reply.pop("hung")
    result = Result(**reply)
    assert not hung, f"no end after {timeout} s\n{result.stdout}\n{result.stderr}"
    return result


@functools.cache
def _server() -> subprocess.Popen:
    """The helper process; it ends when this process closes the pipe, at the latest by dying."""
    return subprocess.Popen(
        [sys.executable, __file__],
        env=clean_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


# ---------------------------------------------------------------- what the helper process does


def _serve() -> None:
    import torch  # noqa: F401  imported for the children

    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            child = os.fork()
            if child == 0:
                _run_snippet(request, stdout.fileno(), stderr.fileno())
            returncode, hung = _wait(child, request["timeout"])
            reply = {"returncode": returncode, "hung": hung}
            for name, file in (("stdout", stdout), ("stderr", stderr)):
                file.seek(0)
                reply[name] = file.read().decode(errors="replace")
        print(json.dumps(reply), flush=True)


def _run_snippet(request: dict, stdout: int, stderr: int) -> NoReturn:
    os.setpgid(0, 0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.environ.update(request["environment"])
    code = 0
    try:
        exec(compile(request["code"], "<snippet>", "exec"), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # taking the copied interpreter apart would take a second


def _wait(child: int, timeout: float) -> tuple[int, bool]:
    """Exit code of a child, and whether it had to be killed."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        process, status = os.waitpid(child, os.WNOHANG)
        if process:
            return os.waitstatus_to_exitcode(status), False
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), True


if __name__ == "__main__":
    _serve()
