"""Recurrent networks and PyTorch's one-call transformer layers on the card, against the CPU."""

import pytest
import torch
from gradients import random
from torch import nn

from torch_spyre.ops.fallbacks import fallback_counts, reset_fallback_counts

# Weights and states are float32; a step rounds a few times, and errors pass from step to step.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
CELLS = {"lstm": nn.LSTMCell, "gru": nn.GRUCell, "rnn": nn.RNNCell}
NETWORKS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


@pytest.fixture
def only_helpers_fall_back():
    """Joining tensors and making masks are other files' concerns."""
    reset_fallback_counts()
    yield
    assert set(fallback_counts()) <= {"aten::cat.out", "aten::triu.out"}


def flat(results):
    return [
        t for r in results for t in (r if isinstance(r, (tuple, list)) else [r]) if t is not None
    ]


def made(kind, *args, **kwargs):
    torch.manual_seed(0)
    host = kind(*args, **kwargs)
    card = kind(*args, **kwargs)
    card.load_state_dict(host.state_dict())
    return host, card.to("spyre")


def same(host, card, *inputs, training=True, **kwargs):
    """Results, and gradients of inputs and parameters."""
    xs = [x.clone().requires_grad_(training) for x in inputs]
    ys = [x.to("spyre").requires_grad_(training) for x in inputs]
    expected, actual = host(*xs, **kwargs), card(*ys, **kwargs)
    expected, actual = flat([expected]), flat([actual])
    expected, actual = flat(expected), flat(actual)
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a.cpu(), e, **CLOSE)
    if not training:
        return
    sum(e.square().sum() for e in expected).backward()
    sum(a.square().sum() for a in actual).backward()
    of_host = [*(x.grad for x in xs), *(p.grad for p in host.parameters())]
    of_card = [*(y.grad for y in ys), *(p.grad for p in card.parameters())]
    for a, e in zip(of_card, of_host, strict=True):
        torch.testing.assert_close(a.cpu(), e, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", CELLS)
def test_cells(name, bias, native):
    same(*made(CELLS[name], 7, 5, bias=bias), random(3, 7))


@pytest.mark.usefixtures("only_helpers_fall_back")
@pytest.mark.parametrize(
    "options",
    [{}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True, "bias": False}],
    ids=["plain", "deep, both ways", "batch first, no bias"],
)
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name, options):
    same(*made(NETWORKS[name], 7, 5, **options), random(4, 3, 7))


@pytest.mark.usefixtures("only_helpers_fall_back")
def test_a_projected_lstm():
    same(*made(nn.LSTM, 7, 5, proj_size=3), random(4, 3, 7))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_narrow_cells_round_once(name, dtype, native):
    host, card = made(CELLS[name], 8, 6)
    card = card.to(dtype)
    host = host.double()
    host.load_state_dict({k: v.float().cpu().double() for k, v in card.state_dict().items()})
    x = random(3, 8).to(dtype).to("spyre")
    actual, expected = flat([card(x)]), flat([host(x.float().cpu().double())])
    for a, e in zip(actual, expected, strict=True):
        # The gates' products are rounded before the cell sees them; its own result once more.
        torch.testing.assert_close(a.float().cpu().double(), e, rtol=2**-10, atol=2**-8)


def test_gates_of_the_wrong_size():
    gates = torch.zeros(2, 12, device="spyre")
    with pytest.raises(RuntimeError, match="gates of size"):
        torch.ops.aten._thnn_fused_lstm_cell(gates, gates, torch.zeros(2, 4, device="spyre"))


# ------------------------------------------------------------------------------------- transformers


@pytest.mark.parametrize("weights", [True, False])
@torch.no_grad()
def test_multi_head_attention_in_inference(weights, native):
    host, card = made(nn.MultiheadAttention, 8, 2, batch_first=True)
    host.eval(), card.eval()
    x = random(3, 5, 8)
    expected, actual = (
        host(x, x, x, need_weights=weights),
        card(*[x.to("spyre")] * 3, need_weights=weights),
    )
    for a, e in zip(flat(actual), flat(expected), strict=True):
        torch.testing.assert_close(a.cpu(), e, **CLOSE)
    x = x.to("spyre")
    each = card(x, x, x, average_attn_weights=False)[1]
    assert each.shape == (3, 2, 5, 5)


PADDED = torch.tensor([[False] * 4, [False, False, True, True]])
MASKS = {
    "padding": {"key_padding_mask": PADDED},
    "nothing to see": {"key_padding_mask": ~PADDED},
    "causal": {"attn_mask": torch.ones(4, 4).triu(1).bool()},
    "numbers": {"attn_mask": random(4, 4)},
    "both": {"attn_mask": torch.ones(4, 4).triu(1).bool(), "key_padding_mask": PADDED},
    "each head": {"attn_mask": random(4, 4, 4) > 1},
}


@pytest.mark.usefixtures("only_helpers_fall_back")
@pytest.mark.parametrize("name", MASKS)
@torch.no_grad()
def test_masks_of_multi_head_attention(name):
    host, card = made(nn.MultiheadAttention, 8, 2, batch_first=True)
    x, masks = random(2, 4, 8), MASKS[name]
    expected = host.eval()(x, x, x, **masks)
    on_card = {k: m.to("spyre") for k, m in masks.items()}
    actual = card.eval()(*[x.to("spyre")] * 3, **on_card)
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a.cpu(), e, **CLOSE, equal_nan=True)


@pytest.mark.usefixtures("only_helpers_fall_back")
def test_multi_head_attention_in_training():
    host, card = made(nn.MultiheadAttention, 8, 2)
    same(host, card, random(5, 3, 8), random(4, 3, 8), random(4, 3, 8))


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [True, False])
@torch.no_grad()
def test_an_encoder_layer_in_inference(norm_first, activation, native):
    options = {"batch_first": True, "norm_first": norm_first, "activation": activation}
    host, card = made(nn.TransformerEncoderLayer, 8, 2, 16, **options)
    same(host.eval(), card.eval(), random(3, 5, 8), training=False)


@pytest.mark.parametrize("kind", ["padding", "source", "both"])
@pytest.mark.usefixtures("only_helpers_fall_back")
@torch.no_grad()
def test_masks_of_an_encoder(kind):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    host, card = made(nn.TransformerEncoder, layer, 2)
    host.eval(), card.eval()
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
    source = torch.ones(5, 5).triu(1).bool()
    masks = {}
    if kind != "source":
        masks["src_key_padding_mask"] = padding
    if kind != "padding":
        masks["mask"] = source
    x = random(3, 5, 8)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected = host(x, **masks)
    actual = card(x.to("spyre"), **{k: m.to("spyre") for k, m in masks.items()})
    seen = ~padding if kind != "source" else torch.ones(3, 5).bool()
    torch.testing.assert_close(actual.cpu()[seen], expected[seen], **CLOSE)
