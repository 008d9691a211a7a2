"""A short training, so that a decoder's logits are as peaked as those of a model in use.

Random weights give nearly equal logits for all tokens: which one is largest is then a coin toss in
any 16-bit format, and says nothing about the card. Trained for seconds on text of a Markov chain, a
model gives its first choice about half of the probability, as language models do on real text.
How long that takes depends on the architecture: every round of training ends with a look.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torch_spyre.zoo.registry import SPECIAL_TOKENS, Size, ZooModel

_SUCCESSORS = torch.tensor([0.6, 0.2, 0.1, 0.06, 0.04])  # probabilities of the next token
_TOKENS = 128  # that occur in the text
_STEPS, _BATCH, _LENGTH, _RATE = 60, 8, 32, 5e-3
_CONFIDENT, _ROUNDS = 0.45, 5  # mean probability of the first choice; rounds of steps at most
_LOOKED_AT = 4  # steps at the end of a round: 1024 tokens


class MarkovText:
    """Endless text in which every token has five successors."""

    def __init__(self, seed: int = 2) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        choices = [
            torch.randperm(_TOKENS, generator=self.generator)[: len(_SUCCESSORS)]
            for _ in range(_TOKENS)
        ]
        self.successors = torch.stack(choices)

    def sample(self, batch: int, length: int) -> torch.Tensor:
        """Token ids of that size, another text on every call."""
        token = torch.randint(_TOKENS, (batch,), generator=self.generator)
        text = [token]
        while len(text) < length:
            choice = torch.multinomial(
                _SUCCESSORS, batch, replacement=True, generator=self.generator
            )
            token = self.successors[token, choice]
            text.append(token)
        return torch.stack(text, dim=1) + SPECIAL_TOKENS


def trained(model: ZooModel, size: Size, text: MarkovText) -> torch.nn.Module:
    """A decoder that has read some of the text, in float32 on the CPU; the same one every time."""
    [tokens] = model.inputs(1, 1, size)
    module = model.build(size)
    for name, part in module.named_modules():
        if model.no_gradients and name.endswith(model.no_gradients):
            part.register_forward_pre_hook(_detached)  # the others learn around it
    with _one_thread(), torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(3)
        for _ in range(_ROUNDS):
            if _trained_round(model, module, tokens, text) >= _CONFIDENT:
                break
    weights = module.state_dict()
    fresh = model.build(size)  # without gradients, hooks and graphs of the training
    fresh.load_state_dict(weights)
    return fresh


def _detached(part: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> Any:
    return tuple(argument.detach() for argument in arguments)


def _trained_round(
    model: ZooModel, module: torch.nn.Module, tokens: str, text: MarkovText
) -> float:
    """Trains with a rate that falls; the mean probability of the first choice in the last steps."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=_RATE)
    rates = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, _STEPS)
    confidence = []
    for _ in range(_STEPS):
        batch = text.sample(_BATCH, _LENGTH + 1)
        logits = model.output(module(**{tokens: batch[:, :-1]})).flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rates.step()
        confidence.append(logits.detach().softmax(-1).amax(-1).mean())
    return torch.stack(confidence[-_LOOKED_AT:]).mean().item()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Ops of this size are slower on several threads; and sums have one order on every machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
