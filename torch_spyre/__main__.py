"""``python -m torch_spyre``: what this machine has, what ops and scripts do, layouts, kernels."""

import argparse
import math
import platform
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from torch_spyre.environment import KNOBS, Knob
from torch_spyre.tools import explain_command, models_command, ops_command
from torch_spyre.tools.tables import Table, size
from torch_spyre.version import __version__

_DESCRIPTION = (
    "Shows what this machine has, what happens to each op on spyre, what a script does on a Spyre "
    "card, how a tensor lies in its memory; reads and compiles the bundles of kernels."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    code: int = options.run(options, parser)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m torch_spyre", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    info = commands.add_parser(
        "info",
        help="devices, their memory and properties, versions",
        description="Opens every device this process sees and shows what it is.",
    )
    info.set_defaults(run=_info)

    env = commands.add_parser(
        "env",
        help="environment variables and their values",
        description="Every environment variable the package reads, with its value here.",
    )
    env.set_defaults(run=_env)

    machine = commands.add_parser(
        "machine",
        help="the machine description: every number about a card, with its source",
        description="Every number the package knows about a card, and where it comes from.",
    )
    machine.set_defaults(run=_machine)
    for command in (env, machine):
        command.add_argument("--markdown", action="store_true", help="print Markdown tables")

    ops = commands.add_parser(
        "ops",
        help="what runs on the card, what on the CPU, and what not",
        description="Every ATen op with what happens to it on spyre, read from PyTorch's "
        "dispatcher; and the ops of the card itself, read from the op table.",
        epilog="Example: python -m torch_spyre ops softmax",
    )
    ops_command.add_options(ops)
    ops.set_defaults(run=ops_command.run)

    explain = commands.add_parser(
        "explain",
        help="run a script and say what it did on the card",
        description="Runs a script and reports what it did on the card: modelled time by op, layer "
        "and source line, memory traffic, LX, fallbacks, graph breaks.",
        epilog="Example: python -m torch_spyre explain train.py --epochs 1 --html report.html",
    )
    explain_command.add_options(explain)
    explain.set_defaults(run=explain_command.run)

    models = commands.add_parser(
        "models",
        help="run real models on the card and compare with the CPU",
        description="Runs models of the zoo on the card, eagerly and compiled: ops, fallbacks, "
        "graph breaks, times, and errors against the CPU.",
        epilog="Example: python -m torch_spyre models granite bert --json models.json",
    )
    models_command.add_options(models)
    models.set_defaults(run=models_command.run)

    layout = commands.add_parser(
        "layout",
        help="how a tensor of some shape lies in device memory",
        description="Shows the layout of a contiguous tensor and which element is in which stick.",
        epilog="Example: python -m torch_spyre layout 512,240 --dim-order 1,0",
    )
    layout.add_argument("shape", help="sizes such as 512,240 or 512x240; 'scalar' for no dimension")
    layout.add_argument("--dtype", default="float16", help="torch dtype (default: float16)")
    layout.add_argument(
        "--dim-order",
        help="order of the host dimensions, the last one lies in the stick; a trailing -1 gives "
        "every element a stick of its own (default: 0,1,2,...)",
    )
    layout.add_argument("--sticks", type=int, default=12, help="sticks to draw (default: 12)")
    layout.set_defaults(run=_layout)

    bundle = commands.add_parser(
        "bundle",
        help="what a bundle directory says, op by op",
        description="Shows the ops of a bundle, their splits over cores, tensors and schedule.",
    )
    bundle.set_defaults(run=_bundle)
    compile_bundle = commands.add_parser(
        "compile-bundle",
        help="compile a bundle directory to SpyreCode",
        description="Compiles bundle.mlir and its SuperDSCs to spyrecode.json and init.bin.",
    )
    compile_bundle.add_argument(
        "-o", "--output", type=Path, help="where to write (default: DIR/spyreCodeDir)"
    )
    compile_bundle.set_defaults(run=_compile_bundle)
    for command in (bundle, compile_bundle):
        command.add_argument("directory", type=Path, metavar="DIR", help="holds bundle.mlir")
    return parser


# --------------------------------------------------------------------------------------------- info


