"""Reading a SuperDSC: JSON in, a :class:`DeviceOp` out, every field checked on the way."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch_spyre._C import DataFormats
from torch_spyre.backend.constants import decode_constant
from torch_spyre.backend.errors import MalformedBundle
from torch_spyre.machine import load as load_machine
from torch_spyre.ops.table import OPS, Op
from torch_spyre.partition.demand import Touch
from torch_spyre.partition.dims import STICK_BYTES, Cut, Dim, Slices

PRESENT, REDUCED, REDUCED_STICK = 1, -1, -2
# Formats that device memory can hold, with the elements of a stick.
FORMATS = {
    name: (DataFormats.__members__[name], entry.elems_per_stick)
    for name, entry in load_machine().formats.items()
    if entry.elems_per_stick and name in DataFormats.__members__
}
CORES = int(load_machine().value("card.cores"))
CARD_BYTES = int(load_machine().value("memory.default_card_bytes"))
NONSTICK = "nonstick"
CORE_NAMES = [f"[{core}, 0, 0]" for core in range(CORES)]


class Reader:
    """One JSON value. What is missing or of another kind is refused by its path."""

    __slots__ = ("file", "key", "parent", "value")

    def __init__(
        self, file: str, value: Any, parent: Reader | None = None, key: str | int = ""
    ) -> None:
        self.file, self.value, self.parent, self.key = file, value, parent, key

    @property
    def path(self) -> str:
        if self.parent is None:
            return ""
        if isinstance(self.key, int):
            return f"{self.parent.path}[{self.key}]"
        return f"{self.parent.path}.{self.key}".lstrip(".")

    def refuse(self, why: str) -> MalformedBundle:
        return MalformedBundle(self.file, self.path or "top level", why)

    def __getitem__(self, key: str | int) -> Reader:
        by_number = isinstance(key, int)
        if not isinstance(self.value, list if by_number else dict):
            raise self.refuse(f"expected {'a list' if by_number else 'an object'}")
        inside: Any = self.value
        try:
            return Reader(self.file, inside[key], self, key)
        except (KeyError, IndexError):
            raise Reader(self.file, None, self, key).refuse("is missing") from None

    def __contains__(self, key: str) -> bool:
        return isinstance(self.value, dict) and key in self.value

    def get(self, key: str) -> Reader | None:
        if key not in self:
            return None
        return self[key]

    def integer(self, lowest: int = -CARD_BYTES, highest: int = CARD_BYTES) -> int:
        """A whole number, or one in quotes; none of ours is beyond the bytes of a card."""
        value = self.value
        if isinstance(value, str) and len(value) < 20 and value.lstrip("-").isdecimal():
            value = int(value.lstrip("-")) * (-1 if value[0] == "-" else 1)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.refuse(f"expected a whole number, found {self.value!r}")
        if not lowest <= value <= highest:
            raise self.refuse(f"{value} is not in {lowest}..{highest}")
        return value

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.refuse(f"expected text, found {self.value!r}")
        return self.value

    def fields(self) -> list[tuple[str, Reader]]:
        if not isinstance(self.value, dict):
            raise self.refuse("expected an object")
        return [(key, Reader(self.file, value, self, key)) for key, value in self.value.items()]

    def entries(self) -> list[Reader]:
        if not isinstance(self.value, list):
            raise self.refuse("expected a list")
        return [Reader(self.file, value, self, i) for i, value in enumerate(self.value)]

    def texts(self) -> list[str]:
        return [entry.text() for entry in self.entries()]

    def only_field(self) -> tuple[str, Reader]:
        fields = self.fields()
        if len(fields) != 1:
            raise self.refuse(f"expected one entry, found {len(fields)}")
        return fields[0]

    def only_entry(self) -> Reader:
        entries = self.entries()
        if len(entries) != 1:
            raise self.refuse(f"expected one entry, found {len(entries)}")
        return entries[0]


@dataclass
class Tensor:
    """A tensor of the op. Strides count elements; that of the stick dimension is of a stick."""

    index: int
    format: DataFormats
    elems_per_stick: int
    component: str  # "hbm" or "lx"
    dims: list[str]  # innermost first
    stick: str
    scale: dict[str, int]
    stride: dict[str, int]  # 0 for dimensions it does not have
    start: list[int]  # one a core: bytes, or the negative id of a symbol
    symbolic: bool
    gathered: tuple[int, int] | None = None  # size and stride of the dimension indices choose from
    lane: int = 0  # of its first stick, where it begins
    held: Cut | None = None  # by other cores than those that want it

    def has(self, label: str) -> bool:
        return self.scale.get(label, 0) == PRESENT

    def along_stick(self, label: str) -> bool:
        return self.stick == label and self.has(label)

    def unit(self, label: str) -> int:
        """How many indices of a dimension one stride is."""
        return self.elems_per_stick if self.stick == label else 1

    @property
    def element_bytes(self) -> int:
        return STICK_BYTES // self.elems_per_stick


@dataclass
class DeviceOp:
    file: str
    op: Op
    dims: list[Dim]
    tensors: list[Tensor]  # inputs, then the output
    cores: int
    slices: Slices
    constants: dict[str, float] = field(default_factory=dict)
    exact: bool = False  # computes in integers
    narrow: str = ""  # what results are brought to: "bool", 0 or 1, "uint8", 8 bits, or nothing
    geometry: dict[int, Any] = field(default_factory=dict, repr=False)  # kept by places.py

    @property
    def output(self) -> Tensor:
        return self.tensors[-1]

    @property
    def exchanges(self) -> bool:
        """Whether cores take what they want from the scratchpads of others."""
        return any(tensor.held for tensor in self.tensors)

    def cut(self, tensor: Tensor) -> Cut:
        """How a tensor is cut, and which part of it each core has."""
        return tensor.held or Cut(self.dims, self.slices)

    @property
    def contracted(self) -> str | None:
        """The dimension K of a matrix product."""
        if self.op.kind != "matmul":
            return None
        weight, out = self.tensors[-2], self.tensors[-1]
        return next((label for label in weight.dims if label not in out.dims), None)

    @property
    def splits_k(self) -> bool:
        """Whether several cores, a cohort, share each part of a matrix product."""
        contracted = self.contracted
        return any(dim.label == contracted and dim.splits > 1 for dim in self.dims)


def touch_of(op: DeviceOp, tensor: Tensor) -> Touch:
    """What the op touches of a tensor: every index of an index tensor reads what it chooses."""
    dims = tensor.dims if tensor.gathered else ()
    labels = [d.label for d in op.dims if tensor.has(d.label)]
    labels += [label for label in dims if label not in labels and op.output.has(label)]
    return Touch(tensor.elems_per_stick, {label: tensor.unit(label) for label in labels})


# Core maps read before, by splits: the JSON, and what it means. Ops of a kernel share them.
CoreMaps = dict[tuple[tuple[str, int], ...], tuple[Any, Slices]]


def read_superdsc(
    file: str, document: Mapping[str, Any], known: CoreMaps | None = None
) -> DeviceOp:
    """The op a SuperDSC describes. Raises :class:`MalformedBundle`."""
    key, top = Reader(file, document).only_field()
    cores = top["numCoresUsed_"].integer(1, CORES)
    name, dsc = top["dscs_"].only_entry().only_field()
    if not key.endswith(f"_{name}"):
        raise top.refuse(f"is called {key!r}, but holds {name!r}")
    compute = dsc["computeOp_"].only_entry()
    op = _op(compute["opFuncName"])
    dims = _dims(top, dsc)
    if math.prod(dim.splits for dim in dims) != cores:
        raise top["numWkSlicesPerDim_"].refuse(f"the slices are not {cores}, the number of cores")
    slices = _slices(top["coreIdToWkSlice_"], dims, cores, {} if known is None else known)
    nodes = dsc["scheduleTree_"].entries()
    all_tensors = [_tensor(dsc, i, node, dims, cores) for i, node in enumerate(nodes)]
    target = _named(compute["outputLabeledDs"].only_entry(), all_tensors)
    listed = [_named(entry, all_tensors) for entry in compute["inputLabeledDs"].entries()]
    inputs = [tensor for tensor in listed if tensor is not target]  # reductions list it too
    if len(inputs) != op.inputs:
        raise compute["inputLabeledDs"].refuse(
            f"{op.name} takes {op.inputs} tensors, found {len(inputs)}"
        )
    if "indirectAccessIndexLabeledDs" in compute:
        inputs = [_index(compute["indirectAccessIndexLabeledDs"], all_tensors), *inputs]
        if op.name != "identity" or inputs[1].gathered is None or target.gathered:
            raise compute["opFuncName"].refuse(
                "index tensors are for identity: out = values[index]"
            )
    elif any(tensor.gathered for tensor in [*inputs, target]):
        raise compute.refuse(
            "values are chosen by indices, but indirectAccessIndexLabeledDs is missing"
        )
    if any(tensor.held for tensor in all_tensors):
        _check_exchange(op, inputs, target, nodes)
    attributes = compute["attributes_"]
    exact = bool(_attribute(attributes, "compute_", "int64"))
    if (exact and not op.int64) or (not exact and not op.fp32):
        raise attributes.refuse(f"{op.name} does not compute in {'int64' if exact else 'fp32'}")
    narrow = _attribute(attributes, "narrow_", "bool", "uint8")
    constants = _constants(dsc)
    return DeviceOp(file, op, dims, [*inputs, target], cores, slices, constants, exact, narrow)


def _check_exchange(op: Op, inputs: list[Tensor], target: Tensor, nodes: list[Reader]) -> None:
    source = inputs[0]
    where = nodes[source.index if source.held else target.index]["coordinates_"]
    field = where["coreIdToWkSlice_"]
    if op.name != "identity" or len(inputs) != 1 or not source.held or target.held:
        raise field.refuse("only the input of an identity comes from other cores")
    if {source.component, target.component} != {"lx"}:
        raise field.refuse("is for what goes from scratchpads to scratchpads")
    alike = [(t.format, t.stick, sorted(filter(t.has, t.dims)), t.lane) for t in (source, target)]
    if alike[0] != alike[1] or source.lane or source.gathered or target.gathered:
        raise field.refuse("on the way from core to core nothing changes but the slices")
    if len(set(source.start)) > 1 or len(set(target.start)) > 1:
        raise nodes[source.index]["startAddressCoreCorelet_"].refuse(
            "what cores take from each other lies at one address in all scratchpads"
        )


def _attribute(attributes: Reader, name: str, *known: str) -> str:
    field = attributes.get(name)
    if field is None:
        return ""
    if field.text() not in known:
        there_is = " and ".join(map(repr, known))
        raise field.refuse(f"{field.text()!r} is unknown, there is {there_is}")
    return field.text()


def _index(field: Reader, tensors: list[Tensor]) -> Tensor:
    tensor = _named(field.only_entry(), tensors)
    if tensor.format not in (DataFormats.SENUINT32, DataFormats.IEEE_INT32):
        raise field.refuse(f"indices of {tensor.format.name}: they have 32 bits")
    return tensor


def _op(field: Reader) -> Op:
    name = field.text()
    for candidate in (name, name.removesuffix(NONSTICK)):
        if candidate in OPS:
            return OPS[candidate]
    raise field.refuse(f"no op is called {name!r}; torch_spyre/ops/table.toml lists them")


def _dims(top: Reader, dsc: Reader) -> list[Dim]:
    dims = []
    full = dsc["N_"]
    stage = dsc["dataStageParam_"]["0"]
    valid = dsc.get("validSize_")
    masking = dsc["coordinateMasking_"]
    for label, splits in top["numWkSlicesPerDim_"].fields():
        extent = full[f"{label}_"].integer(0)
        chunk_field = stage["ss_"][f"{label}_"]
        chunk = chunk_field.integer(0)
        count = splits.integer(1, CORES)
        if not chunk * (count - 1) < max(extent, 1) <= max(chunk, 1) * count:
            raise chunk_field.refuse(f"{count} parts of {chunk} are not the {extent} of {label}")
        last = extent - chunk * (count - 1)
        if stage["el_"][f"{label}_"].integer(0) != last:
            raise stage["el_"][f"{label}_"].refuse(
                f"the last of {count} parts of {extent} is {last}, if the others are {chunk}"
            )
        size = extent
        if valid is not None and label in valid:
            size = valid[label].integer(0, extent)
        elif label in masking:
            size = masking[label][0][0].integer(0, extent)
        dims.append(Dim(label, extent, size, chunk, count))
    return dims


def _slices(table: Reader, dims: list[Dim], cores: int, known: CoreMaps) -> Slices:
    splits = tuple((dim.label, dim.splits) for dim in dims)
    if splits in known and known[splits][0] == table.value:
        return known[splits][1]
    slices = []
    seen = set()
    for core in range(cores):
        entry = table[str(core)]
        mine = {dim.label: entry[dim.label].integer(0, dim.splits - 1) for dim in dims}
        if tuple(mine.values()) in seen:
            raise entry.refuse("another core has the same part of every dimension")
        seen.add(tuple(mine.values()))
        slices.append(mine)
    known[splits] = table.value, Slices(slices)
    return known[splits][1]


def _tensor(dsc: Reader, index: int, node: Reader, dims: list[Dim], cores: int) -> Tensor:
    labeled = dsc["labeledDs_"][index]
    for each in (labeled, node):
        if each["ldsIdx_"].integer() != index:
            raise each["ldsIdx_"].refuse(f"tensors come in their order: expected {index}")
    layout = dsc["primaryDsInfo_"][labeled["dsType_"].text()]
    format_name = labeled["dataFormat_"].text()
    if format_name not in FORMATS:
        raise labeled["dataFormat_"].refuse(f"device memory has no format {format_name!r}")
    format, eps = FORMATS[format_name]
    if layout["stickSize_"].only_entry().integer() != eps:
        raise layout["stickSize_"].refuse(f"a stick of {format_name} has {eps} elements")
    component = node["component_"].text()
    if component not in ("hbm", "lx"):
        raise node["component_"].refuse(f"{component!r} is not a memory: hbm or lx")
    order, scale = _order_and_scale(node, labeled, layout, dims)
    stick = layout["stickDimOrder_"].only_entry().text()
    if stick not in order:
        raise layout["stickDimOrder_"].refuse(f"the tensor has no dimension {stick!r}")
    gathered = None
    indirect = _indirection(dsc, node)
    if indirect:
        if stick in indirect or not set(indirect) <= set(order):
            raise node["relatedIndirectAccessAlloc_"].refuse("indices choose whole sticks")
        # It is one dimension in memory, however many dimensions the index tensor has.
        gathered = node["indirectExtent_"].integer(1), node["indirectStride_"].integer(eps)
        scale |= dict.fromkeys(indirect, REDUCED)
    held = _held(node, order, scale, dims)
    if held is not None:
        cores = len(held.slices)
    stride = _strides(node, order, scale, stick, eps, held.dims if held else dims)
    reach = eps + sum(
        (math.ceil(dim.extent / (eps if dim.label == stick else 1)) - 1) * stride.get(dim.label, 0)
        for dim in dims
    )
    if gathered:
        reach += (gathered[0] - 1) * gathered[1]
    if reach * STICK_BYTES // eps > CARD_BYTES:
        raise node["layoutDimOrder_"].refuse(f"a tensor of {reach} elements fits on no card")
    symbolic = "isStartAddrSymbolic_" in node and node["isStartAddrSymbolic_"].integer(0, 1) == 1
    if symbolic and component == "lx":
        raise node["isStartAddrSymbolic_"].refuse("scratchpad addresses are numbers")
    start = _starts(node["startAddressCoreCorelet_"]["data_"], cores, symbolic)
    lane = 0
    if "laneOffset_" in node:
        present = scale.get(stick) == PRESENT
        along = next(dim.size for dim in dims if dim.label == stick) if present else 1
        lane = node["laneOffset_"].integer(0, max(0, eps - along))
    return Tensor(
        index, format, eps, component, order, stick, scale, stride, start, symbolic, gathered, lane,
        held,
    )  # fmt: skip


def _held(node: Reader, order: list[str], scale: dict[str, int], dims: list[Dim]) -> Cut | None:
    """How other cores have the tensor: their slices, and from the folds how large these are."""
    coordinates = node.get("coordinates_")
    table = coordinates.get("coreIdToWkSlice_") if coordinates else None
    if coordinates is None or table is None or not table.value:
        return None
    count = len(table.fields())
    if count > CORES:
        raise table.refuse(f"{count} cores, the card has {CORES}")
    present = {label for label in order if scale[label] == PRESENT}
    found = []
    for dim in dims:
        if dim.label not in present:
            continue
        folds = coordinates["coordInfo"][dim.label]["folds"]
        splits = folds["dim_prop_attr"][0]["factor_"].integer(1, CORES)
        chunk_field = folds["dim_prop_func"][0]["Affine"]["alpha_"]
        chunk = chunk_field.integer(min(1, dim.extent))
        if not chunk * (splits - 1) < max(dim.extent, 1) <= max(chunk, 1) * splits:
            raise chunk_field.refuse(
                f"{splits} parts of {chunk} are not the {dim.extent} of {dim.label}"
            )
        found.append(Dim(dim.label, dim.extent, dim.size, chunk, splits))
    slices = []
    for core in range(count):
        entry = table[str(core)]
        slices.append({dim.label: entry[dim.label].integer(0, dim.splits - 1) for dim in found})
    if len({tuple(mine.values()) for mine in slices}) != math.prod(dim.splits for dim in found):
        raise table.refuse("the cores do not have all parts of the tensor")
    return Cut(found, Slices(slices))


def _indirection(dsc: Reader, node: Reader) -> list[str]:
    """The dimensions of the index tensor that chooses from this one, if any."""
    if "indirectAllocType_" not in node or node["indirectAllocType_"].text() != "value_tensor":
        return []
    name = node["relatedIndirectAccessAlloc_"].text()
    for other in dsc["scheduleTree_"].entries():
        if other["name_"].text() == name:
            return other["layoutDimOrder_"].texts()
    raise node["relatedIndirectAccessAlloc_"].refuse(f"there is no {name!r}")


def _order_and_scale(
    node: Reader, labeled: Reader, layout: Reader, dims: list[Dim]
) -> tuple[list[str], dict[str, int]]:
    order = node["layoutDimOrder_"].texts()
    known = {dim.label for dim in dims}
    for entry in node["layoutDimOrder_"].entries():
        if entry.value not in known:
            raise entry.refuse(f"the op has no dimension {entry.value!r}")
    layout_order = layout["layoutDimOrder_"].texts()
    if len(set(order)) != len(order) or sorted(order) != sorted(layout_order):
        raise node["layoutDimOrder_"].refuse(f"is not an order of {layout_order}, its layout")
    scales = [entry.integer(REDUCED_STICK, PRESENT) for entry in labeled["scale_"].entries()]
    if len(scales) != len(layout_order) or 0 in scales:
        raise labeled["scale_"].refuse(f"expected 1, -1 or -2 for each of {layout_order}")
    return order, dict(zip(layout_order, scales, strict=True))


def _strides(
    node: Reader, order: list[str], scale: dict[str, int], stick: str, eps: int, dims: Sequence[Dim]
) -> dict[str, int]:
    """The strides as stated, or as they follow from the order and extents of the dimensions."""
    present = [label for label in order if scale[label] == PRESENT]
    stride = dict.fromkeys(order, 0)
    if "strides_" in node:
        for label in present:
            stride[label] = node["strides_"][label].integer(0)
            if stride[label] % eps:
                raise node["strides_"][label].refuse(f"is not a number of sticks of {eps}")
        return stride
    device = _device_extents(node, dims)
    span = eps
    for label in present:
        stride[label] = span
        span *= math.ceil(device[label] / eps) if label == stick else device[label]
    return stride


def _device_extents(node: Reader, dims: Sequence[Dim]) -> dict[str, int]:
    """How long the tensor in memory is, along every dimension. A scratchpad has a core's part."""
    in_lx = node["component_"].value == "lx"
    device = {dim.label: dim.chunk if in_lx else dim.extent for dim in dims}
    name = "deviceExtent_" if "deviceExtent_" in node else "backGapCore_"
    if name not in node:
        return device
    for label, entry in node[name].fields():
        if label not in device:
            raise entry.refuse(f"the op has no dimension {label!r}")
        if name == "deviceExtent_":
            device[label] = entry.integer(1)
        else:
            gaps = entry.fields()
            device[label] += gaps[0][1].integer(0) if gaps else 0
    return device


