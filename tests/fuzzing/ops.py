"""Steps that compute: each function draws one and has the world run it.

Only ops that are exact on small whole numbers. What is written shares no place with what is read,
except where an op reads and writes the same elements: for anything else PyTorch promises nothing.
"""

import torch

from fuzzing.draws import (
    apart_from,
    exact_terms,
    operand,
    target,
    tensor_of,
)
from fuzzing.world import DTYPES, EXACT, NAME, distinct, same_view, touch

FLOATS = [torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.uint8]
NUMBERS = FLOATS + INTEGERS

UNARY = ["neg", "abs", "sign", "square", "relu", "logical_not", "bitwise_not", "floor", "positive"]
BINARY = [
    "add", "sub", "mul", "minimum", "maximum", "eq", "ne", "lt", "le", "gt", "ge",
    "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor",
]  # fmt: skip
IN_PLACE_ONLY_METHODS = {"minimum", "maximum"}  # without an in-place form


def harmless(world, written, *read):
    """Whether every operand read is either apart from what is written, or the same view."""
    t = world.peek(written)
    return all(
        same_view(t, other) or not touch(t, other)
        for other in map(world.peek, read)
        if isinstance(other, torch.Tensor)
    )


def change(world, written, statement):
    """A step that changes a tensor, which afterwards holds small numbers again."""
    if world.do(statement, [written]):
        world.bound(written)


def place_of(world, device):
    return "other_device" if device else "device"


def destination(d, world, shape, device, *read, same=False):
    """An expression to give as `out=`: a live tensor or view of the shape, or one to resize."""
    if d.chance(4):
        dtype = d.choose(DTYPES)
        return f"torch.empty(0, dtype={dtype}, device={place_of(world, device)})"
    out = tensor_of(d, world, shape, device, apart=True)
    check = harmless if same else apart_from
    return out if check(world, out, *read) else None


def with_out(d, world, shape, device, call, *read, same=False, suits=None, then=""):
    """Runs `call` with an out= argument; `call` has a `{out}` in it. What is new is
    taken with what `then` says."""
    out = destination(d, world, shape, device, *read, same=same)
    if out is None or (suits and not suits(world.peek(out))):
        return
    statement = call.replace("{out}", f", out={out}")
    if NAME.match(out):
        change(world, out, statement)
    else:
        world.make(statement + then, device)


# -------------------------------------------------------------------------------------- pointwise


def in_place(d, world):
    t = target(d, world)
    if t is None:
        return
    here, device = world.peek(t), world.device_of(t)
    kind = d.choose(
        ["scalar", "binary", "unary", "fill", "masked_fill", "clamp", "addcmul", "scale"]
    )
    if kind == "unary":
        change(world, t, f"{t}.{d.choose([u for u in UNARY if u != 'positive'])}_()")
    elif kind == "scalar":
        op = d.choose(["add", "sub", "mul", "eq", "gt", "remainder", "clamp_min", "clamp_max"])
        change(world, t, f"{t}.{op}_({d.integer(1, 5)})")
    elif kind == "scale":  # numbers that are not whole, for a moment
        if here.dtype in FLOATS:
            change(world, t, f"{t}.mul_({d.choose([0.5, 0.25, 0.75, 1.5, -0.5])}).floor_()")
    elif kind == "fill":
        change(world, t, f"{t}.{d.choose(['zero_()', 'fill_(3)', 'fill_(1)'])}")
    elif kind == "clamp":
        change(world, t, f"{t}.clamp_({lower_bound(d, here)}, {d.integer(1, 4)})")
    elif kind == "masked_fill":
        shape = tuple(d.choose([e, e, 1]) for e in here.shape)
        mask = tensor_of(d, world, shape, device, [torch.bool])
        if harmless(world, t, mask):
            change(world, t, f"{t}.masked_fill_({mask}, {d.integer(0, 5)})")
    elif kind == "addcmul":
        a, b = (operand(d, world, here.shape, device, [here.dtype]) for _ in range(2))
        tensors = all(isinstance(world.peek(x), torch.Tensor) for x in (a, b))
        if tensors and harmless(world, t, a, b):
            change(world, t, f"{t}.addcmul_({a}, {b})")
    else:
        other = t if d.chance(8) else operand(d, world, here.shape, device)
        if harmless(world, t, other):
            op = d.choose([b for b in BINARY if b not in IN_PLACE_ONLY_METHODS])
            change(world, t, f"{t}.{op}_({other})")


