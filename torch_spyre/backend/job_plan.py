"""Running SpyreCode: a directory becomes a :class:`JobPlan`, which can be launched again and again.

>>> plan = prepare_kernel("kernel/spyreCodeDir")
>>> launch_jobplan(plan, [x, y, out])
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from torch_spyre._C import _launch_together, _Program
from torch_spyre.backend import kernel_cache
from torch_spyre.backend.account import accounts_in
from torch_spyre.backend.errors import MalformedSpyreCode
from torch_spyre.backend.program import MAGIC, program_bytes
from torch_spyre.backend.spyrecode import (
    FILE,
    PROGRAM_BASE,
    ComputeOnDevice,
    ComputeOnHost,
    DataTransfer,
    Execution,
    InitTransfer,
    SpyreCode,
    read_spyrecode,
)
from torch_spyre.cost import Account


class JobPlan:
    """The steps of a kernel's run. Programs go to a card when first launched there."""

    __slots__ = ("_loaded", "_programs", "_steps", "_why_not", "job_allocation_size")

    def __init__(self, code: SpyreCode, programs: Sequence[bytes], why_not: str = "") -> None:
        self._steps = [step.step_type for step in code.execution]
        self.job_allocation_size = code.allocation_bytes  #: bytes in the program segment
        self._programs = programs
        self._why_not = why_not  # if it cannot be launched
        self._loaded: dict[int, Sequence[_Program]] = {}  # by device

    @property
    def num_steps(self) -> int:
        return len(self._steps)

    def get_step_type(self, index: int) -> str:
        """``"H2D"``, ``"D2H"``, ``"Compute"`` or ``"HostCompute"``."""
        if not 0 <= index < len(self._steps):
            raise IndexError(f"Step index out of range: {index}, the plan has {len(self._steps)}")
        return self._steps[index]

    @property
    def accounts(self) -> list[Account]:
        """What the ops of a run cost, in order."""
        return [account for binary in self._programs for account in accounts_in(binary)]

    def __repr__(self) -> str:
        return (
            f"<torch_spyre.JobPlan num_steps={self.num_steps} steps=[{', '.join(self._steps)}] "
            f"job_allocation_size={self.job_allocation_size}>"
        )

    def load(self, device: int) -> Sequence[_Program]:
        """The programs on a card, in order, brought there once."""
        if device in self._loaded:
            return self._loaded[device]
        if self._why_not:
            raise RuntimeError(self._why_not)
        programs = [_Program(binary, device) for binary in self._programs]
        return self._loaded.setdefault(device, programs)


def prepare_kernel(
    spyrecode_dir: str | os.PathLike[str], stream: torch.Stream | None = None
) -> JobPlan:
    """The plan of a SpyreCode directory. With a stream, its device gets the program at once."""
    directory = Path(spyrecode_dir)
    code = read_spyrecode(directory)
    _check_order(directory, code.execution)
    loaded = _loaded(directory, code)
    programs, why_not = [], _why_not(code.execution)
    for step in code.execution:
        if isinstance(step, ComputeOnDevice):
            binary = _program_at(step.job_bin_ptr, loaded)
            if binary is None:
                why_not = why_not or f"{directory}: no program is at {step.job_bin_ptr}"
            else:
                programs.append(binary)
    plan = JobPlan(code, programs, why_not)
    if stream is not None:
        plan.load(stream.device_index)
    return plan


def launch_jobplan(plan: JobPlan, args: Sequence[torch.Tensor]) -> None:
    """Run a plan on the current stream of the tensors' device: the pool, if any, comes first."""
    try:
        programs = plan._loaded[args[0].get_device()]
    except LookupError:
        programs = plan.load(_device(args))
    for program in programs:
        program.launch(args)


def launch_kernel(code_dir: str | os.PathLike[str], args: Sequence[torch.Tensor]) -> None:
    """Run the bundle in a directory on the current stream of the tensors' device. It is compiled
    when it is run for the first time with what is in it."""
    binary = kernel_cache.compiled_directory(Path(code_dir))
    _bundle_program(binary, _device(args)).launch(args)


