"""Writing a SuperDSC: the JSON that tells the back end one op, core by core."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch_spyre._C import DataFormats, encode_constant
from torch_spyre._inductor.codegen.superdsc_plan import (
    PRESENT,
    REDUCED_STICK,
    OpPlan,
    Tensor,
)
from torch_spyre._inductor.kernel_ir import number_key
from torch_spyre.backend.constants import decode_constant
from torch_spyre.partition.dims import Dim

Json = dict[str, Any]

# Where each core finds a tensor: a number, or the id of a symbol the bundle gives a value.
Addresses = Callable[[Tensor], list[int]]

# Entries of an OpSpec's op_info that go into the attributes of the op.
EXTENSIONS = ("compute", "narrow")

# What padding lanes count as in a masked reduction.
MASK_VALUES = {"max": -math.inf, "min": math.inf}


def baked_addresses(plan: OpPlan) -> Addresses:
    """Addresses as numbers, the same in every run."""
    return lambda tensor: [tensor.arg.address + offset for offset in plan.core_offsets(tensor)]


def emit(plan: OpPlan, index: int, addresses: Addresses, symbolic: bool) -> Json:
    """The SuperDSC of one op; ``index`` is its number in the bundle."""
    cores = range(plan.num_cores)
    return {
        f"{index}_{plan.opfunc}": {
            "sdscFoldProps_": [_fold(1, "time")],
            "sdscFolds_": {
                "dim_prop_func": [_affine(1)],
                "dim_prop_attr": [_fold(1, "time")],
                "data_": {"[0]": "0"},
            },
            "coreFoldProp_": _fold(plan.num_cores, "core"),
            "coreletFoldProp_": _fold(1, "corelet"),
            "numCoresUsed_": plan.num_cores,
            "coreIdToDsc_": {str(core): 0 for core in cores},
            "numWkSlicesPerDim_": {dim.label: dim.splits for dim in plan.dims},
            "coreIdToWkSlice_": {str(core): mine for core, mine in enumerate(plan.slices)},
            "coreIdToDscSchedule": {str(core): [[-1, 0, 0, 0]] for core in cores},
            "dscs_": [{plan.opfunc: _dsc(plan, addresses, symbolic)}],
        }
    }


def _dsc(plan: OpPlan, addresses: Addresses, symbolic: bool) -> Json:
    masked = plan.masked
    steady = {f"{dim.label}_": dim.chunk for dim in plan.dims}
    epilogue = {f"{dim.label}_": dim.last_chunk for dim in plan.dims}
    dsc: Json = {
        "numCoresUsed_": plan.num_cores,
        "numCoreletsUsed_": 1,
        "coreIdsUsed_": list(range(plan.num_cores)),
        "N_": {"name_": "n"} | {f"{dim.label}_": dim.extent for dim in plan.dims},
        "coordinateMasking_": {label: [list(parts)] for label, parts in masked.items()},
        "maskingConstId_": 0 if masked else -1,
        # Ours: what of a padded dimension counts. The card then leaves the padding alone.
        "validSize_": {dim.label: dim.size for dim in plan.dims if dim.size < dim.extent},
        "dataStageParam_": {
            "0": {"ss_": {"name_": "core"} | steady, "el_": {"name_": "core"} | epilogue}
        },
        "primaryDsInfo_": {
            layout.label: {
                "layoutDimOrder_": layout.dims,
                "stickDimOrder_": [layout.stick],
                "stickSize_": [layout.stick_size],
            }
            for layout in plan.layouts
        },
        "scheduleTree_": [
            _allocate(plan, i, addresses, symbolic) for i in range(len(plan.tensors))
        ],
        "labeledDs_": [_labeled(i, tensor) for i, tensor in enumerate(plan.tensors)],
        "constantInfo_": _constants(plan),
        "computeOp_": [_compute_op(plan)],
    }
    return dsc


def _allocate(plan: OpPlan, index: int, addresses: Addresses, symbolic: bool) -> Json:
    tensor = plan.tensors[index]
    in_lx = tensor.arg.component == "lx"
    component = "lx" if in_lx else "hbm"
    dims = {dim.label: dim for dim in plan.dims}
    node: Json = {
        "nodeType_": "allocate",
        "name_": f"allocate-Tensor{index}_{component}",
        "prev_": "",
        "ldsIdx_": index,
        "component_": component,
    }
    if symbolic and not in_lx:
        node["isStartAddrSymbolic_"] = 1
    node["layoutDimOrder_"] = tensor.dims
    node["maxDimSizes_"] = [_max_dim_size(plan, tensor, label) for label in tensor.layout.dims]
    node |= _indirection(plan, index)
    node["startAddressCoreCorelet_"] = {
        "dim_prop_func": [{"Map": {}}, {"Const": {}}, {"Const": {}}],
        "dim_prop_attr": [
            _fold(plan.cores_with(tensor), "core"),
            _fold(1, "corelet"),
            _fold(1, "time"),
        ],
        "data_": {f"[{core}, 0, 0]": str(place) for core, place in enumerate(addresses(tensor))},
    }
    if tensor.gap:
        cores = [str(core) for core in range(plan.num_cores)] if in_lx else ["-1"]
        node["backGapCore_"] = {
            label: {core: str(gap) for core in cores} for label, gap in tensor.gap.items()
        }
    if tensor.device_extent:  # ours: a gap alone does not say on which side it is
        node["deviceExtent_"] = tensor.device_extent
    if tensor.lane:  # ours: a slice that begins inside a stick
        node["laneOffset_"] = tensor.lane
    if tensor.states_strides:  # ours: elements from index to index, or from stick to stick
        present = [label for label in tensor.dims if tensor.scale[label] == PRESENT]
        node["strides_"] = {label: tensor.stride[label] for label in present}
    node["coordinates_"] = {
        "coordInfo": {
            label: _coord_info(tensor, tensor.cut(dims[label]))
            for label in tensor.layout.dims
            if label in dims
        },
        # Of a tensor in the scratchpads of other cores: which part each of them has.
        "coreIdToWkSlice_": {str(core): dict(mine) for core, mine in enumerate(tensor.held_slices)},
    }
    return node


def _max_dim_size(plan: OpPlan, tensor: Tensor, label: str) -> int:
    """1 for a dimension visited through indices whose own index tensor is short there, else -1."""
    if label not in tensor.indirect_dims:
        return -1
    index = plan.tensors[tensor.index_tensors[0]]
    # The first of the dimensions an index tensor counts is the one the values give up.
    return 1 if index.dims and label == index.dims[0] else -1


def _indirection(plan: OpPlan, index: int) -> Json:
    if not any(tensor.is_index for tensor in plan.tensors):
        return {}
    tensor = plan.tensors[index]
    if tensor.is_index:
        users = [i for i, other in enumerate(plan.tensors) if index in other.index_tensors]
        related = {"relatedIndirectAccessAlloc_": f"allocate-Tensor{users[0]}_hbm"} if users else {}
        return {"indirectAllocType_": "index_tensor"} | related | {"indexTensorType_": "index"}
    if tensor.index_tensors:
        return {
            "indirectAllocType_": "value_tensor",
            "relatedIndirectAccessAlloc_": f"allocate-Tensor{tensor.index_tensors[0]}_hbm",
            # Ours: what indices may be, and how far apart they lead.
            "indirectExtent_": tensor.indirect_extent,
            "indirectStride_": tensor.indirect_stride,
        }
    return {"indirectAllocType_": "no_indirection"}


def _coord_info(tensor: Tensor, dim: Dim) -> Json:
    scale = tensor.scale.get(dim.label, PRESENT)
    size = dim.chunk if scale == PRESENT else 1
    splits = dim.splits if scale == PRESENT else 1
    elems = tensor.elems_per_stick
    folds = [_fold(splits, "core_fold"), _fold(1, "corelet_fold"), _fold(1, "row_fold")]
    if dim.label != tensor.layout.stick:
        alphas = [size, 0, 0, 1]
        folds += [_fold(size, "elem_arr_0")]
    else:
        whole = scale == REDUCED_STICK  # one value stands for the stick
        alphas = [elems if whole else size, 0, 0, elems, 0 if whole else 1]
        sticks = 1 if whole else math.ceil(size / elems)
        folds += [_fold(sticks, "elem_arr_1"), _fold(elems, "elem_arr_0")]
    return {
        "spatial": 3,
        "temporal": 0,
        "elemArr": len(alphas) - 3,
        "padding": "nopad",
        "folds": {
            "dim_prop_func": [_affine(alpha) for alpha in alphas],
            "dim_prop_attr": folds,
        },
    }


def _labeled(index: int, tensor: Tensor) -> Json:
    if tensor.arg.component == "lx":
        memories = ["lx"]
    else:
        memories = ["hbm"] if tensor.is_index else ["hbm", "lx"]
    return {
        "ldsIdx_": index,
        "dsName_": f"Tensor{index}",
        "dsType_": tensor.layout.label,
        "scale_": [tensor.scale.get(label, PRESENT) for label in tensor.layout.dims],
        "wordLength": tensor.element_bytes,
        "dataFormat_": _format_name(tensor),
        "memOrg_": {memory: {"isPresent": 1} for memory in memories},
    }


def _format_name(tensor: Tensor) -> str:
    return "SENUINT32" if tensor.is_index else tensor.arg.device_dtype.name


def _constants(plan: OpPlan) -> Json | str:
    constants = dict(plan.spec.constants)
    entries = []
    if plan.masked:
        entries.append(("samv-maskvalue", MASK_VALUES.get(plan.spec.op, 0.0)))
    entries += list(constants.items())
    if not entries:
        return "{}"
    formats = [_constant_format(value, _compute_format(plan)) for _, value in entries]
    return {
        str(i): {
            "dataFormat_": formats[i].name,
            "name_": name,
            "data_": {
                "dim_prop_func": [{"Const": {}}, {"Const": {}}, {"Map": {}}],
                "dim_prop_attr": [
                    _fold(plan.num_cores, "core"),
                    _fold(1, "corelet"),
                    _fold(1, "time"),
                ],
                "data_": {"[0, 0, 0]": [encode_constant(value, formats[i])]},
            },
        }
        for i, (name, value) in enumerate(entries)
    }


def _constant_format(value: float, format: DataFormats) -> DataFormats:
    """The op's own if it holds the value: a slope of 0.01 has more digits than DLFloat16."""
    held = decode_constant(encode_constant(value, format), format)
    return format if number_key(held) == number_key(float(value)) else DataFormats.IEEE_FP32


