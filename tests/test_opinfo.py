"""Every op of PyTorch's database on the card, against the CPU.

An op is right natively, right through a warned fallback, or refused for a reason that
`opinfo_refused.toml` gives. `pytest tests/test_opinfo.py -n 2 --write-supported-operations` puts
what was found into `docs/supported-operations.md`.
"""

import opinfo
import pytest
import torch
from proof import Tolerance, Verdict, WrongResult, judge
from refusals import differences, groups, prove, small_and_quiet  # noqa: F401  (a fixture)


@pytest.mark.filterwarnings("ignore")  # samples use what PyTorch deprecates
@pytest.mark.parametrize("name", opinfo.OPS)
def test_op(name, record_property):
    op = opinfo.OPS[name]
    if not opinfo.dtypes(op):
        pytest.skip("takes none of float16, float32, int64 and bool on the CPU")
    verdicts = prove(
        "ops",
        name,
        opinfo.dtypes(op),
        lambda dtype, verdict: opinfo.run(op, dtype, verdict),
        lambda finding: record_property("operations", finding),
    )
    if all(verdict.word == "no sample" for verdict in verdicts):
        pytest.skip("no sample that is a dense tensor and that the CPU takes")


def test_the_list_names_ops_that_there_are():
    named = {name for group in groups("ops") for name in group.entries}
    named |= {entry.rsplit(" ", 1)[0] for entry in differences("ops")}
    assert named <= set(opinfo.OPS)
    assert all(group.reason.endswith(".") for group in groups("ops"))


# -------------------------------------------------------------------------------------- the judge


def on_card(x: torch.Tensor) -> bool:
    return x.device.type == "spyre"


WRONG = {
    "a value": lambda x: (
        x * (1 + 2**-7 if x.dtype == torch.float16 else 1 + 2**-16) if on_card(x) else x * 1.0
    ),
    "all values": lambda x: x * 1.01 if on_card(x) else x * 1.0,
    "one value": lambda x: torch.where(x == x.max(), x + 0.1, x) if on_card(x) else x + 0,
    "the shape": lambda x: x[None] + 0 if on_card(x) else x + 0,
    "the dtype": lambda x: x.bfloat16() if on_card(x) else x + 0,
    "the device": lambda x: x.cpu() + 0,
    "a view": lambda x: x[1:].clone() if on_card(x) else x[1:],
    "an argument changed": lambda x: x.add_(1) - 1 if on_card(x) else x + 0,
    "an argument not changed": lambda x: x + 1 if on_card(x) else x.add_(1) + 0,
    "the number of results": lambda x: (x + 0, x + 0) if on_card(x) else (x + 0,),
    "NaN": lambda x: x + float("nan") if on_card(x) else x + 0,
    "a Python number": lambda x: 2 if on_card(x) else 1,
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("what", WRONG)
def test_the_judge_finds_what_is_wrong(what, dtype):
    x = torch.linspace(-2, 2, 70).to(dtype)
    with pytest.raises(WrongResult):
        judge(WRONG[what], ((x,), {}), Verdict(), Tolerance())


def test_the_judge_says_how_it_went():
    x = torch.rand(3, 3) + torch.eye(3)
    native, fallback, refused = Verdict(), Verdict(), Verdict()
    judge(torch.exp, ((x,), {}), native)
    judge(torch.linalg.inv, ((x,), {}), fallback)
    judge(torch.linalg.eigvals, ((x,), {}), refused)
    assert (native.word, fallback.word, refused.word) == ("native", "fallback", "refused")
    assert fallback.fallbacks == {"aten::linalg_inv_ex.inverse"}
    assert "complex" in refused.refusals.pop()


def test_the_judge_takes_an_internal_error_for_no_refusal():
    def broken(x: torch.Tensor) -> torch.Tensor:
        if on_card(x):
            raise RuntimeError("INTERNAL ASSERT FAILED")
        return x

    with pytest.raises(RuntimeError, match="INTERNAL"):
        judge(broken, ((torch.ones(2),), {}), Verdict())
