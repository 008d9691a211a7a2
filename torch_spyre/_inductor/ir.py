"""Inductor's nodes for the card: with device layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.graph import GraphLowering

from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor.cache_key import given


class FixedTiledLayout(ir.FixedLayout):
    """A layout of Inductor's, with the tensor's layout on the card."""

    def __init__(
        self,
        device: torch.device,
        dtype: torch.dtype,
        size: Sequence[Any],
        stride: Sequence[Any],
        device_layout: SpyreTensorLayout,
        offset: Any = sympy.S.Zero,
        storage_offset: int = 0,  # where it begins in its storage; Inductor counts from there
    ) -> None:
        super().__init__(device, dtype, list(size), list(stride), offset)
        self.device_layout = device_layout
        self.storage_offset = storage_offset

    def __str__(self) -> str:
        return f"{super().__str__()} on the card as {self.device_layout}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return (
            super().__eq__(other)
            and isinstance(other, FixedTiledLayout)
            and self.device_layout == other.device_layout
            and self.storage_offset == other.storage_offset
        )

    __hash__ = None  # type: ignore[assignment]  # like Inductor's


class SpyreConstantFallback(ir.FallbackKernel):
    """A number as a tensor that is made outside of kernels. There is never one in our graphs:
    numbers are constants of the kernels that use them."""


def lay_out_inputs(graph: GraphLowering) -> None:
    """Give inputs the layouts that they had when Dynamo saw them. A launch checks them."""
    for name, (layout, storage_offset) in given().placements.items():
        box = graph.graph_inputs.get(name)
        buffer = getattr(getattr(box, "data", None), "data", None)
        if not isinstance(buffer, ir.InputBuffer):
            continue
        known = buffer.get_layout()
        buffer.layout = FixedTiledLayout(
            known.device,
            known.dtype,
            known.size,
            known.stride,
            layout,
            known.offset,
            storage_offset,
        )
