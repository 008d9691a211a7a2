"""Names of dimensions: from the tensors a user has named to the loops of every op.

A name belongs to a dimension of a tensor. A dimension may have several names, whose sizes multiply
to its own: ``name_tensor_dims(x, ["S", "H", "D"])`` of a tensor (S, H * D). In an op, a loop gets
the names of the dimensions that it goes through in the op's inputs, and the op's result gets its
names from the loops. Views need no rule of their own: their loops go through the same memory.

Sizes and strides may be expressions of size symbols. Which of two is larger is then decided by the
sizes that were seen; but names are only given if they are right for all sizes.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from torch_spyre import patches
from torch_spyre._inductor.kernel_ir import DimPart, DimParts, KernelOp, has_symbols, number

log = logging.getLogger("spyre.inductor.passes")

_sizes: dict[str, int] = {}  # of the dimensions declared
_generation = 0  # names given before a reset() do not count

# Of each dimension of a tensor, the names and sizes that it is made of.
TensorDims = tuple[tuple[tuple[str, int], ...], ...]


def declare_tensor_dim(name: str, size: int) -> None:
    """Say that there is a dimension of this name. Declared again, it has the new size."""
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ValueError(f"dimension {name!r}: a size is a positive number, not {size!r}")
    _sizes[name] = size


def name_tensor_dims(tensor: torch.Tensor, names: Sequence[str]) -> None:
    """Give the dimensions of a tensor names, outermost first.

    Consecutive names may share one dimension of the tensor: their sizes multiply to its own. Names
    stay with the tensor object, and with what ``to()`` and ``cpu()`` make of it; they are looked at
    when something that takes it is compiled.
    """
    if torch.compiler.is_compiling():
        raise RuntimeError(
            "name_tensor_dims: name tensors outside of compiled code; inside, "
            "spyre_hint(named_dims=[...]) names results"
        )
    for name in names:
        if name not in _sizes:
            raise KeyError(
                f"Named dim {name!r} used in name_tensor_dims but not declared: call "
                f"declare_tensor_dim({name!r}, size) first"
            )
    dims = split_names(names, list(tensor.shape), _sizes)
    if dims is None:
        sizes = ", ".join(f"{name}={_sizes[name]}" for name in names)
        raise ValueError(
            f"the names {sizes} do not make up the sizes {list(tensor.shape)} of the tensor"
        )
    tensor._spyre_dims = (_generation, dims)  # type: ignore[attr-defined]
    patches.moves_keep_names()


def reset() -> None:
    """Forget all declarations, and the names of all tensors."""
    global _generation
    _generation += 1
    _sizes.clear()


def declared_sizes(names: Collection[str]) -> dict[str, int]:
    """The sizes of those names that are declared."""
    return {name: size for name, size in sorted(_sizes.items()) if name in names}


def dims_of_tensor(tensor: torch.Tensor) -> TensorDims | None:
    """The names that a tensor was given."""
    generation, dims = getattr(tensor, "_spyre_dims", (None, None))
    return dims if generation == _generation else None


def same_names(
    one: TensorDims | None, other: TensorDims | None, sizes: Sequence[int | None]
) -> bool:
    """Whether two tensors of these sizes have equal names. A size of None varies: then the sizes of
    its names are not compared."""
    if one is None or other is None:
        return one is other

    def fixed(dims: TensorDims) -> list[Any]:
        known = zip(dims, sizes, strict=True)
        return [[name for name, _ in own] if size is None else own for own, size in known]

    return fixed(one) == fixed(other)


def split_names(
    names: Sequence[str], shape: Sequence[int], declared: Mapping[str, int]
) -> TensorDims | None:
    """Which names make up each dimension of a shape; None if that does not work out. A name that is
    not declared has the size of the dimension that it is given to."""
    dims = []
    left = [(name, declared.get(name)) for name in names]
    for extent in shape:
        own: list[tuple[str, int]] = []
        while left and (not own or math.prod(size for _, size in own) < extent):
            name, size = left.pop(0)
            own.append((name, size if size is not None else extent))
        if not own or math.prod(size for _, size in own) != extent:
            return None
        dims.append(tuple(own))
    return None if left else tuple(dims)


# ------------------------------------------------------------------------------------ propagation


@dataclass(frozen=True)
class Digit:
    """Which steps through a storage count a part of a named dimension."""

    part: DimPart
    stride: int  # elements

    @property
    def end(self) -> int:
        return self.stride * self.part.size


Digits = tuple[Digit, ...]


def digits_of(dims: TensorDims, sizes: Sequence[int], strides: Sequence[int]) -> Digits:
    """The digits of a tensor with these names, sizes and strides. A dimension whose size varies has
    digits only if it has one name: of several names, nothing says which one varies."""
    found = []
    for names, extent, stride in zip(dims, sizes, strides, strict=True):
        if has_symbols([extent]):
            names = ((names[0][0], extent),) if len(names) == 1 else ()
        step = stride
        for name, size in reversed(names):
            found.append(Digit(DimPart(name, size), step))
            step *= size
    return tuple(found)


class NamedDims:
    """Names in a graph, by buffer; filled in the order in which its nodes become ops."""

    def __init__(
        self,
        inputs: Mapping[str, TensorDims],
        sizes: Mapping[str, int],
        seen: Callable[[Any], int],
    ) -> None:
        """``sizes`` are those declared of dimensions that hints name; ``seen`` gives the number
        that a size was when the graph was compiled."""
        self.inputs = inputs
        self.sizes = sizes
        self.seen = seen
        self.buffers: dict[str, Digits] = {}

    def name_loops(self, ops: Sequence[KernelOp], result_names: Sequence[str] = ()) -> None:
        """Give the ops of one node the names of their loops, and what they write too."""
        space, target = ops[-1].space, ops[-1].output
        dims: dict[str, DimParts] = {}
        for op in ops:
            for access in op.inputs:
                digits = self._digits(access.buffer)
                for symbol, stride in access.index.strides.items():
                    parts = self._walked(digits, stride, space[symbol])
                    if not parts:
                        continue
                    known = dims.setdefault(symbol, parts)
                    if {p.name for p in known} != {p.name for p in parts}:
                        log.info(
                            "%s: what %s is called differs, %s or %s: the first is taken",
                            *(op.op, symbol, _text(known), _text(parts)),
                        )
        buffer = target.buffer
        sizes = [self.seen(size) for size in buffer.size]
        own = split_names(result_names, sizes, self.sizes) if result_names else None
        if own is not None:
            digits = digits_of(own, buffer.size, buffer.stride)
            for symbol, stride in target.index.strides.items():
                parts = self._walked(digits, stride, space[symbol])
                if parts:
                    dims[symbol] = parts
        written = []
        for symbol, parts in dims.items():
            step = target.index.strides.get(symbol, 0)
            for part in reversed(parts):
                if self.seen(step) > 0:
                    written.append(Digit(part, step))
                step *= part.size
        self.buffers[buffer.name] = tuple(written)
        for op in ops:
            op.dims = dims

    def _digits(self, buffer: Any) -> Digits:
        if buffer.name not in self.buffers and buffer.name in self.inputs:
            dims = self.inputs[buffer.name]
            self.buffers[buffer.name] = digits_of(dims, buffer.size, buffer.stride)
        return self.buffers.get(buffer.name, ())

    def _walked(self, digits: Digits, stride: int, extent: int) -> DimParts:
        """The named dimensions that a loop goes through; nothing if some of it has no name."""
        seen = self.seen
        parts: list[DimPart] = []
        for digit in sorted(digits, key=lambda digit: -seen(digit.stride)):
            low = max(stride, digit.stride, key=seen)
            high = min(stride * extent, digit.end, key=seen)
            if min(map(seen, (stride, digit.stride))) <= 0 or seen(high) <= seen(low):
                continue
            if seen(high) % seen(low) or seen(low) % seen(digit.stride):
                continue
            unit = digit.part.unit * _quotient(low, digit.stride)
            part = DimPart(digit.part.name, _quotient(high, low), unit)
            above = parts[-1] if parts else None
            if above and (above.name, above.unit) == (part.name, part.unit * part.size):
                part = DimPart(part.name, above.size * part.size, part.unit)  # cut by a view before
                parts.pop()
            parts.append(part)
        whole = math.prod(part.size for part in parts) == extent
        return tuple(parts) if whole and all(map(_is_whole, parts)) else ()


def _quotient(size: Any, by: Any) -> Any:
    exact = has_symbols([size, by])
    return number(sympy.cancel(sympy.sympify(size) / by)) if exact else size // by


def _is_whole(part: DimPart) -> bool:
    """Whether it is a whole number for all sizes."""
    return all(sympy.denom(sympy.sympify(value)) == 1 for value in (part.size, part.unit))


def _text(parts: Iterable[DimPart]) -> str:
    return " x ".join(part.name for part in parts)


def warn_of_untracked(op: KernelOp) -> None:
    """Warn once which loops of an op with a hint have no name."""
    for symbol, extent in op.space.items():
        if symbol not in op.dims:
            warnings.warn(
                f"a dimension of {extent} of an op inside of spyre_hint has no name: it is called "
                f"{untracked(extent)}, and no hint is about it",
                UserWarning,
                stacklevel=2,
            )


def untracked(extent: int) -> str:
    return f"_untracked_{extent}"


def names_in(op: KernelOp) -> list[str]:
    """The dimensions of an op, by name."""
    found: dict[str, None] = {}
    for symbol, extent in op.space.items():
        for name in [part.name for part in op.dims.get(symbol, ())] or [untracked(extent)]:
            found[name] = None
    return list(found)
