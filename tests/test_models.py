"""Models of transformers, unmodified: eager and compiled, dtypes, padding, tied weights."""

import copy
import warnings

import pytest
import torch
from model_runs import DECODERS, TEXT, TRANSFORMERS, case, padded_case, rounded_case, short_case

from torch_spyre import zoo
from torch_spyre._inductor.compile import CompileFallbackWarning
from torch_spyre.ops.fallbacks import fallback_counts, reset_fallback_counts
from torch_spyre.zoo.justified import justified_fallbacks
from torch_spyre.zoo.measure import rms_difference

EXPECTED = [
    "granite", "granitemoe", "granitehybrid", "llama", "mistral", "qwen3", "phi3", "gemma2",
    "gptoss", "bert", "roberta", "modernbert", "mpnet", "vit", "siglip", "whisper",
]  # fmt: skip


def test_the_zoo_has_them_all():
    assert TRANSFORMERS == EXPECTED


def compiled(function):
    """As one graph; an error if the graph could not be compiled."""
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True)


@pytest.fixture(autouse=True)
def no_silent_detours():
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileFallbackWarning)
        yield


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_eager_and_compiled(name, fresh_compiler):
    """Right in both; ops on the CPU are those, and only those, that the data file has."""
    this = case(name)
    module, inputs = this.on_card()
    reset_fallback_counts()
    with torch.inference_mode():
        this.judge(module(**inputs))
        this.judge(compiled(module)(**inputs))
    assert set(fallback_counts()) == set(justified_fallbacks(name))


def test_a_short_prompt_of_the_hybrid_compiled(fresh_compiler):
    """One sequence, less than a chunk of the scan, no cache: products whose batches are heads."""
    this = short_case("granitehybrid", 13)
    module, inputs = this.on_card()
    with torch.inference_mode():
        this.judge(compiled(module)(**inputs, use_cache=False))


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_bfloat16(name):
    """Its weights lie as DLFloat16, which holds every one of them."""
    this = rounded_case(name, torch.bfloat16)
    module, inputs = this.on_card(torch.bfloat16)
    reset_fallback_counts()
    with torch.inference_mode():
        result = module(**inputs)
    assert this.model.output(result).dtype == torch.bfloat16
    this.judge(result)
    assert set(fallback_counts()) == set(justified_fallbacks(name))


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_float32(name):
    """float32 stays float32 on the card: far closer than any 16-bit format."""
    this = case(name)
    module, inputs = this.on_card(torch.float32)
    reset_fallback_counts()
    with torch.inference_mode():
        ours = this.model.output(module(**inputs)).cpu()
    assert ours.dtype == torch.float32
    assert rms_difference(ours, this.exact) <= this.error / 100
    assert set(fallback_counts()) == set(justified_fallbacks(name))


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["granite", "granitemoe", "bert"])
def test_other_dtypes_compiled(name, dtype, fresh_compiler):
    this = rounded_case(name, dtype)
    module, inputs = this.on_card(dtype)
    reset_fallback_counts()
    with torch.no_grad():
        this.judge(compiled(module)(**inputs))
    assert set(fallback_counts()) == set(justified_fallbacks(name))


@pytest.mark.parametrize("name", TEXT)
def test_padded_batch(name):
    this, real = padded_case(name)
    module, inputs = this.on_card()
    reset_fallback_counts()
    with torch.inference_mode():
        this.judge(module(**inputs), where=real)
    assert set(fallback_counts()) == set(justified_fallbacks(name))


@pytest.mark.parametrize("name", TEXT)
def test_padded_batch_in_float32(name):
    this, real = padded_case(name)
    module, inputs = this.on_card(torch.float32)
    with torch.inference_mode():
        ours = this.model.output(module(**inputs)).cpu()
    assert rms_difference(ours[real], this.exact[real]) <= this.error / 100


@pytest.mark.long
@pytest.mark.parametrize("name", ["granite", "gptoss", "modernbert"])
def test_padded_batch_compiled(name, fresh_compiler):
    this, real = padded_case(name)
    module, inputs = this.on_card()
    reset_fallback_counts()
    with torch.inference_mode():
        this.judge(compiled(module)(**inputs), where=real)
    assert set(fallback_counts()) == set(justified_fallbacks(name))


@pytest.mark.long
@pytest.mark.parametrize("prepared", [lambda m: m, compiled], ids=["op by op", "compiled"])
@pytest.mark.parametrize("name", ["gemma2", "qwen3"])
def test_padded_batch_in_bfloat16_with_a_mask_of_its_least_number(name, prepared, fresh_compiler):
    """Rows of padding see nothing; the number that hides keys is beyond the card's format."""
    this, real = padded_case(name)
    module, inputs = this.on_card(torch.bfloat16)
    module.set_attn_implementation("eager")
    with torch.inference_mode():
        logits = this.model.output(prepared(module)(**inputs)).float().cpu()
    assert torch.isfinite(logits).all()
    # Weights of 8 bits: further from float32 than DLFloat16 is.
    assert rms_difference(logits[real], this.exact[real]) <= 8 * this.error


def test_padding_changes_nothing_for_the_real_tokens():
    """Independent of the CPU: the shorter sequence alone gives what it gives in the batch."""
    this, _ = padded_case("llama")
    module, inputs = this.on_card()
    positions = (inputs["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    alone = inputs["input_ids"][:1, 7:]
    with torch.inference_mode():
        batch = module(**inputs, position_ids=positions).logits[0, 7:].float().cpu()
        single = module(input_ids=alone).logits[0].float().cpu()
    assert rms_difference(batch, single) <= this.error


def shared_names(module):
    """Groups of names of one and the same parameter."""
    groups = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return sorted(tuple(names) for names in groups.values() if len(names) > 1)


@pytest.mark.parametrize("name", DECODERS)
def test_tied_weights_stay_tied(name):
    """The logits are computed from the embedding's own memory: no second copy of it is stored."""
    used = {}
    for tied in (True, False):
        module = zoo.get(name).build().half()
        embedding, head = module.get_input_embeddings(), module.get_output_embeddings()
        head.weight = embedding.weight if tied else torch.nn.Parameter(embedding.weight.clone())
        groups = shared_names(module)
        assert bool(groups) == tied
        before = torch.spyre.memory_allocated()
        module.to("spyre")
        used[tied] = torch.spyre.memory_allocated() - before
        assert shared_names(module) == groups
        assert (head.weight is embedding.weight) == tied
        table_bytes = 2 * embedding.weight.numel()
        del module, embedding, head
    assert used[False] - used[True] >= table_bytes


def test_training_mode_and_gradients():
    """A decoder's loss and gradients: what the card computes backwards."""
    this = case("granite")
    host, module = copy.deepcopy(this.module), copy.deepcopy(this.module).to("spyre")
    tokens = this.inputs["input_ids"]
    host(input_ids=tokens, labels=tokens).loss.backward()
    module(input_ids=tokens.to("spyre"), labels=tokens.to("spyre")).loss.backward()
    for (name, want), ours in zip(host.named_parameters(), module.parameters(), strict=True):
        scale = want.grad.abs().max().item()
        assert scale > 0, name
        torch.testing.assert_close(ours.grad.cpu(), want.grad, rtol=1e-3, atol=1e-4 * scale)
