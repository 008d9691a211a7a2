"""Sentences to vectors with BERT on a Spyre card, compiled as one graph.

Run with ``python examples/bert_embed.py`` in an environment that has torch-spyre[models]; no card
and no download are needed: the weights are random, the architecture is the real one. Sentences of
different lengths share a batch; a mask says where each ends.
"""

import torch
import torch.nn.functional as F

from torch_spyre import zoo

SENTENCES = (
    "a card that adds and multiplies",
    "a card that multiplies and adds",
    "rain in the afternoon, and wind",
)
LONGEST = 32


def tokens(sentence: str) -> list[int]:
    """A number for each letter: a stand-in for a tokenizer, which would be a download."""
    return [ord(letter) for letter in sentence]


def embed(model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean of a sentence's token vectors, of length 1."""
    states = model(input_ids=ids, attention_mask=mask).last_hidden_state
    weights = mask[..., None].to(states.dtype)
    return F.normalize((states * weights).sum(1) / weights.sum(1), dim=-1)


@torch.inference_mode()
def main() -> None:
    rows = [tokens(sentence) for sentence in SENTENCES]
    ids = torch.tensor([row + [0] * (LONGEST - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (LONGEST - len(row)) for row in rows])

    bert = zoo.get("bert").build()
    right = embed(bert, ids, mask)

    bert = bert.to("spyre", torch.float16)
    compiled = torch.compile(embed, fullgraph=True)
    vectors = compiled(bert, ids.to("spyre"), mask.to("spyre"))

    alike = (vectors @ vectors.T).float().cpu()
    print("how alike sentences are (1 is the same):")
    for sentence, row in zip(SENTENCES, alike, strict=True):
        print(f"  {sentence:33}", "  ".join(f"{value:.3f}" for value in row.tolist()))
    worst = (alike - right @ right.T).abs().max().item()
    print(f"largest difference to float32 on the CPU: {worst:.1e}")


if __name__ == "__main__":
    main()
