"""From an OpSpec to the facts a SuperDSC states: labelled dimensions, layouts, scales, core slices.

The rules are those of the public format: dimensions get labels by their place in the iteration
space, every tensor lists its dimensions from the innermost outwards, and a tensor's address on a
core follows from the slices of the dimensions it has.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from torch_spyre._inductor.constants import BATCH_MATMUL_OP, RESTICKIFY_OP
from torch_spyre._inductor.errors import Unsupported, about_op
from torch_spyre._inductor.op_spec import AnyCoordinate, OpSpec, TensorArg
from torch_spyre._inductor.views import Coordinate, Term
from torch_spyre.partition.dims import Cut, Dim, Slices, slices_of_cores

MATMUL_OPS = (BATCH_MATMUL_OP, "batchmatmulfp8")
TOPK_OPS = ("topkvalue", "topkindex")
DTYPE_OPS = ("dl16tofp32", "fp32todl16", "fp8todl16", "qfp8ch")

INPUT_DIM_LABELS = ("mb", "x", "y", "i", "j", "ki", "kj")
MATMUL_DIM_LABELS = ("ki", "kj", "y", "x", "mb", "out", "in")
LAYOUT_LABELS = ("OUTPUT", "KERNEL", "INPUT", "KERNEL_IDX")
MATMUL_LAYOUT_LABELS = ("INPUT", "KERNEL", "OUTPUT", "KERNEL_IDX")

# What a dimension is to a tensor.
PRESENT, REDUCED, REDUCED_STICK = 1, -1, -2


@dataclass
class Layout:
    """How tensors of one kind lie: dimensions from the innermost outwards."""

    label: str
    dims: list[str]
    stick: str
    stick_size: int


@dataclass
class Tensor:
    """One tensor of the op."""

    arg: TensorArg
    dims: list[str]  # its own order, innermost first; the dimensions it lacks come last
    layout: Layout
    scale: dict[str, int]
    stride: dict[str, int]  # elements from one index to the next; of the stick: to the next stick
    offset: int = 0  # elements
    gap: dict[str, int] = field(default_factory=dict)  # device elements beyond the iterated ones
    device_extent: dict[str, int] = field(default_factory=dict)  # where not the iterated one
    indirect_dims: list[str] = field(default_factory=list)  # visited through index tensors
    index_tensors: list[int] = field(default_factory=list)  # that say where
    indirect_extent: int = 0  # how many places there are to visit
    indirect_stride: int = 0  # and how far they are apart, in elements
    lane: int = 0  # of its first stick, where it begins
    states_strides: bool = False  # because dimensions and their extents alone mean others
    held: list[Dim] = field(default_factory=list)  # as other cores have them in LX, if they do

    @property
    def elems_per_stick(self) -> int:
        return self.arg.device_dtype.elems_per_stick()

    def unit(self, label: str) -> int:
        """How many indices of a dimension one stride is."""
        return self.elems_per_stick if label == self.layout.stick else 1

    @property
    def element_bytes(self) -> int:
        elems = self.elems_per_stick
        if elems > 128:
            raise Unsupported(
                f"{self.arg.device_dtype.name} packs {elems} elements into a stick: "
                "a SuperDSC cannot name elements below a byte (sub-byte dataformat)"
            )
        return 128 // elems

    @property
    def is_index(self) -> bool:
        return self.arg.name is not None

    @property
    def held_slices(self) -> Slices:
        """Which part each of the cores has that hold it, if others do than those that use it."""
        cuts = tuple((dim.label, dim.splits) for dim in self.held)
        return slices_of_cores(cuts) if cuts else Slices()

    def cut(self, dim: Dim) -> Dim:
        """A dimension as it is split over the cores that have the tensor."""
        return next((held for held in self.held if held.label == dim.label), dim)


@dataclass
class OpPlan:
    spec: OpSpec
    dims: list[Dim]
    layouts: list[Layout]
    tensors: list[Tensor]
    k_fast: bool  # cores that share a result tile are neighbours

    @functools.cached_property
    def num_cores(self) -> int:
        return math.prod(dim.splits for dim in self.dims)

    @property
    def is_matmul(self) -> bool:
        return self.spec.op in MATMUL_OPS

    @property
    def masked(self) -> dict[str, tuple[int, int]]:
        """Padded stick dimensions that are reduced: what counts, and the padding."""
        if not self.spec.is_reduction:
            return {}
        scale = self.tensors[-1].scale
        return {
            dim.label: (dim.size, dim.extent - dim.size)
            for dim in self.dims
            if dim.extent > dim.size and scale.get(dim.label) == REDUCED_STICK
        }

    @property
    def opfunc(self) -> str:
        """The op's name; reductions that leave the stick alone say so."""
        reduces = self.spec.is_reduction and not self.is_matmul and self.spec.op not in TOPK_OPS
        keeps_stick = REDUCED_STICK not in self.tensors[-1].scale.values()
        return self.spec.op + ("nonstick" if reduces and keeps_stick else "")

    @property
    def input_indices(self) -> list[int]:
        """Which tensors the op lists as inputs; a reduction lists its output too."""
        values = [i for i, tensor in enumerate(self.tensors) if not tensor.is_index]
        if self.spec.op in TOPK_OPS:
            return values[:1]
        return values if self.spec.is_reduction and not self.is_matmul else values[:-1]

    @functools.cached_property
    def slices(self) -> Slices:
        """Which slice of every dimension each core has."""
        order = [self.dims[-1], *self.dims[:-1]] if self.k_fast else self.dims
        slices = slices_of_cores(tuple((dim.label, dim.splits) for dim in order))
        return Slices({dim.label: mine[dim.label] for dim in self.dims} for mine in slices)

    def cores_with(self, tensor: Tensor) -> int:
        """How many cores have a part of a tensor."""
        return math.prod(dim.splits for dim in tensor.held) if tensor.held else self.num_cores

    def core_offsets(self, tensor: Tensor) -> list[int]:
        """Where each core's part begins, in bytes after the tensor's address."""
        if tensor.arg.component == "lx":  # every core has its part in its own
            return [tensor.offset * tensor.element_bytes] * self.cores_with(tensor)
        present = (label for label, scale in tensor.scale.items() if scale == PRESENT)
        units = {s: tensor.unit(s) for s in present if s not in tensor.indirect_dims}
        begins = Cut(self.dims, self.slices).begins(units, tensor.stride)
        return [(tensor.offset + begin) * tensor.element_bytes for begin in begins]


