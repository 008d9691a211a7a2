"""What can be seen of kernels while they are made: log messages, and files of a debug directory.

``TORCH_COMPILE_DEBUG=1`` makes Inductor leave a directory for each graph. In its ``spyre/NAME/``
there is, for the kernel ``NAME``: its ops before and after each pass, the OpSpecs, the bundle
(``sdsc_N.json``, ``bundle.mlir``), the SpyreCode, and where intermediates live. A kernel of dynamic
sizes has a folder in there for each set of sizes that is launched, also for sizes that could not be
planned. If a kernel of fixed sizes could not be planned, what was known of it is in
``spyre/not_compiled_N/``.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch._inductor.debug import set_kernel_post_grad_provenance_tracing
from torch._inductor.scheduler import SchedulerNode
from torch._inductor.virtualized import V

from torch_spyre._inductor.codegen.source import kernel_text
from torch_spyre._inductor.constants import RESTICKIFY_OP
from torch_spyre._inductor.errors import Unsupported, aten_names, describe_tensor
from torch_spyre._inductor.observe import Pass, watching
from torch_spyre._inductor.planning import PASSES
from torch_spyre._inductor.programs import bundle_of
from torch_spyre.backend.compiler import compile_to_spyrecode
from torch_spyre.backend.errors import MalformedBundle

if TYPE_CHECKING:
    from torch_spyre._inductor.planning import Kernel


lowering = logging.getLogger("spyre.inductor.lowering")
stickify = logging.getLogger("spyre.inductor.stickify")
passes = logging.getLogger("spyre.inductor.passes")
codegen = logging.getLogger("spyre.inductor.codegen")


@contextlib.contextmanager
def watching_passes(record: list[Pass]) -> Iterator[None]:
    """Passes that run inside are appended, if there is a debug directory to write them to."""
    try:
        with watching(record) if _directory() is not None else contextlib.nullcontext():
            yield
    except Unsupported as error:
        directory = _directory()
        if directory is not None:
            numbered = (directory / f"not_compiled_{n}" for n in itertools.count())
            _write_failure(next(f for f in numbered if not f.exists()), record, error)
        raise


def kernel_made(
    name: str, kernel: Kernel, nodes: Sequence[SchedulerNode], record: Sequence[Pass]
) -> None:
    """A kernel has a name now, and is about to be called: write it to the log and to files."""
    _introduce(name, nodes)
    _log(name, kernel)
    directory = _directory()
    if directory is None or (directory / name).exists():
        return
    _write_passes(directory / name, record)
    _write_kernel(directory / name, kernel)


def template_made(name: str, ops: str, nodes: Sequence[SchedulerNode]) -> None:
    """The same for a template, which is planned at a launch."""
    _introduce(name, nodes)
    codegen.info("%s: a template, planned for sizes when they come", name)
    directory = _directory()
    if directory is not None:
        (directory / name).mkdir(parents=True, exist_ok=True)
        (directory / name / "template.txt").write_text(ops)


def folder_of(name: str) -> Path | None:
    """The folder of a kernel of the graph that is being compiled; None if nothing is written."""
    directory = _directory()
    return directory / name if directory is not None else None


@contextlib.contextmanager
def watching_instance(folder: Path | None, sizes: Mapping[str, int]) -> Iterator[list[Kernel]]:
    """While a template is planned for the sizes of a launch: writes the kernels that are put into
    the list. If these sizes cannot be planned, writes what is known, and why."""
    kernels: list[Kernel] = []
    record: list[Pass] = []
    text = ",".join(f"{symbol}={size}" for symbol, size in sizes.items()) or "no_sizes"
    try:
        with watching(record) if folder is not None else contextlib.nullcontext():
            yield kernels
    except Unsupported as error:
        if folder is not None:
            _write_failure(_new_folder(folder, text), record, error)
        raise
    if folder is None:
        return
    begins = [i for i, entry in enumerate(record) if entry.name == PASSES[0].__name__]
    begins = begins[-len(kernels) :]  # before those, attempts that had to be split
    ends = [*begins[1:], len(record)]
    for kernel, begin, end in zip(kernels, begins, ends, strict=True):
        target = _new_folder(folder, text)
        _write_passes(target, record[begin:end])
        _write_kernel(target, kernel)


def _new_folder(parent: Path, name: str) -> Path:
    """A new folder, with a number if the name is taken by another layout or part of a kernel."""
    names = (name if n == 0 else f"{name}_{n}" for n in itertools.count())
    return next(parent / name for name in names if not (parent / name).exists())


def _introduce(name: str, nodes: Sequence[SchedulerNode]) -> None:
    handle = set_kernel_post_grad_provenance_tracing(list(nodes), name)
    V.graph.wrapper_code.write_provenance_debug_handle(name, handle)
    if lowering.isEnabledFor(logging.INFO):
        buffers = ", ".join(buffer.get_name() for node in nodes for buffer in node.get_outputs())
        lowering.info("%s computes %s: %s", name, buffers, aten_names(node.node for node in nodes))


# --------------------------------------------------------------------------------------------- log


def _log(name: str, kernel: Kernel) -> None:
    if not any(log.isEnabledFor(logging.INFO) for log in (stickify, passes, codegen)):
        return
    for buffer in kernel.args:
        if buffer.constant is None:
            stickify.debug("%s: %s", name, describe_tensor(buffer))
        if buffer.view is not None:
            how = "copied back after" if buffer.view.written else "copied before"
            stickify.info("%s: a view of %s is %s the launch", name, buffer.view.of, how)
    ops = kernel.ops
    for spec in ops:
        splits = {str(s): n for s, (_, n) in spec.iteration_space.items() if n > 1}
        cores = math.prod(splits.values())
        passes.info("%s: %s on %d cores, loops split %s", name, spec.op, cores, splits or "not")
    passes.info("%s: a pool of %d bytes", name, kernel.pool_bytes)
    arguments = len(kernel.args) - len(kernel.constants)
    restickifies = sum(spec.op == RESTICKIFY_OP for spec in ops)
    codegen.info(
        "%s: %d ops (%d restickifies), %d arguments, %d constants",
        *(name, len(ops), restickifies, arguments, len(kernel.constants)),
    )


# ------------------------------------------------------------------------------------------- files


def _directory() -> Path | None:
    """The directory of the graph that is being compiled; None if nothing is written."""
    path = getattr(V.debug, "_path", None)
    return Path(path) / "spyre" if isinstance(path, str) else None


def _write_passes(folder: Path, record: Sequence[Pass]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, entry in enumerate(record):
        (folder / f"ir_{number:02}_{entry.name}_before.txt").write_text(entry.before)
        (folder / f"ir_{number:02}_{entry.name}_after.txt").write_text(entry.after)


def _write_kernel(folder: Path, kernel: Kernel) -> None:
    """The kernel as it is compiled for a launch; what goes wrong here goes wrong there, too."""
    (folder / "op_specs.txt").write_text(kernel_text(kernel))
    (folder / "residents.txt").write_text(_residents(kernel))
    try:
        bundle_of(kernel.specs, kernel.handover).write(folder)
        compile_to_spyrecode(folder, folder / "spyrecode")
    except (Unsupported, MalformedBundle) as error:
        (folder / "error.txt").write_text(f"{error}\n")


def _residents(kernel: Kernel) -> str:
    """Where LX and pool planning put each intermediate, and why not into LX."""
    lines = [
        f"{r.name}: {r.bytes} bytes in {r.where} at {r.address}, ops {r.first} to {r.last}"
        + (f"; not in LX: {r.reason}" if r.reason else "")
        + (f"; {r.across} across kernels" if r.across else "")
        for r in kernel.residents
    ]
    return "\n".join([*lines, f"a pool of {kernel.pool_bytes} bytes", ""])


def _write_failure(folder: Path, record: Sequence[Pass], error: Unsupported) -> None:
    _write_passes(folder, record)
    (folder / "error.txt").write_text(f"{error}\n")
