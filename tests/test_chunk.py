"""Ops on tensors beyond a core's reach, in parts; the back end's check sees what cores span."""

import importlib

import pytest
import torch
import torch.nn.functional as F
from compiling import assert_near, card, wide
from kernel_ops import (
    FULL,
    HALF,
    LAYOUTS,
    A,
    B,
    C,
    at,
    buffer,
    groups_of,
    local,
    op,
    run_on_card,
    softmax_ops,
    through,
)

from torch_spyre._inductor import config
from torch_spyre._inductor.compile import NotCompiled
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.planning import plan_kernel
from torch_spyre._inductor.planning.chunk import chunk_large_tensors
from torch_spyre._inductor.planning.divide_work import divide_work
from torch_spyre._inductor.planning.pool import place_in_pool
from torch_spyre._inductor.planning.specs import kernel_of
from torch_spyre._inductor.planning.tile import Tiles, coarse_tile

MODULES = ("_inductor.planning.chunk", "_inductor.planning.divide_work", "backend.check")


@pytest.fixture
def short(monkeypatch):
    """Four cores that reach 16 KiB each, in all that plans and in what checks programs."""
    for name in MODULES:
        module = importlib.import_module(f"torch_spyre.{name}")
        monkeypatch.setattr(module, "SPAN_BYTES", 16 << 10)
    with config.patch(chunk_large_tensors=True, sencores=4):
        yield


def in_chunks(make, **tensors):
    """Refused without chunks; what the card computes with them."""
    with config.patch(chunk_large_tensors=False), pytest.raises(Unsupported, match="would span"):
        plan_kernel(make())
    kernel = plan_kernel(make())
    numbers = {b.name: torch.tensor(b.constant) for b in kernel.constants}
    return run_on_card(kernel, **tensors, **numbers)["out"], kernel


