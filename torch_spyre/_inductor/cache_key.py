"""What Inductor's cache keys have to know about our code, besides the graph and the knobs."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch.fx import GraphModule

from torch_spyre import _C
from torch_spyre._C import SpyreTensorLayout

# Device layout and storage offset of an input.
Placement = tuple[SpyreTensorLayout, int]

_more: ContextVar[str] = ContextVar("more", default="")


@contextlib.contextmanager
def with_in_key(text: str) -> Iterator[None]:
    """Graphs that are looked up here were compiled for what the text says, too: for inputs that lie
    so, with these names of dimensions and these hints."""
    token = _more.set(f"{_more.get()} {text}")
    try:
        yield
    finally:
        _more.reset(token)


class SpyreCacheKey(CustomGraphModulePass):
    """Does nothing to a graph: its uuid brings what decides our code into Inductor's cache keys."""

    def __call__(self, gm: GraphModule) -> None:
        pass

    def uuid(self) -> str:
        survive = _C._scratchpads_survive()  # decides what kernels hand over in LX
        return f"{compiler_digest()} {survive} {_more.get()}"


@functools.cache
def compiler_digest() -> str:
    """Of the compiler, of what its code calls, and of the tables it reads."""
    package = Path(__file__).parent.parent
    files = [package / "machine.toml", Path(_C.__file__)]
    for folder in ("_inductor", "backend", "execution", "ops"):
        files += [*(package / folder).rglob("*.py"), *(package / folder).rglob("*.toml")]
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