def _info(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    import torch

    import torch_spyre.device as spyre

    try:
        devices = [spyre.get_device_properties(i) for i in range(spyre.device_count())]
        memory = [spyre.mem_get_info(device.index) for device in devices]
    except (RuntimeError, ValueError, IndexError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if not devices:
        print("error: no device. `python -m torch_spyre env` shows what chooses.", file=sys.stderr)
        return 1

    table = Table(
        ["device", "name", "type", "cores", "LX per core", "memory", "free"],
        title="Devices",
        numbers=frozenset({3, 4, 5, 6}),
    )
    for device, (free, total) in zip(devices, memory, strict=True):
        table.add(
            f"spyre:{device.index}",
            device.name,
            device.type,
            str(device.multi_processor_count),
            size(device.lx_bytes_per_core),
            size(total),
            size(free),
        )
    table.show()

    versions = Table(["package", "version"], title="Versions")
    versions.add("torch-spyre", __version__)
    versions.add("torch", torch.__version__)
    versions.add("Python", platform.python_version())
    versions.add("system", f"{platform.system()} {platform.machine()}")
    versions.show()
    return 0


# ----------------------------------------------------------------------------- environment, machine


def _env(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if options.markdown:
        table = Table(["variable", "default", "meaning"])
        for knob in KNOBS.values():
            names = " or ".join(f"`{name}`" for name in knob.variables)
            table.add(names, knob.default_text, f"{_reader(knob)}{knob.meaning}")
        print(table.markdown())
        return 0
    table = Table(["variable", "here", "default", "meaning"], title="Environment variables")
    for knob in KNOBS.values():
        meaning = f"{_reader(knob)}{knob.meaning}"
        table.add(" or ".join(knob.variables), knob.text or "", knob.default_text, meaning)
    table.show()
    return 0


def _reader(knob: Knob) -> str:
    return "compiler: " if knob.group == "compiler" else ""


def _machine(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from torch_spyre.machine import load

    machine = load()
    numbers = Table(["number", "value", "unit", "source"], title="Machine", numbers=frozenset({1}))
    for number in machine.numbers.values():
        numbers.add(number.name, f"{number.value:,}", number.unit, number.source)
    formats = Table(
        ["format", "id", "bits", "elements in a stick", "kind", "note"],
        title="Element formats",
        numbers=frozenset({1, 2, 3}),
    )
    for entry in machine.formats.values():
        bits, count = (str(n) if n else "-" for n in (entry.bits, entry.elems_per_stick))
        formats.add(entry.name, str(entry.id), bits, count, entry.kind, entry.note)
    if options.markdown:
        print(numbers.markdown(), formats.markdown(), sep="\n\n")
    else:
        numbers.show()
        formats.show()
    return 0


# ------------------------------------------------------------------------------------------- layout


def _layout(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    import torch

    from torch_spyre import _C
    from torch_spyre.tools import layout_picture

    shape = _numbers(options.shape, "shape", parser)
    if any(extent < 0 for extent in shape):
        parser.error(f"shape {options.shape!r} has a negative size")
    dtype = getattr(torch, options.dtype, None)
    if not isinstance(dtype, torch.dtype):
        parser.error(f"{options.dtype!r} is not a torch dtype; try float16, float32 or int64")
    order = list(range(len(shape)))
    if options.dim_order is not None:
        order = _numbers(options.dim_order, "dim order", parser)
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    try:
        layout = _C.SpyreTensorLayout(shape, strides, dtype, order)
    except (ValueError, TypeError, RuntimeError) as error:
        parser.error(str(error))

    in_stick = layout.elems_per_stick()
    count = math.prod(layout.device_size[:-1])
    padding = layout_picture.padding_share(shape, order, in_stick)
    table = Table(["", ""], title=f"A {_shape_text(shape)} tensor of torch.{options.dtype}")
    table.add("device_size", str(layout.device_size))
    table.add("stride_map", str(layout.stride_map))
    table.add("format", f"{layout.device_dtype.name}, {in_stick} elements in a stick of 128 bytes")
    table.add(
        "memory", f"{count} sticks, {layout.device_bytes()} bytes ({size(layout.device_bytes())})"
    )
    table.add("padding", f"{padding:.2%}".replace("%", " %"))
    table.show()

    print()
    for line in layout_picture.picture(shape, order, in_stick, max(options.sticks, 3)):
        print(line)
    print()
    print("Each line is a stick; numbers are indices of the host tensor.")
    print("Device coordinate c holds the host element at offset sum(c * stride_map).")
    return 0


def _numbers(text: str, what: str, parser: argparse.ArgumentParser) -> list[int]:
    if text.strip().lower() in ("scalar", "()", "[]", ""):
        return []
    try:
        return [int(part) for part in re.split(r"[,x]", text.strip("()[] ").rstrip(","))]
    except ValueError:
        parser.error(f"{what} {text!r} is not a list of numbers such as 512,240")


def _shape_text(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) if shape else "scalar"


# ------------------------------------------------------------------------------------------ bundles


def _bundle(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    import torch  # noqa: F401  (loads the libraries of _C)

    from torch_spyre.backend.bundle import read_bundle
    from torch_spyre.backend.check import check
    from torch_spyre.backend.errors import MalformedBundle
    from torch_spyre.tools import bundle_summary

    try:
        bundle = read_bundle(options.directory)
        for line in bundle_summary.lines(bundle):
            print(line)
        check(bundle)
    except MalformedBundle as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _compile_bundle(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    import torch  # noqa: F401  (loads the libraries of _C)

    from torch_spyre.backend.compiler import compile_to_spyrecode
    from torch_spyre.backend.errors import MalformedBundle
    from torch_spyre.backend.spyrecode import DIRECTORY

    output = options.output or options.directory / DIRECTORY
    try:
        compiled = compile_to_spyrecode(options.directory, output)
    except (MalformedBundle, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    table = Table(["", ""], title=f"{output}")
    table.add("ops", str(compiled.ops))
    table.add("cores", str(compiled.cores))
    table.add("steps", str(compiled.steps))
    table.add("program", f"{len(compiled.program)} bytes")
    table.add("commands", ", ".join(step.command for step in compiled.code.execution))
    table.show()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # the reader, `head` for example, has seen enough
        sys.stderr.close()
        sys.exit(0)
