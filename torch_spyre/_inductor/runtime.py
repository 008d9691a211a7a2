"""What compiled graphs call: kernels that are compiled from OpSpecs and launched."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch._inductor.async_compile import AsyncCompile

from torch_spyre import _C
from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor import config
from torch_spyre._inductor.codegen.bundle import make_bundle
from torch_spyre._inductor.errors import about_bundle
from torch_spyre._inductor.kernel_ir import Ramp
from torch_spyre._inductor.op_spec import KernelEntry, walk
from torch_spyre.backend.kernel_cache import compiled_program

# Layout, strides and storage offset that a kernel was compiled for.
Expected = Sequence[tuple[SpyreTensorLayout, list[int], int]]


class SDSCKernelRunner:
    """A compiled kernel."""

    def __init__(
        self,
        name: str,
        binary: bytes,
        expected: Expected,
        outputs: Sequence[int],
        constants: Sequence[tuple[float | Ramp, torch.dtype]],
        pool_bytes: int,
    ) -> None:
        self.name = name
        self.binary = binary
        self.expected = list(expected)
        self.outputs = set(outputs)
        self.constants = constants
        self.pool_bytes = pool_bytes
        self.loaded: dict[int, tuple[_C._Program, list[torch.Tensor]]] = {}

    def run(self, *args: torch.Tensor) -> None:
        """Launch on the current stream of the arguments' device."""
        device = args[0].get_device()
        if device not in self.loaded:
            constants = [constant_tensor(v, dtype, device) for v, dtype in self.constants]
            program = _C._Program(self.binary, device, self.expected)
            self.loaded[device] = (program, constants)
        program, constants = self.loaded[device]
        operands = [*args, *constants]
        first = 0
        if self.pool_bytes:
            pool = torch.empty(self.pool_bytes, dtype=torch.int8, device=args[0].device)
            operands.insert(0, pool)
            first = 1
        if program.launch(operands, first) >= 0:
            self._run_on_copies(program, operands, first)

    def _run_on_copies(
        self, program: _C._Program, operands: list[torch.Tensor], first: int
    ) -> None:
        """Some tensor does not lie as the kernel was compiled for: use one that does."""
        copied = []
        for i, (layout, stride, offset) in enumerate(self.expected):
            tensor = operands[first + i]
            placed = tensor.device_tensor_layout() == layout  # type: ignore[attr-defined]
            if placed and list(tensor.stride()) == stride and tensor.storage_offset() == offset:
                continue
            span = sum((n - 1) * s for n, s in zip(tensor.shape, stride, strict=True)) + 1
            with torch.spyre.device(tensor.device):  # type: ignore[attr-defined]
                storage = _C.spyre_empty_with_layout([offset + span], [1], tensor.dtype, layout)
            view = storage.as_strided(tensor.shape, stride, offset)
            view.copy_(tensor)
            operands[first + i] = view
            if i in self.outputs:
                copied.append((tensor, view))
        failed = program.launch(operands, first)
        assert failed < 0, f"{self.name}: operand {failed} still does not fit"
        for tensor, view in copied:
            tensor.copy_(view)


class SpyreAsyncCompile(AsyncCompile):
    """Inductor's compiler of kernels, with ours added."""

    def sdsc(
        self,
        name: str,
        specs: Sequence[KernelEntry],
        expected: Expected,
        constants: Sequence[tuple[float | Ramp, torch.dtype]] = (),
        pool_bytes: int = 0,
    ) -> SDSCKernelRunner:
        with about_bundle(name, specs):
            bundle = make_bundle(
                specs,
                symbolic=config.bundle_symbolic_args,
                unroll_loops=config.unroll_loops,
                k_fast_emission=config.core_id_k_fast_emission,
            )
            binary = compiled_program(bundle)
        written = {a.arg_index for op in walk(list(specs)) for a in op.args if not a.is_input}  # type: ignore[union-attr]
        return SDSCKernelRunner(name, binary, expected, sorted(written), constants, pool_bytes)


@functools.cache
def constant_tensor(value: float | Ramp, dtype: torch.dtype, device: int) -> torch.Tensor:
    """A constant on the card, made once."""
    host = value.tensor(dtype) if isinstance(value, Ramp) else torch.tensor(value, dtype=dtype)
    return host.to(torch.device("spyre", device))


def get_raw_stream(device: int) -> int:
    return torch.spyre.current_stream(device).stream_id  # type: ignore[attr-defined]
