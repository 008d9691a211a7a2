"""Models of the zoo, built once a test process, and what the CPU makes of them."""

import copy
import functools
import logging
from dataclasses import dataclass

import torch

from torch_spyre import zoo
from torch_spyre.zoo.measure import ERROR_MARGIN, cast_inputs, cpu_references, rms_difference

logging.getLogger("transformers").setLevel(logging.ERROR)

_MODELS = [model for model in zoo.models() if model.library == "transformers"]
TRANSFORMERS = [model.name for model in _MODELS]
TEXT = [model.name for model in _MODELS if model.kind in ("decoder", "encoder")]
DECODERS = [model.name for model in _MODELS if model.kind == "decoder"]


@dataclass
class Case:
    """A model with inputs, and its results on the CPU."""

    model: zoo.ZooModel
    module: torch.nn.Module  # float32, on the CPU
    inputs: dict[str, torch.Tensor]
    exact: torch.Tensor  # in float32
    error: float  # rms, of DLFloat16 emulated

    def on_card(self, dtype=torch.float16):
        """The module and its inputs on the card."""
        module = copy.deepcopy(self.module).to(dtype).to("spyre")
        return module, cast_inputs(self.inputs, dtype, "spyre")

    def judge(self, result, where=slice(None)):
        """Right up to the error of the number format; `where` selects what counts."""
        ours = self.model.output(result)
        assert ours.device.type == "spyre"
        ours = ours.float().cpu()
        assert ours.shape == self.exact.shape
        assert torch.isfinite(ours[where]).all()
        assert rms_difference(ours[where], self.exact[where]) <= ERROR_MARGIN * self.error


def _case(model, module, inputs, where=slice(None)):
    references = cpu_references(model, module, inputs)
    error = rms_difference(references.dl16[where], references.fp32[where])
    return Case(model, module, inputs, references.fp32, error)


@functools.cache
def case(name):
    """The model as it is built."""
    model = zoo.get(name)
    return _case(model, model.build(), model.inputs())


def short_case(name, length):
    """One sequence of a few tokens."""
    base = case(name)
    return _case(base.model, base.module, base.model.inputs(1, length))


@functools.cache
def rounded_case(name, dtype):
    """The same with weights that `dtype` can hold."""
    base = case(name)
    module = copy.deepcopy(base.module).to(dtype).float()
    inputs = cast_inputs(cast_inputs(base.inputs, dtype), torch.float32)
    return _case(base.model, module, inputs)


@functools.cache
def padded_case(name):
    """Two sequences, one of them shorter: padded on the left for decoders, on the right else.

    Returns also where the real tokens are.
    """
    base = case(name)
    inputs = dict(base.inputs)
    real = torch.ones_like(inputs["input_ids"], dtype=torch.bool)
    real[0, slice(0, 7) if base.model.kind == "decoder" else slice(-7, None)] = False
    inputs["input_ids"] = inputs["input_ids"].masked_fill(~real, 0)
    inputs["attention_mask"] = real.long()
    return _case(base.model, base.module, inputs, real), real
