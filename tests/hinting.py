"""Tensors with names of dimensions, and what becomes of functions with hints."""

import warnings

import pytest
import torch
from compiling import assert_near, card, wide
from torch._inductor.utils import run_and_get_code

from torch_spyre import declare_tensor_dim, name_tensor_dims
from torch_spyre._inductor import config
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.propagate_named_dims import reset

SIZES = {"B": 2, "H": 4, "S": 128, "T": 128, "D": 64, "M": 256, "N": 128, "K": 256, "P": 128}


def declare_all(tmp_path, monkeypatch):
    """Dimensions of the sizes above, and caches of the test's own."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch._dynamo.reset()
    reset()
    for name, size in SIZES.items():
        declare_tensor_dim(name, size)


def named(names, *shape, seed=0, scale=1.0):
    """A tensor with dimensions of these names, one a letter."""
    shape = shape or tuple(SIZES[name] for name in names)
    tensor = card(*shape, seed=seed) * scale
    name_tensor_dims(tensor, list(names))
    return tensor


def code_of(function, *args):
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="a dimension of .* has no name")
        got, texts = run_and_get_code(torch.compile(function, fullgraph=True), *args)
    return got, "\n".join(texts)


def refusal(function, *args, **options):
    """The error, though graphs that cannot be compiled may run op by op."""
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="a dimension of .* has no name")
        with pytest.raises(Unsupported) as caught:
            torch.compile(function, **options)(*args)
    text = str(caught.value)
    assert "test_hints" in text, "says where"
    return text


def tiled(function, *args, loops, same_bits=True):
    """In loops, in loops that are written out, and without hints: right, and the same bits."""
    with config.patch(compile_fallback="error"):
        got, code = code_of(function, *args)
        assert code.count("LoopSpec(") == loops
        with config.patch(unroll_loops=True):
            written_out, _ = code_of(function, *args)
        with config.patch(ignore_work_division_hints=True):
            plain, plain_code = code_of(function, *args)
    assert "LoopSpec(" not in plain_code
    assert_near(got, function(*map(wide, args)))
    if same_bits:
        assert torch.equal(got.cpu(), written_out.cpu())
        assert torch.equal(got.cpu(), plain.cpu())
    else:
        assert_near(written_out, got)
    return code
