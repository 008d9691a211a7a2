"""From OpSpecs to programs of the card, while a graph is compiled or a template gets its sizes."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path

from torch._inductor.runtime.cache_dir_utils import cache_dir
from torch._inductor.virtualized import V

from torch_spyre._inductor import config
from torch_spyre._inductor.codegen.bundle import make_bundle
from torch_spyre._inductor.errors import about_bundle
from torch_spyre._inductor.op_spec import KernelEntry, OpSpec, walk
from torch_spyre.backend import kernel_cache
from torch_spyre.backend.bundle import BundleFiles
from torch_spyre.backend.compiler import compile_to_spyrecode
from torch_spyre.backend.places import SEGMENT_BYTES, TENSOR_SEGMENTS
from torch_spyre.backend.program import NO_HANDOVER, Handover
from torch_spyre.backend.spyrecode import DIRECTORY
from torch_spyre.environment import KNOBS

log = logging.getLogger("spyre.inductor.codegen")

PROGRAMS = "spyre_programs"  # of a graph that is being compiled, by name: its code is loaded next


def compiled(
    kernel: str, specs: Sequence[KernelEntry], handover: Handover = NO_HANDOVER, source: str = ""
) -> tuple[str, bytes]:
    """The name of a kernel's program in the kernel cache, and the program. The kernel is in
    integers; ``source`` is the user's line, for errors."""
    with about_bundle(kernel, specs, source):
        text = f"{specs!r} {handover!r} {_options(specs)!r}"
        name, program = kernel_cache.program_from([text], lambda: bundle_of(specs, handover))
        if KNOBS["dump_spyre_code"].read():
            _keep_files(kernel, bundle_of(specs, handover))
    log.info("%s: a program of %d bytes", kernel, len(program))
    return name, program


def keep_for_loading(name: str, program: bytes) -> None:
    """Until the code of the graph that is being compiled is loaded, whatever caches forget."""
    programs = getattr(V.graph, PROGRAMS, {})
    programs[name] = program
    setattr(V.graph, PROGRAMS, programs)


def known_program(name: str) -> bytes | None:
    """A program that :func:`compiled` gave the name, here or in another process."""
    return getattr(V.graph, PROGRAMS, {}).get(name) or kernel_cache.program(name)


def bundle_of(specs: Sequence[KernelEntry], handover: Handover = NO_HANDOVER) -> BundleFiles:
    """The bundle of a kernel, which is in integers, as the knobs want it."""
    return make_bundle(specs, handover, **_options(specs))


def _options(specs: Sequence[KernelEntry]) -> dict[str, bool]:
    """How its bundle is written: all that decides it besides the kernel."""
    return {
        "symbolic": config.bundle_symbolic_args or not _can_be_baked(specs),
        "unroll_loops": config.unroll_loops,
        "k_fast_emission": config.core_id_k_fast_emission,
    }


def _keep_files(name: str, bundle: BundleFiles) -> None:
    """A kernel's bundle and SpyreCode in Inductor's cache directory, for people and other tools."""
    digest = hashlib.sha256(bundle.mlir.encode() + repr(bundle.superdscs).encode()).hexdigest()
    folder = Path(cache_dir()) / "spyre-code" / f"{name}_{digest[:12]}"
    if not (folder / DIRECTORY).exists():
        bundle.write(folder)
        compile_to_spyrecode(folder, folder / DIRECTORY)
        log.info("%s: bundle and SpyreCode in %s", name, folder)


def _can_be_baked(specs: Sequence[KernelEntry]) -> bool:
    """Whether each tensor of a kernel has a segment of its own, as baked addresses need."""
    ops = [op for op in walk(specs) if isinstance(op, OpSpec)]
    outside = [arg.address for op in ops for arg in op.args if arg.component == "hbm"]
    return max(outside, default=0) < TENSOR_SEGMENTS * SEGMENT_BYTES
