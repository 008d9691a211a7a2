"""Measurements in processes of their own, and limits that are printed. Imports no PyTorch."""

import json
import os
import subprocess
import sys
from pathlib import Path


def in_new_process(script: str, cache: Path | str, *what: object) -> dict[str, float]:
    """What ``script --one what...`` prints last, with the compilers' caches in a folder."""
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(cache), "SPYRE_CARD_THREADS": "2"}
    for name in ("TORCH_SPYRE_CACHE", "TORCH_SPYRE_CACHE_DIR"):
        environment.pop(name, None)
    command = [sys.executable, "-W", "ignore", script, "--one", *map(str, what)]
    output = subprocess.check_output(command, env=environment, text=True)
    return json.loads(output.splitlines()[-1])


def over(what: str, value: float, limit: float) -> bool:
    """Print a number beside its limit; True if the limit was missed."""
    missed = value > limit
    print(f"{what:36}{value:10.3f}  (at most {limit:.3g}{', MISSED' if missed else ''})")
    return missed