def _starts(data: Reader, cores: int, symbolic: bool) -> list[int]:
    lowest, highest = (-CARD_BYTES, -1) if symbolic else (0, CARD_BYTES)
    values = data.value
    try:  # as we write them; there are many
        start = [int(values[name]) for name in CORE_NAMES[:cores]]
        usual = all(type(values[name]) is str for name in CORE_NAMES[:cores])
    except (KeyError, TypeError, ValueError):
        usual, start = False, []
    if not usual or min(start) < lowest or max(start) > highest:
        start = [data[name].integer(lowest, highest) for name in CORE_NAMES[:cores]]
    for name, address in zip(CORE_NAMES, start, strict=False):
        if not symbolic and address % STICK_BYTES:
            raise data[name].refuse(f"{address} is not the address of a stick")
    return start


def _named(entry: Reader, tensors: list[Tensor]) -> Tensor:
    text = entry.text()
    for tensor in tensors:
        if text == f"Tensor{tensor.index}-idx{tensor.index}":
            return tensor
    raise entry.refuse(f"{text!r} names no tensor of the op")


def _constants(dsc: Reader) -> dict[str, float]:
    info = dsc["constantInfo_"]
    if info.value == "{}":
        return {}
    constants = {}
    for _, entry in info.fields():
        name = entry["dataFormat_"].text()
        if name not in FORMATS:
            raise entry["dataFormat_"].refuse(f"device memory has no format {name!r}")
        bits = entry["data_"]["data_"]["[0, 0, 0]"][0].integer(0, 0xFFFFFFFF)
        constants[entry["name_"].text()] = decode_constant(bits, FORMATS[name][0])
    return constants
