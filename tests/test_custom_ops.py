"""``torch.ops.spyre.*``: what they give on the card and on the CPU, eager and compiled."""

import pytest
import torch
import torch.nn.functional as F
from compiling import assert_near, card, compiled
from subprocesses import forked

spyre = torch.ops.spyre
FLOAT = torch.float32


pytestmark = pytest.mark.usefixtures("fresh_compiler")


def norm_in_steps(x, weight):
    moments = spyre.exx2(x, 1 / x.shape[-1], False)
    return spyre.layernormnorm(x, moments, spyre.layernormscale(moments, 1e-5), weight, weight)


# The op, what PyTorch calls it, and the eager calls that a compiled graph keeps.
OPS = {
    "softplus": (lambda x, w: spyre.softplus(x, 2.0, 3.0), lambda x, w: F.softplus(x, 2, 3), []),
    "gelu": (lambda x, w: spyre.gelu(x), lambda x, w: F.gelu(x), []),
    "gelu tanh": (
        lambda x, w: spyre.gelu(x, "tanh"),
        lambda x, w: F.gelu(x, approximate="tanh"),
        [],
    ),
    "silu": (lambda x, w: spyre.silu(x), lambda x, w: F.silu(x), []),
    "clamp": (lambda x, w: spyre.clamp(x, -0.5, None), lambda x, w: x.clamp(min=-0.5), []),
    "logical_not": (lambda x, w: spyre.logical_not(x > 0), lambda x, w: x <= 0, []),
    "layer_norm": (
        lambda x, w: spyre.layer_norm(x, w.shape, w, w),
        lambda x, w: F.layer_norm(x, w.shape, w, w),
        [],
    ),
    "layer norm in steps": (norm_in_steps, lambda x, w: F.layer_norm(x, w.shape, w, w), []),
    "rms_norm": (
        lambda x, w: spyre.rms_norm(x, w.shape, w),
        lambda x, w: F.rms_norm(x, w.shape, w, 1e-5),
        [],
    ),
    "topkvalue": (
        lambda x, w: spyre.topkvalue(x, 3, 1),
        lambda x, w: torch.topk(x, 3, 1)[0],
        ["aten.topk"],
    ),
    "topkindex": (
        lambda x, w: spyre.topkindex(x, 3, 0),
        lambda x, w: torch.topk(x, 3, 0)[1],
        ["aten.topk"],
    ),
    "max": (
        lambda x, w: spyre.max_dim_int64_fallback((x * 9).long(), 1),
        lambda x, w: tuple((x * 9).long().max(1)),
        [],
    ),
    "min": (
        lambda x, w: spyre.min_dim_int64_fallback((x * 9).long(), 0, True),
        lambda x, w: tuple((x * 9).long().min(0, True)),
        [],
    ),
    "batched_matmul": (
        lambda x, w: spyre.batched_matmul(x.expand(2, 3, 4, 70), x.t().expand(2, 3, 70, 4)),
        lambda x, w: (x @ x.t()).expand(2, 3, 4, 4),
        [],
    ),
    "unfold": (
        lambda x, w: spyre.unfold(x.reshape(1, 2, 2, 70), [2, 2], padding=[0, 1]),
        lambda x, w: F.unfold(x.reshape(1, 2, 2, 70), 2, padding=(0, 1)),
        ["aten.im2col"],
    ),
    "constant": (lambda x, w: x + spyre.constant(2.0, x.dtype, x.device), lambda x, w: x + 2, []),
    "overwrite_f": (
        lambda x, w: spyre.overwrite_f(x[:2] * 2, x, [0], [1]),
        lambda x, w: torch.cat([x[:1], x[:2] * 2, x[3:]]),
        [],
    ),
    "restickify": (lambda x, w: spyre.restickify(x.t()) * 1, lambda x, w: x.t(), []),
    "reshape_via_cpu": (
        lambda x, w: spyre.reshape_via_cpu(x, [70, 4]),
        lambda x, w: x.reshape(70, 4),
        [],
    ),
    "to_dtype_cpu": (lambda x, w: spyre.to_dtype_cpu(x, torch.int32), lambda x, w: x.int(), []),
    "fp8": (
        lambda x, w: spyre.dequantize_fp8_with_scale(
            spyre.quantize_fp8_with_scale(x, w.abs() + 1), w.abs() + 1
        ).float(),
        lambda x, w: (x / (w.abs() + 1)).to(torch.float8_e4m3fn).float() * (w.abs() + 1),
        [],
    ),
}


@pytest.mark.parametrize("name", OPS)
def test_on_the_card_and_on_the_cpu(name):
    ours, theirs, calls = OPS[name]
    x, weight = card(4, 70, dtype=FLOAT), card(70, dtype=FLOAT, seed=1)
    host = theirs(x.cpu(), weight.cpu())
    outcome = compiled(ours, x, weight)
    assert outcome.eager_calls == calls
    results = {
        "eager": ours(x, weight),
        "cpu": ours(x.cpu(), weight.cpu()),
        "compiled": outcome.results,
    }
    right = host if isinstance(host, tuple) else (host,)
    for got in results.values():
        for one, other in zip(got if isinstance(got, tuple) else (got,), right, strict=True):
            assert one.shape == other.shape
            assert_near(one, other, 2**-3 if name == "fp8" else 1e-5)


def test_gradients():
    x, weight = card(4, 70, dtype=FLOAT), card(70, dtype=FLOAT, seed=1)
    gradients = []
    for function in (OPS["gelu"][1], OPS["gelu"][0], torch.compile(OPS["gelu"][0])):
        leaf = x.detach().requires_grad_()
        gradients += torch.autograd.grad((function(leaf, weight) * weight).sum(), leaf)
    assert_near(gradients[1], gradients[0], 0)
    assert_near(gradients[2], gradients[0], 1e-6)


@pytest.mark.parametrize("way", [lambda f: f, lambda f: torch.compile(f, fullgraph=True)])
def test_mutation(way):
    rows, table = card(1, 64), card(6, 64, seed=1)
    want = table.cpu()
    want[2:3] = rows.cpu()

    def update(rows, table):
        spyre.overwrite(rows, table, [0], [2])

    with pytest.warns(FutureWarning, match=r"spyre\.overwrite is deprecated"):
        way(update)(rows, table)
    assert torch.equal(table.cpu(), want)
    copy = spyre.empty([6, 64], device=table.device, dtype=table.dtype)
    spyre.copy_from_d2d(table, copy)
    assert torch.equal(copy.cpu(), want)


def test_what_is_refused():
    with pytest.raises(ValueError, match="topk only implemented for 2-D tensors"):
        spyre.topkvalue(card(2, 3, 4), 1, 0)
    with pytest.raises(ValueError, match="one offset for each dim"):
        spyre.overwrite_f(card(1, 4), card(3, 4), [0], [1, 2])


def test_they_are_defined_when_they_are_looked_up():
    code = """
    import json, sys, torch
    before = "torch_spyre.ops.custom" in sys.modules
    value = torch.ops.spyre.silu(torch.ones(2)).tolist()
    print(json.dumps([before, "torch_spyre.ops.custom" in sys.modules, len(value)]))
    """
    assert forked(code).value == [False, True, 2]
