"""``torch.ops.spyre.*``: ops that code written for the device calls by name.

Each is defined by PyTorch's own ops, on any device: gradients, fake tensors, eager kernels and
compiled ones come from there. Imported the first time one of them is looked up.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

FP8_MAX = 448.0  # the largest number of float8_e4m3fn

LIBRARY = torch.library.Library("spyre", "DEF")


def _op(schema: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Defines ``spyre::<schema>`` by the function that follows."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = LIBRARY.define(schema)
        LIBRARY.impl(name, function, "CompositeImplicitAutograd")
        return function

    return register


# -------------------------------------------------------------- PyTorch's own, under another name

_op("softplus(Tensor input, float beta=1.0, float threshold=20.0) -> Tensor")(F.softplus)
_op("silu(Tensor input) -> Tensor")(F.silu)
_op("logical_not(Tensor input) -> Tensor")(torch.logical_not)
_op("batched_matmul(Tensor x, Tensor y) -> Tensor")(torch.matmul)
_op(
    "layer_norm(Tensor x, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
    "float eps=1e-5) -> Tensor"
)(F.layer_norm)


# ------------------------------------------------------------------------------------- activations


@_op("gelu(Tensor input, str approximate='none') -> Tensor")
def gelu(input: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    return F.gelu(input, approximate=approximate)


@_op("clamp(Tensor input, Scalar? min=None, Scalar? max=None) -> Tensor")
def clamp(input: torch.Tensor, min: Any = None, max: Any = None) -> torch.Tensor:
    return input.clone() if min is None and max is None else torch.clamp(input, min, max)


# ------------------------------------------------------------------------------------------- norms


@_op("rms_norm(Tensor x, int[] normalized_shape, Tensor? weight=None, float eps=1e-5) -> Tensor")
def rms_norm(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    return F.rms_norm(x, list(normalized_shape), weight, eps)


@_op("exx2(Tensor x, float exx2Scale, bool useZeroMean) -> Tensor")
def exx2(x: torch.Tensor, exx2Scale: float, useZeroMean: bool) -> torch.Tensor:
    """Mean (0 with ``useZeroMean``) and mean of squares of every row, as the last dimension."""
    wide = x.float()
    mean = wide.sum(-1) * (0.0 if useZeroMean else exx2Scale)
    return torch.stack([mean, (wide * wide).sum(-1) * exx2Scale], -1).to(x.dtype)


@_op("layernormscale(Tensor x, float eps) -> Tensor")
def layernormscale(x: torch.Tensor, eps: float) -> torch.Tensor:
    """``1 / sqrt(variance + eps)`` from what ``exx2`` gives; one number a row."""
    mean, squares = x.float().split(1, -1)
    return torch.rsqrt(torch.clamp(squares - mean * mean, min=0) + eps).to(x.dtype)


@_op(
    "layernormnorm(Tensor x, Tensor mean, Tensor norm_mean, Tensor? weight=None, "
    "Tensor? bias=None) -> Tensor"
)
def layernormnorm(
    x: torch.Tensor,
    mean: torch.Tensor,
    norm_mean: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """``(x - mean) * norm_mean * weight + bias``; ``mean`` is what ``exx2`` gave."""
    result = (x.float() - mean[..., :1].float()) * norm_mean.float()
    if weight is not None:
        result = result * weight.float()
    if bias is not None:
        result = result + bias.float()
    return result.to(x.dtype)


# ---------------------------------------------------------------------- order, extremes, products


def _topk(x: torch.Tensor, k: int, dim: int) -> Any:
    if x.dim() != 2:
        raise ValueError(f"topk only implemented for 2-D tensors, got {x.dim()} dimensions")
    return torch.topk(x, k, dim)


@_op("topkvalue(Tensor x, int k, int dim) -> Tensor")
def topkvalue(x: torch.Tensor, k: int, dim: int) -> torch.Tensor:
    return _topk(x, k, dim).values


@_op("topkindex(Tensor x, int k, int dim) -> Tensor")
def topkindex(x: torch.Tensor, k: int, dim: int) -> torch.Tensor:
    return _topk(x, k, dim).indices


@_op(
    "max_dim_int64_fallback(Tensor input, int dim, bool keepdim=False) "
    "-> (Tensor values, Tensor indices)"
)
def max_dim_int64_fallback(input: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
    return tuple(torch.max(input, dim, keepdim))


@_op(
    "min_dim_int64_fallback(Tensor input, int dim, bool keepdim=False) "
    "-> (Tensor values, Tensor indices)"
)
def min_dim_int64_fallback(input: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
    return tuple(torch.min(input, dim, keepdim))


@_op(
    "unfold(Tensor input, int[2] kernel_size, int[2] dilation=1, int[2] padding=0, "
    "int[2] stride=1) -> Tensor"
)
def unfold(
    input: torch.Tensor,
    kernel_size: Sequence[int],
    dilation: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    stride: Sequence[int] = (1, 1),
) -> torch.Tensor:
    """Windows of an image as columns: [N, C * kh * kw, number of windows]."""
    return torch.ops.aten.im2col(
        input, list(kernel_size), list(dilation), list(padding), list(stride)
    )


# --------------------------------------------------------------------------------- memory and form


@_op("empty(int[] size, *, Device device, ScalarType? dtype=None) -> Tensor")
def empty(
    size: Sequence[int], *, device: torch.device, dtype: torch.dtype | None = None
) -> torch.Tensor:
    return torch.empty(list(size), device=device, dtype=dtype)


@_op("constant(Scalar fill_value, ScalarType dtype, Device device) -> Tensor")
def constant(fill_value: float, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.full((), fill_value, dtype=dtype, device=device)


@_op("copy_from_d2d(Tensor src, Tensor(a!) dst) -> ()")
def copy_from_d2d(src: torch.Tensor, dst: torch.Tensor) -> None:
    dst.copy_(src)


def _part(
    input: torch.Tensor, output: torch.Tensor, dims: Sequence[int], offsets: Sequence[int]
) -> torch.Tensor:
    """What of the output the input takes the place of."""
    if len(dims) != len(offsets):
        raise ValueError(f"one offset for each dim is needed, got {len(offsets)} for {len(dims)}")
    for dim, offset in zip(dims, offsets, strict=True):
        output = output.narrow(dim, offset, input.size(dim))
    return output


@_op("overwrite(Tensor input, Tensor(a!) output, int[] dims, int[] offsets) -> ()")
def overwrite(
    input: torch.Tensor, output: torch.Tensor, dims: Sequence[int], offsets: Sequence[int]
) -> None:
    warnings.warn(
        "torch.ops.spyre.overwrite is deprecated: assign to a slice, output[...] = input",
        FutureWarning,
        stacklevel=2,
    )
    _part(input, output, dims, offsets).copy_(input)


@_op("overwrite_f(Tensor input, Tensor output, int[] dims, int[] offsets) -> Tensor")
def overwrite_f(
    input: torch.Tensor, output: torch.Tensor, dims: Sequence[int], offsets: Sequence[int]
) -> torch.Tensor:
    result = output.clone()
    _part(input, result, dims, offsets).copy_(input)
    return result


@_op("restickify(Tensor x) -> Tensor")
def restickify(x: torch.Tensor) -> torch.Tensor:
    """The same elements with their sticks along the last dimension."""
    return x.clone(memory_format=torch.contiguous_format)


@_op("reshape_via_cpu(Tensor input, int[] shape) -> Tensor")
def reshape_via_cpu(input: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A copy in another shape. It is made on the card: the name is older than that."""
    return input.reshape(list(shape)).clone(memory_format=torch.contiguous_format)


# ------------------------------------------------------------------------------------------ dtypes


@_op("to_dtype_cpu(Tensor input, ScalarType dtype) -> Tensor")
def to_dtype_cpu(input: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A conversion. It is made on the card: the name is older than that."""
    return input.to(dtype, copy=True)


@_op("qfp8ch(Tensor input) -> Tensor")
def qfp8ch(input: torch.Tensor) -> torch.Tensor:
    return input.to(torch.float8_e4m3fn)


@_op("quantize_fp8_with_scale(Tensor input, Tensor scale) -> Tensor")
def quantize_fp8_with_scale(input: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    scaled = input * torch.reciprocal(scale)
    return qfp8ch(torch.clamp(scaled, -FP8_MAX, FP8_MAX))


@_op("dequantize_fp8_with_scale(Tensor input, Tensor scale) -> Tensor")
def dequantize_fp8_with_scale(input: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return input.to(torch.float16) * scale
