"""What happened, as scripts: kept while it happens, run again in fresh processes, made smaller.

Caches of the package live as long as the process, so that a failure may need what an earlier run
left in them. Every run of a process is therefore kept; a run is a list of programs, of which
several work at the same time, in threads.
"""

import json
import time
from pathlib import Path

import subprocesses

PRELUDE = Path(__file__).with_name("prelude.py")
PATIENCE = 120.0  # seconds for one script


class History:
    """All runs of this process, on disk before they happen: a crash leaves them behind."""

    def __init__(self, path=None):
        self.file = open(path, "w", buffering=1) if path else None  # noqa: SIM115
        self.runs: list[list[list[str]]] = []  # runs of programs of statements
        self.steps = 0

    def begin(self, programs=1):
        self.runs.append([[] for _ in range(programs)])
        self._write(programs)

    def add(self, statement, program=0):
        self.steps += 1
        self.runs[-1][program].append(statement)
        self._write([program, statement])

    def _write(self, value):
        if self.file:
            self.file.write(json.dumps(value) + "\n")


def read_history(path):
    """The runs of a process that may have died."""
    history = History()
    for line in Path(path).read_text().splitlines():
        try:
            value = json.loads(line)
        except json.JSONDecodeError:
            break  # the last line of a process that was killed
        if isinstance(value, int):
            history.begin(value)
        else:
            history.add(value[1], value[0])
    return history.runs


def script(runs, what=""):
    """A program that stands alone: plain statements, run on the card and on the CPU."""
    text = [f"# {line}\n" for line in what.splitlines()]
    text += [PRELUDE.read_text(), "\n\n"]
    for programs in runs:
        parts = [
            '"""\n' + "\n".join(program).replace("\\", "\\\\") + '\n"""' for program in programs
        ]
        text.append(
            f"run({parts[0]})\n" if len(parts) == 1 else f"run_together([{', '.join(parts)}])\n"
        )
    text.append('print("no difference")\n')
    return "".join(text)


def outcome(runs):
    """What becomes of runs in a fresh process: None, or the last line of what it says."""
    try:
        result = subprocesses.forked(script(runs), timeout=PATIENCE, SPYRE_SOFT_CARDS=2)
    except AssertionError:
        return "it does not end"
    if result.returncode < 0:
        return f"signal {-result.returncode}"
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if line.strip()]
        said = [line for line in errors if "Difference: " in line]
        return (said or errors or ["?"])[-1]
    return None


def smaller(runs, seconds=180.0):
    """A part of runs that still fails in a fresh process, found by leaving out more and more."""
    end = time.monotonic() + seconds
    kind = _kind(outcome(runs))

    def fails(candidate):
        return time.monotonic() < end and _kind(outcome(candidate)) == kind

    if fails(runs[-1:]):
        runs = runs[-1:]
    else:
        before = _reduce(
            list(range(len(runs) - 1)), lambda some: fails([*(runs[i] for i in some), runs[-1]])
        )
        runs = [*(runs[i] for i in before), runs[-1]]
    places = [
        (i, j, k)
        for i, programs in enumerate(runs)
        for j, program in enumerate(programs)
        for k in range(len(program))
    ]

    def stays(wanted, statement):
        # Without it a program of several streams would be compared before these are done.
        return wanted or statement == "settle()"

    def chosen(some):
        some = set(some)
        cut = [
            [
                [s for k, s in enumerate(program) if stays((i, j, k) in some, s)]
                for j, program in enumerate(programs)
            ]
            for i, programs in enumerate(runs)
        ]
        return [programs for programs in cut if any(programs)]

    return chosen(_reduce(places, lambda some: fails(chosen(some))))


def _kind(what):
    """Failures of one kind may stand for each other."""
    if what is None or what.startswith(("signal", "it does not")):
        return what
    return what.split(":")[0]


def _reduce(items, fails):
    """A part of the items that fails, none of whose like-sized pieces can be left out."""
    pieces = 2
    while items:
        size = max(1, len(items) // pieces)
        for start in range(0, len(items), size):
            rest = items[:start] + items[start + size :]
            if fails(rest):
                items, pieces = rest, max(pieces - 1, 2)
                break
        else:
            if size == 1:
                break
            pieces *= 2
    return items
