"""Small kernels as OpSpecs, with the tensors they run on and what eager ops make of these."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import sympy
import torch

from torch_spyre._C import DataFormats
from torch_spyre._inductor.codegen.bundle import make_bundle
from torch_spyre._inductor.op_spec import (
    IndirectAccess,
    KernelEntry,
    LoopSpec,
    OpSpec,
    TensorArg,
    in_integers,
)
from torch_spyre._inductor.views import (
    LinearIndex,
    device_coordinates,
    expression,
    loop_symbol,
)
from torch_spyre.backend.bundle import BundleFiles

c0, c1, c2 = sympy.symbols("c0:3")
FP16 = DataFormats.SEN169_FP16


@dataclass
class Kernel:
    entries: list[KernelEntry]
    tensors: list[torch.Tensor]  # launch arguments; the last one is the result
    expected: torch.Tensor
    options: dict[str, bool] = field(default_factory=dict)

    def bundle(self, **options: bool) -> BundleFiles:
        return bundle_of(self.entries, **(self.options | options))


def bundle_of(entries: Sequence[KernelEntry], **options: bool) -> BundleFiles:
    """The bundle of a kernel that was written with sympy."""
    return make_bundle([*map(in_integers, entries)], **options)


def files_of(entries: Sequence[KernelEntry], **options: bool) -> BundleFiles:
    """The bundle of a kernel as the back end reads it from disk."""
    bundle = bundle_of(entries, **options)
    superdscs = {name: json.loads(json.dumps(s)) for name, s in bundle.superdscs.items()}
    return BundleFiles("test", bundle.mlir, superdscs)


def coordinates_of(layout, offset, strides, extents):
    """Of an index that is linear in symbols."""
    where = LinearIndex(offset, {symbol.name: step for symbol, step in strides.items()})
    found = device_coordinates(layout, where, {s.name: extent for s, extent in extents.items()})
    own = {loop_symbol(symbol.name): symbol for symbol in extents}
    return [expression(coordinate).xreplace(own) for coordinate in found]


def arg(tensor, index, axes, *, output=False):
    """An argument whose dimensions are the symbols of ``axes`` (None: size 1)."""
    extents = {s: n for s, n in zip(axes, tensor.shape, strict=True) if s is not None}
    strides = {s: t for s, t in zip(axes, tensor.stride(), strict=True) if s is not None}
    layout = tensor.device_tensor_layout()
    coordinates = coordinates_of(layout, tensor.storage_offset(), strides, extents)
    return TensorArg(
        not output,
        index,
        layout.device_dtype,
        list(layout.device_size),
        coordinates,
        {"hbm": index << 34},
        list(layout.stride_map),
    )


def local(offset, rows, columns=None, *, output=False, memory="lx"):
    """A matrix of the symbols c0, c1 (or a column of c0) in a scratchpad or the pool."""
    sticks = -(-columns // 64) if columns else 1
    stick = [sympy.floor(c1 / 64), sympy.Mod(c1, 64)] if columns else [sympy.Integer(0)] * 2
    where = [stick[0], c0, stick[1]]
    return TensorArg(not output, -1, FP16, [sticks, rows, 64], where, {memory: offset})


def space(**splits):
    return {
        sympy.Symbol(name): (sympy.Integer(size), cores) for name, (size, cores) in splits.items()
    }


def card(*size, dtype=torch.float16):
    return torch.randn(size).to(dtype).to("spyre")


def empty(*size, dtype=torch.float16):
    return torch.empty(size, dtype=dtype, device="spyre")


def op(name, where, *args, reduction=False, **more):
    return OpSpec(name, reduction, where, list(args), **more)


# ----------------------------------------------------------------------------------------- kernels


def add() -> Kernel:
    """Parts of unequal size: 100 rows on 3 cores, 4 sticks on 2."""
    x, y, out = card(100, 200), card(100, 200), empty(100, 200)
    args = [arg(x, 0, (c0, c1)), arg(y, 1, (c0, c1)), arg(out, 2, (c0, c1), output=True)]
    return Kernel([op("add", space(c0=(100, 3), c1=(200, 2)), *args)], [x, y, out], x + y)


def broadcast() -> Kernel:
    """(x + row) * column, with what is in between in the pool."""
    x, row, column, out = card(128, 192), card(192), card(128, 1), empty(128, 192)
    pool = torch.empty(128 * 3 * 128, dtype=torch.int8, device="spyre")
    where = space(c0=(128, 4), c1=(192, 1))
    entries = [
        op(
            "add",
            where,
            arg(x, 0, (c0, c1)),
            arg(row, 1, (c1,)),
            local(0, 128, 192, output=True, memory="pool"),
        ),
        op(
            "mul",
            where,
            local(0, 128, 192, memory="pool"),
            arg(column, 2, (c0, None)),
            arg(out, 3, (c0, c1), output=True),
        ),
    ]
    return Kernel(entries, [pool, x, row, column, out], (x + row) * column)


def sum_along_stick() -> Kernel:
    x, out = card(100, 200), empty(100, 1)
    args = [arg(x, 0, (c0, c1)), arg(out, 1, (c0, None), output=True)]
    entry = op("sum", space(c0=(100, 4), c1=(200, 1)), *args, reduction=True)
    return Kernel([entry], [x, out], x.sum(1, keepdim=True))


def max_across_sticks() -> Kernel:
    x, out = card(100, 256), empty(256)
    args = [arg(x, 0, (c0, c1)), arg(out, 1, (c1,), output=True)]
    entry = op("max", space(c1=(256, 3), c0=(100, 1)), *args, reduction=True)
    return Kernel([entry], [x, out], x.amax(0))


def matmul_split_k() -> Kernel:
    x, y, out = card(128, 100), card(100, 256), empty(128, 256)
    args = [arg(x, 0, (c0, c2)), arg(y, 1, (c2, c1)), arg(out, 2, (c0, c1), output=True)]
    where = space(c0=(128, 3), c1=(256, 2), c2=(100, 2))
    return Kernel([op("batchmatmul", where, *args, reduction=True)], [x, y, out], x @ y)


def restickify() -> Kernel:
    x = card(100, 128)
    out = torch.empty(100, 128, dtype=torch.float16).to("spyre").t().contiguous().t()
    args = [arg(x, 0, (c0, c1)), arg(out, 1, (c0, c1), output=True)]
    return Kernel([op("ReStickifyOpHBM", space(c0=(100, 1), c1=(128, 2)), *args)], [x, out], x)


def gather() -> Kernel:
    """Rows chosen by an index tensor of 7 x 70, which is split over cores in either dimension."""
    values, out = card(100, 130), empty(7, 70, 130)
    index = torch.randint(0, 100, (7, 70), dtype=torch.int32).to("spyre")
    index_arg = arg(index, 0, (c0, c1))
    index_arg.name = "i"
    row = sympy.Symbol("row")
    values_arg = arg(values, 1, (row, c2))
    values_arg.device_coordinates = [
        coordinate.subs(row, IndirectAccess(sympy.Symbol("i")))
        for coordinate in values_arg.device_coordinates
    ]
    args = [index_arg, values_arg, arg(out, 2, (c0, c1, c2), output=True)]
    entry = op("identity", space(c0=(7, 2), c1=(70, 3), c2=(130, 2)), *args)
    return Kernel([entry], [index, values, out], values[index])


def loop(symbolic: bool = True) -> Kernel:
    x, out = card(256, 192), empty(256, 192)
    args = [arg(x, 0, (c0, c1)), arg(out, 1, (c0, c1), output=True)]
    inner = op("exp", space(c0=(64, 2), c1=(192, 1)), *args, tiled_symbols=[c0])
    return Kernel([LoopSpec(sympy.Integer(4), [inner])], [x, out], x.exp(), {"symbolic": symbolic})


def loop_baked() -> Kernel:
    return loop(symbolic=False)


def softmax() -> Kernel:
    """Five ops whose intermediates stay in the scratchpads of 4 cores, 32 rows each."""
    x, out = card(128, 192), empty(128, 192)
    where = space(c0=(128, 4), c1=(192, 1))
    big = 32 * 3 * 128
    whole, column = (32, 192), (32,)
    entries = [
        op("max", where, arg(x, 0, (c0, c1)), local(0, *column, output=True), reduction=True),
        op(
            "sub",
            where,
            arg(x, 0, (c0, c1)),
            local(0, *column),
            local(4096, *whole, output=True),
        ),
        op("exp", where, local(4096, *whole), local(4096 + big, *whole, output=True)),
        op("sum", where, local(4096 + big, *whole), local(0, *column, output=True), reduction=True),
        op(
            "realdiv",
            where,
            local(4096 + big, *whole),
            local(0, *column),
            arg(out, 1, (c0, c1), output=True),
        ),
    ]
    e = (x - x.amax(1, keepdim=True)).exp()
    return Kernel(entries, [x, out], e / e.sum(1, keepdim=True))


def exchange() -> Kernel:
    """7 rows on 7 cores, which the next op wants on 2 x 3: parts go over the ring."""
    return resliced(7, 130, {c0: 7, c1: 1}, {c0: 2, c1: 3})


def resliced(rows, columns, have, want, dtype=torch.float16) -> Kernel:
    """-exp(x): cores split exp one way, the negation another; the order says who is a neighbour."""
    x, out = card(rows, columns, dtype=dtype), empty(rows, columns, dtype=dtype)
    size = {c0: sympy.Integer(rows), c1: sympy.Integer(columns)}
    before, after = ({s: (size[s], n) for s, n in splits.items()} for splits in (have, want))
    elems = 64 if dtype == torch.float16 else 32
    sticks = [sympy.floor(c1 / elems), c0, sympy.Mod(c1, elems)]
    shape = [-(-columns // elems), rows, elems]

    def at(offset, output, **more):
        format = x.device_tensor_layout().device_dtype
        return TensorArg(not output, -1, format, shape, sticks, {"lx": offset}, **more)

    there = 1 << 20
    entries = [
        op("exp", before, arg(x, 0, (c0, c1)), at(0, True)),
        op("identity", after, at(0, False, held=have), at(there, True)),
        op("neg", after, at(there, False), arg(out, 1, (c0, c1), output=True)),
    ]
    return Kernel(entries, [x, out], -x.exp())


KERNELS: dict[str, Callable[[], Kernel]] = {
    builder.__name__: builder
    for builder in (
        add,
        broadcast,
        sum_along_stick,
        max_across_sticks,
        matmul_split_k,
        restickify,
        gather,
        loop,
        loop_baked,
        softmax,
        exchange,
    )
}


def check_result(kernel: Kernel, launch: Callable[[Sequence[torch.Tensor]], None]) -> None:
    """Launch on the kernel's tensors; the result must have the bits of the eager one."""
    launch(kernel.tensors)
    assert torch.equal(kernel.tensors[-1].cpu(), kernel.expected.cpu())