def lower_bound(d, t):
    """A number to clamp with; on the CPU a negative one wraps if the dtype has no sign."""
    return d.integer(0 if t.dtype == torch.uint8 else -3, 0)


def binary(d, world):
    """Two operands to a new tensor or out=."""
    a = d.choose(world.names())
    t, device = world[a], world.device[a]
    b = operand(d, world, tuple(t.shape), device)
    op = d.choose(BINARY)
    if op in IN_PLACE_ONLY_METHODS and not isinstance(world.peek(b), torch.Tensor):
        return
    if d.chance(4) and isinstance(world.peek(b), torch.Tensor):
        a, b = b, a
    then = ".contiguous()" if laid_out_as_a_copy(*map(world.peek, (a, b))) else ""
    if d.chance(2):
        world.make(f"torch.{op}({a}, {b}){then}", device)
    else:
        call = f"torch.{op}({a}, {b}{{out}})"
        with_out(d, world, tuple(t.shape), device, call, a, b, same=True, then=then)


def laid_out_as_a_copy(*operands):
    """Whether the CPU, which copies operands to the common dtype first, lays a result out as such a
    copy lies. Other devices and fake tensors go by the operand, which may have gaps."""
    common = torch.result_type(*operands)
    return any(t.to(common).stride() != t.stride() for t in operands if isinstance(t, torch.Tensor))


def unary(d, world):
    a = d.choose(world.names())
    t, device = world[a], world.device[a]
    kind = d.choose(["op", "op", "where", "clamp", "to", "clone", "foreach", "read"])
    if kind == "op":
        op = d.choose(UNARY)
        if op in ("relu",) or d.chance(2):
            world.make(f"torch.{op}({a})", device)
        else:
            shape = tuple(t.shape)
            with_out(d, world, shape, device, f"torch.{op}({a}{{out}})", a, same=True)
    elif kind == "where":
        mask = tensor_of(
            d, world, tuple(d.choose([e, e, 1]) for e in t.shape), device, [torch.bool]
        )
        world.make(f"torch.where({mask}, {a}, {operand(d, world, tuple(t.shape), device)})", device)
    elif kind == "clamp":
        world.make(f"{a}.clamp({lower_bound(d, t)}, {d.integer(1, 4)})", device)
    elif kind == "to":
        dtype = d.choose(DTYPES)
        if dtype != torch.uint8 or not (t < 0).any():
            world.make(f"{a}.to({dtype})", device)
    elif kind == "clone":
        dense = ".clone(memory_format=torch.contiguous_format)"
        how = d.choose([".clone()", ".contiguous()", ".mT.contiguous()", dense])
        world.make(a + how, device)
    elif kind == "foreach":
        names = [n for n in world.names(device, NUMBERS) if n in world.whole][:3]
        if names:
            if world.do(f"torch._foreach_add_([{', '.join(names)}], 1)", names):
                for name in names:
                    world.bound(name)
    elif t.numel():
        reads = [f"{a}.tolist()", f"{a}.reshape(-1)[-1].item()", f"torch.equal({a}, {a})"]
        if t.numel() <= exact_terms(t.dtype):
            reads.append(f"{a}.sum().item()")
        world.make(d.choose(reads), device)


def copy(d, world):
    """copy_ between views of any dtypes, of one storage or of two, and from the host."""
    t = target(d, world)
    if t is None:
        return
    here = world.peek(t)
    shape = tuple(here.shape)
    if d.chance(4):
        host = f"numbers({shape}, {d.choose(DTYPES[1:])}, 5)"
        if here.dtype == torch.uint8:
            host = f"numbers({shape}, torch.uint8, 5)"
        if d.chance(2):
            change(world, t, f"{t}.copy_({host})")
        else:
            change(world, t, f"{t}.copy_(pinned({host}), non_blocking=True)")
        return
    source = operand(d, world, shape, d.integer(0, world.cards - 1))
    value = world.peek(source)
    if not isinstance(value, torch.Tensor) or not apart_from(world, t, source):
        return
    if here.dtype == torch.uint8 and (value < 0).any():
        return  # what a negative float becomes is not defined
    if d.chance(6):
        change(world, t, f"{t}[...] = {source}")
    else:
        change(world, t, f"{t}.copy_({source})")


