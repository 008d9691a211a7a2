"""Bundles that are not what they should be: refused with the file and the field."""

import copy
import itertools
import json
import re
from pathlib import Path

import pytest
import torch  # noqa: F401  (loads the libraries of _C)

from torch_spyre._C import _Program
from torch_spyre.backend.bundle import BundleFiles, bundle_files
from torch_spyre.backend.compiler import compile_bundle, compile_files
from torch_spyre.backend.errors import MalformedBundle

GOLDEN = Path(__file__).parent / "golden" / "bundles"
# What a field may hold instead. Some are legal in some places; then the program must load.
OTHERS = [None, 0, 1, -1, 7, 128, 1 << 36, 1 << 70, 1.5, True, "", "mb", "in", "-3", [], [1], {}]
# Parts of the format the back end has no use for, and all cores but the first and the last.
UNREAD = ("coordinates_", "sdscFolds_", "sdscFoldProps_", "dim_prop_attr", "dim_prop_func")


def paths(value, path=(), unread=UNREAD):
    """Every place in a JSON document."""
    if path:
        yield path
    if path and path[-1] in unread:
        return
    keys = list(value) if isinstance(value, dict) else []
    if isinstance(value, list):
        keys = list(range(len(value)))
    if len(keys) > 4 and all(re.fullmatch(r"\[?\d+(, 0, 0\])?", str(key)) for key in keys):
        keys = [keys[0], keys[-1]]
    for key in keys:
        yield from paths(value[key], (*path, key), unread)


def changed(document, path, change):
    document = copy.deepcopy(document)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    change(inner, path[-1])
    return document


def compiles_or_is_refused(files):
    """Anything but a program that loads, or a refusal, is an error of the test's."""
    try:
        binary = compile_files(files)
    except MalformedBundle as error:
        message = str(error)
    else:
        _Program(binary)
        return True
    assert files.where in message
    assert len(message.split(": ")) >= 3  # file, field, why
    return False


def with_superdsc(files, name, document):
    return BundleFiles(files.where, files.mlir, {**files.superdscs, name: document})


CASES = [("add", 0), ("matmul_split_k", 0), ("softmax", 0), ("softmax", 4), ("loop_baked", 0)]


@pytest.mark.parametrize(("bundle", "number"), [*CASES, ("exchange", 1)])
def test_every_field_missing_or_different(bundle, number):
    files = bundle_files(GOLDEN / bundle)
    name = f"sdsc_{number}.json"
    document = files.superdscs[name]
    others = itertools.cycle(OTHERS)
    outcomes = []
    unread = UNREAD if bundle != "exchange" else UNREAD[1:3]  # what other cores have is read
    for path in paths(document, unread=unread):
        missing = changed(document, path, lambda inner, key: inner.pop(key))
        outcomes.append(compiles_or_is_refused(with_superdsc(files, name, missing)))
        for other in itertools.islice(others, 5):
            different = changed(
                document,
                path,
                lambda inner, key, o=other: (
                    inner.update({key: o}) if isinstance(inner, dict) else inner.__setitem__(key, o)
                ),
            )
            outcomes.append(compiles_or_is_refused(with_superdsc(files, name, different)))
    assert outcomes.count(False) > len(outcomes) / 4


LINES = ["add", "loop", "loop_baked", "softmax", "broadcast", "../together/kernel_1"]