@functools.lru_cache(maxsize=64)
def _bundle_program(binary: bytes, device: int) -> _Program:
    return _Program(binary, device)


def launch_together(launches: Sequence[tuple[JobPlan, Sequence[torch.Tensor]]]) -> None:
    """Run plans one after the other with nothing in between: each finds in the scratchpads what the
    one before it leaves there."""
    device = _device([tensor for _, args in launches for tensor in args])
    _launch_together([(program, args) for plan, args in launches for program in plan.load(device)])


def _device(args: Sequence[torch.Tensor]) -> int:
    if not args:
        raise RuntimeError("launch_jobplan: a kernel works on tensors, there are none")
    if args[0].device.type != "spyre":
        raise RuntimeError(f"launch_jobplan: expected spyre tensors, found one on {args[0].device}")
    return args[0].get_device()


def _program_at(address: int, loaded: Sequence[tuple[int, bytes]]) -> bytes | None:
    for begin, data in loaded:
        if begin <= address < begin + len(data):
            binary = data[address - begin :]
            return binary[: program_bytes(binary)] if binary.startswith(MAGIC) else None
    return None


def _loaded(directory: Path, code: SpyreCode) -> list[tuple[int, bytes]]:
    """What the job's memory holds after the preparation: (address, bytes)."""
    loaded = []
    for i, transfer in enumerate(code.preparation):
        if not isinstance(transfer, InitTransfer):
            continue
        where = f"JobPreparationPlan[{i}]"
        file = directory / transfer.init_bin_file
        if file.parent != directory or not os.path.isfile(file):  # of any name, however long
            raise MalformedSpyreCode(str(directory), where, f"no file {transfer.init_bin_file!r}")
        data = file.read_bytes()
        if len(data) < transfer.size:
            raise MalformedSpyreCode(
                str(file), f"{where}.size", f"is {transfer.size}, the file has {len(data)} bytes"
            )
        end = transfer.dev_ptr - PROGRAM_BASE + transfer.size
        if end > code.allocation_bytes:
            raise MalformedSpyreCode(
                str(directory / FILE),
                f"{where}.dev_ptr",
                f"ends at byte {end} of an allocation of {code.allocation_bytes}",
            )
        loaded.append((transfer.dev_ptr, data[: transfer.size]))
    return loaded


def _check_order(directory: Path, steps: Sequence[Execution]) -> None:
    """If the host computes first, its result is sent, and then only the card computes."""
    kinds = [step.step_type for step in steps]
    if not kinds:
        raise _disorder(directory, "Incomplete step sequence: no steps")
    if kinds[0] != "HostCompute":
        return
    if len(kinds) < 2:
        raise _disorder(directory, "Incomplete step sequence: HostCallback without H2D transfer")
    if kinds[1] != "H2D":
        raise _disorder(
            directory,
            "Step ordering violation at step 0: HostCallback must be followed by H2D transfer",
        )
    if len(kinds) < 3:
        raise _disorder(directory, "Incomplete step sequence: H2D transfer without Compute")
    for i, (_, kind) in enumerate(itertools.pairwise(kinds[1:]), 1):
        if kind != "Compute":
            raise _disorder(
                directory,
                f"Step ordering violation at step {i}: H2D transfer must be followed by Compute",
            )


def _disorder(directory: Path, why: str) -> MalformedSpyreCode:
    return MalformedSpyreCode(str(directory / FILE), "JobExecPlan", why)


def _why_not(steps: Sequence[Execution]) -> str:
    """Why a plan cannot be launched here; empty if it can.

    The addresses of a run reach our card with the launch itself. So the commands that correct a
    program need no work here. Other commands of that kind we cannot carry out.
    """
    for i, step in enumerate(steps):
        if isinstance(step, ComputeOnHost) and not isinstance(step.hcm.get("arguments"), list):
            return f"step {i} (HostCompute): 'hcm' has no 'arguments': not of this back end"
        corrects = i > 0 and isinstance(steps[i - 1], ComputeOnHost) and step.step_type == "H2D"
        if isinstance(step, DataTransfer) and not corrects:
            return f"step {i} ({step.step_type}): not a transfer of this back end"
    return ""
