"""Chains of views feeding pointwise ops, reductions and products, against the CPU.

Elements are small whole numbers, so that float32 and int64 results are exact, and float16 results
within one rounding.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.usefixtures("native", "no_downcast_warning")


DTYPES = [torch.float16, torch.float32, torch.int64]


def whole_numbers(shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-8, 9, shape, generator=generator).to(dtype)


# ------------------------------------------------------------------------------------------ views


def dim_of(draw, x):
    return draw(st.integers(0, x.dim() - 1))


def transpose(draw, x):
    i, j = dim_of(draw, x), dim_of(draw, x)
    return lambda t: t.transpose(i, j)


def permute(draw, x):
    order = draw(st.permutations(range(x.dim())))
    return lambda t: t.permute(order)


def take_slice(draw, x):
    dim = dim_of(draw, x)
    start = draw(st.integers(0, max(0, x.shape[dim] - 1)))
    stop = draw(st.integers(start, x.shape[dim]))
    step = draw(st.integers(1, 3))
    index = (slice(None),) * dim + (slice(start, stop, step),)
    return lambda t: t[index]


def select(draw, x):
    dim = dim_of(draw, x)
    if x.shape[dim] == 0 or x.dim() == 1:
        return None
    index = draw(st.integers(0, x.shape[dim] - 1))
    return lambda t: t.select(dim, index)


def unsqueeze(draw, x):
    dim = draw(st.integers(0, x.dim()))
    return (lambda t: t.unsqueeze(dim)) if x.dim() < 5 else None


def expand(draw, x):
    ones = [i for i, extent in enumerate(x.shape) if extent == 1]
    if not ones:
        return None
    shape = list(x.shape)
    shape[draw(st.sampled_from(ones))] = draw(st.integers(1, 5))
    return lambda t: t.expand(shape)


def unfold(draw, x):
    dim = dim_of(draw, x)
    if x.shape[dim] == 0 or x.dim() > 3:
        return None
    size = draw(st.integers(1, min(x.shape[dim], 5)))
    step = draw(st.integers(1, 3))
    return lambda t: t.unfold(dim, size, step)


def view(draw, x):
    """Two neighbouring dimensions as one, where the strides allow it."""
    if x.dim() < 2:
        return None
    dim = draw(st.integers(0, x.dim() - 2))
    shape = [*x.shape[:dim], x.shape[dim] * x.shape[dim + 1], *x.shape[dim + 2 :]]
    try:
        x.view(shape)
    except RuntimeError:
        return None
    return lambda t: t.view(shape)


def unflatten(draw, x):
    dim = dim_of(draw, x)
    inner = draw(st.sampled_from([n for n in (1, 2, 3, 4) if x.shape[dim] % n == 0]))
    return (lambda t: t.unflatten(dim, (-1, inner))) if x.dim() < 5 and x.numel() else None


def diagonal(draw, x):
    if x.dim() < 2:
        return None
    i = draw(st.integers(0, x.dim() - 1))
    j = draw(st.integers(0, x.dim() - 1).filter(lambda d: d != i))
    offset = draw(st.integers(-2, 2))
    return lambda t: t.diagonal(offset, i, j)


def as_strided(draw, x):
    """Any window into the same memory."""
    elements = x.untyped_storage().nbytes() // x.element_size()
    if elements == 0:
        return None
    offset = draw(st.integers(0, elements - 1))
    sizes, strides, room = [], [], elements - 1 - offset
    for _ in range(draw(st.integers(1, 3))):
        stride = draw(st.integers(0, 70))
        size = draw(st.integers(1, min(9, room // stride + 1) if stride else 5))
        room -= (size - 1) * stride
        sizes.append(size)
        strides.append(stride)
    return lambda t: t.as_strided(sizes, strides, offset)


VIEWS = [
    transpose, permute, take_slice, take_slice, select, unsqueeze, expand, unfold, view, unflatten,
    diagonal, as_strided,
]  # fmt: skip


@st.composite
def chains(draw):
    """A tensor on the CPU and on the card, and the same views of both."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(
        st.lists(st.sampled_from([1, 2, 3, 5, 8, 33, 64, 65, 130]), min_size=1, max_size=3)
    )
    while math.prod(shape) > 20_000:
        shape[shape.index(max(shape))] = 3
    host = whole_numbers(shape, dtype, draw(st.integers(0, 3)))
    card = host.to("spyre")
    base, names = (host, card), [f"{tuple(shape)} {dtype}"]
    for _ in range(draw(st.integers(1, 5))):
        make = draw(st.sampled_from(VIEWS))
        change = make(draw, host) if host.dim() else None
        if change is None or change(host).numel() > 20_000:
            continue
        host, card = change(host), change(card)
        names.append(f"{make.__name__} {tuple(host.shape)} {host.stride()}")
    return base, host, card, names


def check(card, host):
    assert card.device.type == "spyre"
    assert card.shape == host.shape
    assert card.dtype == host.dtype
    got = card.cpu()
    if host.dtype == torch.float16:  # one unit in the last place of DLFloat16
        torch.testing.assert_close(got.float(), host.float(), rtol=2.0**-9, atol=0)
    else:
        assert torch.equal(got, host)


# ------------------------------------------------------------------------------------------- tests


@given(chains())
def test_a_chain_of_views_copies_nothing_and_reads_right(chain):
    (_, whole), host, card, _ = chain
    assert card.stride() == host.stride()
    assert card.storage_offset() == host.storage_offset()
    assert card.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
    check(card, host)
    check(card.clone(), host.clone())
    check(card.contiguous(), host.contiguous())


