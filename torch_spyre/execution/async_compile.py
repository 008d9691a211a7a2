"""``async_compile`` of generated code: from the text of a kernel to something that runs."""

from __future__ import annotations

import ast
import functools
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch._inductor.async_compile import AsyncCompile
from torch._inductor.runtime.cache_dir_utils import cache_dir

from torch_spyre._inductor import config
from torch_spyre._inductor.cache_key import compiler_digest
from torch_spyre._inductor.errors import about_bundle
from torch_spyre.backend import kernel_cache
from torch_spyre.backend.places import SEGMENT_BYTES, TENSOR_SEGMENTS
from torch_spyre.backend.program import NO_HANDOVER, Handover, LxBytes
from torch_spyre.environment import KNOBS
from torch_spyre.execution.kernel_runner import (
    Constants,
    Expected,
    Residents,
    SDSCKernelRunner,
    Sources,
    UnimplementedKernelRunner,
    Views,
)

if TYPE_CHECKING:
    from torch_spyre._inductor.codegen.bundle import Bundle
    from torch_spyre._inductor.op_spec import KernelEntry
    from torch_spyre.execution.template_runner import SDSCTemplateRunner

log = logging.getLogger("spyre.execution")


class SpyreAsyncCompile(AsyncCompile):
    """Inductor's compiler of kernels, with ours added."""

    def sdsc(
        self,
        name: str,
        specs: str | Sequence[KernelEntry],
        expected: Expected = (),
        outputs: Sequence[int] = (),
        constants: Constants = (),
        pool_bytes: int = 0,
        views: Views | None = None,
        sources: Sources = ((), ()),
        residents: Residents = (),
        found: Sequence[tuple[int, int, int]] = (),
        left: Sequence[tuple[int, int, int]] = (),
    ) -> SDSCKernelRunner | UnimplementedKernelRunner:
        """A kernel from its OpSpecs, or from their text, which is read only if it is a new one.

        ``found`` and ``left`` are fields of ``LxBytes``: its handover.
        """
        handover = Handover([LxBytes(*each) for each in found], [LxBytes(*each) for each in left])
        if not isinstance(specs, str):
            missing = _unimplemented(specs)
            if missing is not None:
                return UnimplementedKernelRunner(name, missing)
            with about_bundle(name, lambda: specs):
                binary = kernel_cache.compiled_program(bundle_of(specs, handover))
        else:
            source = KernelSource(name, specs, handover)
            with about_bundle(name, lambda: kernel_of(specs)):
                binary = kernel_cache.program_from(source)
        log.info("%s: a program of %d bytes", name, len(binary))
        if KNOBS["dump_spyre_code"].read():
            entries = kernel_of(specs) if isinstance(specs, str) else specs
            _keep_files(name, bundle_of(entries, handover))
        return SDSCKernelRunner(
            *(name, binary, expected, outputs, constants, pool_bytes, views, sources, residents)
        )

    def sdsc_template(
        self, name: str, text: str, kept: int, origins: Sequence[str] = ()
    ) -> SDSCTemplateRunner:
        """A kernel whose sizes a launch brings, from the text of a function of the sizes."""
        from torch_spyre._inductor.kernel_template import template_function
        from torch_spyre.execution.template_runner import SDSCTemplateRunner

        return SDSCTemplateRunner(name, template_function(text), kept, origins)


@dataclass(frozen=True)
class BundleOptions:
    """How bundles are written: all that decides it besides the kernel."""

    symbolic: bool = field(default_factory=lambda: config.bundle_symbolic_args)
    unroll_loops: bool = field(default_factory=lambda: config.unroll_loops)
    k_fast_emission: bool = field(default_factory=lambda: config.core_id_k_fast_emission)


