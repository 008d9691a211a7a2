"""Make the running environment use torch_spyre from this source tree.

`import torch` then finds the package and its entry points as if it were installed: a plain path
entry and the package's metadata, nothing that runs at start-up. `pip uninstall torch-spyre` undoes
it. The compiled parts are not touched; `make build` puts them into the source tree.

Usage: python tools/develop.py
"""

import base64
import contextlib
import csv
import hashlib
import importlib.metadata
import io
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from scikit_build_core.build import prepare_metadata_for_build_wheel

NAME = "torch-spyre"


def uninstall() -> None:
    """Remove an earlier installation, by this script or by pip."""
    try:
        importlib.metadata.distribution(NAME)
    except importlib.metadata.PackageNotFoundError:
        return
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "uninstall", "--yes", NAME], check=True)


def record_entry(path: Path, site: Path) -> list[str]:
    data = path.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return [path.relative_to(site).as_posix(), f"sha256={digest}", str(len(data))]


def install(source: Path, site: Path) -> None:
    os.chdir(source)
    with tempfile.TemporaryDirectory() as scratch:
        with contextlib.redirect_stdout(io.StringIO()):
            metadata = Path(scratch, prepare_metadata_for_build_wheel(scratch))
        info = site / metadata.name
        info.mkdir()
        for name in ("METADATA", "entry_points.txt"):
            (info / name).write_bytes((metadata / name).read_bytes())
    (info / "INSTALLER").write_text("tools/develop.py\n")
    (info / "direct_url.json").write_text(
        json.dumps({"url": source.as_uri(), "dir_info": {"editable": True}})
    )
    path_entry = site / "torch_spyre.pth"
    path_entry.write_text(f"{source}\n")
    files = [path_entry, *sorted(info.iterdir())]
    with (info / "RECORD").open("w", newline="") as record:
        rows = [record_entry(path, site) for path in files]
        rows.append([f"{info.name}/RECORD", "", ""])
        csv.writer(record, lineterminator="\n").writerows(rows)


def main() -> None:
    if sys.prefix == sys.base_prefix:
        sys.exit("tools/develop.py changes the running environment: run it in a virtual one.")
    uninstall()
    install(Path(__file__).resolve().parent.parent, Path(sysconfig.get_path("purelib")))


if __name__ == "__main__":
    main()
