"""Runs a model on the CPU and on the card, eagerly and compiled, and says what came of it."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_spyre.constants import DEVICE_NAME
from torch_spyre.explanation.record import OTHER, Recording, clock_ns, compilation, recording
from torch_spyre.zoo.emulation import DLFloat16Emulation, round_weights
from torch_spyre.zoo.justified import unjustified
from torch_spyre.zoo.registry import SIZES, Inputs, Size, ZooModel
from torch_spyre.zoo.training import MarkovText, trained

_TIMED_RUNS = 3

TOP1_WANTED = 0.99  # of a trained decoder's first choices
# The card rounds where the emulation does, give or take: its error is of the same size.
ERROR_MARGIN = 1.25


@dataclass
class Run:
    """One way to run a model on the card: eager or compiled."""

    ops: int = 0  # eager ops and launches of kernels
    kernels: int = 0  # launches of compiled kernels
    fallbacks: dict[str, int] = field(default_factory=dict)
    wall_ms: float = 0.0
    modelled_us: float = 0.0
    error_fp32: float = 0.0  # largest difference from the CPU in float32
    error_fp16: float = 0.0  # and in float16
    rms_error_fp32: float = 0.0
    top1_agreement: float | None = None  # share of positions, of decoders

    @property
    def percent_native(self) -> float:
        on_the_cpu = sum(self.fallbacks.values())
        return 100 * (1 - on_the_cpu / self.ops) if self.ops else 100.0


@dataclass
class Measurement:
    """All that is measured of a model."""

    name: str
    library: str
    kind: str
    size: str
    parameters: int
    batch: int
    length: int
    trained: bool
    largest: float = 0.0  # magnitude of a result, in float32 on the CPU
    fp16_error: float = 0.0  # of float16 on the CPU, from float32
    dl16_error: float = 0.0  # of DLFloat16 emulated on the CPU, from float32
    dl16_rms_error: float = 0.0
    eager: Run = field(default_factory=Run)
    compiled: Run = field(default_factory=Run)
    compile_seconds: float = 0.0
    graphs: int = 0
    graph_breaks: int = 0
    op_by_op: int = 0  # graphs that could not be compiled

    def complaints(self) -> list[str]:
        """What is not as it should be."""
        found = [
            f"{op} ran on the CPU"
            for op in unjustified(self.name, self.eager.fallbacks | self.compiled.fallbacks)
        ]
        if self.graph_breaks or self.op_by_op:
            found.append(f"{self.graph_breaks + self.op_by_op} graph breaks")
        for way, run in (("eager", self.eager), ("compiled", self.compiled)):
            if not run.rms_error_fp32 <= ERROR_MARGIN * self.dl16_rms_error:  # NaN too
                found.append(f"{way} results are further from float32 than DLFloat16 explains")
            if self.trained and (run.top1_agreement or 0) < TOP1_WANTED:
                found.append(f"{way} first choices differ from float32's")
        return found


@dataclass(frozen=True)
class References:
    """What the CPU computes."""

    fp32: torch.Tensor
    fp16: torch.Tensor
    dl16: torch.Tensor


Progress = Callable[[str], None]


def measure(
    model: ZooModel,
    size: Size = SIZES["tiny"],
    batch: int = 4,
    length: int = 128,
    train: bool = True,
    progress: Progress = lambda step: None,
) -> Measurement:
    """Build, run and compare; decoders are trained a little before, see `training`."""
    train = train and model.kind == "decoder"
    progress("trains" if train else "builds")
    inputs = model.inputs(batch, length, size)
    if train:
        text = MarkovText()
        module = trained(model, size, text)
        inputs = {name: text.sample(batch, length) for name in inputs}
    else:
        module = model.build(size)
    parameters = sum(parameter.numel() for parameter in module.parameters())
    done = Measurement(
        model.name, model.library, model.kind, size.name, parameters, batch, length, train
    )
    progress("runs on the CPU")
    references = cpu_references(model, module, inputs)
    exact = references.fp32
    done.largest = exact.abs().max().item()
    done.fp16_error = _largest_difference(references.fp16, exact)
    done.dl16_error = _largest_difference(references.dl16, exact)
    done.dl16_rms_error = rms_difference(references.dl16, exact)

    on_card = module.to(torch.float16).to(DEVICE_NAME)
    arguments = cast_inputs(inputs, torch.float16, DEVICE_NAME)
    with torch.no_grad():
        progress("runs eagerly")
        done.eager = _run(model, lambda: on_card(**arguments), references)
        progress("compiles")
        torch._dynamo.reset()
        function = torch.compile(on_card)
        started = time.perf_counter()
        with compilation() as compiling, torch._inductor.config.patch(force_disable_caches=True):
            function(**arguments)
        done.compile_seconds = time.perf_counter() - started
        done.graphs = compiling.frames
        done.graph_breaks = sum(compiling.graph_breaks.values())
        done.op_by_op = sum(compiling.op_by_op.values())
        progress("runs compiled")
        done.compiled = _run(model, lambda: function(**arguments), references)
    return done


def cast_inputs(inputs: Inputs, dtype: torch.dtype, device: str = "cpu") -> Inputs:
    """Floating-point tensors as `dtype`, all of them on the device."""
    return {
        name: tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)
        for name, tensor in inputs.items()
    }


@torch.no_grad()
def cpu_references(model: ZooModel, module: torch.nn.Module, inputs: Inputs) -> References:
    """A float32 module on the CPU, the same in float16, and with DLFloat16 emulated."""
    half = copy.deepcopy(module).to(torch.float16)
    half_inputs = cast_inputs(inputs, torch.float16)
    fp32 = model.output(module(**inputs)).float()
    fp16 = model.output(half(**half_inputs)).float()
    with DLFloat16Emulation():
        dl16 = model.output(round_weights(half)(**half_inputs)).float()
    return References(fp32, fp16, dl16)


def rms_difference(ours: torch.Tensor, exact: torch.Tensor) -> float:
    return (ours - exact).square().mean().sqrt().item()


def _largest_difference(ours: torch.Tensor, exact: torch.Tensor) -> float:
    return (ours - exact).abs().max().item()


def _run(model: ZooModel, call: Callable[[], Any], references: References) -> Run:
    call()  # eager ops make their programs at the first call
    with recording() as record:
        result = call()
    output = model.output(result).float().cpu()
    run = Run(
        ops=_ops(record),
        kernels=sum(len(event.kernels) for event in record.events),
        fallbacks=record.fallbacks,
        modelled_us=clock_ns(record.total) / 1e3,
        wall_ms=min(_seconds(call) for _ in range(_TIMED_RUNS)) * 1e3,
        error_fp32=_largest_difference(output, references.fp32),
        error_fp16=_largest_difference(output, references.fp16),
        rms_error_fp32=rms_difference(output, references.fp32),
    )
    if model.kind == "decoder":
        same = output.argmax(-1) == references.fp32.argmax(-1)
        run.top1_agreement = same.float().mean().item()
    return run


def _ops(record: Recording) -> int:
    return sum(event.name != OTHER for event in record.events)


def _seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    result = call()
    torch.accelerator.synchronize()
    del result
    return time.perf_counter() - started