def plan_op(spec: OpSpec, *, k_fast_emission: bool = True) -> OpPlan:
    """All a SuperDSC says about ``spec``, which is in integers."""
    with about_op(spec):
        return _Planner(spec, k_fast_emission).plan()


class _Planner:
    def __init__(self, spec: OpSpec, k_fast_emission: bool) -> None:
        self.spec = spec
        self.matmul = spec.op in MATMUL_OPS
        self.k_fast_emission = k_fast_emission
        self.size = {loop: extent for loop, (extent, _) in spec.iteration_space.items()}
        self.splits = {loop: splits for loop, (_, splits) in spec.iteration_space.items()}
        self.args = list(spec.args)
        self.own_dims: dict[int, tuple[list[str], str | None]] = {}
        self._add_unit_dim()
        self.label = dict(zip(self.size, self._labels(len(self.size)), strict=True))
        self.ways = {self.label[loop]: splits for loop, splits in self.splits.items()}
        self.reference = self.args[0] if spec.is_reduction and not self.matmul else self.args[-1]

    def _add_unit_dim(self) -> None:
        """Conversions of one dimension get a second one, of size 1, in front."""
        if self.spec.op not in DTYPE_OPS or len(self.size) != 1:
            return
        unit = "mb_unit"
        counted = Coordinate(0, (Term(unit),))
        self.size = {unit: 1} | self.size
        self.splits = {unit: 1} | self.splits
        self.args = [
            replace(
                arg,
                device_size=[*arg.device_size[:-1], 1, arg.device_size[-1]],
                device_coordinates=[
                    *arg.device_coordinates[:-1],
                    counted,
                    arg.device_coordinates[-1],
                ],
            )
            for arg in self.args
        ]

    def _labels(self, count: int) -> tuple[str, ...]:
        if self.matmul:
            if count > len(MATMUL_DIM_LABELS):
                raise Unsupported(f"{self.spec.op} over {count} dimensions: at most 7 have labels")
            return MATMUL_DIM_LABELS[-count:]
        if count > len(INPUT_DIM_LABELS) + 1:
            raise Unsupported(f"{self.spec.op} over {count} dimensions: at most 8 have labels")
        return (*INPUT_DIM_LABELS[: count - 1], "out") if count else ()

    def _free_label(self) -> str:
        """Of a dimension that no loop counts along."""
        wanted = INPUT_DIM_LABELS[min(len(self.size), len(INPUT_DIM_LABELS) - 1)]
        if wanted in self.label.values():
            count = len(self.size) + 1
            raise Unsupported(f"{self.spec.op} over {count} dimensions: at most 8 have labels")
        return wanted

    def _own_dims(self, arg: TensorArg) -> tuple[list[str], str | None]:
        """A tensor's dimensions, innermost first, and the one its sticks run along."""
        if id(arg) not in self.own_dims:
            self.own_dims[id(arg)] = self._find_own_dims(arg)
        return self.own_dims[id(arg)]

    def _find_own_dims(self, arg: TensorArg) -> tuple[list[str], str | None]:
        sticks = [self.label[loop] for loop in self._in_order(arg.device_coordinates[-1].loops)]
        if len(sticks) > 1:
            raise Unsupported(
                f"{self.spec.op}: several loops in stick coordinate {arg.device_coordinates[-1]}"
            )
        stick = sticks[0] if sticks else None
        matrix = self._matrix_dims(arg)
        if stick is None and matrix:
            stick = matrix[-1]
        dims: list[str] = []
        for coordinate in reversed(arg.device_coordinates[:-1]):
            found = [self.label[loop] for loop in self._loops_of(coordinate)]
            if not found and stick and coordinate == Coordinate():
                found = [stick]
            dims += [dim for dim in found if dim not in dims]
        if stick and stick not in dims:
            dims.append(stick)
        return dims + [label for label in matrix if label not in dims], stick

    def _matrix_dims(self, arg: TensorArg) -> list[str]:
        """Dimensions that a matrix must name though no coordinate depends on them: of size 1."""
        if not self.matmul:
            return []
        *_, n, k = self.label.items()
        role = next(i for i, other in enumerate(self.args) if other is arg)
        wanted = {len(self.args) - 3: [k], len(self.args) - 2: [k, n]}.get(role, [n])
        return [label for loop, label in wanted if self.size[loop] == 1]

    def _loops_of(self, coordinate: AnyCoordinate) -> list[str]:
        """Loops of a coordinate; of an indirect one, those its index tensor is read by."""
        loops = {*coordinate.loops}
        for name in coordinate.index_tensors:
            index = self.args[self._index_tensor(name)]
            loops.update(*(each.loops for each in index.device_coordinates))
        return self._in_order(loops)

    def _in_order(self, loops: Collection[str]) -> list[str]:
        return [loop for loop in self.label if loop in loops]

    def _index_tensor(self, name: str) -> int:
        for i, arg in enumerate(self.args):
            if arg.name == name:
                return i
        raise Unsupported(f"{self.spec.op}: no index tensor is called {name!r}")

    def plan(self) -> OpPlan:
        sizes, op_stick = self._sizes()
        self.units = self._units(sizes)
        extents = self._padded(sizes, op_stick)
        dims = {
            label: Dim.of(label, size, self.ways.get(label, 1), self.units[label], extents[label])
            for label, size in sizes.items()
        }
        layouts: list[Layout] = []
        tensors = [self._tensor(arg, dims, op_stick, layouts) for arg in self.args]
        *_, last = dims.values()
        k_fast = self.matmul and self.k_fast_emission and len(dims) >= 3 and last.splits > 1
        return OpPlan(self.spec, [*dims.values()], layouts, tensors, k_fast)

    def _sizes(self) -> tuple[dict[str, int], str]:
        """What the op computes of every dimension, and the one its sticks run along: if that is no
        loop, a dimension more, of which one element counts in each stick."""
        sizes = {label: self.size[loop] for loop, label in self.label.items()}
        _, stick = self._own_dims(self.reference)
        if stick is None:
            stick = self._free_label()
            sizes[stick] = 1
        return sizes, stick

    def _units(self, sizes: dict[str, int]) -> dict[str, int]:
        """Of how many indices parts are multiples: sticks are not cut."""
        units = dict.fromkeys(sizes, 1)
        for arg in self.args:
            _, stick = self._own_dims(arg)
            if stick is not None:
                units[stick] = max(units[stick], arg.device_dtype.elems_per_stick())
        return units

    def _padded(self, sizes: dict[str, int], op_stick: str) -> dict[str, int]:
        """What is iterated: whole sticks where a deciding tensor has its stick."""
        op, extents = self.spec.op, dict(sizes)
        if op_stick not in self.label.values():
            extents[op_stick] = self.reference.device_dtype.elems_per_stick()
        if self.matmul or op == RESTICKIFY_OP or op in DTYPE_OPS:
            deciding = self.args
        else:
            deciding = [self.reference]
        for arg in deciding:
            _, stick = self._own_dims(arg)
            if stick is None:
                continue
            elems = arg.device_dtype.elems_per_stick()
            padded = math.ceil(extents[stick] / elems) * elems
            if padded != extents[stick] and op == RESTICKIFY_OP:
                self.ways[stick] = 1  # an uneven tail belongs to one core
            extents[stick] = padded
        return extents

    def _tensor(
        self, arg: TensorArg, dims: dict[str, Dim], op_stick: str, layouts: list[Layout]
    ) -> Tensor:
        own, stick = self._own_dims(arg)
        adds_missing = not self.matmul and self.spec.op not in TOPK_OPS and arg.name is None
        reduced = [label for label in dims if label not in own] if adds_missing else []
        scale = dict.fromkeys(own, PRESENT)
        for label in reduced:
            scale[label] = REDUCED_STICK if stick is None and label == op_stick else REDUCED
        if self.spec.op == "layernormscale" and arg is self.args[0] and stick is not None:
            scale[stick] = REDUCED_STICK

        order = own + reduced
        layout = self._layout(arg, order, stick or op_stick, layouts)
        tensor = Tensor(arg, order, layout, scale, {})
        tensor.held = [self._held(dims[self.label[loop]], n) for loop, n in arg.held.items()]
        self._strides(tensor, stick)
        if arg.component == "lx":
            self._pack(tensor, stick, dims)
        else:
            self._gaps(tensor, own, stick, dims)
        self._compare_strides(tensor, dims)
        for position, coordinate in enumerate(arg.device_coordinates):
            for name in coordinate.index_tensors:
                index = self._index_tensor(name)
                tensor.index_tensors.append(index)
                tensor.indirect_extent = arg.device_size[position]
                tensor.indirect_stride = math.prod(arg.device_size[position + 1 :])
                tensor.indirect_dims += [self.label[loop] for loop in self._loops_of(coordinate)]
        return tensor

    def _held(self, dim: Dim, splits: int) -> Dim:
        """A dimension as other cores have it."""
        return Dim.of(dim.label, dim.size, splits, self.units[dim.label], dim.extent)

    def _layout(
        self, arg: TensorArg, order: list[str], stick: str, layouts: list[Layout]
    ) -> Layout:
        elems = arg.device_dtype.elems_per_stick()
        wanted = "KERNEL_IDX" if arg.name is not None else None
        for layout in layouts:
            same = (layout.stick, layout.stick_size) == (stick, elems)
            if same and sorted(layout.dims) == sorted(order) and wanted in (None, layout.label):
                return layout
        labels = MATMUL_LAYOUT_LABELS if self.matmul else LAYOUT_LABELS
        taken = {layout.label for layout in layouts}
        free = [label for label in labels if label not in taken]
        if not free:
            raise Unsupported(
                f"{self.spec.op} reads and writes more than {len(labels)} different layouts"
            )
        layout = Layout(wanted or free[0], order, stick, elems)
        layouts.append(layout)
        return layout

    def _strides(self, tensor: Tensor, stick: str | None) -> None:
        """Where iterations lie in memory: an offset, and a stride for each dimension."""
        arg, elems = tensor.arg, tensor.elems_per_stick
        tensor.stride = dict.fromkeys(tensor.dims, 0)
        for position, coordinate in enumerate(arg.device_coordinates[:-1]):
            if coordinate.index_tensors:
                continue
            inner = math.prod(arg.device_size[position + 1 :])
            tensor.offset += coordinate.at({}) * inner
            for loop in self._in_order(coordinate.loops):
                label = self.label[loop]
                unit = elems if label == stick else 1
                count = math.ceil(self.size[loop] / unit)
                step = _step(coordinate, loop, unit, count)
                if step is None:
                    raise Unsupported(
                        f"{self.spec.op}: coordinate {coordinate} is not linear in {loop}; "
                        "copy the tensor to a layout of its own first"
                    )
                tensor.stride[label] += step * inner
        last = arg.device_coordinates[-1]
        if not last.index_tensors:
            tensor.lane = last.at({})
            extent = max((self.size[loop] for loop in last.loops), default=1)
            if tensor.lane and (self.matmul or tensor.lane + extent > elems):
                raise Unsupported(
                    f"{self.spec.op}: coordinate {last} begins inside a stick; "
                    "copy the tensor to a layout of its own first"
                )

    def _pack(self, tensor: Tensor, stick: str | None, dims: dict[str, Dim]) -> None:
        """A scratchpad has its core's part alone, in the order of the whole tensor. Of what is not
        split that is all there is, even where an op reads less."""
        span = tensor.elems_per_stick
        by_label = {self.label[loop]: size for loop, size in self.size.items()}
        left = [label for label, stride in tensor.stride.items() if stride]
        positions = zip(tensor.arg.device_size, tensor.arg.device_coordinates, strict=True)
        for size, coordinate in reversed([*positions][:-1]):
            labels = {self.label[loop] for loop in coordinate.loops}
            found = sorted((s for s in left if s in labels), key=tensor.stride.__getitem__)
            for label in found:
                tensor.stride[label] = span
                unit = tensor.elems_per_stick if label == stick else 1
                cut = tensor.cut(dims[label])
                part = math.ceil(min(cut.chunk, by_label[label]) / unit)
                span *= max(part, size) if len(labels) == cut.splits == 1 else part
            left = [label for label in left if label not in found]
            span *= 1 if labels else size

    def _compare_strides(self, tensor: Tensor, dims: dict[str, Dim]) -> None:
        """Whether the strides are those that follow from the tensor's dimensions and extents."""
        span = elems = tensor.elems_per_stick
        in_lx = tensor.arg.component == "lx"
        for label in tensor.dims:
            if tensor.scale[label] != PRESENT:
                continue
            whole = tensor.cut(dims[label]).chunk if in_lx else dims[label].extent
            extent = tensor.device_extent.get(label, whole)
            if math.ceil(whole / tensor.unit(label)) == 1:
                tensor.stride[label] = span  # one index only: any stride will do
            elif tensor.stride[label] != span:
                tensor.states_strides = True
            span *= math.ceil(extent / elems) if label == tensor.layout.stick else extent

    def _gaps(
        self, tensor: Tensor, own: list[str], stick: str | None, dims: dict[str, Dim]
    ) -> None:
        """Device extents beyond what is iterated: slices of a larger tensor, padded rows."""
        arg = tensor.arg
        elems = tensor.elems_per_stick
        states_gaps = not self.matmul and self.spec.op not in TOPK_OPS and arg.name is None
        for k, label in enumerate(own):
            position = len(arg.device_size) - 2 - k
            if position < 0:
                continue
            if arg.device_coordinates[position].index_tensors:
                continue
            device = arg.device_size[position] * (elems if label == stick else 1)
            extent = dims[label].extent
            iterated = math.ceil(extent / elems) * elems if label == stick else extent
            if device == iterated:
                continue
            tensor.device_extent[label] = device
            if device > iterated and states_gaps:
                tensor.gap[label] = device - iterated
            elif self.spec.op == RESTICKIFY_OP and label != stick:
                tensor.gap[label] = iterated - device


def _step(coordinate: AnyCoordinate, loop: str, unit: int, count: int) -> int | None:
    """How far a coordinate moves when a loop moves by ``unit``; None if not always as far."""
    zero = coordinate.at({})

    def moved(units: int) -> int:
        return coordinate.at({loop: unit * units}) - zero

    step = moved(1)
    return step if count <= 2 or all(moved(n) == n * step for n in (2, count - 1)) else None