def whole(*shape, seed=0):
    """Small whole numbers: sums of them are exact in any order."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-4, 5, shape, generator=generator).float()


def sum_of_two(rows, columns):
    x, y, out = (buffer(name, rows, columns, dtype=FULL) for name in ("x", "y", "out"))
    space = {A: rows, B: columns}
    return [op("add", space, [at(x, A, B), at(y, A, B)], at(out, A, B))]


def test_large_tensors_are_chunked_on_request():
    """16 GiB: 32 cores of 256 MiB reach half of it."""
    with pytest.raises(Unsupported):
        plan_kernel(sum_of_two(1 << 16, 1 << 16))
    with config.patch(chunk_large_tensors=True):
        kernel = plan_kernel(sum_of_two(1 << 16, 1 << 16))
    assert len(kernel.specs) == 2
    assert [groups_of(kernel)] == [[["add", "add"]]]


def test_pointwise(short):
    x, y = whole(70, 1000), whole(70, 1000, seed=1)
    got, kernel = in_chunks(lambda: sum_of_two(70, 1000), x=x, y=y)
    assert len(kernel.specs) > 4
    assert torch.equal(got, x + y)


@pytest.mark.parametrize("kept", [A, B])
@pytest.mark.parametrize("kind", ["sum", "max", "min"])
def test_reductions(short, kind, kept):
    space = {A: 70, B: 1000}

    def make():
        x, out = buffer("x", 70, 1000, dtype=FULL), buffer("out", space[kept], dtype=FULL)
        return [op(kind, space, [at(x, A, B)], at(out, kept))]

    x = whole(70, 1000)
    got, _ = in_chunks(make, x=x)
    dim = 1 if kept == A else 0
    assert torch.equal(got, getattr(torch, f"a{kind}" if kind != "sum" else kind)(x, dim))


def test_a_sum_of_16_bits_is_rounded_once(short):
    def make():
        x, out = buffer("x", 4, 8192), buffer("out", 4)
        return [op("sum", {A: 4, B: 8192}, [at(x, A, B)], at(out, A))]

    x = torch.zeros(4, 8192)
    x[:, ::64] = 1
    x[:, 1], x[:, -1] = 2048, -2048
    got, _ = in_chunks(make, x=x)
    assert got.tolist() == [128.0] * 4


def with_ties(dtype, *shape):
    """Each extreme at several places, and NaNs at two, where the dtype has them."""
    x = whole(*shape).to(dtype)
    x[-1, -1] = x[-2, 7] = x[0, -2] = 5
    if dtype.is_floating_point:
        x[1, 600] = x[2, 9] = x[2, 700] = torch.nan
    return x


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", [FULL, HALF, torch.int64, torch.bool])
@pytest.mark.parametrize(
    ("loops", "kept"), [((A, B), [A]), ((A, B), [B]), ((A, B), []), ((B, A), [])]
)
def test_places_of_extremes(short, kind, dtype, loops, kept):
    """Without a loop that is kept, places count all elements in the order of the loops."""
    sizes = {A: 70, B: 1000}

    def make():
        x = buffer("x", 70, 1000, dtype=dtype)
        out = buffer("out", *(sizes[s] for s in kept), dtype=torch.int64)
        exact = not dtype.is_floating_point
        space = {s: sizes[s] for s in loops}
        return [op(kind, space, [at(x, A, B)], at(out, *kept), exact=exact)]

    x = with_ties(dtype, 70, 1000)
    got, _ = in_chunks(make, x=x)
    numbers = x.float() if loops == (A, B) else x.float().T
    dim = {(A,): 1, (B,): 0}.get(tuple(kept))
    assert torch.equal(got, getattr(torch, kind)(numbers, dim))


@pytest.mark.parametrize("columns", [64, 130, 33])
@pytest.mark.parametrize(
    ("source", "target", "convert"),
    [
        (HALF, FULL, "dl16tofp32"),
        (FULL, HALF, "fp32todl16"),
        (HALF, torch.int64, "identity"),
        (torch.bool, FULL, "identity"),
    ],
)
def test_casts_of_tall_tensors(short, source, target, convert, columns):
    """A stick of 2-byte elements is two of 4-byte ones, which all rows are between."""

    def make():
        x, out = buffer("x", 600, columns, dtype=source), buffer("out", 600, columns, dtype=target)
        return [op(convert, {A: 600, B: columns}, [at(x, A, B)], at(out, A, B))]

    x = whole(600, columns).to(source)
    got, _ = in_chunks(make, x=x)
    assert torch.equal(got, x.to(target))


def test_a_cast_of_millions_of_rows_is_two():
    """A column of float32 sticks takes 384 MiB."""
    x, out = buffer("x", 3 << 20, 64), buffer("out", 3 << 20, 64, dtype=FULL)
    with config.patch(chunk_large_tensors=True):
        kernel = plan_kernel([op("dl16tofp32", {A: 3 << 20, B: 64}, [at(x, A, B)], at(out, A, B))])
    assert [spec.iteration_space[B] for spec in kernel.specs] == [(32, 1)] * 2


PRODUCTS = [
    (8, 64, 4096, 1),
    (600, 32, 64, 1),
    (8, 4096, 128, 1),
    (600, 64, 64, 1),  # a stick of y is two of the result, which all rows are between
    (600, 97, 64, 0),
    (600, 65, 600, 1),
]


@pytest.mark.parametrize(("m", "n", "k", "stick"), PRODUCTS)
def test_products(short, m, n, k, stick):
    def make():
        x, y, out = (
            buffer("x", m, k),
            buffer("y", k, n, stick=stick),
            buffer("out", m, n, dtype=FULL),
        )
        inputs = [at(x, A, C), at(y, C, B)]
        return [op("batchmatmul", {A: m, B: n, C: k}, inputs, at(out, A, B))]

    x, y = whole(m, k), whole(k, n, seed=1)
    got, _ = in_chunks(make, x=x, y=y)
    assert torch.equal(got, x @ y)


def test_sticks_that_turn(short):
    def make():
        x, out = buffer("x", 256, 512), buffer("out", 512, 256)
        return [op("neg", {A: 512, B: 256}, [at(x, B, A)], at(out, A, B))]

    x = whole(256, 512)
    got, kernel = in_chunks(make, x=x)
    assert any(spec.op.startswith("ReStickify") for spec in kernel.specs)
    assert torch.equal(got, -x.T)


def test_a_chain_with_locals_beyond_the_reach(short):
    def make():
        return softmax_ops(70, 512, inside=FULL)

    x = torch.randn(70, 512).half()
    got, _ = in_chunks(make, x=x)
    torch.testing.assert_close(got.float(), x.float().softmax(1), rtol=1e-2, atol=1e-3)


def places_in_columns():
    x, out = buffer("x", 8, 500, 32, dtype=FULL), buffer("out", 8, 32, dtype=torch.int64)
    return [op("argmax", {A: 8, B: 500, C: 32}, [at(x, A, B, C)], at(out, A, C))]


def wide_product():
    x, y, out = buffer("x", 800, 64), buffer("y", 64, 64), buffer("out", 800, 64, dtype=FULL)
    space = {A: 800, B: 64, C: 64}
    return [op("batchmatmul", space, [at(x, A, C), at(y, C, B)], at(out, A, B))]


@pytest.mark.parametrize(
    ("make_ops", "x", "y", "want"),
    [
        (lambda: sum_of_two(8, 10_000), whole(8, 10_000), whole(8, 10_000, seed=1), torch.add),
        (places_in_columns, whole(8, 500, 32), None, lambda x, _: x.argmax(1)),
        (wide_product, whole(800, 64), whole(64, 64), torch.matmul),
    ],
    ids=["add", "argmax", "product"],
)
def test_ops_in_loops_over_tiles(short, make_ops, x, y, want):
    """Four tiles of rows; what they have of columns is still beyond the reach."""

    def make():
        ops = through(LAYOUTS, make_ops())
        ops = coarse_tile(ops, [Tiles(4, dict.fromkeys(ops, A))])
        ops = through([chunk_large_tensors, divide_work], ops)
        return kernel_of(place_in_pool(ops))

    with config.patch(chunk_large_tensors=False), pytest.raises(Unsupported, match="would span"):
        make()
    kernel = make()
    (loop,) = kernel.specs
    assert loop.count == 4
    assert len(loop.body) > 1
    numbers = {b.name: torch.tensor(b.constant) for b in kernel.constants}
    assert torch.equal(run_on_card(kernel, x=x, y=y, **numbers)["out"], want(x, y))


def test_what_fits_stays_whole(short):
    x, between, out = buffer("x", 8, 64), local("t", 8, 64), buffer("out", 8, 64)
    space = {A: 8, B: 64}
    ops = [
        op("neg", space, [at(x, A, B)], at(between, A, B)),
        op("exp", space, [at(between, A, B)], at(out, A, B)),
    ]
    assert [spec.op for spec in plan_kernel(ops).specs] == ["neg", "exp"]


# ------------------------------------------------------------------------------------------- graphs


GRAPHS = {
    "pointwise": (lambda x: torch.relu(x * 2) + 1, [(96, 512)]),
    "sum of all": (lambda x: x.sum(), [(96, 512)]),
    "mean": (lambda x: x.mean(0), [(96, 512)]),
    "layer norm": (lambda x: F.layer_norm(x, (512,)), [(96, 512)]),
    "softmax": (lambda x: torch.softmax(x, 0), [(96, 512)]),
    "product": (lambda x, y: x @ y, [(96, 512), (512, 128)]),
    "batched product": (lambda x, y: x @ y.mT, [(2, 96, 128), (2, 96, 128)]),
    "attention": (F.scaled_dot_product_attention, [(1, 2, 96, 64)] * 3),
    "transposed copy": (lambda x: x.T.contiguous(), [(96, 512)]),
    "cat": (lambda x, y: torch.cat([x, y * 2]), [(96, 1024), (32, 1024)]),
    "gather": (lambda x: x[torch.arange(0, 288, 3, device=x.device)] * 2, [(288, 512)]),
    "place in all": (lambda x: x.argmax(), [(96, 512)]),
    "place in columns": (lambda x: x.argmin(0), [(512, 96)]),
    "tall cast": (lambda x: x.float() * 2, [(600, 64)]),
    "tall mask": (lambda x: torch.where(x > 0, x.float(), 3.0), [(600, 64)]),
    "tall product": (lambda x, y: (x @ y).float(), [(600, 64), (64, 130)]),
    "cumsum": (lambda x: (x * 0.1).cumsum(0) + 1, [(96, 512)]),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_compiled_graphs(short, name, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    function, shapes = GRAPHS[name]
    inputs = [card(*shape, seed=i) for i, shape in enumerate(shapes)]
    with config.patch(compile_fallback="error"):
        torch._dynamo.reset()
        got = torch.compile(function, fullgraph=True)(*inputs)
        assert_near(got, function(*map(wide, inputs)))
        torch._dynamo.reset()
        with (
            config.patch(chunk_large_tensors=False),
            pytest.raises(NotCompiled, match="would span"),
        ):
            torch.compile(function, fullgraph=True)(*inputs)