def _compute_format(plan: OpPlan) -> DataFormats:
    """Of the first value tensor."""
    return next(tensor.arg.device_dtype for tensor in plan.tensors if not tensor.is_index)


def _compute_op(plan: OpPlan) -> Json:
    last = len(plan.tensors) - 1
    attributes: Json = {"dataFormat_": _compute_format(plan).name, "fidelity_": "regular"}
    # Ours: formats do not tell integers from floats, nor booleans from either.
    info = plan.spec.op_info
    attributes |= {f"{key}_": info[key] for key in EXTENSIONS if key in info}
    op: Json = {
        "exUnit": "pt" if plan.is_matmul else "sfp",
        "opFuncName": plan.opfunc,
        "attributes_": attributes,
        "location": "Inner",
        "inputLabeledDs": [f"Tensor{i}-idx{i}" for i in plan.input_indices],
        "outputLabeledDs": [f"Tensor{last}-idx{last}"],
    }
    indices = [i for i, tensor in enumerate(plan.tensors) if tensor.is_index]
    if indices:
        op["indirectAccessIndexLabeledDs"] = [f"Tensor{i}-idx{i}" for i in indices]
    return op


def _fold(factor: int, label: str) -> Json:
    return {"factor_": factor, "label_": label}


def _affine(alpha: int) -> Json:
    return {"Affine": {"alpha_": alpha, "beta_": 0}}
