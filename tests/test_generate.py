"""``generate()`` of unmodified decoders on the card, op by op: the tokens of the CPU."""

import pytest
import torch
from generation import (
    assert_chosen_by_cpu,
    generate,
    moved,
    on_card,
    on_cpu,
    prompts,
)
from model_runs import DECODERS

from torch_spyre import zoo
from torch_spyre.ops import fallbacks


@pytest.mark.parametrize("name", DECODERS)
def test_greedy_tokens_are_those_of_the_cpu(name):
    model = on_card(name)
    fallbacks.reset_fallback_counts()
    for cache in ("dynamic", "static"):
        inputs = prompts()
        assert_chosen_by_cpu(name, inputs, generate(model, moved(inputs), cache))
    assert fallbacks.fallback_counts() == {}


def test_left_padding_changes_no_token():
    model = on_card("granite")
    batch = prompts(padded=4)
    together = generate(model, moved(batch))
    for row, begin in ((0, 4), (1, 0)):
        alone = {key: value[row : row + 1, begin:] for key, value in batch.items()}
        assert torch.equal(generate(model, moved(alone))[0], together[row])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_weights_of_other_dtypes(dtype):
    host = on_cpu("granite").to(dtype).float()
    model = on_cpu("granite").to(dtype).to("spyre")
    assert torch.equal(generate(model, moved(prompts())), generate(host, prompts()))


def test_sampling_is_reproducible_and_stays_with_likely_tokens():
    model, host, inputs = on_card("granite"), on_cpu("granite"), prompts()
    options = {"do_sample": True, "top_k": 8, "temperature": 2.0}

    def sampled(seed):
        torch.manual_seed(seed)
        return generate(model, moved(inputs), "static", **options)

    tokens = sampled(0)
    assert torch.equal(tokens, sampled(0))
    assert not torch.equal(tokens, sampled(1))
    ids = torch.cat([inputs["input_ids"], tokens], 1)
    mask = torch.cat([inputs["attention_mask"], torch.ones_like(tokens)], 1)
    with torch.inference_mode():
        logits = host(input_ids=ids, attention_mask=mask).logits
    begin = inputs["input_ids"].shape[1]
    likely = logits[:, begin - 1 : -1].topk(12).indices  # 8, and those that rounding lets in
    assert (likely == tokens[..., None]).any(-1).all()


@pytest.mark.parametrize("name", DECODERS)
def test_a_seed_decides_what_is_sampled(name):
    model, draws = on_card(name), []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        options = {"do_sample": True, "top_k": 50, "top_p": 0.95, "temperature": 1.5}
        draws.append(generate(model, moved(prompts()), new_tokens=4, **options))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_beams():
    model, host = on_card("granite"), on_cpu("granite")
    options = {"num_beams": 3, "new_tokens": 4}
    assert torch.equal(
        generate(model, moved(prompts()), **options), generate(host, prompts(), **options)
    )


def test_tied_weights_stay_one():
    model = on_cpu("granite")
    model.config.tie_word_embeddings = True
    model.tie_weights()
    want = generate(model, prompts())
    model = model.half().to("spyre")
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert torch.equal(generate(model, moved(prompts())), want)


def test_speech_is_transcribed_as_on_the_cpu():
    """Whisper: an encoder's cache that is written once, and a decoder's that grows."""
    model, inputs = zoo.get("whisper").build(), zoo.get("whisper").inputs(2, 8)
    sound = inputs["input_features"]
    options = {"max_new_tokens": 6, "do_sample": False}
    want = model.generate(input_features=sound, **options)
    model = model.half().to("spyre")
    for cache in (None, "static"):
        tokens = model.generate(
            input_features=sound.half().to("spyre"), cache_implementation=cache, **options
        )
        assert torch.equal(tokens.cpu(), want)
