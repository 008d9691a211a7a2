"""Shapes, tensors, views and operands, drawn by hypothesis."""

import math

import torch

from fuzzing.world import DTYPES, EXACT, LARGEST, distinct, touch

EXTENTS = [1, 2, 3, 5, 31, 32, 33, 63, 64, 65, 127, 128, 129, 0]
SMALL_EXTENTS = [1, 2, 3, 5, 8]
LARGEST_VOLUME = 2500


class Draw:
    """What a run draws. Smaller choices come first: hypothesis shrinks to them."""

    def __init__(self, data):
        self.draw = data.draw
        # A strategy takes hypothesis ten times as long as the number that it comes down to.
        self.number = data.conjecture_data.draw_integer

    def integer(self, low, high):
        return self.number(low, high)

    def choose(self, options):
        return options[self.number(0, len(options) - 1)]

    def chance(self, of):
        """True once in a while."""
        return self.number(0, of - 1) == of - 1

    def permutation(self, n):
        order = list(range(n))
        for i in range(n - 1):
            j = self.integer(i, n - 1)
            order[i], order[j] = order[j], order[i]
        return tuple(order)

    def shape(self, longest=4):
        shape: list[int] = []
        for _ in range(self.choose([1, 2, 3, 4, 0][: longest + 1])):
            extent = self.choose(EXTENTS)
            if math.prod(max(e, 1) for e in shape) * extent > LARGEST_VOLUME:
                extent = self.choose(SMALL_EXTENTS)
            shape.append(extent)
        while math.prod(max(e, 1) for e in shape) > LARGEST_VOLUME:
            shape.pop()
        return tuple(shape)

    def dim(self, t):
        """A dimension, counted from either end."""
        dim = self.integer(0, t.dim() - 1)
        return dim - t.dim() if self.chance(3) else dim


# ------------------------------------------------------------------------------------------ bases


def new_base(d, world):
    """A tensor with memory of its own."""
    device = d.integer(0, world.cards - 1)
    place = "other_device" if device else "device"
    shape, dtype = d.shape(), d.choose(DTYPES)
    values = f"numbers({shape}, {dtype}, {d.choose([1, 3, 7])}, {d.integer(0, 9)})"
    if len(shape) > 1 and d.chance(4):
        values += f".permute({d.permutation(len(shape))})"
    kind = d.choose(["to", "to", "factory", "device", "pinned"])
    if kind == "factory":
        choices = [f"torch.zeros({shape}, dtype={dtype}, device={place})"]
        choices.append(f"torch.full({shape}, {d.integer(0, 1)}, dtype={dtype}, device={place})")
        if len(shape) == 1 and dtype != torch.bool:
            choices.append(f"torch.arange({shape[0]}, dtype={dtype}, device={place})")
        return world.make(d.choose(choices), device)
    if kind == "device" and world.names(device):
        source = d.choose(world.names(device))
        return world.make(f"{d.choose(['torch.empty_like', 'torch.zeros_like'])}({source})"
                          f".copy_({source})", device)  # fmt: skip
    if kind == "pinned":
        return world.make(f"pinned({values}).to({place}, non_blocking=True)", device)
    return world.make(f"{values}.to({place})", device)


def new_base_in_layout(d, world):
    """A tensor in a layout given by hand."""
    from device_tensors import layouts

    shape, dtype = d.shape(), d.choose(DTYPES)
    layout = d.draw(layouts(list(shape), dtype))
    text = f"{layout.device_size}, {layout.stride_map}, {layout.device_dtype.name!r}"
    values = f"numbers({shape}, {dtype}, {d.choose([1, 3, 7])}, {d.integer(0, 9)})"
    return world.make(f"empty_in_layout({shape}, {dtype}, device, {text}).copy_({values})", 0)


# ------------------------------------------------------------------------------------------ views


def view_of(d, t):
    """The text of one view operation on a tensor, to put after its name."""
    kinds = ["slice", "slice", "permute", "unsqueeze", "select", "narrow", "transpose", "expand",
             "unfold", "merge", "split", "as_strided", "diagonal", "other"]  # fmt: skip
    kind = d.choose(kinds)
    if t.dim() == 0:
        return d.choose([".unsqueeze(0)", ".expand(3)", ".view(1, 1)", "[None]", "[...]"])
    dim = d.dim(t)
    extent = t.shape[dim]
    if kind == "slice":
        cut = []
        for size in t.shape[: d.integer(1, t.dim())]:
            start = d.integer(0, size)
            stop, step = d.integer(start, size), d.choose([1, 2, 3])
            cut.append(d.choose([f"{start}:{stop}", f"{start}:{stop}:{step}", ":", f"{start}:"]))
        return f"[{', '.join(cut)}]"
    if kind == "permute":
        return f".permute({d.permutation(t.dim())})"
    if kind == "unsqueeze" and t.dim() < 5:
        return f".unsqueeze({d.integer(0, t.dim())})"
    if kind == "select" and extent:
        return f".select({dim}, {d.integer(0, extent - 1)})"
    if kind == "narrow":
        start = d.integer(0, extent)
        return f".narrow({dim}, {start}, {d.integer(0, extent - start)})"
    if kind == "transpose":
        return f".transpose({dim}, {d.dim(t)})"
    if kind == "expand":
        shape = [d.integer(1, 4) if e == 1 else e for e in t.shape]
        return f".expand({d.choose([shape, [2, *t.shape]])})"
    if kind == "unfold" and extent and t.dim() < 4:
        return f".unfold({dim}, {d.integer(1, min(extent, 5))}, {d.integer(1, 3)})"
    if kind == "merge" and t.dim() > 1:
        first = d.integer(0, t.dim() - 2)
        return f".flatten({first}, {first + 1})"
    if kind == "split" and extent:
        factors = [k for k in range(1, extent + 1) if extent % k == 0]
        k = d.choose(factors)
        return f".unflatten({dim}, ({k}, {extent // k}))"
    if kind == "as_strided":
        return strided(d, t, tuple(d.shape(3)), False)
    if kind == "diagonal" and t.dim() > 1:
        return f".diagonal({d.integer(-1, 1)})"
    return d.choose([".squeeze()", ".detach()", ".view_as(torch.empty(()).expand(0))", "[...]",
                     ".reshape(-1)", ".mT", ".data", ".ravel()", ".view(-1)", ".unbind()[0]",
                     ".chunk(2)[-1]"])  # fmt: skip


