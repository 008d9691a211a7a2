"""Writing a bundle: a SuperDSC file for each op, and ``bundle.mlir``, which says how they run.

Addresses are either baked into the SuperDSCs, or symbols that the bundle computes from its
arguments; only the second kind runs with tensors at other addresses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch_spyre._inductor.codegen.superdsc import Addresses, Json, baked_addresses, emit
from torch_spyre._inductor.codegen.superdsc_plan import OpPlan, Tensor, plan_op
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.op_spec import (
    KernelEntry,
    LoopSpec,
    OpSpec,
    TensorArg,
    UnimplementedOp,
)
from torch_spyre.backend.bundle import BundleFiles
from torch_spyre.backend.program import NO_HANDOVER, Handover, LxBytes
from torch_spyre.machine import load as load_machine

SEGMENT_BYTES = int(load_machine().value("memory.segment_bytes"))
INDEX = "index"
ARGUMENT = "!sdscbundle.input_arg<index>"


def make_bundle(
    kernel: Sequence[KernelEntry],
    handover: Handover = NO_HANDOVER,
    *,
    symbolic: bool = True,
    unroll_loops: bool = False,
    k_fast_emission: bool = True,
) -> BundleFiles:
    """The bundle of a kernel, which is in integers. Raises :class:`Unsupported` for an op the back
    end does not have.

    ``handover`` is what the bundles launched directly before and after it have to do with it.
    """
    if unroll_loops:
        kernel = unrolled(kernel)
    return _Writer(symbolic, k_fast_emission).bundle(kernel, handover)


# ------------------------------------------------------------------------------------------ loops


def tile_strides(arg: TensorArg, extents: Mapping[str, int], tiled: Sequence[str]) -> int:
    """Bytes an argument moves on when each of the tiled loops moves on by one tile."""
    if arg.per_tile_fixed:
        return 0
    bytes_each = 128 // arg.device_dtype.elems_per_stick()
    ahead = {s: extents[s] for s in tiled if s in extents and s not in arg.tile_symbols}
    moved = 0
    for i, coordinate in enumerate(arg.device_coordinates):
        step = coordinate.at(ahead) - coordinate.at({})
        moved += step * math.prod(arg.device_size[i + 1 :])
    return moved * bytes_each


def _tiled_symbols(loop: LoopSpec) -> Sequence[str]:
    if loop.tiled_symbols:
        return loop.tiled_symbols
    first = next((entry for entry in loop.body if isinstance(entry, OpSpec)), None)
    return first.tiled_symbols if first else ()


def _count(loop: LoopSpec) -> int:
    if not isinstance(loop.count, int):
        raise Unsupported(f"a loop of {loop.count} iterations: the count must be a number")
    return loop.count


def unrolled(kernel: Sequence[KernelEntry]) -> list[KernelEntry]:
    """The kernel without loops: every iteration written out, with its own addresses."""
    entries: list[KernelEntry] = []
    for entry in kernel:
        if not isinstance(entry, LoopSpec):
            entries.append(entry)
            continue
        tiled = _tiled_symbols(entry)
        body = unrolled(entry.body)
        for iteration in range(_count(entry)):
            entries += [_shifted(inner, tiled, iteration) for inner in body]
    return entries


def _shifted(entry: KernelEntry, tiled: Sequence[str], iteration: int) -> KernelEntry:
    if not isinstance(entry, OpSpec):
        return entry
    extents = {loop: extent for loop, (extent, _) in entry.iteration_space.items()}
    args = []
    for arg in entry.args:
        moved = iteration * tile_strides(arg, extents, tiled)
        args.append(replace(arg, allocation={arg.component: arg.address + moved}))
    return replace(entry, args=args)


# ------------------------------------------------------------------------------------------ mlir


def _lx_lines(kind: str, ranges: Sequence[LxBytes]) -> list[str]:
    return [
        f"sdscbundle.lx_{kind} {{begin={begin}, end={end}, cores={cores}}}"
        for begin, end, cores in ranges
    ]


@dataclass
class _Loop:
    variable: str
    tiled: Sequence[str]


class _Writer:
    def __init__(self, symbolic: bool, k_fast_emission: bool) -> None:
        self.symbolic = symbolic
        self.k_fast_emission = k_fast_emission
        self.superdscs: list[Json] = []
        self.maps: dict[tuple[int, ...], str] = {}
        self.parameters: dict[int, str] = {}  # kernel argument -> name of its address
        self.entry: list[str] = []  # constants and addresses that loops do not change
        self.known: set[str] = set()
        self.loop_count = 0
        self.address_count = 0
        self.symbol_count = 0

    def bundle(self, kernel: Sequence[KernelEntry], handover: Handover) -> BundleFiles:
        body = self._entries(kernel, [])
        arguments = ", ".join(
            f"{name}_base_addr: {ARGUMENT}" for name in self._ordered_parameters().values()
        )
        extracts = [
            f"{name} = sdscbundle.input_arg_extract value from {name}_base_addr : "
            f"{ARGUMENT} -> {INDEX}"
            for name in self._ordered_parameters().values()
        ]
        maps = [
            f"{name} = affine_map<({', '.join(f'd{i}' for i in range(len(strides)))})[s0] -> "
            f"({' + '.join(['s0', *(f'{s}*d{i}' for i, s in enumerate(strides))])})>"
            for strides, name in self.maps.items()
        ]
        lines = [*maps, "module {", f"\tfunc.func @sdsc_bundle({arguments}) {{"]
        found, left = _lx_lines("found", handover.found), _lx_lines("left", handover.left)
        text = [*extracts, *self.entry, *found, *body, *left, "return"]
        lines += ["\t\t" + line for line in text]
        lines += ["\t}", "}", ""]
        superdscs = {f"sdsc_{i}.json": superdsc for i, superdsc in enumerate(self.superdscs)}
        return BundleFiles("bundle", "\n".join(lines), superdscs)

    def _ordered_parameters(self) -> dict[int, str]:
        return dict(sorted(self.parameters.items()))

    def _entries(self, kernel: Sequence[KernelEntry], loops: list[_Loop]) -> list[str]:
        lines: list[str] = []
        for entry in kernel:
            if isinstance(entry, UnimplementedOp):
                raise Unsupported(f"the back end has no op {entry.op!r}")
            lines += (
                self._loop(entry, loops) if isinstance(entry, LoopSpec) else self._op(entry, loops)
            )
        return lines

    def _loop(self, loop: LoopSpec, loops: list[_Loop]) -> list[str]:
        number, self.loop_count = self.loop_count, self.loop_count + 1
        self._constant("%c0", 0)
        self._constant("%c1", 1)
        self._constant(f"%loop_bound_{number}", _count(loop))
        variable = f"%i_{number}"
        inner = self._entries(loop.body, [*loops, _Loop(variable, _tiled_symbols(loop))])
        head = f"scf.for {variable} = %c0 to %loop_bound_{number} step %c1 {{"
        return [head, *("\t" + line for line in inner), "}"]

    def _op(self, spec: OpSpec, loops: list[_Loop]) -> list[str]:
        plan = plan_op(spec, k_fast_emission=self.k_fast_emission)
        number = len(self.superdscs)
        lines: list[str] = []
        operands: list[str] = []
        ids: list[int] = []
        addresses: Addresses = baked_addresses(plan)
        symbolic = self.symbolic or bool(loops)
        if symbolic:
            addresses = self._symbols(plan, spec, loops, lines, operands, ids)
        self.superdscs.append(emit(plan, number, addresses, symbolic))
        symbols = f', "symbol_ids"=[{", ".join(map(str, ids))}]' if ids else ""
        lines.append(
            f"sdscbundle.sdsc_execute ({', '.join(operands)}) "
            f'{{sdsc_filename="sdsc_{number}.json"{symbols}}}'
        )
        return lines

    def _symbols(
        self,
        plan: OpPlan,
        spec: OpSpec,
        loops: list[_Loop],
        lines: list[str],
        operands: list[str],
        ids: list[int],
    ) -> Addresses:
        """Every address of the op becomes a symbol; equal ones of one op share it."""
        extents = {loop: extent for loop, (extent, _) in spec.iteration_space.items()}
        symbol_of: dict[tuple[str, tuple[int, ...]], int] = {}

        def addresses(tensor: Tensor) -> list[int]:
            arg = tensor.arg
            if arg.component == "lx":
                return [arg.address + offset for offset in plan.core_offsets(tensor)]
            strides = tuple(tile_strides(arg, extents, loop.tiled) for loop in loops)
            while strides and strides[0] == 0:
                strides = strides[1:]
            offsets = plan.core_offsets(tensor)
            symbol_at = {
                offset: symbol(self._base(arg, offset), strides)
                for offset in dict.fromkeys(offsets)
            }
            return [symbol_at[offset] for offset in offsets]

        def symbol(base: str, strides: tuple[int, ...]) -> int:
            key = (base, strides)
            if key in symbol_of:
                return symbol_of[key]
            value = base
            if strides:
                value = f"%addr_{self.address_count}"
                self.address_count += 1
                name = self.maps.setdefault(strides, f"#map_{len(self.maps)}")
                variables = ", ".join(loop.variable for loop in loops[-len(strides) :])
                lines.append(f"{value} = affine.apply {name}({variables})[{base}]")
            self.symbol_count += 1
            symbol_of[key] = -self.symbol_count
            operands.append(value)
            ids.append(-self.symbol_count)
            return -self.symbol_count

        return addresses

    def _base(self, arg: TensorArg, offset: int) -> str:
        """The name of an address that no loop changes."""
        if arg.component == "pool":
            pool, place = self._parameter(-1, "%pool"), arg.address + offset
            return self._sum(pool, f"%pool_addr_{place}", f"%pool_offset_{place}", place)
        if not self.symbolic or arg.arg_index < 0:
            return self._constant(f"%sym_{arg.address + offset}", arg.address + offset)
        name = self._parameter(arg.arg_index, f"%arg_{arg.arg_index}")
        offset += arg.address % SEGMENT_BYTES  # where the tile of an unrolled loop begins
        if offset == 0:
            return name
        return self._sum(name, f"{name}_core_{offset}", f"{name}_core_offset_{offset}", offset)

    def _parameter(self, argument: int, name: str) -> str:
        return self.parameters.setdefault(argument, name)

    def _sum(self, base: str, name: str, offset_name: str, offset: int) -> str:
        if name not in self.known:
            constant = self._constant(offset_name, offset)
            self._define(name, f"arith.addi {base}, {constant}")
        return name

    def _constant(self, name: str, value: int) -> str:
        if name not in self.known:
            self._define(name, f"arith.constant {value}")
        return name

    def _define(self, name: str, value: str) -> None:
        self.entry.append(f"{name} = {value} : {INDEX}")
        self.known.add(name)
