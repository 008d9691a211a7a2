"""Every op of PyTorch's database on the card, against the CPU.

An op is right natively, right through a warned fallback, or refused for a reason that
`opinfo_refused.toml` gives. `pytest tests/test_opinfo.py -n 2 --write-supported-operations` puts
what was found into `docs/supported-operations.md`.
"""

import opinfo
import pytest
import torch
from proof import Tolerance, Verdict, WrongResult, judge, name_of
from refusals import check_listed, differences, groups


@pytest.fixture(autouse=True, scope="module")
def _small_and_quiet():
    """Samples are tiny: a second thread of the CPU's would only spin."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.spyre.set_downcast_warning(False)
    yield
    torch.spyre.set_downcast_warning(True)
    torch.set_num_threads(threads)


@pytest.mark.filterwarnings("ignore")  # samples use what PyTorch deprecates
@pytest.mark.parametrize("name", opinfo.OPS)
def test_op(name, record_property):
    op = opinfo.OPS[name]
    if not opinfo.dtypes(op):
        pytest.skip("takes none of float16, float32, int64 and bool on the CPU")
    verdicts, wrong, found = [], {}, {}
    for dtype in opinfo.dtypes(op):
        verdict = Verdict()
        try:
            opinfo.run(op, dtype, verdict)
        except WrongResult as error:
            wrong[f"{name} {name_of(dtype)}"] = str(error)
        verdicts.append(verdict)
        found[name_of(dtype)] = "differs" if f"{name} {name_of(dtype)}" in wrong else verdict.word
    fallbacks = sorted({entry for verdict in verdicts for entry in verdict.fallbacks})
    record_property("operations", (name, found, fallbacks))

    listed = {entry for entry in differences("ops") if entry.rsplit(" ", 1)[0] == name}
    unexpected = {entry: text for entry, text in wrong.items() if entry not in listed}
    assert not unexpected
    assert listed == set(wrong), "no longer different: remove it from opinfo_refused.toml"
    check_listed("ops", name, verdicts)
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
