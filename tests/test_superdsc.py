"""SuperDSCs of hand-made OpSpecs against the published golden numbers."""

import pytest
import sympy
import torch  # noqa: F401  (loads the libraries of _C)

from torch_spyre._C import DataFormats
from torch_spyre._inductor.codegen.bundle import make_bundle
from torch_spyre._inductor.op_spec import IndirectAccess, OpSpec, TensorArg, in_integers

c0, c1, c2, c3 = sympy.symbols("c0:4")
S1, S2 = 1 << 34, 2 << 34
FP16, FP32, INT32 = DataFormats.SEN169_FP16, DataFormats.IEEE_FP32, DataFormats.IEEE_INT32


def stick(symbol, elems=64):
    return sympy.floor(symbol / elems), sympy.Mod(symbol, elems)


def arg(index, size, coordinates, *, dtype=FP16, output=False, allocation=None, name=None):
    where = allocation or {"hbm": index * S1}
    coordinates = [sympy.sympify(c) for c in coordinates]
    return TensorArg(not output, index, dtype, size, coordinates, where, name=name)


def matrix(index, rows, columns, row=c0, column=c1, **options):
    outer, inner = stick(column)
    return arg(index, [-(-columns // 64), rows, 64], [outer, row, inner], **options)


def space(*entries):
    return {symbol: (sympy.Integer(extent), splits) for symbol, extent, splits in entries}


def emitted(spec):
    bundle = make_bundle([in_integers(spec)], symbolic=False)
    ((key, top),) = bundle.superdscs["sdsc_0.json"].items()
    ((opfunc, dsc),) = top["dscs_"][0].items()
    assert key == f"0_{opfunc}"
    return key, top, dsc


def starts(dsc, tensor):
    return [
        int(v) for v in dsc["scheduleTree_"][tensor]["startAddressCoreCorelet_"]["data_"].values()
    ]


def coord(dsc, tensor, dim):
    info = dsc["scheduleTree_"][tensor]["coordinates_"]["coordInfo"][dim]
    alphas = [f["Affine"]["alpha_"] for f in info["folds"]["dim_prop_func"]]
    return alphas, [f["factor_"] for f in info["folds"]["dim_prop_attr"]]


def test_pointwise_on_eight_cores():
    args = [matrix(0, 128, 256), matrix(1, 128, 256), matrix(2, 128, 256, output=True)]
    key, top, dsc = emitted(OpSpec("add", False, space((c0, 128, 4), (c1, 256, 2)), args))
    assert key == "0_add"
    assert top["numCoresUsed_"] == 8
    assert top["numWkSlicesPerDim_"] == {"mb": 4, "out": 2}
    assert [top["coreIdToWkSlice_"][str(c)] for c in (1, 4, 7)] == [
        {"mb": 1, "out": 0},
        {"mb": 0, "out": 1},
        {"mb": 3, "out": 1},
    ]
    assert dsc["N_"] == {"name_": "n", "mb_": 128, "out_": 256}
    assert dsc["dataStageParam_"]["0"]["ss_"] == {"name_": "core", "mb_": 32, "out_": 128}
    assert dsc["primaryDsInfo_"] == {
        "OUTPUT": {"layoutDimOrder_": ["mb", "out"], "stickDimOrder_": ["out"], "stickSize_": [64]}
    }
    assert [ds["scale_"] for ds in dsc["labeledDs_"]] == [[1, 1]] * 3
    assert starts(dsc, 0) == [0, 4096, 8192, 12288, 32768, 36864, 40960, 45056]
    assert coord(dsc, 1, "mb") == ([32, 0, 0, 1], [4, 1, 1, 32])
    assert coord(dsc, 1, "out") == ([128, 0, 0, 64, 1], [2, 1, 1, 2, 64])
    (op,) = dsc["computeOp_"]
    assert (op["exUnit"], op["opFuncName"]) == ("sfp", "add")
    assert op["inputLabeledDs"] == ["Tensor0-idx0", "Tensor1-idx1"]
    assert op["outputLabeledDs"] == ["Tensor2-idx2"]
    assert dsc["constantInfo_"] == "{}"
    assert dsc["maskingConstId_"] == -1


def test_partial_sticks_are_padded_without_masking():
    args = [matrix(i, 128, 200, output=i == 2) for i in range(3)]
    _, _, dsc = emitted(OpSpec("add", False, space((c0, 128, 1), (c1, 200, 1)), args))
    assert dsc["N_"]["out_"] == 256
    assert dsc["dataStageParam_"]["0"]["ss_"]["out_"] == 256
    assert dsc["coordinateMasking_"] == {}
    assert not any("backGapCore_" in node for node in dsc["scheduleTree_"])


def test_broadcast_row():
    bias = arg(1, [1, 4, 64], [0, *stick(c1)])
    args = [matrix(0, 128, 256), bias, matrix(2, 128, 256, output=True)]
    _, _, dsc = emitted(OpSpec("add", False, space((c0, 128, 4), (c1, 256, 2)), args))
    assert dsc["scheduleTree_"][1]["layoutDimOrder_"] == ["out", "mb"]
    assert dsc["labeledDs_"][1]["dsType_"] == "OUTPUT"
    assert dsc["labeledDs_"][1]["scale_"] == [-1, 1]
    assert starts(dsc, 1) == [S1] * 4 + [S1 + 256] * 4
    assert coord(dsc, 1, "mb") == ([1, 0, 0, 1], [1, 1, 1, 1])
    assert coord(dsc, 1, "out") == ([128, 0, 0, 64, 1], [2, 1, 1, 2, 64])


def test_broadcast_column():
    column = arg(1, [1, 128, 64], [0, c0, 0])
    args = [matrix(0, 128, 256), column, matrix(2, 128, 256, output=True)]
    _, _, dsc = emitted(OpSpec("sub", False, space((c0, 128, 4), (c1, 256, 1)), args))
    assert dsc["labeledDs_"][1]["scale_"] == [1, -2]
    assert dsc["scheduleTree_"][1]["layoutDimOrder_"] == ["mb", "out"]
    assert starts(dsc, 1) == [S1 + 4096 * core for core in range(4)]
    assert coord(dsc, 1, "out") == ([64, 0, 0, 64, 0], [1, 1, 1, 1, 64])


def test_broadcast_scalar():
    scalar = arg(1, [1, 1, 64], [0, 0, 0])
    args = [matrix(0, 128, 256), scalar, matrix(2, 128, 256, output=True)]
    _, _, dsc = emitted(OpSpec("mul", False, space((c0, 128, 4), (c1, 256, 2)), args))
    assert dsc["labeledDs_"][1]["scale_"] == [-1, -2]
    assert starts(dsc, 1) == [S1] * 8


@pytest.mark.parametrize(("op", "mask"), [("sum", 0.0), ("max", -float("inf"))])
def test_reduction_along_the_stick_masks_the_tail(op, mask):
    from torch_spyre._C import encode_constant

    args = [matrix(0, 128, 200), arg(1, [1, 128, 64], [0, c0, 0], output=True)]
    key, _, dsc = emitted(OpSpec(op, True, space((c0, 128, 4), (c1, 200, 1)), args))
    assert key == f"0_{op}"
    assert dsc["N_"]["out_"] == 256
    assert dsc["coordinateMasking_"] == {"out": [[200, 56]]}
    assert dsc["maskingConstId_"] == 0
    constant = dsc["constantInfo_"]["0"]
    assert constant["name_"] == "samv-maskvalue"
    assert constant["data_"]["data_"] == {"[0, 0, 0]": [encode_constant(mask, FP16)]}
    (compute,) = dsc["computeOp_"]
    assert compute["inputLabeledDs"] == ["Tensor0-idx0", "Tensor1-idx1"]
    assert compute["outputLabeledDs"] == ["Tensor1-idx1"]
    assert dsc["labeledDs_"][1]["scale_"] == [1, -2]
    assert starts(dsc, 0) == [4096 * core for core in range(4)]
    assert starts(dsc, 1) == [S1 + 4096 * core for core in range(4)]


def test_reduction_across_sticks():
    args = [matrix(0, 128, 256), arg(1, [1, 4, 64], [0, *stick(c1)], output=True)]
    key, _, dsc = emitted(OpSpec("sum", True, space((c1, 256, 4), (c0, 128, 1)), args))
    assert key == "0_sumnonstick"
    layout = dsc["primaryDsInfo_"]["OUTPUT"]
    assert layout["layoutDimOrder_"] == ["out", "mb"]
    assert layout["stickDimOrder_"] == ["mb"]
    assert starts(dsc, 0) == [16384 * core for core in range(4)]
    assert starts(dsc, 1) == [S1 + 128 * core for core in range(4)]
    assert dsc["labeledDs_"][1]["scale_"] == [-1, 1]
    assert dsc["coordinateMasking_"] == {}


def test_matmul_with_split_k():
    x = matrix(0, 128, 192, row=c0, column=c2)
    y = matrix(1, 192, 256, row=c2, column=c1)
    out = matrix(2, 128, 256, row=c0, column=c1, output=True)
    spec = OpSpec("batchmatmul", True, space((c0, 128, 4), (c1, 256, 2), (c2, 192, 3)), [x, y, out])
    _, top, dsc = emitted(spec)
    assert top["numCoresUsed_"] == 24
    assert dsc["N_"] == {"name_": "n", "mb_": 128, "out_": 256, "in_": 192}
    assert dsc["dataStageParam_"]["0"]["ss_"] == {
        "name_": "core",
        "mb_": 32,
        "out_": 128,
        "in_": 64,
    }
    assert top["coreIdToWkSlice_"]["17"] == {"mb": 17 // 3 % 4, "out": 17 // 12 % 2, "in": 17 % 3}
    orders = {
        k: (v["layoutDimOrder_"], v["stickDimOrder_"]) for k, v in dsc["primaryDsInfo_"].items()
    }
    assert orders == {
        "INPUT": (["mb", "in"], ["in"]),
        "KERNEL": (["in", "out"], ["out"]),
        "OUTPUT": (["mb", "out"], ["out"]),
    }
    assert starts(dsc, 0)[:5] == [0, 16384, 32768, 4096, 20480]
    assert starts(dsc, 1)[:5] == [S1, S1 + 8192, S1 + 16384, S1, S1 + 8192]
    assert starts(dsc, 2)[:4] == [S2, S2, S2, S2 + 4096]
    assert dsc["computeOp_"][0]["exUnit"] == "pt"
    assert dsc["computeOp_"][0]["inputLabeledDs"] == ["Tensor0-idx0", "Tensor1-idx1"]


def test_matmul_widens_k_to_whole_sticks():
    x = matrix(0, 128, 100, row=c0, column=c2)
    y = arg(1, [1, 128, 64], [sympy.floor(c1 / 64), c2, sympy.Mod(c1, 64)])
    out = matrix(2, 128, 64, row=c0, column=c1, output=True)
    spec = OpSpec("batchmatmul", True, space((c0, 128, 1), (c1, 64, 1), (c2, 100, 1)), [x, y, out])
    _, _, dsc = emitted(spec)
    assert dsc["N_"]["in_"] == 128
    assert dsc["dataStageParam_"]["0"]["ss_"]["in_"] == 128
    assert not any("backGapCore_" in node for node in dsc["scheduleTree_"])


def test_batched_matmul_dim_order():
    batch, m, n, k = c0, c1, c2, c3
    x = arg(0, [64, 1, 2, 64], [m, sympy.floor(k / 64), batch, sympy.Mod(k, 64)])
    y = arg(1, [64, 1, 2, 64], [k, sympy.floor(n / 64), batch, sympy.Mod(n, 64)])
    out = arg(2, [64, 1, 2, 64], [m, sympy.floor(n / 64), batch, sympy.Mod(n, 64)], output=True)
    sizes = space((batch, 2, 1), (m, 64, 1), (n, 64, 1), (k, 64, 1))
    _, top, dsc = emitted(OpSpec("batchmatmul", True, sizes, [x, y, out]))
    assert list(top["numWkSlicesPerDim_"]) == ["x", "mb", "out", "in"]
    assert dsc["primaryDsInfo_"]["INPUT"]["layoutDimOrder_"] == ["x", "in", "mb"]


def test_restickify_of_unaligned_rows():
    source = matrix(0, 100, 128)
    target = arg(1, [2, 128, 64], [sympy.floor(c0 / 64), c1, sympy.Mod(c0, 64)], output=True)
    spec = OpSpec("ReStickifyOpHBM", False, space((c0, 100, 1), (c1, 128, 2)), [source, target])
    _, top, dsc = emitted(spec)
    assert dsc["N_"] == {"name_": "n", "mb_": 128, "out_": 128}
    assert top["numCoresUsed_"] == 2
    assert dsc["primaryDsInfo_"]["OUTPUT"]["layoutDimOrder_"] == ["mb", "out"]
    assert dsc["primaryDsInfo_"]["KERNEL"] == {
        "layoutDimOrder_": ["out", "mb"],
        "stickDimOrder_": ["mb"],
        "stickSize_": [64],
    }
    assert dsc["scheduleTree_"][0]["backGapCore_"] == {"mb": {"-1": "28"}}
    assert starts(dsc, 0) == [0, 12800]
    assert starts(dsc, 1) == [S1, S1 + 8192]


def test_rows_in_the_middle_of_a_tensor():
    source = arg(0, [1, 128, 64], [sympy.floor(c1 / 64), c0 + 32, sympy.Mod(c1, 64)])
    target = matrix(1, 64, 64, output=True)
    _, _, dsc = emitted(OpSpec("exp", False, space((c0, 64, 2), (c1, 64, 1)), [source, target]))
    assert starts(dsc, 0) == [4096, 8192]
    assert dsc["scheduleTree_"][0]["backGapCore_"] == {"mb": {"-1": "64"}}
    assert dsc["dataStageParam_"]["0"]["ss_"]["mb_"] == 32


def test_scratchpad_addresses_are_the_same_on_every_core():
    source = matrix(-1, 128, 64, allocation={"lx": 0})
    target = matrix(-1, 128, 64, allocation={"lx": 8192}, output=True)
    _, _, dsc = emitted(OpSpec("exp", False, space((c0, 128, 4), (c1, 64, 1)), [source, target]))
    assert starts(dsc, 0) == [0] * 4
    assert starts(dsc, 1) == [8192] * 4
    assert dsc["scheduleTree_"][0]["component_"] == "lx"
    assert dsc["labeledDs_"][0]["memOrg_"] == {"lx": {"isPresent": 1}}


def test_conversion_of_one_dimension_gets_a_unit_dim():
    source = arg(0, [2, 64], stick(c0))
    target = arg(1, [4, 32], stick(c0, 32), dtype=FP32, output=True)
    _, _, dsc = emitted(OpSpec("dl16tofp32", False, space((c0, 128, 1)), [source, target]))
    assert dsc["N_"] == {"name_": "n", "mb_": 1, "out_": 128}
    sizes = {label: info["stickSize_"] for label, info in dsc["primaryDsInfo_"].items()}
    assert sizes == {"OUTPUT": [64], "KERNEL": [32]}


def test_topk_across_sticks():
    source = arg(0, [1, 256, 64], [0, c2, sympy.Mod(c0, 64)])
    target = arg(1, [1, 4, 64], [0, c1, sympy.Mod(c0, 64)], output=True)
    sizes = space((c0, 64, 1), (c1, 4, 1), (c2, 256, 1))
    _, _, dsc = emitted(OpSpec("topkvalue", True, sizes, [source, target]))
    assert dsc["N_"] == {"name_": "n", "mb_": 64, "x_": 4, "out_": 256}
    assert dsc["primaryDsInfo_"]["OUTPUT"]["layoutDimOrder_"] == ["out", "mb"]
    assert dsc["primaryDsInfo_"]["KERNEL"]["layoutDimOrder_"] == ["x", "mb"]
    assert dsc["computeOp_"][0]["inputLabeledDs"] == ["Tensor0-idx0"]


def test_gather_names_its_index_tensor():
    index = arg(
        0, [1, 6, 3, 32], [0, sympy.floor(c1 / 32), c0, sympy.Mod(c1, 32)], dtype=INT32, name="i"
    )
    where = IndirectAccess(sympy.Symbol("i"))
    value = arg(1, [1, 4, 128, 64], [0, sympy.floor(c2 / 64), where, sympy.Mod(c2, 64)])
    out = arg(2, [4, 192, 3, 64], [sympy.floor(c2 / 64), c1, c0, sympy.Mod(c2, 64)], output=True)
    sizes = space((c0, 3, 1), (c1, 192, 1), (c2, 256, 1))
    _, _, dsc = emitted(OpSpec("identity", False, sizes, [index, value, out]))
    assert dsc["N_"] == {"name_": "n", "mb_": 3, "x_": 192, "out_": 256}
    assert dsc["primaryDsInfo_"]["KERNEL_IDX"] == {
        "layoutDimOrder_": ["mb", "x"],
        "stickDimOrder_": ["x"],
        "stickSize_": [32],
    }
    assert dsc["primaryDsInfo_"]["OUTPUT"]["layoutDimOrder_"] == ["mb", "x", "out"]
    assert dsc["labeledDs_"][0]["dataFormat_"] == "SENUINT32"
    assert dsc["scheduleTree_"][1]["maxDimSizes_"] == [1, -1, -1]
    (op,) = dsc["computeOp_"]
    assert op["inputLabeledDs"] == ["Tensor1-idx1"]
    assert op["indirectAccessIndexLabeledDs"] == ["Tensor0-idx0"]
