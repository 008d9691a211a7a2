"""Tensors in any layout: with plain values, or drawn by hypothesis with all that memory holds."""

import math

import numpy as np
import oracle
import torch
from hypothesis import note
from hypothesis import strategies as st

from torch_spyre._C import DataFormats, SpyreTensorLayout

FP16 = DataFormats.SEN169_FP16


def contiguous_strides(size):
    return list(torch.empty(size, device="meta").stride())


def flat_layout(sticks, format=FP16):
    """Elements in the order of storage, stick by stick."""
    eps = format.elems_per_stick()
    return SpyreTensorLayout([sticks, eps], [eps, 1], format)


def half(*size: int, device: str = "spyre:0") -> torch.Tensor:
    return torch.empty(*size, dtype=torch.float16, device=device)


def counting(*shape: int) -> torch.Tensor:
    """On the host: a different whole number in every element."""
    return torch.arange(math.prod(shape), dtype=torch.float32).view(shape)


def small_numbers(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """On the host: whole numbers that every format holds exactly."""
    return (torch.arange(math.prod(shape)).view(shape) % 251).to(dtype)


def wide(x: torch.Tensor) -> torch.Tensor:
    """The values, exactly, on the host: float64, int64 or bool."""
    if x.dtype == torch.bool:
        return x.cpu()
    return x.float().cpu().double() if x.is_floating_point() else x.cpu().long()


VIEWS = {
    "whole": lambda x: x,
    "transposed": lambda x: x.mT if x.dim() > 1 else x,
    "offset": lambda x: x[..., 1:] if x.dim() else x,
    "stepped": lambda x: x[..., ::3] if x.dim() else x,
    "expanded": lambda x: x[..., None, :].expand(*x.shape[:-1], 3, x.shape[-1]) if x.dim() else x,
}

# -------------------------------------------------------------------------------- what is generated

EXTENTS = [0, 1, 2, 3, 5, 31, 33, 63, 64, 65, 130]
SHAPES = st.lists(st.sampled_from(EXTENTS), max_size=5).filter(lambda s: volume(s) <= 3000)
SEEDS = st.integers(0, 1000)


def volume(shape):
    """Elements of a tensor of this shape if none of its extents were 0."""
    return math.prod(max(extent, 1) for extent in shape)


@st.composite
def view_ops(draw, shape, expand=False, longest=3):
    """A chain of view operations that fits a tensor of this shape."""
    tensor = torch.empty(shape, device="meta")
    ops = []
    for _ in range(draw(st.integers(0, longest))):
        choices = ["permute", "unsqueeze", *(["slice", "select"] if tensor.dim() else [])]
        kind = draw(st.sampled_from([*choices, *(["expand"] if expand else [])]))
        dim = draw(st.integers(0, max(tensor.dim() - 1, 0)))
        if kind == "slice":
            start = draw(st.integers(0, tensor.shape[dim]))
            op = ("slice", dim, start, draw(st.integers(start, tensor.shape[dim])),
                  draw(st.integers(1, 3)))  # fmt: skip
        elif kind == "select":
            if tensor.shape[dim] == 0:
                continue
            op = ("select", dim, draw(st.integers(0, tensor.shape[dim] - 1)))
        elif kind == "permute":
            op = ("permute", tuple(draw(st.permutations(range(tensor.dim())))))
        elif kind == "unsqueeze":
            op = ("unsqueeze", dim)
        else:
            op = ("expand", (draw(st.integers(1, 3)), *tensor.shape))
        tensor = apply_ops(tensor, [op])
        ops.append(op)
    return ops


def apply_ops(tensor, ops):
    for kind, *arguments in ops:
        if kind == "slice":
            dim, start, stop, step = arguments
            index = [slice(None)] * dim + [slice(start, stop, step)]
            tensor = tensor[tuple(index)]
        else:
            tensor = getattr(tensor, kind)(*arguments)
    return tensor


@st.composite
def layouts(draw, shape, dtype):
    """A layout with a place for every element of a contiguous tensor of this shape."""
    order = draw(st.permutations(range(len(shape))))
    if shape and math.prod(shape) <= 200 and draw(st.booleans()):
        order = [*order, -1]
    layout = SpyreTensorLayout(list(shape), contiguous_strides(shape), dtype, list(order))
    format, eps = layout.device_dtype, layout.elems_per_stick()
    if draw(st.integers(0, 5)) == 0:
        return flat_layout(-(-math.prod(shape) // eps), format)
    dims = list(zip(layout.device_size, layout.stride_map, strict=True))
    outer, stick = dims[:-1], dims[-1]
    changes = draw(st.sets(st.sampled_from(["pad or split", "insert"])))
    target = draw(st.integers(0, len(outer) - 1))
    size, stride = outer[target]
    factors = [k for k in range(2, size) if size % k == 0]
    innermost = len(outer)
    if "pad or split" in changes:
        if stride > 0 and factors and draw(st.booleans()):
            inner = draw(st.sampled_from(factors))
            outer[target] = (inner, stride)
            outer.insert(draw(st.integers(0, len(outer))), (size // inner, stride * inner))
        else:
            outer[target] = (size + draw(st.integers(1, 2)), stride)
            innermost = max(len(outer) - 2, 0)  # the dimension that counts sticks keeps its place
    if "insert" in changes:
        replicated, synthetic = (draw(st.integers(1, 3)), 0), (draw(st.integers(1, 2)), -1)
        for extra in (replicated, synthetic, (1, draw(st.integers(-1, 100)))):
            outer.insert(draw(st.integers(0, innermost)), extra)
    sizes, strides = zip(*outer, stick, strict=True)
    if math.prod(sizes) > 20_000:
        return layout
    return SpyreTensorLayout(list(sizes), list(strides), format)


HOST_VIEWS = ["contiguous", "permuted", "sliced", "offset"]
OVERLAPPING_HOST_VIEWS = ["expanded", "overlapping"]


def host_tensor(shape, dtype, kind, seed):
    """A CPU tensor of hard values with strides and offset of some kind."""
    random = np.random.default_rng(seed)
    if kind == "permuted":
        order = random.permutation(len(shape))
        base = oracle.random_host(tuple(shape[i] for i in order), dtype, seed)
        return base.permute(*np.argsort(order).tolist()) if shape else base
    if kind == "sliced":
        steps = [2 if volume(shape) * 3**i < 9000 else 1 for i in range(len(shape))]
        full = [step * extent + 1 for step, extent in zip(steps, shape, strict=True)]
        base = oracle.random_host(tuple(full), dtype, seed)
        return base[tuple(slice(1, None, step) for step in steps)]
    if kind == "offset":
        base = oracle.random_host((math.prod(shape) + 5,), dtype, seed)
        return base[5:].view(shape)
    if kind == "expanded":
        keep = random.integers(0, 2, len(shape))
        base = oracle.random_host(
            tuple(e if k or e == 0 else 1 for e, k in zip(shape, keep, strict=True)), dtype, seed
        )
        return base.expand(shape)
    if kind == "overlapping":
        strides = [int(step) for step in random.integers(0, 4, len(shape))]
        span = sum(max(e - 1, 0) * s for e, s in zip(shape, strides, strict=True)) + 4
        return oracle.random_host((span,), dtype, seed).as_strided(shape, strides, 3)
    return oracle.random_host(tuple(shape), dtype, seed)


@st.composite
def device_tensors(draw, expand=False, dtypes=oracle.DEVICE_DTYPES, device="spyre:0"):
    """A device tensor in any layout, a view of it, and what its memory holds, padding included."""
    shape, dtype = draw(SHAPES), draw(st.sampled_from(dtypes))
    layout = draw(layouts(shape, dtype))
    ops = draw(view_ops(shape, expand))
    note(f"device tensor: {shape} in {layout}, seen through {ops}")
    base = torch.empty(shape, dtype=dtype, device=device, device_layout=layout)
    memory = oracle.scramble(base, draw(SEEDS))
    return base, apply_ops(base, ops), memory


def assert_memory(tensor, expected):
    """What the tensor's device memory holds, padding included."""
    np.testing.assert_array_equal(oracle.device_codes(tensor), expected)