def strided(d, t, shape, apart):
    """`.as_strided(...)` of this shape within a tensor's storage, None if it does not fit. With
    `apart` all elements have a place of their own."""
    room = t.untyped_storage().nbytes() // t.itemsize
    strides, step = [0] * len(shape), d.choose([1, 1, 2, 3])
    for dim in d.permutation(len(shape)):
        strides[dim] = step
        step *= max(shape[dim], 1)
        step += d.choose([0, 0, 1, 2])
    if not apart and shape and d.chance(3):
        strides[d.integer(0, len(shape) - 1)] = d.choose([0, 1])
    if 0 in shape:
        return f".as_strided({shape}, {tuple(strides)}, {d.integer(0, room)})"
    span = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)) + 1
    if span > room:
        return None
    return f".as_strided({shape}, {tuple(strides)}, {d.integer(0, room - span)})"


def new_view(d, world):
    name = d.choose(world.names())
    expression = name + (view_of(d, world[name]) or "")
    return world.make(expression) if expression != name else None


# --------------------------------------------------------------------------------------- operands


def target(d, world, dtypes=None):
    """A tensor to write to, all of whose elements have a place of their own, or None."""
    names = world.names(dtypes=dtypes)
    if not names:
        return None
    name = d.choose(names)
    t = world[name]
    if t.numel() and d.chance(3):
        shape = tuple(d.choose([e, max(e // 2, 1), 1, e]) for e in t.shape)
        cut = strided(d, t, shape, True)
        return name + cut if cut else None
    if d.chance(4):
        view = view_of(d, t)
        if view:
            try:
                seen = world.peek(name + view)
            except (RuntimeError, IndexError):
                return None
            if seen._base is not None and distinct(seen):
                return name + view
    return name if distinct(t) else None


def tensor_of(d, world, shape, device, dtypes=None, apart=False, besides=()):
    """An expression of a tensor of this shape: a live one, a view of one, or a new one. With
    `apart`, all of its elements have a place of their own; it shares none with `besides`."""
    names = [n for n in world.names(device, dtypes) if not apart or distinct(world[n])]
    exact = [n for n in names if tuple(world[n].shape) == tuple(shape)]
    found = None
    if exact and not d.chance(3):
        found = d.choose(exact)
    elif names:
        name = d.choose(names)
        cut = strided(d, world[name], tuple(shape), apart)
        found = name + cut if cut else None
    if found and apart_from(world, found, *besides):
        return found
    dtype = d.choose(dtypes or DTYPES)
    place = "other_device" if device else "device"
    return f"numbers({tuple(shape)}, {dtype}, {d.choose([1, 3, 7])}).to({place})"


def operand(d, world, shape, device, dtypes=None):
    """An expression that broadcasts to a shape: a tensor, an expanded one, or a number."""
    kind = d.choose(["same", "broadcast", "live", "number"])
    if kind == "number":
        return str(d.integer(0, LARGEST))
    if kind == "live":
        fitting = [
            n for n in world.names(device, dtypes) if broadcasts(tuple(world[n].shape), shape)
        ]
        if fitting:
            return d.choose(fitting)
    if kind == "broadcast":
        shape = tuple(d.choose([e, 1]) for e in shape)
        shape = shape[d.integer(0, len(shape)) :] if d.chance(3) else shape
    return tensor_of(d, world, shape, device, dtypes)


def broadcasts(shape, to):
    return len(shape) <= len(to) and all(
        a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False)
    )


def apart_from(world, written, *read):
    """Whether what is written shares no memory with what is read (numbers share nothing)."""
    t = world.peek(written)
    return not any(
        isinstance(other, torch.Tensor) and touch(t, other) for other in map(world.peek, read)
    )


def exact_terms(dtype, largest=LARGEST):
    """How many numbers up to the largest have a sum that is exact in a dtype."""
    return EXACT.get(dtype, 1 << 15) // largest
