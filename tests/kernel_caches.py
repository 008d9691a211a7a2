"""A cache of compiled kernels for each test, and how often something is compiled."""

from dataclasses import dataclass, field

import pytest
from kernels import KERNELS

from torch_spyre.backend import kernel_cache
from torch_spyre.backend.compiler import compile_files


@dataclass
class Source:
    """A text that stands for a kernel."""

    text: str
    kernel: str = "add"
    made: list = field(default_factory=list)

    def bundle(self):
        self.made.append(self.kernel)
        return KERNELS[self.kernel]().bundle()

    def program(self):
        return kernel_cache.program_from([self.text], self.bundle)[1]


def program_of(kernel):
    return Source(kernel, kernel).program()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A directory of the test's own, and a process that remembers nothing."""
    monkeypatch.setenv("TORCH_SPYRE_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TORCH_SPYRE_CACHE", raising=False)
    kernel_cache.forget()
    yield tmp_path / kernel_cache.FOLDER
    kernel_cache.forget()


@pytest.fixture
def compilations(monkeypatch):
    """Counts how often something is compiled."""
    made = []

    def counted(files):
        made.append(files)
        return compile_files(files)

    monkeypatch.setattr(kernel_cache, "compile_files", counted)
    return made


def entries(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())