POINTWISE = {
    "number": lambda x, y: x * 3 - 1,
    "same view": lambda x, y: x + x,
    "contiguous": lambda x, y: x * y,
    "compare": lambda x, y: x > y,
    "where": lambda x, y: torch.where(x > y, x, y),
    "broadcast": lambda x, y: x + y[..., :1] if x.dim() else x,
    "maximum": lambda x, y: torch.maximum(y, x),
}


@pytest.mark.parametrize("name", POINTWISE)
@settings(max_examples=30)
@given(chain=chains())
def test_pointwise(name, chain):
    _, host, card, _ = chain
    other = whole_numbers(host.shape, host.dtype, 7)
    check(POINTWISE[name](card, other.to("spyre")), POINTWISE[name](host, other))


def in_float32(function, x):
    """On the CPU: summed in float32 and rounded once, as the card does."""
    return function(x.float()).half() if x.dtype == torch.float16 else function(x)


REDUCTIONS = {
    "sum": lambda x, d: x.sum(d),
    "amax": lambda x, d: x.amax(d),
    "any": lambda x, d: (x > 7).any(d),
    "cumsum": lambda x, d: x.cumsum(d),
    "all of it": lambda x, d: x.sum(),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@settings(max_examples=30)
@given(chain=chains(), data=st.data())
def test_reductions(name, chain, data):
    _, host, card, _ = chain
    if host.dim() == 0 or (name == "amax" and 0 in host.shape):
        return
    dim = dim_of(data.draw, host)
    ours = REDUCTIONS[name](card, dim)
    if ours.dtype == torch.bool:
        check(ours, REDUCTIONS[name](host, dim))
    else:
        check(ours, in_float32(lambda x: REDUCTIONS[name](x, dim), host))


@settings(max_examples=60)
@given(chain=chains(), columns=st.sampled_from([1, 5, 64, 70]), left=st.booleans())
def test_products(chain, columns, left):
    _, host, card, _ = chain
    if host.dim() < 2:
        return
    depth = host.shape[-1] if left else host.shape[-2]
    other = whole_numbers((depth, columns) if left else (columns, depth), host.dtype, 5)

    def product(x, y):
        return x @ y if left else y @ x

    expected = product(host.float(), other.float()) if host.dtype == torch.float16 else None
    expected = product(host, other) if expected is None else expected.half()
    check(product(card, other.to("spyre")), expected)


@given(chain=chains())
def test_writing_through_a_chain_changes_the_base_and_nothing_else(chain):
    (whole, on_card), host, card, _ = chain
    offsets = torch.arange(whole.numel()).as_strided(
        host.shape, host.stride(), host.storage_offset()
    )
    if offsets.unique().numel() != offsets.numel():
        return  # elements overlap: PyTorch does not say what happens
    value = whole_numbers(host.shape, host.dtype, 9)
    host.copy_(value)
    card.copy_(value.to("spyre"))
    check(on_card, whole)
    host.mul_(2)
    card.mul_(2)
    check(on_card, whole)
    host.fill_(3)
    card.fill_(3)
    check(on_card, whole)


@pytest.mark.parametrize("offset", [0, 2, 9])
def test_arguments_with_gaps_that_lie_otherwise_than_compiled_for(offset, fresh_compiler):
    """Gradients of views with gaps come packed; the kernel was compiled for the gaps."""

    def f(x, y):
        return x.expand(2, *x.shape) * y

    def gradients(function, device):
        base = torch.arange(129.0).to(device)
        leaves = [base.as_strided((33,), (3,), at).detach() for at in (offset, 23)]
        for _ in range(2):
            function(*(leaf.requires_grad_() for leaf in leaves)).sum().backward()
        return [leaf.grad.tolist() for leaf in leaves]

    assert gradients(torch.compile(f), "spyre") == gradients(f, "cpu")
    spread = torch.empty_strided((40,), (3,), device="spyre").copy_(torch.arange(40.0))
    assert torch.compile(lambda x: x * 2)(spread[2:]).tolist() == list(range(4, 80, 2))


@pytest.mark.parametrize("offset", [0, 192])
@pytest.mark.parametrize(
    ("size", "stride"),
    [
        ((2, 65), (1, 3)),
        ((65, 2), (3, 1)),
        ((5, 70), (1, 6)),
        ((3, 4, 5), (1, 30, 4)),
        ((3, 5), (70, 2)),
        ((2, 3, 64), (320, 100, 1)),
    ],
    ids=str,
)
def test_gradients_of_views_with_gaps_between_rows(size, stride, offset, fresh_compiler):
    def f(x, y):
        return x.expand(2, *x.shape) * y

    def gradients(function, device):
        base = torch.arange(900.0).remainder(7).to(device)
        x = torch.arange(1.0, 1 + math.prod(size)).remainder(5).reshape(size).to(device)
        leaves = [x, base.as_strided(size, stride, offset).detach()]
        function(*(leaf.requires_grad_() for leaf in leaves)).sum().backward()
        return [leaf.grad.tolist() for leaf in leaves]

    assert gradients(torch.compile(f), "spyre") == gradients(f, "cpu")


@pytest.mark.parametrize("strides", [(0,), (1,)], ids=str)
def test_expanded_arguments_that_lie_elsewhere_than_compiled_for(strides, fresh_compiler):
    """The gradient's kernel was compiled for an expanded tensor of its own; this one is a view."""

    def gradients(function, device):
        base = torch.arange(200.0).to(device)
        leaves = [base.as_strided((33,), (1,), 14), base.as_strided((33,), strides, 61)]
        leaves = [leaf.detach().requires_grad_() for leaf in leaves]
        function(*leaves).sum().backward()
        return [leaf.grad.tolist() for leaf in leaves]

    def f(x, y):
        return x.clone().mul_(y)

    assert gradients(torch.compile(f), "spyre") == gradients(f, "cpu")