# -------------------------------------------------------------------------------------- reductions


def reduction(d, world):
    a = d.choose(world.names())
    t, device = world[a], world.device[a]
    if t.dim() == 0:
        return
    dim, keep = d.dim(t), d.choose([False, True])
    shape = list(t.shape)
    if keep:
        shape[dim] = 1
    else:
        del shape[dim]
    op = d.choose(["sum", "amax", "amin", "any", "all", "argmax", "argmin", "cumsum", "max", "min",
                   "sort", "topk", "everything", "count_nonzero", "cummax"])  # fmt: skip
    if t.shape[dim] == 0 and op not in ("sum", "any", "all", "cumsum", "count_nonzero", "sort"):
        return
    to_out = d.chance(2)
    most = exact_terms(t.dtype)
    if to_out:
        most = min(most, *(exact_terms(dtype) for dtype in EXACT))  # out= may be any of them
    if op in ("sum", "cumsum") and t.shape[dim] > most:
        a = f"{a}.narrow({dim}, {d.integer(0, t.shape[dim] - most)}, {most})"
    if op == "everything" and t.numel() > most:
        return
    if op == "everything":
        world.make(f"{a}.{d.choose(['sum', 'any', 'all', 'count_nonzero'])}()", device)
    elif op == "count_nonzero":
        world.make(f"{a}.count_nonzero({dim})", device)
    elif op == "cumsum":
        if not to_out:
            world.make(f"{a}.cumsum({dim})", device)
        else:
            result = tuple(world.peek(a).shape)
            with_out(d, world, result, device, f"torch.cumsum({a}, {dim}{{out}})", a)
    elif op in ("max", "min", "cummax"):
        arguments = f"{dim}, {keep}" if op != "cummax" else f"{dim}"
        world.make(f"{a}.{op}({arguments})[{d.integer(0, 1)}]", device)
    elif op == "sort":
        arguments = f"dim={dim}, stable=True, descending={d.choose([False, True])}"
        world.make(f"{a}.sort({arguments})[{d.integer(0, 1)}]", device)
    elif op == "topk":
        k = d.integer(0, min(t.shape[dim], 40))
        world.make(f"{a}.topk({k}, {dim}, {d.choose([True, False])})[0]", device)
    elif not to_out:
        world.make(f"{a}.{op}({dim}, keepdim={keep})", device)
    else:
        call = f"torch.{op}({a}, {dim}, keepdim={keep}{{out}})"
        with_out(d, world, tuple(shape), device, call, a)


def product(d, world):
    """Matrix products of few and small numbers."""
    names = [n for n in world.names() if 1 <= world[n].dim() <= 3 and world[n].dtype != torch.bool]
    if not names:
        return
    a = d.choose(names)
    device = world.device[a]
    most = exact_terms(world[a].dtype, 64)
    if world[a].shape[-1] > most:
        a = f"{a}[..., :{d.integer(1, most)}]"
    t = world.peek(a)
    depth, columns = t.shape[-1], d.choose([1, 3, 33, 65])
    kind = d.choose(["matmul", "matmul", "addmm", "linear"])
    if kind == "linear":
        b = tensor_of(d, world, (columns, depth), device, [t.dtype])
        world.make(f"F.linear({a}, {b})", device)
        return
    b = tensor_of(d, world, (depth, columns), device, [t.dtype])
    shape = (*t.shape[:-1], columns)
    if kind == "addmm" and t.dim() == 2 and depth < most:
        bias = operand(d, world, shape, device, [t.dtype])
        if isinstance(world.peek(bias), torch.Tensor):
            world.make(f"torch.addmm({bias}, {a}, {b})", device)
    elif t.dim() == 1 or d.chance(2):  # of a vector the CPU resizes any out=
        world.make(f"{a} @ {b}", device)
    else:
        with_out(d, world, shape, device, f"torch.matmul({a}, {b}{{out}})", a, b)


