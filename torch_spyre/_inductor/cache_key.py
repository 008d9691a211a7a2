"""What Inductor's cache keys have to know about our code, besides the graph and the knobs."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path

from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch.fx import GraphModule

from torch_spyre import _C
from torch_spyre._C import SpyreTensorLayout

# Device layout and storage offset of an input; None for what is not a spyre tensor.
Placement = tuple[SpyreTensorLayout, int] | None

_placements: ContextVar[str] = ContextVar("placements", default="")


@contextlib.contextmanager
def with_placements_in_key(placements: Sequence[Placement]) -> Iterator[None]:
    """Graphs that are looked up here were compiled for inputs that lie like these."""
    token = _placements.set(repr(placements))
    try:
        yield
    finally:
        _placements.reset(token)


class SpyreCacheKey(CustomGraphModulePass):
    """Does nothing to a graph: its uuid brings what decides our code into Inductor's cache keys."""

    def __call__(self, gm: GraphModule) -> None:
        pass

    def uuid(self) -> str:
        return f"{compiler_digest()} {_placements.get()}"


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
