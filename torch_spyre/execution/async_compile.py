"""``async_compile`` of generated code: kernels that can be launched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torch._inductor.async_compile import AsyncCompile

from torch_spyre._inductor.op_spec import KernelEntry, UnimplementedOp, in_integers, walk
from torch_spyre._inductor.programs import compiled, known_program
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
    from torch_spyre.execution.template_runner import SDSCTemplateRunner


class KernelMissing(OSError):
    """A graph came from a cache, and a program that it launches is no longer in the kernel cache.
    Inductor compiles the graph again."""


class SpyreAsyncCompile(AsyncCompile):
    """Inductor's compiler of kernels, with ours added."""

    def sdsc(
        self,
        name: str,
        kernel: str | Sequence[KernelEntry],
        expected: Expected = (),
        outputs: Sequence[int] = (),
        constants: Constants = (),
        pool_bytes: int = 0,
        views: Views | None = None,
        sources: Sources = ((), ()),
        residents: Residents = (),
    ) -> SDSCKernelRunner | UnimplementedKernelRunner:
        """A kernel to launch: of its OpSpecs, or of the name that :func:`compiled` gave."""
        if isinstance(kernel, str):
            binary = _program(name, kernel)
        else:
            missing = (e.op for e in walk(kernel) if isinstance(e, UnimplementedOp))
            if op := next(missing, None):
                return UnimplementedKernelRunner(name, op)
            _, binary = compiled(name, [*map(in_integers, kernel)])
        return SDSCKernelRunner(
            *(name, binary, expected, outputs, constants, pool_bytes, views, sources, residents)
        )

    def sdsc_template(
        self,
        name: str,
        numbers: Callable[..., Sequence[int]],
        data: bytes,
        kept: int,
        origins: Sequence[str] = (),
    ) -> SDSCTemplateRunner:
        """A kernel whose sizes a launch brings: ``data`` of a template, and what is to be filled
        in, as a function of the sizes."""
        from torch_spyre.execution.template_runner import SDSCTemplateRunner

        return SDSCTemplateRunner(name, numbers, data, kept, origins)


def _program(kernel: str, name: str) -> bytes:
    program = known_program(name)
    if program is None:
        raise KernelMissing(
            f"{kernel}: its program {name} is not in the kernel cache. A process that compiles the "
            "graph again puts it there; torch.compiler.save_cache_artifacts takes programs along"
        )
    return program
