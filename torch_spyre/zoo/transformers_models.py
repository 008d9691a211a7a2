"""The models of Hugging Face's `transformers`, from small configurations of the real classes."""

import importlib
from collections.abc import Callable
from typing import Any

import torch

from torch_spyre.zoo.registry import Inputs, Kind, Size, ZooModel, register, token_ids

_HIDDEN = ("last_hidden_state",)


def _layers(size: Size) -> dict[str, int]:
    return {
        "hidden_size": size.hidden,
        "intermediate_size": size.intermediate,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
    }


def _text(size: Size) -> dict[str, Any]:
    return {
        **_layers(size),
        "vocab_size": size.vocabulary,
        "max_position_embeddings": size.positions,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def _decoder(size: Size) -> dict[str, Any]:
    return {**_text(size), "num_key_value_heads": size.kv_heads}


def _experts(size: Size) -> dict[str, Any]:
    return {
        "num_local_experts": size.experts,
        "num_experts_per_tok": size.experts_per_token,
    }


def _pictures(size: Size) -> dict[str, Any]:
    return {**_layers(size), "image_size": size.image, "patch_size": size.patch}


def _granite(size: Size) -> dict[str, Any]:
    """The multipliers of the released models. The library's defaults of 1 make attention so sharp
    in random models that 16 bits of any kind are not enough for them."""
    multipliers = {"attention_multiplier": 1 / size.head_size, "residual_multiplier": 0.22}
    return {**_decoder(size), **multipliers}


def _hybrid(size: Size) -> dict[str, Any]:
    """Mamba layers, and attention in every second place."""
    kinds = ["mamba" if i % 2 == 0 else "attention" for i in range(size.layers)]
    return {
        **_granite(size),
        **_experts(size),
        "layer_types": kinds,
        "shared_intermediate_size": size.intermediate // 2,
        "mamba_expand": 2,
        "mamba_n_heads": 2 * size.heads,
        "mamba_d_head": size.head_size,
        "mamba_d_state": 16,
        "mamba_n_groups": 1,
        "mamba_chunk_size": 32,
    }


def _siglip(size: Size) -> dict[str, Any]:
    return {"text_config": _text(size), "vision_config": _pictures(size)}


def _whisper(size: Size) -> dict[str, Any]:
    stacks = {
        f"{part}_{name}": value
        for part in ("encoder", "decoder")
        for name, value in (
            ("layers", size.layers),
            ("attention_heads", size.heads),
            ("ffn_dim", size.intermediate),
        )
    }
    return {
        **stacks,
        "d_model": size.hidden,
        "vocab_size": size.vocabulary,
        "max_source_positions": size.frames // 2,
        "num_mel_bins": size.mel_bins,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
    }


def _tokens(size: Size, batch: int, length: int) -> Inputs:
    return {"input_ids": token_ids(size, batch, length)}


def _images(size: Size, batch: int, length: int) -> Inputs:
    return {"pixel_values": torch.randn(batch, 3, size.image, size.image)}


def _tokens_and_images(size: Size, batch: int, length: int) -> Inputs:
    return _tokens(size, batch, length) | _images(size, batch, length)


def _speech(size: Size, batch: int, length: int) -> Inputs:
    return {
        "input_features": torch.randn(batch, size.mel_bins, size.frames),
        "decoder_input_ids": token_ids(size, batch, length),
    }


def _add(
    name: str,
    kind: Kind,
    model_class: str,
    config_class: str,
    config: Callable[[Size], dict[str, Any]],
    inputs: Callable[[Size, int, int], Inputs] = _tokens,
    results: tuple[str, ...] = ("logits",),
) -> None:
    def make(size: Size) -> torch.nn.Module:
        transformers = importlib.import_module("transformers")
        return getattr(transformers, model_class)(
            getattr(transformers, config_class)(**config(size))
        )

    register(ZooModel(name, "transformers", kind, make, inputs, results))


def _add_decoder(name: str, prefix: str, config: Callable[[Size], dict[str, Any]]) -> None:
    _add(name, "decoder", f"{prefix}ForCausalLM", f"{prefix}Config", config)


def _add_encoder(name: str, prefix: str) -> None:
    _add(name, "encoder", f"{prefix}Model", f"{prefix}Config", _text, results=_HIDDEN)


_add_decoder("granite", "Granite", _granite)
_add_decoder("granitemoe", "GraniteMoe", lambda size: {**_granite(size), **_experts(size)})
_add_decoder("granitehybrid", "GraniteMoeHybrid", _hybrid)
_add_decoder("llama", "Llama", _decoder)
_add_decoder("mistral", "Mistral", lambda size: {**_decoder(size), "sliding_window": size.window})
_add_decoder("qwen3", "Qwen3", lambda size: {**_decoder(size), "head_dim": size.head_size})
_add_decoder("phi3", "Phi3", _decoder)
_add_decoder(
    "gemma2",
    "Gemma2",
    lambda size: {
        **_decoder(size),
        "head_dim": size.head_size,
        "query_pre_attn_scalar": size.head_size,
        "sliding_window": size.window,
    },
)
_add_decoder(
    "gptoss",
    "GptOss",
    lambda size: {
        **_decoder(size),
        **_experts(size),
        "max_position_embeddings": 131072,  # fits the defaults of its RoPE scaling
        "head_dim": size.head_size,
        "sliding_window": size.window,
    },
)
_add_encoder("bert", "Bert")
_add_encoder("roberta", "Roberta")
_add_encoder("modernbert", "ModernBert")
_add_encoder("mpnet", "MPNet")
_add("vit", "vision", "ViTModel", "ViTConfig", _pictures, _images, _HIDDEN)
_add(
    "siglip",
    "vision",
    "SiglipModel",
    "SiglipConfig",
    _siglip,
    _tokens_and_images,
    ("image_embeds", "text_embeds"),
)
_add("whisper", "speech", "WhisperForConditionalGeneration", "WhisperConfig", _whisper, _speech)
