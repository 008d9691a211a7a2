"""Bundles changed at random: refused with our own error, or programs that load.

Guided by coverage: a bundle that takes the back end to a line not seen before is changed further.
"""

import copy
import random
import re
import sys
from pathlib import Path

import torch

from torch_spyre import backend
from torch_spyre._C import _Program
from torch_spyre.backend.bundle import BundleFiles, bundle_files
from torch_spyre.backend.compiler import compile_files
from torch_spyre.backend.errors import MalformedBundle

GOLDEN = Path(__file__).parents[1] / "golden"
AWKWARD = [None, 0, 1, -1, 2, 7, 31, 64, 128, 1 << 20, 1 << 36, 1 << 70, 1.5, True, "", "mb", "in",
           "-3", "1e9", [], [1], {}, "0" * 50, "lx", "hbm"]  # fmt: skip
FOLDER = str(Path(backend.__file__).parent)


class Fuzzer:
    """Changes one bundle after another. The same seed changes the same ones in the same way."""

    def __init__(self, seed, cover=True):
        self.random = random.Random(seed)
        folders = [
            *sorted((GOLDEN / "bundles").iterdir()),
            *sorted((GOLDEN / "together").iterdir()),
        ]
        self.corpus = [bundle_files(folder) for folder in folders]
        self.cover = cover
        self.seen: set[tuple[str, int]] = set()
        self.operands = [
            torch.zeros(1 << 18, dtype=torch.float32, device="spyre:0") for _ in range(8)
        ]

    def next(self):
        """A changed bundle."""
        files = self.random.choice(self.corpus)
        for _ in range(self.random.randint(1, 3)):
            files = self.changed(files)
        return files

    def accepted(self, files):
        """Whether a bundle can be compiled; it is an error if it is not refused as it should be."""
        lines: set[tuple[str, int]] = set()
        if self.cover:
            sys.settrace(tracer(lines))
        try:
            binary = compile_files(files)
        except MalformedBundle as error:
            if len(str(error).split(": ")) < 3:
                raise AssertionError("neither file nor field are named") from error
            return False
        finally:
            sys.settrace(None)
            if lines - self.seen:
                self.seen |= lines
                self.corpus.append(files)
        self.run(binary)
        return True

    def run(self, binary):
        """What the back end makes loads. A launch is refused if it wants larger operands, and an
        index may be one that a changed bundle wrote there itself."""
        program = _Program(binary)
        for operand in self.operands:
            operand.zero_()
        try:
            program.launch(self.operands)
            torch.spyre.synchronize()
        except (RuntimeError, ValueError) as error:
            if "launch: " not in str(error) and "is out of bounds for dimension" not in str(error):
                raise

    # ------------------------------------------------------------------------------- changes

    def changed(self, files):
        if self.random.random() < 0.3:
            return BundleFiles(files.where, self.changed_text(files.mlir), files.superdscs)
        if not files.superdscs:
            return files
        name = self.random.choice(sorted(files.superdscs))
        document = copy.deepcopy(files.superdscs[name])
        places = list(places_in(document))
        if not places:
            return files
        holder, key = self.random.choice(places)
        kind = self.random.choice(
            ["take out", "awkward", "awkward", "near", "near", "copy", "double"]
        )
        value = holder[key]
        if kind == "take out":
            del holder[key]
        elif kind == "near":
            holder[key] = self.near(value)
        elif kind == "copy":
            other, place = self.random.choice(places)
            holder[key] = copy.deepcopy(other[place])
        elif kind == "double" and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(value))
        else:
            holder[key] = copy.deepcopy(self.random.choice(AWKWARD))
        return BundleFiles(files.where, files.mlir, {**files.superdscs, name: document})

    def near(self, value):
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return self.random.choice([value + 1, value - 1, value * 2, -value, value // 2])
        if isinstance(value, str):
            return re.sub(
                r"\d+", lambda m: str(int(m[0]) + self.random.choice([-1, 1, 128])), value
            )
        return value

    def changed_text(self, text):
        lines = text.split("\n")
        at, other = (self.random.randrange(len(lines)) for _ in range(2))
        kind = self.random.choice(["take out", "double", "swap", "number", "word", "cut"])
        if kind == "take out":
            del lines[at]
        elif kind == "double":
            lines.insert(other, lines[at])
        elif kind == "swap":
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == "number":
            lines[at] = self.near(lines[at])
        elif kind == "cut":
            lines[at] = lines[at][: self.random.randint(0, len(lines[at]))]
        else:
            words = re.findall(r"[%#\w.]+", text)
            old, new = self.random.choice(words), self.random.choice(words)
            lines[at] = lines[at].replace(old, new)
        return "\n".join(lines)


def places_in(value):
    """Every container and key in a JSON document."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places_in(value[key])


def tracer(lines):
    """Notes the lines of the back end that are run."""

    def local(frame, event, _):
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return local

    return lambda frame, event, _: local if frame.f_code.co_filename.startswith(FOLDER) else None