@dataclass(frozen=True)
class KernelSource:
    """Everything that a kernel's bundle is made from, and so its key."""

    name: str = field(repr=False)  # for people
    specs: str
    handover: Handover
    options: BundleOptions = field(default_factory=BundleOptions)

    @property
    def text(self) -> str:
        return f"{compiler_digest()} {self!r}"

    def bundle(self) -> Bundle:
        log.info("%s is not known yet: compiled", self.name)
        return bundle_of(kernel_of(self.specs), self.handover, self.options)


def bundle_of(
    specs: Sequence[KernelEntry],
    handover: Handover = NO_HANDOVER,
    options: BundleOptions | None = None,
) -> Bundle:
    from torch_spyre._inductor.codegen.bundle import make_bundle

    options = options or BundleOptions()
    return make_bundle(
        specs,
        handover,
        symbolic=options.symbolic or not _can_be_baked(specs),
        unroll_loops=options.unroll_loops,
        k_fast_emission=options.k_fast_emission,
    )


def _keep_files(name: str, bundle: Bundle) -> None:
    """A kernel's bundle and SpyreCode in Inductor's cache directory, for people and other tools."""
    from torch_spyre.backend.compiler import compile_to_spyrecode
    from torch_spyre.backend.spyrecode import DIRECTORY

    digest = hashlib.sha256(bundle.mlir.encode() + repr(bundle.superdscs).encode()).hexdigest()
    folder = Path(cache_dir()) / "spyre-code" / f"{name}_{digest[:12]}"
    if not (folder / DIRECTORY).exists():
        bundle.write(folder)
        compile_to_spyrecode(folder, folder / DIRECTORY)
        log.info("%s: bundle and SpyreCode in %s", name, folder)


def _can_be_baked(specs: Sequence[KernelEntry]) -> bool:
    """Whether each tensor of a kernel has a segment of its own, as baked addresses need."""
    from torch_spyre._inductor.op_spec import OpSpec, walk

    ops = [op for op in walk(list(specs)) if isinstance(op, OpSpec)]
    outside = [arg.address for op in ops for arg in op.args if arg.component == "hbm"]
    return max(outside, default=0) < TENSOR_SEGMENTS * SEGMENT_BYTES


def _unimplemented(specs: Sequence[KernelEntry]) -> str | None:
    from torch_spyre._inductor.op_spec import UnimplementedOp, walk

    return next((e.op for e in walk(list(specs)) if isinstance(e, UnimplementedOp)), None)


def kernel_of(text: str) -> list[KernelEntry]:
    """The OpSpecs that a text of generated code stands for."""
    return eval(text, _names())


@functools.cache
def _names() -> dict[str, Any]:
    """What the text of a kernel may name."""
    from torch_spyre._C import DataFormats
    from torch_spyre._inductor import op_spec

    names = ("IndirectAccess", "LoopSpec", "OpSpec", "TensorArg", "UnimplementedOp")
    return {name: getattr(op_spec, name) for name in names} | {
        "DataFormats": DataFormats,
        "sympify": _expression,
    }


class _Symbols(dict[str, Any]):
    """Every name that is not a function is a loop variable."""

    def __missing__(self, name: str) -> Any:
        from sympy import Symbol

        return Symbol(name, integer=True, nonnegative=True)


class _ExactNumbers(ast.NodeTransformer):
    """``1/3`` is a fraction."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if not isinstance(node.value, int):
            return node
        call = ast.Call(ast.Name("Integer", ast.Load()), [node], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))


@functools.lru_cache(maxsize=1 << 14)
def _expression(text: str) -> Any:
    """``sympify`` of what we wrote ourselves: its parser takes ten times as long."""
    import sympy

    from torch_spyre._inductor.op_spec import IndirectAccess

    tree = _ExactNumbers().visit(ast.parse(text, mode="eval"))
    functions = {"floor": sympy.floor, "Mod": sympy.Mod, "IndirectAccess": IndirectAccess}
    names = _Symbols(functions, Integer=sympy.Integer)
    return eval(compile(tree, "<expression>", "eval"), {"__builtins__": {}}, names)
