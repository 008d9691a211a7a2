"""Kernels as Python text: calls in the wrapper code, and OpSpecs for people."""

from __future__ import annotations

from torch_spyre._inductor.kernel_ir import Buffer, literal, literals
from torch_spyre._inductor.op_spec import KernelEntry, LoopSpec, OpSpec, TensorArg
from torch_spyre._inductor.planning import Kernel


def launch_source(kernel: Kernel) -> str:
    """What a launch needs besides the program, as arguments of ``async_compile.sdsc``."""
    constants = ", ".join(f"({_constant(b)}, {b.dtype})" for b in kernel.constants)
    expected = "".join(f"    ({b.layout!r}, {b.stride}, {b.offset}),\n" for b in kernel.tensors)
    views = f", views={kernel.views}" if kernel.views else ""
    return (
        f"expected=[\n{expected}], outputs={kernel.outputs}, "
        f"constants=[{constants}], pool_bytes={kernel.pool_bytes}{views}"
    )


def specs_text(kernel: Kernel) -> str:
    """The OpSpecs of a kernel, for people."""
    return "".join(f"    {_entry(spec)},\n" for spec in kernel.specs)


def kernel_text(kernel: Kernel) -> str:
    """All of a kernel, for people: its OpSpecs, and what a launch needs."""
    handover = f", {kernel.handover}" if kernel.handover else ""
    return f"[\n{specs_text(kernel)}], {launch_source(kernel)}{handover}"


def _entry(entry: KernelEntry) -> str:
    if isinstance(entry, LoopSpec):
        body = "".join(f"    {_entry(inner)},\n" for inner in entry.body)
        return f"LoopSpec({entry.count}, [\n{body}    ], {entry.tiled_symbols})"
    assert isinstance(entry, OpSpec)
    return _op(entry)


def _op(spec: OpSpec) -> str:
    args = "".join(f"        {_arg(arg)},\n" for arg in spec.args)
    info = {name: repr(value) for name, value in spec.op_info.items()}
    if spec.constants:
        info["constants"] = literals(spec.constants)
    about = ", ".join(f"{name!r}: {text}" for name, text in info.items())
    space = dict(spec.iteration_space)
    return f"OpSpec({spec.op!r}, {spec.is_reduction}, {space}, [\n{args}    ], {{{about}}})"


def _constant(buffer: Buffer) -> str:
    value = buffer.constant
    return literal(value) if isinstance(value, float) else repr(value)


def _arg(arg: TensorArg) -> str:
    coordinates = [*map(str, arg.device_coordinates)]
    more = ", per_tile_fixed=True" if arg.per_tile_fixed else ""
    if arg.tile_symbols:
        more += f", tile_symbols={arg.tile_symbols}"
    if arg.held:
        more += f", held={arg.held}"
    return (
        f"TensorArg({arg.is_input}, {arg.arg_index}, DataFormats.{arg.device_dtype.name}, "
        f"{arg.device_size}, {coordinates}, {arg.allocation}{more})"
    )