@pytest.mark.parametrize("bundle", LINES)
def test_every_line_missing_doubled_or_changed(bundle):
    files = bundle_files(GOLDEN / bundle)
    lines = files.mlir.split("\n")
    for i, line in enumerate(lines):
        texts = [lines[:i] + lines[i + 1 :], lines[: i + 1] + lines[i:], lines[:i]]
        numbers = list(re.finditer(r"\d+", line))
        for match in numbers:
            for other in ("", "0", "1", "3", "-1", "99999999999999999999", "x"):
                text = line[: match.start()] + other + line[match.end() :]
                texts.append([*lines[:i], text, *lines[i + 1 :]])
        texts.append([*lines[:i], line[: len(line) // 2], *lines[i + 1 :]])
        for text in texts:
            compiles_or_is_refused(BundleFiles(files.where, "\n".join(text), files.superdscs))


# ----------------------------------------------------------------------------------- single faults


def edited(bundle, edit, number=0):
    """A golden bundle whose SuperDSC was changed: (top level, DSC)."""
    files = bundle_files(GOLDEN / bundle)
    name = f"sdsc_{number}.json"
    document = copy.deepcopy(files.superdscs[name])
    (top,) = document.values()
    (dsc,) = top["dscs_"][0].values()
    edit(top, dsc)
    return with_superdsc(files, name, document)


def starts(dsc, tensor):
    return dsc["scheduleTree_"][tensor]["startAddressCoreCorelet_"]["data_"]


def refused(files, field, why):
    with pytest.raises(MalformedBundle) as caught:
        compile_files(files)
    assert re.search(field, str(caught.value)), caught.value
    assert re.search(why, str(caught.value)), caught.value


def test_missing_directory(tmp_path):
    with pytest.raises(MalformedBundle, match="Bundle not found"):
        compile_bundle(tmp_path / "nothing")


@pytest.mark.parametrize("name", ["sdsc_0.json", "a" * 300], ids=["missing", "too long"])
def test_missing_superdsc(name, tmp_path):
    text = (GOLDEN / "add" / "bundle.mlir").read_text()
    (tmp_path / "bundle.mlir").write_text(text.replace("sdsc_0.json", name))
    with pytest.raises(MalformedBundle, match=rf"line \d+: there is no file '{name}'"):
        compile_bundle(tmp_path)


@pytest.mark.parametrize("text", [b"{", b"", b"\xff\xfe", b"[" * 100_000, b"9" * 5000])
def test_bad_json(text, tmp_path):
    (tmp_path / "bundle.mlir").write_text((GOLDEN / "add" / "bundle.mlir").read_text())
    (tmp_path / "sdsc_0.json").write_bytes(text)
    with pytest.raises(MalformedBundle, match=r"sdsc_0\.json: (JSON|text|top level)"):
        compile_bundle(tmp_path)


def test_files_outside_of_the_bundle_are_not_read(tmp_path):
    (tmp_path / "secret.json").write_text(json.dumps({}))
    inner = tmp_path / "bundle"
    inner.mkdir()
    text = (GOLDEN / "add" / "bundle.mlir").read_text()
    (inner / "bundle.mlir").write_text(text.replace("sdsc_0.json", "../secret.json"))
    with pytest.raises(MalformedBundle, match="there is no file"):
        compile_bundle(inner)


def test_unknown_op():
    def edit(top, dsc):
        dsc["computeOp_"][0]["opFuncName"] = "frobnicate"

    refused(edited("add", edit), r"computeOp_\[0\]\.opFuncName", "no op is called 'frobnicate'")


def test_results_without_places():
    def edit(top, dsc):
        dsc["labeledDs_"][2]["scale_"] = [1, -2]

    refused(
        edited("broadcast", edit), r"labeledDs_\.2\.scale_", r"\d+ results along out and one place"
    )


@pytest.mark.parametrize("table", ["labeledDs_", "scheduleTree_"])
def test_tensors_out_of_order(table):
    def edit(top, dsc):
        dsc[table].insert(0, dsc[table][0])

    refused(edited("add", edit), rf"{table}\[1\]\.ldsIdx_", "expected 1")


def test_symbol_without_a_value():
    def edit(top, dsc):
        starts(dsc, 1)["[2, 0, 0]"] = "-99"

    refused(edited("add", edit), "startAddressCoreCorelet_", "symbol -99")


def test_parts_that_cut_sticks():
    def edit(top, dsc):
        dsc["dataStageParam_"]["0"] = {
            "ss_": {"name_": "core", "mb_": 34, "out_": 160},
            "el_": {"name_": "core", "mb_": 32, "out_": 96},
        }

    refused(edited("add", edit), r"dataStageParam_\.0\.ss_\.out_", "multiples of 64")


def test_wrong_epilogue():
    def edit(top, dsc):
        dsc["dataStageParam_"]["0"]["el_"]["mb_"] = 34

    refused(
        edited("add", edit), r"dataStageParam_\.0\.el_\.mb_", "the last of 3 parts of 100 is 32"
    )


def test_two_cores_with_one_slice():
    def edit(top, dsc):
        top["coreIdToWkSlice_"]["1"] = top["coreIdToWkSlice_"]["0"]

    refused(edited("add", edit), r"coreIdToWkSlice_\.1", "same part")


def test_two_cores_that_write_the_same_sticks():
    def edit(top, dsc):
        data = starts(dsc, 2)
        data["[1, 0, 0]"] = data["[0, 0, 0]"]

    refused(edited("add", edit), r"scheduleTree_\[2\]", "cores write overlapping parts")


def test_a_reduction_split_over_cores():
    def edit(top, dsc):
        top["numWkSlicesPerDim_"] = {"mb": 1, "out": 4}
        top["coreIdToWkSlice_"] = {str(core): {"mb": 0, "out": core} for core in range(4)}
        dsc["dataStageParam_"]["0"] = {
            "ss_": {"mb_": 100, "out_": 64},
            "el_": {"mb_": 100, "out_": 64},
        }

    files = edited("sum_along_stick", edit)
    refused(files, r"numWkSlicesPerDim_\.out", "only K of a matrix product")


def test_beyond_the_scratchpad():
    def edit(top, dsc):
        for core in range(4):
            starts(dsc, 1)[f"[{core}, 0, 0]"] = str((2 << 20) - 1024)

    refused(edited("softmax", edit), r"scheduleTree_\[1\]", "scratchpad, which has 2097152")


def test_scratchpad_buffers_that_overlap():
    def edit(top, dsc):  # exp: from 4096 to 4224
        for core in range(4):
            starts(dsc, 1)[f"[{core}, 0, 0]"] = "4224"

    refused(edited("softmax", edit, 2), r"scheduleTree_\[0\]", "another arrangement")


def test_scratchpads_nobody_has_written():
    def edit(top, dsc):
        for core in range(4):
            starts(dsc, 0)[f"[{core}, 0, 0]"] = str(1 << 20)

    refused(edited("softmax", edit, 2), r"scheduleTree_\[0\]", "no op before wrote")


def test_split_k_in_scratchpads():
    def edit(top, dsc):
        node = dsc["scheduleTree_"][2]
        node["component_"] = "lx"
        del node["isStartAddrSymbolic_"]
        starts(dsc, 2).update(dict.fromkeys(starts(dsc, 2), "0"))

    refused(edited("matmul_split_k", edit), r"numWkSlicesPerDim_\.in", "do not split K")


def test_an_output_that_overlaps_an_input():
    def edit(top, dsc):  # 4 x 4096 bytes of 128 rows: row 1 on instead of row 0
        for tensor in (0, 1):
            del dsc["scheduleTree_"][tensor]["isStartAddrSymbolic_"]
        for core in range(2):
            starts(dsc, 0)[f"[{core}, 0, 0]"] = str(core * 4096)
            starts(dsc, 1)[f"[{core}, 0, 0]"] = str(core * 4096 + 128)

    refused(edited("loop_baked", edit), r"scheduleTree_\[0\]", "another arrangement")


def test_more_tensors_than_segments():
    def edit(top, dsc):
        del dsc["scheduleTree_"][0]["isStartAddrSymbolic_"]
        for core in range(6):
            starts(dsc, 0)[f"[{core}, 0, 0]"] = str((7 << 34) + core * 128)

    refused(edited("add", edit), r"scheduleTree_\[0\]", "needs symbolic addresses")


def test_more_memory_than_a_core_reaches():
    def edit(top, dsc):
        dsc["scheduleTree_"][0]["deviceExtent_"] = {"mb": 1 << 21}

    refused(edited("add", edit), r"dataStageParam_\.0\.ss_", "it reaches 268435456")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("%loop_bound_0 = arith.constant 4", "%loop_bound_0 = arith.constant -4", "-4 iterations"),
        ("= %c0 to", "= %c1 to", "from 0 in steps of 1"),
        ("%loop_bound_0 step", "%arg_0 step", "not a constant"),
        ("(%i_0)", "(%i_7)", "not the variable of a loop around"),
        ("(%i_0)", "(%i_0, %i_0)", "has 1 dimensions, not 2"),
        ("#map_0(", "#map_9(", "no map is called #map_9"),
        ("%i_0 = ", "%arg_0 = ", "another meaning"),
    ],
)
def test_bad_loops(old, new, why):
    files = bundle_files(GOLDEN / "loop")
    assert old in files.mlir
    refused(BundleFiles("dir", files.mlir.replace(old, new), files.superdscs), r"line \d+", why)
