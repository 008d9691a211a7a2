"""``python -m torch_spyre explain``: runs a script and says what it did on the card."""

import argparse
import runpy
import sys
from pathlib import Path
from typing import Any


def add_options(parser: argparse.ArgumentParser) -> None:
    _add_outputs(parser)
    parser.add_argument("script", type=Path, help="a Python script")
    parser.add_argument(
        "arguments",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="arguments of the script; --html and --json may follow them",
    )


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a page with charts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all numbers")


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if not options.script.is_file():
        parser.error(f"there is no script {str(options.script)!r}")
    trailing = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    _add_outputs(trailing)
    ours, arguments = trailing.parse_known_args(options.arguments)
    code, report = _explained(options.script, arguments)
    print(f"\n{report}")
    for path, write in (
        (ours.html or options.html, report.html),
        (ours.json or options.json, lambda path: path.write_text(report.to_json())),
    ):
        if path is not None:
            write(path)
            print(f"wrote {path}")
    return code


def _explained(script: Path, arguments: list[str]) -> tuple[int, Any]:
    """The script's exit code and the report, also if the script fails."""
    import traceback

    import torch  # noqa: F401  (loads the libraries of _C)

    from torch_spyre.explanation import recording, report_of

    code = 0
    argv, path = sys.argv, sys.path
    sys.argv = [str(script), *arguments]
    sys.path = [str(script.resolve().parent), *path]
    try:
        with recording() as record:
            results = None
            try:
                results = runpy.run_path(str(script), run_name="__main__")
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            except Exception:
                traceback.print_exc()
                code = 1
        del results  # alive till now: what is left in the end had to be written
    finally:
        sys.argv, sys.path = argv, path
    return code, report_of(script.name, record)
