"""Decoders of the model zoo that generate tokens, on the CPU and on the card."""

import dataclasses
import functools
import warnings

import torch
import transformers

from torch_spyre import zoo
from torch_spyre._inductor.compile import CompileFallbackWarning
from torch_spyre.zoo.registry import SPECIAL_TOKENS, TINY

# One layer says as much as two, where all layers of a model are alike.
TWO_KINDS_OF_LAYERS = ("gemma2", "gptoss", "granitehybrid")
SLIDING = ("gemma2", "gptoss", "mistral")  # attention to the last TINY.window tokens
NEW_TOKENS = 6


def small(name):
    """The size at which a model is tested here."""
    return dataclasses.replace(TINY, layers=2 if name in TWO_KINDS_OF_LAYERS else 1)


def on_cpu(name):
    """The model in float32, with weights that float16 holds, too."""
    return zoo.get(name).build(small(name)).half().float()


def on_card(name):
    return on_cpu(name).half().to("spyre")


def prompts(batch=2, length=13, seed=0, padded=4):
    """Tokens and mask; the first row of several begins with padding."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(SPECIAL_TOKENS, TINY.vocabulary, (batch, length), generator=generator)
    mask = torch.ones_like(ids)
    if batch > 1:
        mask[0, :padded] = 0
        ids[0, :padded] = 0
    return {"input_ids": ids, "attention_mask": mask}


def moved(inputs):
    return {name: value.to("spyre") for name, value in inputs.items()}


def generate(model, inputs, cache="dynamic", new_tokens=NEW_TOKENS, **options):
    """The tokens that a model adds. Fails if a graph runs op by op."""
    if cache != "dynamic":
        options["cache_implementation"] = cache
    options = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileFallbackWarning)
        tokens = model.generate(
            **inputs, max_new_tokens=new_tokens, disable_compile=True, **options
        )
    return tokens[:, inputs["input_ids"].shape[1] :].cpu()


def assert_chosen_by_cpu(name, inputs, tokens):
    """Every token is what the CPU chooses in float32 after the same ones; ties as rounded."""
    ids = torch.cat([inputs["input_ids"], tokens], 1)
    mask = torch.cat([inputs["attention_mask"], torch.ones_like(tokens)], 1)
    places = (mask.cumsum(1) - 1).clamp_min(0)  # as generate() counts
    with torch.inference_mode():
        result = _cpu_model(name)(input_ids=ids, attention_mask=mask, position_ids=places)
    logits = result.logits[:, inputs["input_ids"].shape[1] - 1 : -1]
    chosen = logits.gather(2, tokens[..., None])[..., 0]
    missing = logits.max(-1).values - chosen
    assert missing.max() <= logits.abs().max() * 2**-8, missing


_cpu_model = functools.cache(on_cpu)


def static_cache(model, length):
    return transformers.StaticCache(config=model.config, max_cache_len=length)
