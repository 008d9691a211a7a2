"""What a model of the zoo is, and the list of all of them."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

Library = Literal["transformers", "fms"]
Kind = Literal["decoder", "encoder", "vision", "speech"]
Inputs = dict[str, torch.Tensor]

# These tokens are special in some model (padding, begin, end): inputs do without them.
SPECIAL_TOKENS = 3


@dataclass(frozen=True)
class Size:
    """How large a model is built; every architecture derives its configuration from this."""

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    experts: int = 4
    experts_per_token: int = 2
    window: int = 16  # of sliding attention: smaller than the sequences, so that it matters
    positions: int = 2048
    image: int = 64
    patch: int = 16
    frames: int = 100
    mel_bins: int = 16

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads


TINY = Size("tiny", 128, 256, 2, 4, 2, 512)
SMALL = Size("small", 512, 1024, 4, 8, 4, 4096, window=64, image=112, frames=400, mel_bins=80)
MEDIUM = Size("medium", 1024, 3072, 4, 16, 4, 8192, window=128, image=224, frames=1000, mel_bins=80)
SIZES = {size.name: size for size in (TINY, SMALL, MEDIUM)}


@dataclass(frozen=True)
class ZooModel:
    """One architecture: how it is built, what it takes, which of its results is compared."""

    name: str
    library: Library
    kind: Kind
    make: Callable[[Size], torch.nn.Module]
    make_inputs: Callable[[Size, int, int], Inputs]
    result_names: Sequence[str] = ("logits",)  # tensors of a result that are compared
    no_gradients: str = ""  # ending of the names of modules whose gradients the library lacks

    def build(self, size: Size = TINY) -> torch.nn.Module:
        """The model with seeded random float32 weights on the CPU, in evaluation mode."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.make(size).eval()

    def inputs(self, batch: int = 2, length: int = 24, size: Size = TINY) -> Inputs:
        """Seeded random arguments for `model(**inputs)`, on the CPU."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            return self.make_inputs(size, batch, length)

    def output(self, result: Any) -> torch.Tensor:
        """What of a result is compared, as one tensor."""
        if isinstance(result, torch.Tensor):
            return result
        if isinstance(result, tuple):
            return self.output(result[0])
        values = [getattr(result, name) for name in self.result_names]
        return values[0] if len(values) == 1 else torch.cat(values)


def token_ids(size: Size, batch: int, length: int) -> torch.Tensor:
    """Random tokens of the vocabulary, none of them special."""
    return torch.randint(SPECIAL_TOKENS, size.vocabulary, (batch, length))


_models: dict[str, ZooModel] = {}
_MODULES = ("torch_spyre.zoo.transformers_models", "torch_spyre.zoo.fms_models")


def register(model: ZooModel) -> ZooModel:
    """Add a model to the zoo; a module of `_MODULES` calls this when it is imported."""
    if model.name in _models:
        raise ValueError(f"the zoo has a model {model.name!r} already")
    _models[model.name] = model
    return model


def models() -> list[ZooModel]:
    """Every model of the zoo, in the order of registration."""
    for module in _MODULES:
        importlib.import_module(module)
    return list(_models.values())


def get(name: str) -> ZooModel:
    """The model of that name."""
    by_name = {model.name: model for model in models()}
    if name not in by_name:
        raise KeyError(f"no model {name!r} in the zoo; there are {', '.join(by_name)}")
    return by_name[name]
