"""Granite on a Spyre card: generates tokens, compares with the CPU, says where the time goes.

Run with ``make demo``, or ``python examples/granite_generate.py`` in an environment that has
torch-spyre[models]. No card and no download are needed: the architecture is the real one, the
weights are random, and so is the prompt. ``--checkpoint DIR`` takes a model from a directory
instead; ``--size medium --tokens 64`` a larger one.

The model is compiled as two graphs, one for the prompt and one for a token after it. Keys and
values live in a static cache on the card, in which each token writes its own row.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import torch
import transformers

import torch_spyre
from torch_spyre import zoo

BEGIN = time.perf_counter()
# A choice of the card is right if no token is better by more than this part of the largest logit:
# weights and activations have 9 fraction bits there.
ROUNDING = 2**-6


def progress(text: str) -> None:
    print(f"[{time.perf_counter() - BEGIN:5.1f} s] {text}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--size", choices=zoo.SIZES, default="small", help="of the random model")
    parser.add_argument("--checkpoint", metavar="DIR", help="a model that save_pretrained() wrote")
    parser.add_argument("--prompt", type=int, default=24, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=24, help="tokens to generate")
    options = parser.parse_args()
    if options.checkpoint and not Path(options.checkpoint, "config.json").is_file():
        parser.error(f"no checkpoint in {options.checkpoint}: it has no config.json")
    return options


def built(options: argparse.Namespace) -> torch.nn.Module:
    if options.checkpoint:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            options.checkpoint, dtype=torch.float32, local_files_only=True
        )
        return model.eval()
    return zoo.get("granite").build(zoo.SIZES[options.size])


def generated(
    model: torch.nn.Module, prompt: torch.Tensor, count: int
) -> tuple[torch.Tensor, float]:
    """The prompt and what a model adds to it, the likeliest token each time; and the seconds."""
    begin = time.perf_counter()
    tokens = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=count,
        min_new_tokens=count,
        do_sample=False,
        pad_token_id=0,
        cache_implementation="static",
        disable_compile=True,  # forward is compiled already
    )
    return tokens.cpu(), time.perf_counter() - begin


def judged(model: torch.nn.Module, tokens: torch.Tensor, count: int) -> tuple[int, int]:
    """How many of the last tokens the CPU would choose, and to how many it has no objection."""
    logits = model(input_ids=tokens).logits[0, -count - 1 : -1].float()
    chosen = logits.gather(1, tokens[0, -count:, None])[:, 0]
    best = logits.max(1).values
    near = best - chosen <= ROUNDING * logits.abs().max()
    return int((chosen == best).sum()), int(near.sum())


def show_decode(model: torch.nn.Module, tokens: torch.Tensor) -> None:
    """Where the modelled time of one token goes."""
    cache = transformers.StaticCache(config=model.config, max_cache_len=tokens.shape[1])
    tokens = tokens.to("spyre")
    model(input_ids=tokens[:, :-2], past_key_values=cache)
    step = {"past_key_values": cache, "input_ids": tokens[:, -1:]}
    report = torch_spyre.explain(model.forward, **step)
    total = report.modelled_ns
    print(f"\nOne token on a card: {total / 1e3:.0f} us, {report.launches} launches,")
    print(
        f"{report.total.device_bytes / 2**20:.1f} MiB of device memory moved, "
        f"{report.total.device_bytes / report.least_bytes:.2f} times the least possible"
    )
    for title, rows in (("op", report.ops), ("layer", report.layers)):
        print(f"\n  {title:34} times       us  share")
        for row in rows[:8]:
            print(f"  {row.name[:34]:34} {row.count:5d} {row.ns / 1e3:8.1f} {row.ns / total:6.1%}")
    print(
        "\nmore of this: torch_spyre.explain, or python -m torch_spyre explain SCRIPT --html PAGE"
    )


@torch.inference_mode()
def main() -> int:
    warnings.filterwarnings("ignore", message="Backend Spyre does not support int64")
    options = arguments()
    model = built(options)
    config, count = model.config, options.tokens
    parameters = sum(p.numel() for p in model.parameters())
    progress(
        f"{type(model).__name__}: {config.num_hidden_layers} layers of {config.hidden_size}, "
        f"vocabulary {config.vocab_size}, {parameters / 1e6:.1f} million parameters"
    )
    torch.manual_seed(0)
    prompt = torch.randint(3, config.vocab_size, (1, options.prompt))
    expected, seconds = generated(model, prompt, count)
    progress(f"CPU, float32, op by op: {count / seconds:.1f} tokens a second")

    card = built(options).to("spyre", torch.float16)
    progress(f"on the card: {torch.spyre.memory_allocated() / 2**20:.0f} MiB of float16")
    card.forward = torch.compile(card.forward, fullgraph=True, dynamic=False)
    generated(card, prompt.to("spyre"), count)
    progress("compiled: one graph for the prompt, one for a token")

    before = torch.spyre.counters().modelled_ns
    tokens, seconds = generated(card, prompt.to("spyre"), count)
    modelled = torch.spyre.counters().modelled_ns - before
    progress(f"software card, compiled: {count / seconds:.1f} tokens a second")
    progress(f"a real card, modelled: {count / modelled * 1e9:.0f} tokens a second")
    print(f"\nprompt    {prompt[0].tolist()}")
    print(f"generated {tokens[0, -count:].tolist()}")

    same, near = judged(model, tokens, count)
    print(
        f"\n{same} of {count} tokens are what the CPU chooses after the same tokens,"
        f" {near} within rounding;"
    )
    print(f"both sequences are {'the same' if torch.equal(tokens, expected) else 'different'}")
    show_decode(card, tokens)
    return 0 if near == count else 1


if __name__ == "__main__":
    sys.exit(main())
