"""Kernels as Python text, for the wrapper code that a person can read."""

from __future__ import annotations

import functools

from sympy import Expr

from torch_spyre._inductor.kernel_ir import Buffer, literal, literals
from torch_spyre._inductor.op_spec import KernelEntry, LoopSpec, OpSpec, TensorArg
from torch_spyre._inductor.planning import Kernel


def kernel_source(kernel: Kernel) -> str:
    """Arguments of ``async_compile.sdsc`` after the name; the OpSpecs are a text of their own."""
    constants = ", ".join(f"({_constant(b)}, {b.dtype})" for b in kernel.constants)
    specs = "".join(f"    {_entry(spec)},\n" for spec in kernel.specs)
    expected = "".join(f"    ({b.layout!r}, {b.stride}, {b.offset}),\n" for b in kernel.tensors)
    views = f", views={kernel.views}" if kernel.views else ""
    handover = ""
    if kernel.handover:
        found, left = kernel.handover.found, kernel.handover.left
        handover = f", found={[*map(tuple, found)]}, left={[*map(tuple, left)]}"
    return (
        f"'''[\n{specs}]''', expected=[\n{expected}], outputs={kernel.outputs}, "
        f"constants=[{constants}], pool_bytes={kernel.pool_bytes}{views}{handover}"
    )


def _entry(entry: KernelEntry) -> str:
    if isinstance(entry, LoopSpec):
        body = "".join(f"    {_entry(inner)},\n" for inner in entry.body)
        tiled = ", ".join(map(_expression, entry.tiled_symbols))
        return f"LoopSpec({_expression(entry.count)}, [\n{body}    ], [{tiled}])"
    assert isinstance(entry, OpSpec)
    return _op(entry)


def _op(spec: OpSpec) -> str:
    space = ", ".join(
        f"{_expression(symbol)}: ({_expression(extent)}, {splits})"
        for symbol, (extent, splits) in spec.iteration_space.items()
    )
    args = "".join(f"        {_arg(arg)},\n" for arg in spec.args)
    info = {name: repr(value) for name, value in spec.op_info.items()}
    if spec.constants:
        info["constants"] = literals(spec.constants)
    about = ", ".join(f"{name!r}: {text}" for name, text in info.items())
    return f"OpSpec({spec.op!r}, {spec.is_reduction}, {{{space}}}, [\n{args}    ], {{{about}}})"


def _constant(buffer: Buffer) -> str:
    value = buffer.constant
    return literal(value) if isinstance(value, float) else repr(value)


def _arg(arg: TensorArg) -> str:
    coordinates = ", ".join(_expression(coordinate) for coordinate in arg.device_coordinates)
    more = ", per_tile_fixed=True" if arg.per_tile_fixed else ""
    if arg.tile_symbols:
        more += f", tile_symbols=[{', '.join(map(_expression, arg.tile_symbols))}]"
    if arg.held:
        parts = ", ".join(f"{_expression(symbol)}: {n}" for symbol, n in arg.held.items())
        more += f", held={{{parts}}}"
    return (
        f"TensorArg({arg.is_input}, {arg.arg_index}, DataFormats.{arg.device_dtype.name}, "
        f"{arg.device_size}, [{coordinates}], {arg.allocation}{more})"
    )


@functools.lru_cache(maxsize=1 << 14)  # printing is slow
def _expression(expression: Expr) -> str:
    return f"sympify({str(expression)!r})"
