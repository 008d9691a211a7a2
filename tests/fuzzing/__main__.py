"""`make fuzz`: random programs on the card and on the CPU, until time is up or they differ.

Sessions of a minute follow each other, each a process of its own with warm caches. A session that
fails, dies or hangs is a finding: its script is made smaller in fresh processes, printed, and kept
in build/fuzz.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

SESSION = 60.0  # seconds
SILENCE = 240.0  # without a step: it hangs (compiling may take a while)


def main():
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, help="stop after this time; default: never")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first session")
    parser.add_argument("--variant", action="append", help="only these; default: one after another")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at a finding")
    parser.add_argument("--directory", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--session", help=argparse.SUPPRESS)  # what a session is to do, as JSON
    arguments = parser.parse_args()
    if arguments.session:
        from fuzzing.session import work

        sys.exit(work(**json.loads(arguments.session)))
    sys.exit(endless(arguments))


def endless(arguments):
    from fuzzing.session import VARIANT_NAMES

    arguments.directory.mkdir(parents=True, exist_ok=True)
    start, steps, findings = time.monotonic(), 0, 0
    end = start + arguments.minutes * 60 if arguments.minutes else float("inf")
    variants = itertools.cycle(arguments.variant or VARIANT_NAMES)
    for seed in itertools.count(arguments.seed):
        left = end - time.monotonic()
        if left <= 1 or (findings and not arguments.keep_going):
            break
        variant = next(variants)
        found, done = session(arguments.directory, variant, seed, min(SESSION, left))
        steps += done
        minutes = (time.monotonic() - start) / 60
        print(
            f"[fuzz] {minutes:6.1f} min  {variant} --seed {seed}: {done} steps; "
            f"{steps} in all, {steps / minutes:.0f} a minute",
            flush=True,
        )
        if found:
            findings += 1
            report(arguments.directory / f"finding-{seed}-{variant}.py", found, start)
    print(f"[fuzz] {findings} findings, {steps} steps")
    return int(findings > 0)


def session(directory, variant, seed, seconds):
    """One process: what it found (runs that fail and what was said), and how many steps it made."""
    from fuzzing.scripts import read_history

    history, finding = directory / f"history-{seed}.jsonl", directory / f"finding-{seed}.json"
    finding.unlink(missing_ok=True)
    order = {"variant": variant, "seed": seed, "seconds": seconds}
    order |= {"history": str(history), "finding": str(finding)}
    with open(directory / f"log-{seed}.txt", "w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "fuzzing", "--session", json.dumps(order)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"SPYRE_SOFT_CARDS": "2"},
        )
        code = wait(process, history)
        log.seek(0)
        said = log.read()
    runs = read_history(history) if history.exists() else []
    steps = sum(len(program) for programs in runs for program in programs)
    if code == 0:
        history.unlink()
        (directory / f"log-{seed}.txt").unlink()
        return None, steps
    if finding.exists():
        found = json.loads(finding.read_text())
        if "script" in found:
            return found, steps
        runs = runs[: found["runs"]]
        return {"what": found["what"], "tries": [[found["small"]], [runs[-1]], runs]}, steps
    what = "it hangs" if code is None else f"it died with {code}: {said[-500:]}"
    return {"what": what, "tries": [runs[-1:], runs]}, steps


def wait(process, history):
    """The return code of a session, None if it had to be killed because nothing happened."""
    seen, since = -1, time.monotonic()
    while process.poll() is None:
        time.sleep(0.2)
        size = history.stat().st_size if history.exists() else 0
        if size != seen:
            seen, since = size, time.monotonic()
        elif time.monotonic() - since > SILENCE:
            process.kill()
            process.wait()
            return None
    return process.returncode


def report(path, found, start):
    """Says what was found, with the smallest script that shows it in a fresh process."""
    from fuzzing import scripts

    print(f"[fuzz] found after {time.monotonic() - start:.0f} s: {found['what']}", flush=True)
    if "script" in found:
        path.write_text(found["script"])
        print(f"[fuzz] python {path}")
        return
    for runs in found["tries"]:
        if scripts.outcome(runs):
            runs = scripts.smaller(runs)
            said = scripts.outcome(runs)
            note = f"In a fresh process this gives: {said}"
            break
    else:
        runs = found["tries"][0]
        note = "Not seen again in a fresh process, not even after all that its process had done."
    path.write_text(scripts.script(runs, f"{found['what']}\n{note}"))
    print(f"[fuzz] {note}\n[fuzz] python {path}")
    for programs in runs:
        print("\n".join(f"    {line}" for program in programs for line in program), flush=True)


if __name__ == "__main__":
    main()
