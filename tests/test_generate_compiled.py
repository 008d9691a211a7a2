"""Decoders compiled as one graph: the tokens of the CPU, few graphs, caches written in place."""

import dataclasses
import math

import pytest
import torch
from generation import (
    SLIDING,
    assert_chosen_by_cpu,
    generate,
    moved,
    on_card,
    on_cpu,
    prompts,
    static_cache,
)
from model_runs import DECODERS
from torch._dynamo.utils import counters

import torch_spyre
from torch_spyre import zoo
from torch_spyre.ops import fallbacks
from torch_spyre.zoo.fms_models import get_model
from torch_spyre.zoo.registry import TINY

pytestmark = pytest.mark.usefixtures("fresh_compiler")


# A scan over chunks of prompts, whose number is open as well as their length, divides indices in
# ways no kernel can follow.
SCANS = ("granitehybrid",)


def compiled(name, **options):
    """The model with a compiled forward; counts begin anew."""
    model = on_card(name)
    model.forward = torch.compile(model.forward, fullgraph=True, **options)
    counters.clear()
    fallbacks.reset_fallback_counts()
    return model


def graphs():
    return counters["stats"]["unique_graphs"]


@pytest.mark.long
@pytest.mark.parametrize("name", DECODERS)
def test_a_static_cache(name):
    model = compiled(name)
    for seed in (0, 1):
        inputs = prompts(seed=seed)
        assert_chosen_by_cpu(name, inputs, generate(model, moved(inputs), "static"))
        # The prompt, and a token after it; a full sliding window is a third case of transformers.
        assert graphs() == 2 + (name in SLIDING)
    assert fallbacks.fallback_counts() == {}


@pytest.mark.long
@pytest.mark.parametrize("name", DECODERS)
def test_a_growing_cache(name):
    if name in SCANS:  # the prompt's length is fixed, that of the cache is not
        model, cases, most = compiled(name), ((13, 6),), 3
    else:
        model, cases = compiled(name, dynamic=True), ((13, 6), (14, 3))
        most = 5 if name in SLIDING else 2
    made = 0
    for length, new_tokens in cases:
        inputs = prompts(seed=length, length=length)
        assert_chosen_by_cpu(name, inputs, generate(model, moved(inputs), new_tokens=new_tokens))
        made = made or graphs()
        assert graphs() == made  # no graph for another length
    assert made <= most
    assert fallbacks.fallback_counts() == {}


def test_a_seed_decides_what_is_sampled():
    model = compiled("granite")

    def sampled(seed):
        torch.manual_seed(seed)
        return generate(model, moved(prompts()), "static", do_sample=True, top_p=0.9)

    first = sampled(0)
    assert torch.equal(first, sampled(0))
    assert not torch.equal(first, sampled(1))
    assert graphs() == 2


def test_speech_with_a_static_cache():
    """Whisper: the tokens of the CPU, in a graph of the prompt and one of a token."""
    whisper = zoo.get("whisper")
    model, sound = whisper.build(), whisper.inputs(2, 8)["input_features"]
    options = {"max_new_tokens": 6, "do_sample": False}
    want = model.generate(input_features=sound, **options)
    model = model.half().to("spyre")
    model.forward = torch.compile(model.forward, fullgraph=True)
    tokens = model.generate(
        input_features=sound.half().to("spyre"),
        cache_implementation="static",
        disable_compile=True,
        **options,
    )
    assert torch.equal(tokens.cpu(), want)
    assert fallbacks.fallback_counts() == {}


LENGTHS = (65, 1, 2, 7, 63, 64, 100, 129, 300, 512, 777, 1024, 2047, 2048)


NARROW = dataclasses.replace(TINY, layers=1, hidden=64, intermediate=64, vocabulary=128)


@pytest.mark.long
def test_lengths_from_1_to_2048():
    host = zoo.get("llama").build(NARROW).half().float()
    model = zoo.get("llama").build(NARROW).half().to("spyre")
    step = torch.compile(model, fullgraph=True, dynamic=True)
    counters.clear()
    ids = torch.randint(3, 128, (1, 2048), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        for length in LENGTHS:
            part = ids[:, :length]
            options = {"use_cache": False, "logits_to_keep": 1}
            want = host(input_ids=part, **options).logits
            got = step(input_ids=part.to("spyre"), **options).logits.float().cpu()
            scale = want.abs().max().item()
            torch.testing.assert_close(got, want, rtol=0, atol=2**-7 * scale)
    assert graphs() <= 2  # one token, and all other lengths


@pytest.mark.long
def test_lengths_in_the_foundation_model_stack():
    pytest.importorskip("fms")
    host = zoo.get("fms-llama").build(NARROW).half().float()
    model = get_model("llama", NARROW, "spyre", torch.float16)
    model.load_state_dict(host.state_dict())
    step = torch.compile(model, fullgraph=True, dynamic=True)
    counters.clear()
    ids = torch.randint(3, 128, (1, 512), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        for length in (65, 1, 2, 7, 129, 512):
            want = host(ids[:, :length])
            got = step(ids[:, :length].to("spyre")).float().cpu()
            scale = want.abs().max().item()
            torch.testing.assert_close(got, want, rtol=0, atol=2**-7 * scale)
    assert graphs() <= 3  # one token, two, and all other lengths


@pytest.mark.long
def test_lengths_of_one_prompt_through_a_scan():
    host, model = on_cpu("granitehybrid"), on_card("granitehybrid")
    step = torch.compile(model, fullgraph=True, dynamic=True)
    counters.clear()
    ids = prompts(batch=1, length=129)["input_ids"]
    with torch.inference_mode():
        for length in (40, 65, 129):
            part = ids[:, :length]
            want = host(input_ids=part, use_cache=False).logits
            got = step(input_ids=part.to("spyre"), use_cache=False).logits.float().cpu()
            scale = want.abs().max().item()
            torch.testing.assert_close(got, want, rtol=0, atol=2**-7 * scale)
    assert graphs() == 1


def decode_report(length):
    """What the card does for one token after a prompt, with a cache of this length."""
    torch._dynamo.reset()
    model = on_card("granite")
    ids = prompts(batch=1)["input_ids"].to("spyre")
    cache = static_cache(model, length)
    with torch.inference_mode():
        model(input_ids=ids, past_key_values=cache)
        step = torch.compile(model, fullgraph=True)
        return torch_spyre.explain(step, input_ids=ids[:, :1], past_key_values=cache), cache


def test_a_token_reads_the_cache_once_and_writes_its_own_row():
    (short, _), (long, cache) = decode_report(256), decode_report(1024)
    keys = cache.layers[0].keys
    layout = keys.device_tensor_layout()
    bytes_a_token = math.prod(layout.device_size) * 2 // keys.shape[2]
    added = 2 * bytes_a_token * (1024 - 256)  # keys and values
    products = [
        sum(row.read_bytes for row in r.ops if row.name == "batchmatmul") for r in (short, long)
    ]
    assert products[1] - products[0] <= 1.1 * added
    writes = [row for row in long.ops if "index_put" in row.name]
    assert sum(row.count for row in writes) == 2
    assert sum(row.written_bytes for row in writes) <= 4 * bytes_a_token
    # Nothing copies what is cached: all else that grows are the scores.
    scores = 4 * 1024 * keys.shape[1] * 2 * 8
    assert long.total.device_bytes - short.total.device_bytes <= added + scores
