"""Steps that read or write where index tensors and masks say. Indices to write to are distinct."""

import torch

from fuzzing.draws import target, tensor_of
from fuzzing.ops import change, with_out


def indices(d, extent, count, distinct):
    """A list of places in a dimension, some counted from its end."""
    if distinct:
        step = d.choose([k for k in (1, 3, 7, 2) if extent % k or k == 1])
        found = [(i * step) % extent for i in range(extent)]
        start = d.integer(0, extent - 1)
        found = (found[start:] + found[:start])[:count]
        return list(dict.fromkeys(found))
    return [(i * 7 + 3) % extent for i in range(count)]


def index_tensor(world, values, device, dtype="torch.int64"):
    place = "other_device" if device else "device"
    return f"torch.tensor({values}, dtype={dtype}, device={place})"


def read(d, world):
    a = d.choose(world.names())
    t, device = world[a], world.device[a]
    if t.dim() == 0:
        return
    kind = d.choose(["index_select", "gather", "brackets", "mask", "take", "nonzero", "pairs"])
    if kind == "nonzero":
        world.make(f"{a}.nonzero()", device)
        return
    if kind == "mask":
        mask = tensor_of(d, world, tuple(t.shape), device, [torch.bool])
        world.make(f"{a}[{mask}]", device)
        return
    if 0 in t.shape:
        return
    dim = d.integer(0, t.dim() - 1)
    count = d.choose([1, 2, 5, 33])
    if t.numel() // t.shape[dim] * count > 2500:
        return
    chosen = index_tensor(world, indices(d, t.shape[dim], count, False), device)
    if kind == "index_select":
        shape = tuple(count if i == dim else e for i, e in enumerate(t.shape))
        if d.chance(2):
            world.make(f"{a}.index_select({dim}, {chosen})", device)
        else:
            with_out(d, world, shape, device, f"torch.index_select({a}, {dim}, {chosen}{{out}})", a)
    elif kind == "gather":
        shape = [1] * t.dim()
        shape[dim] = count
        sizes = [count if i == dim else e for i, e in enumerate(t.shape)]
        world.make(f"{a}.gather({dim}, {chosen}.view({shape}).expand({sizes}))", device)
    elif kind == "brackets":
        world.make(f"{a}[{':, ' * dim}{chosen}]", device)
    elif kind == "pairs" and t.dim() > 1:
        second = index_tensor(world, indices(d, t.shape[1], count, False), device)
        first = index_tensor(world, indices(d, t.shape[0], count, False), device)
        world.make(f"{a}[{first}, {second}]", device)
    else:
        flat = index_tensor(world, indices(d, t.numel(), count, False), device)
        world.make(f"{a}.take({flat})", device)


def write(d, world):
    t = target(d, world)
    if t is None:
        return
    here, device = world.peek(t), world.device_of(t)
    if here.dim() == 0 or 0 in here.shape:
        return
    dim = d.integer(0, here.dim() - 1)
    chosen = indices(d, here.shape[dim], d.choose([1, 2, 5, 33]), True)
    index = index_tensor(world, chosen, device)
    shape = tuple(len(chosen) if i == dim else e for i, e in enumerate(here.shape))
    source = tensor_of(d, world, shape, device, [here.dtype], besides=[t])
    kind = d.choose(["index_copy_", "index_add_", "index_fill_", "brackets", "scatter_", "put",
                     "masked_scatter_", "accumulate", "scatter_add_"])  # fmt: skip
    if kind in ("index_copy_", "index_add_"):
        change(world, t, f"{t}.{kind}({dim}, {index}, {source})")
    elif kind == "index_fill_":
        change(world, t, f"{t}.index_fill_({dim}, {index}, {d.integer(0, 5)})")
    elif kind == "brackets":
        value = d.choose([source, str(d.integer(0, 5))])
        change(world, t, f"{t}[{':, ' * dim}{index}] = {value}")
    elif kind in ("scatter_", "scatter_add_"):
        view = [len(chosen) if i == dim else 1 for i in range(here.dim())]
        wide = f"{index}.view({view}).expand({shape})"
        change(world, t, f"{t}.{kind}({dim}, {wide}, {source})")
    elif kind == "accumulate":
        rows = f"{t}.transpose(0, {dim})"
        values = f"{source}.transpose(0, {dim})"
        change(world, t, f"{rows}.index_put_(({index},), {values}, accumulate=True)")
    elif kind == "masked_scatter_":
        mask = tensor_of(d, world, tuple(here.shape), device, [torch.bool], besides=[t])
        values = tensor_of(d, world, tuple(here.shape), device, [here.dtype], besides=[t])
        change(world, t, f"{t}.masked_scatter_({mask}, {values})")
    else:
        flat = indices(d, here.numel(), 5, True)
        values = f"numbers(({len(flat)},), {here.dtype}, 3).to({t}.device)"
        change(world, t, f"{t}.put_({index_tensor(world, flat, device)}, {values})")