# -------------------------------------------------------------------------------------- shapes


def cpu_writes_all(join, parts, dim, out):
    """Whether PyTorch's cat or stack on the CPU does: some of its kernels count with the strides of
    dimensions of one element, and leave such an `out` as it was."""
    there = torch.empty_strided(out.shape, out.stride(), dtype=out.dtype).zero_()
    try:
        join([torch.ones(part.shape, dtype=part.dtype) for part in parts], dim, out=there)
    except (RuntimeError, TypeError):
        return True  # as the card has to
    return bool(there.all())


def rearrange(d, world):
    a = d.choose(world.names())
    t, device = world[a], world.device[a]
    if t.dim() == 0:
        return
    dim = d.dim(t)
    kind = d.choose(["cat", "stack", "roll", "flip", "tril", "pad", "repeat", "repeat_interleave",
                     "reshape"])  # fmt: skip
    if kind in ("cat", "stack"):
        parts = [a]
        for _ in range(d.integer(0, 2)):
            shape = list(t.shape)
            if kind == "cat":
                shape[dim] = d.choose([1, 2, 33, 64])
            if torch.Size(shape).numel() <= 2500:
                parts.append(tensor_of(d, world, tuple(shape), device))
        there = [world.peek(part) for part in parts]
        text, join = f"torch.{kind}([{', '.join(parts)}], {dim}", getattr(torch, kind)
        result = join([torch.empty(part.shape, device="meta") for part in there], dim).shape
        if d.chance(2):
            world.make(text + ")", device)
        else:
            with_out(d, world, tuple(result), device, text + "{out})", *parts,
                     suits=lambda out: cpu_writes_all(join, there, dim, out))  # fmt: skip
    elif kind == "roll":
        world.make(f"{a}.roll({d.integer(-3, 70)}, {dim})", device)
    elif kind == "flip":
        world.make(f"{a}.flip({dim})", device)
    elif kind == "tril" and t.dim() > 1:
        name = d.choose(["tril", "triu"])
        if distinct(world[a]) and d.chance(2):
            change(world, a, f"{a}.{name}_({d.integer(-2, 2)})")
        else:
            world.make(f"{a}.{name}({d.integer(-2, 2)})", device)
    elif kind == "pad":
        pad = [d.integer(-1 if t.shape[-1] > 1 else 0, 3), d.integer(0, 3)]
        world.make(f"F.pad({a}, {pad}, value={d.integer(0, 3)})", device)
    elif kind == "repeat" and t.numel() <= 800:
        world.make(f"{a}.repeat({[d.integer(1, 2) for _ in t.shape]})", device)
    elif kind == "repeat_interleave" and t.numel() <= 1000:
        world.make(f"{a}.repeat_interleave(2, {dim})", device)
    elif kind == "reshape":
        world.make(f"{a}.reshape({d.choose([(-1,), (1, -1), (-1, 1)])})"
                   if t.numel() else f"{a}.reshape((0,))", device)  # fmt: skip


def set_and_resize(d, world):
    """Other memory, another size. What is new in a resized tensor is filled."""
    if world.streams:
        return
    bases = [
        n
        for n in world.bases()
        if world[n].dim() and world[n].is_contiguous() and not world[n].storage_offset()
    ]
    if not bases:
        return
    a = d.choose(bases)
    if d.chance(2):
        shape = d.shape(3)
        world.do(f"{a}.resize_({shape}).fill_(2)", [a])
    else:
        others = [n for n in world.names(world.device[a], [world[a].dtype]) if n != a]
        if not others:
            return
        source = d.choose(others)
        if d.chance(2):
            world.do(f"{a}.set_({source})", [a])
        else:
            world.do(f"{a}.set_({source}.untyped_storage(), {source}.storage_offset(), "
                     f"{source}.size(), {source}.stride())", [a])  # fmt: skip
    world.find_bases()
