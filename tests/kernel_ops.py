"""Kernel ops made by hand, what they compute in plain Python, and their kernels on the card.

The oracle runs ops element by element, on storages that are dictionaries.
"""

import itertools
import math

import torch

from torch_spyre._C import SpyreTensorLayout, _Program
from torch_spyre._inductor.codegen.bundle import make_bundle
from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp, contiguous_strides
from torch_spyre._inductor.planning.realign import realign
from torch_spyre._inductor.planning.restickify import insert_restickifies
from torch_spyre._inductor.planning.sticks import choose_layouts
from torch_spyre._inductor.views import LinearIndex
from torch_spyre.backend.bundle import parse_bundle
from torch_spyre.backend.compiler import compile_files
from torch_spyre.backend.schedule import groups, works

HALF, FULL = torch.float16, torch.float32
A, B, C, D = "c0", "c1", "c2", "c3"


# ------------------------------------------------------------------------------------ hand-made ops


def buffer(name, *size, dtype=HALF, stick=None, local=False):
    """A tensor with its sticks along a dimension, the last one unless said otherwise."""
    stride = contiguous_strides(size)
    made = Buffer(name, dtype, list(size), stride, local=local)
    dim = len(size) - 1 if stick is None else stick
    order = [d for d in range(len(size)) if d != dim] + [dim]
    made.layout = SpyreTensorLayout(list(size), stride, dtype, order if size else [])
    return made


def local(name, *size, dtype=HALF):
    """An intermediate whose layout is not chosen yet."""
    return Buffer(name, dtype, list(size), contiguous_strides(size), local=True)


def at(of, *symbols, offset=0):
    """The buffer, each dimension walked by a loop (None: by none)."""
    strides = {s: t for s, t in zip(symbols, of.stride, strict=True) if s is not None}
    return Access(of, LinearIndex(offset, strides))


def op(name, space, inputs, output, **more):
    return KernelOp(name, space, list(inputs), output, **more)


def softmax_ops(rows, columns, dtype=HALF, inside=HALF):
    """Softmax of rows, with intermediates of the dtype ``inside``."""
    x, out = buffer("x", rows, columns, dtype=dtype), buffer("out", rows, columns, dtype=dtype)
    m, s = local("m", rows, dtype=inside), local("s", rows, dtype=inside)
    d, e = local("d", rows, columns, dtype=inside), local("e", rows, columns, dtype=inside)
    space = {A: rows, B: columns}
    return [
        op("max", space, [at(x, A, B)], at(m, A)),
        op("sub", space, [at(x, A, B), at(m, A)], at(d, A, B)),
        op("exp", space, [at(d, A, B)], at(e, A, B)),
        op("sum", space, [at(e, A, B)], at(s, A)),
        op("realdiv", space, [at(e, A, B), at(s, A)], at(out, A, B)),
    ]


def through(passes, ops):
    for run in passes:
        ops = run(ops)
    return ops


LAYOUTS = [choose_layouts, realign, insert_restickifies]


# ------------------------------------------------------------------------------------------- oracle

MEANING = {
    "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "sub": lambda a, b: a - b,
    "exp": math.exp, "neg": lambda a: -a, "identity": lambda a: a, "ReStickifyOpHBM": lambda a: a,
    "dl16tofp32": lambda a: a, "fp32todl16": lambda a: a, "realdiv": lambda a, b: a / b,
    "maximum": max, "minimum": min,
}  # fmt: skip
REDUCES = {"sum": sum, "max": max, "min": min, "prod": math.prod, "batchmatmul": sum}


def interpret(ops, storages):
    """Runs ops on ``{buffer name: {storage offset: number}}``."""
    for each in ops:
        symbols = list(each.space)
        results = {}
        for point in itertools.product(*(range(n) for n in each.space.values())):
            where = dict(zip(symbols, point, strict=True))

            def offset(access, where=where):
                return access.index.offset + sum(
                    stride * where.get(s, 0) for s, stride in access.index.strides.items()
                )

            values = [storages[a.buffer.name][offset(a)] for a in each.inputs]
            if each.op == "batchmatmul":
                values = [values[0] * values[1]]
            results.setdefault(offset(each.output), []).append(values)
        target = storages.setdefault(each.output.buffer.name, {})
        for place, found in results.items():
            if each.op in REDUCES:
                target[place] = REDUCES[each.op](values[0] for values in found)
            else:
                (values,) = found
                target[place] = MEANING[each.op](*values)
    return storages


def numbered(*buffers):
    return {
        b.name: {i: (7 * i + 3 * n) % 11 - 4.0 for i in range(math.prod(b.size))}
        for n, b in enumerate(buffers)
    }


def bundle_of(kernel):
    return make_bundle(kernel.specs)


def groups_of(kernel):
    """Names of the ops of each step between which cores wait."""
    return [
        [work.op.op.name for work in works(group.works)]
        for group in groups(parse_bundle(bundle_of(kernel)))
    ]


def run_on_card(kernel, **given_tensors):
    """Launches a kernel on tensors that lie as its buffers; returns all by name."""
    tensors = {}
    for arg in kernel.args:
        value = given_tensors.get(arg.name, torch.zeros(arg.size, dtype=arg.dtype))
        tensors[arg.name] = value.to(arg.dtype).to(device_layout=arg.layout)
    operands = list(tensors.values())
    if kernel.pool_bytes:
        operands.insert(0, torch.empty(kernel.pool_bytes, dtype=torch.int8, device="spyre"))
    _Program(compile_files(bundle_of(kernel))).launch(operands)
    return {name: tensor.cpu() for name, tensor in tensors.items()}
