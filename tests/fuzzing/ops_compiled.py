"""Steps through autograd and the compiler. Compiling is slow: few sources and shapes, often."""

import torch

from fuzzing.draws import apart_from, tensor_of
from fuzzing.ops import FLOATS
from fuzzing.world import EXACT, distinct, storage

SHAPES = [(5,), (33,), (3, 5), (2, 65), (64,), (2, 3, 5), (2, 100), (3, 4, 70)]
COMPILED_DTYPES = [
    torch.float32, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.uint8,
]  # fmt: skip

# Lines of a function of x and y, tensors of one shape, with z for what was computed so far. All
# are exact, and none lets numbers grow beyond what bfloat16 holds within two lines. The first of
# them leave z its shape: nothing raises half-way, when a compiled function has changed nothing.
LINES = [
    "z = z + y",
    "z = z - 1",
    "z = torch.relu(z)",
    "z = torch.where(z > y, z, y)",
    "z = torch.maximum(z, -y)",
    "z = z.transpose(0, -1).contiguous().transpose(0, -1)",
    "z = torch.cat([z, y], 0)[1:-1]",
    "z = z.amax(-1, keepdim=True) + y",
    "z = z + y[..., :1]",
    "z = z - y[:1]",
    "z = z.flip(0)",
    "z = torch.clamp(z, -3 if z.dtype.is_signed else 1, 3)",
    "z = (z > 0).to(y.dtype) + y",
    "z = torch.relu(z.half()).float().to(y.dtype)",
    "z = z[..., 1:] + y[..., :-1]",
]
MUTATIONS = [
    "",
    "x.add_(1)",
    "x.copy_(y)",
    "x[..., 1:].sub_(1)",
    "x.mul_(2)",
    "x[..., ::2].fill_(4)",
]


# Called again and again, with other tensors of the shape: what was compiled must notice.
FAVOURITES = [
    ("x.add_(1)", "z = z + y", (5,), torch.float32, None),
    ("x[..., 1:].sub_(1)", "z = torch.maximum(z, -y)", (3, 5), torch.float16, None),
    ("", "z = z[..., 1:] + y[..., :-1]", (2, 100), torch.float32, True),
    ("x.copy_(y)", "z = torch.relu(z.half()).float().to(y.dtype)", (2, 100), torch.float32, None),
    ("", "z = z.amax(-1, keepdim=True) + y", (33,), torch.int32, True),
    ("x[..., ::2].fill_(4)", "z = z + y[..., :1]", (3, 4, 70), torch.bfloat16, None),
]


def source_of(d):
    lines = [d.choose(MUTATIONS), "z = x.neg()", d.choose(["", *LINES[:6]]), d.choose(LINES)]
    return _function(lines)


def _function(lines):
    body = "\n".join(f"    {line}" for line in lines if line)
    return f"def f(x, y):\n{body}\n    return z\n"


def rows_of(d, world, shape, dtype):
    """Two of several tensors of a shape that differ in nothing but where they begin."""

    def stacks():
        names = [n for n in world.names(0, [dtype]) if tuple(world[n].shape) == (3, *shape)]
        return [n for n in names if distinct(world[n])]

    if not stacks():
        world.make(f"numbers({(3, *shape)}, {dtype}, 3).to(device)", 0)
    known = stacks()  # a full world may have dropped it again
    return [f"{d.choose(known)}[{d.integer(0, 2)}]" for _ in range(2)] if known else []


def compiled(d, world):
    """A function of two tensors, which may change the first of them."""
    names = [n for n in world.names() if world.device[n] == 0]
    if not names:
        return
    favourite = d.chance(2)
    if favourite:
        first, last, shape, dtype, dynamic = d.choose(FAVOURITES)
        source = _function([first, "z = x.neg()", last])
    else:
        shape, dtype = d.choose(SHAPES), d.choose(COMPILED_DTYPES)
        source, dynamic = source_of(d), d.choose([None, None, True])
    rows = rows_of(d, world, shape, dtype) if favourite and d.chance(2) else []
    x, y = rows or [tensor_of(d, world, shape, 0, [dtype], apart=True) for _ in range(2)]
    if not apart_from(world, x, y):
        return
    if storage(world.peek(x)) == storage(world.peek(y)):
        # PyTorch 2.13 makes one input of the two, and may lose a symbolic size (on the CPU, too).
        dynamic = False
    f = f"function({source!r}, {dynamic})"
    world.make(f"{f}({x}, {y})", 0, writes=[x])


GRADIENTS = [
    "lambda x, y: x * y",
    "lambda x, y: torch.relu(x) + y",
    "lambda x, y: x.transpose(0, -1)[1:] * 2",
    "lambda x, y: torch.where(y > 0, x, y)",
    "lambda x, y: x.sum(0, keepdim=True) + y",
    "lambda x, y: torch.cat([x, y], -1).flip(0)",
    "lambda x, y: x[..., ::2] - y[..., ::2]",
    "lambda x, y: x.index_select(0, torch.tensor([0, 0], device=x.device))",
    "lambda x, y: x.expand(2, *x.shape) * y",
    "lambda x, y: x.unsqueeze(-1) @ y.unsqueeze(-2)",
    "lambda x, y: x.clamp(-2, 2).abs()",
    "lambda x, y: x.clone().mul_(y)",
]


def backward(d, world):
    """Gradients of two tensors, op by op, now and then compiled."""
    device = d.integer(0, world.cards - 1)
    shape, dtype = d.choose(SHAPES), d.choose(FLOATS)
    x, y = (tensor_of(d, world, shape, device, [dtype]) for _ in range(2))
    f = d.choose(GRADIENTS)
    if EXACT[dtype] < 1024 and "@" in f:
        return
    if d.chance(world.compiled_gradients) and device == 0:
        body = f.removeprefix("lambda x, y: ")
        f = f"function({f'def f(x, y): return {body}'!r})"
    world.make(f"gradients({f}, {x}, {y})", device)
