"""The models of the Foundation Model Stack (`ibm-fms`), through its own `get_model`."""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from torch_spyre.zoo.registry import Inputs, Kind, Size, ZooModel, register, token_ids


def _common(size: Size) -> dict[str, Any]:
    return {"src_vocab_size": size.vocabulary, "nheads": size.heads, "nlayers": size.layers}


def _decoder(size: Size) -> dict[str, Any]:
    return {
        **_common(size),
        "emb_dim": size.hidden,
        "kvheads": size.kv_heads,
        "hidden_grow_factor": size.intermediate / size.hidden,
        "max_expected_seq_len": size.positions,
    }


def _decoder_with_head_size(size: Size) -> dict[str, Any]:
    return {**_decoder(size), "head_dim": size.head_size}


def _mixtral(size: Size) -> dict[str, Any]:
    return {
        **_common(size),
        "dim": size.hidden,
        "kvheads": size.kv_heads,
        "hidden_dim": size.intermediate,
        "num_experts": size.experts,
        "top_k_experts": size.experts_per_token,
        "max_expected_seq_len": size.positions,
    }


def _encoder(size: Size) -> dict[str, Any]:
    return {
        **_common(size),
        "emb_dim": size.hidden,
        "hidden_grow_factor": size.intermediate / size.hidden,
        "max_pos": size.positions,
    }


class Architecture(NamedTuple):
    """A name that the stack knows, with the variant whose settings a size does not change."""

    variant: str
    kind: Kind
    config: Callable[[Size], dict[str, Any]]


ARCHITECTURES = {
    "granite": Architecture("3_1_2b", "decoder", _decoder_with_head_size),
    "llama": Architecture("3-8b", "decoder", _decoder),
    "mistral": Architecture("7b", "decoder", _decoder_with_head_size),
    "mixtral": Architecture("8x7b", "decoder", _mixtral),
    "qwen3": Architecture("0.6b", "decoder", _decoder_with_head_size),
    "roberta": Architecture("base", "encoder", _encoder),
    "bert": Architecture("base", "encoder", _encoder),
}


def get_model(name: str, size: Size, device: str, dtype: torch.dtype) -> torch.nn.Module:
    """What `fms.models.get_model` makes: random weights, made on the device."""
    architecture = ARCHITECTURES[name]
    model = importlib.import_module("fms.models").get_model(
        name,
        architecture.variant,
        device_type=device,
        data_type=dtype,
        **architecture.config(size),
    )
    if head := getattr(model, "classification_head", None):
        # The stack leaves these uninitialised unless a checkpoint is loaded.
        for layer in (head.dense, head.ln, head.head):
            layer.reset_parameters()
    return model.eval()


def _inputs(size: Size, batch: int, length: int) -> Inputs:
    return {"x": token_ids(size, batch, length)}


def _add(name: str, kind: Kind) -> None:
    def make(size: Size) -> torch.nn.Module:
        return get_model(name, size, "cpu", torch.float32)

    # The stack's product with experts returns its input in place of a gradient.
    experts = "cond_ffn" if name == "mixtral" else ""
    register(ZooModel(f"fms-{name}", "fms", kind, make, _inputs, no_gradients=experts))


for _name, _architecture in ARCHITECTURES.items():
    _add(_name, _architecture.kind)
