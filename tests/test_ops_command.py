"""`python -m torch_spyre ops`: what it says is what happens."""

import json
import warnings

import pytest
import torch

from torch_spyre.__main__ import main
from torch_spyre.ops.fallbacks import fallback_counts, reset_fallback_counts
from torch_spyre.ops.table import OPS
from torch_spyre.tools.operations import (
    COMPOSITE,
    FALLBACK,
    NATIVE,
    REFUSED,
    device_dtypes,
    operations,
    totals,
    way,
)


def printed(capsys, *arguments: str) -> str:
    assert main(["ops", *arguments]) == 0
    return capsys.readouterr().out


def as_json(capsys, *arguments: str) -> dict:
    return json.loads(printed(capsys, "--json", *arguments))


def test_every_aten_op_is_listed_once():
    listed = [overload for operation in operations() for overload in operation.overloads]
    names = {name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names()
             if name.startswith("aten::")}  # fmt: skip
    assert len(listed) == len(set(listed))
    assert set(listed) == names


@pytest.mark.parametrize(
    ("overload", "expected"),
    [
        ("mm", NATIVE),
        ("add.Tensor", NATIVE),  # structured: its kernel is registered for add.out
        ("add_.Tensor", NATIVE),
        ("_softmax", NATIVE),
        ("view", NATIVE),
        ("softmax.int", COMPOSITE),
        ("linalg_inv", COMPOSITE),
        ("linalg_inv_ex", FALLBACK),
        ("geqrf", FALLBACK),
        ("linalg_matrix_rank", FALLBACK),  # has a kernel of ours, which goes to the CPU
        ("_fused_adagrad_", REFUSED),  # has a kernel of ours, which says no
        ("cudnn_convolution", REFUSED),
    ],
)
def test_ways(overload, expected):
    assert way(overload) == expected


def test_what_is_said_to_fall_back_does():
    x = torch.eye(3, device="spyre")
    for call, overload in [
        (lambda: torch.geqrf(x), "geqrf"),
        (lambda: torch.linalg.inv_ex(x), "linalg_inv_ex.inverse"),
        (lambda: torch.special.airy_ai(x), "special_airy_ai.out"),
    ]:
        assert way(overload) == FALLBACK
        reset_fallback_counts()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
        assert fallback_counts() == {f"aten::{overload}": 1}


def test_what_is_said_to_be_native_is():
    x = torch.eye(3, device="spyre")
    reset_fallback_counts()
    for name in ("exp", "tanh", "neg", "floor", "sqrt", "mm", "maximum", "eq"):
        operation = next(o for o in operations(name) if o.name == name)
        assert operation.way == NATIVE
        function = getattr(torch, name)
        function(x, x) if name in ("mm", "maximum", "eq") else function(x)
    assert fallback_counts() == {}


def test_an_op_counts_by_its_own_kernels_and_names_the_exceptions():
    add = next(o for o in operations("add") if o.name == "add")
    assert set(add.overloads) >= {"add.Tensor", "add_.Tensor", "add.out", "add.Scalar"}
    assert (add.way, add.exceptions) == (NATIVE, {})
    for operation in operations():
        assert all(way != operation.way for way in operation.exceptions.values())


def test_counts_add_up():
    found = operations()
    counted = list(totals(found))
    assert sum(ops for _, ops, _ in counted) == len(found)
    assert sum(n for _, _, n in counted) == sum(len(o.overloads) for o in found)


def test_dtypes_are_those_that_tensors_can_have():
    dtypes = device_dtypes()
    assert {"float16", "bfloat16", "float32", "int64", "bool"} <= {
        n for n, ok in dtypes.items() if ok
    }
    assert not dtypes["float64"]
    assert not dtypes["complex64"]
    for name, there in dtypes.items():
        if there:
            assert torch.empty(2, dtype=getattr(torch, name), device="spyre").numel() == 2


def test_a_person_sees_tables_and_counts(capsys):
    text = printed(capsys)
    assert "ATen ops" in text
    assert "Counts" in text
    assert "--all shows them" in text
    assert "cudnn_convolution" not in text
    assert "cudnn_convolution" in printed(capsys, "--all")


def test_a_filter_shows_both_kinds_of_op(capsys):
    found = as_json(capsys, "softmax")
    assert found["aten"]["_softmax"] == {
        "way": "native",
        "overloads": {"_softmax": "native", "_softmax.out": "native"},
    }
    assert all("softmax" in name for name in [*found["aten"], *found["card"]])
    assert found["card"]["softmax"]["extension"]
    assert found["card"]["softmax"]["instead"] == OPS["softmax"].instead


def test_only_one_way(capsys):
    found = as_json(capsys, "--only", "fallback")
    assert found["card"] == {}
    assert {entry["way"] for entry in found["aten"].values()} == {"fallback"}
    assert "geqrf" in found["aten"]


def test_the_whole_op_table_is_there(capsys):
    assert set(as_json(capsys)["card"]) == set(OPS)


def test_extensions_and_public_functions_are_told_apart(capsys):
    text = printed(capsys, "--markdown", "cumsum")
    assert "extension; instead:" in text
    text = printed(capsys, "--markdown", "relufwd")
    assert "OpFunc for SEN169_FP16, IEEE_FP32" in text


def test_markdown_is_markdown(capsys):
    lines = printed(capsys, "--markdown", "exp").splitlines()
    assert lines[0] == "| op | on spyre | but |"
    assert lines[1] == "| --- | --- | --- |"


def test_a_name_that_no_op_has(capsys):
    assert main(["ops", "no_such_op"]) == 1
    assert "no op has 'no_such_op' in its name" in capsys.readouterr().err
