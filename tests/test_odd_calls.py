"""Several hundred odd calls in one process; every native function with arguments of wrong types.

None may end the process, and after each the device must still do its work. `odd_calls` lists the
calls: expressions over the names made in RUNNER.
"""

import json
from pathlib import Path

import torch  # noqa: F401  (has the libraries that _C needs)
from subprocesses import fresh

from torch_spyre import _C

CALLS = Path(__file__).with_name("odd_calls")

RUNNER = """
import copy, io, json, os, pickle, sys, types, warnings
warnings.simplefilter("ignore")
import numpy as np
import torch, torch.nested, torch.utils.dlpack
from torch import UntypedStorage, device
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_spyre import _C as C
from torch_spyre._C import DataFormats as Formats, SpyreTensorLayout as Layout

SPYRE, half = "spyre", torch.float16

def saved(thing):
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return file

def try_(call):
    try:
        return call()
    except Exception as error:
        return error

class subclass(torch.Tensor):
    def __new__(cls, tensor):
        return tensor.as_subclass(cls)

class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls):
        return torch.Tensor._make_wrapper_subclass(cls, (3, 4), dtype=half, device="spyre")
    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise RuntimeError("not implemented")

calls = json.load(open(CALLS))
for number, call in enumerate(calls):
    cpu = torch.arange(12, dtype=half).reshape(3, 4)
    x = cpu.to("spyre")
    lay = Layout([3, 4], half)
    with FakeTensorMode():
        fake = torch.empty(3, 4, device="spyre", dtype=half)
    wrapper = Wrapper()
    print("started", number, flush=True)
    try:
        str(eval(call))
        outcome = "returned"
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"
    print("ended", json.dumps([number, outcome[:300]]), flush=True)
    torch.spyre.set_device(0)
    torch.spyre.set_stream(torch.spyre.default_stream())
    check = torch.arange(70, dtype=torch.int32)
    assert torch.equal(check.to("spyre").cpu(), check), f"the device is broken after {call}"
print("all done")
"""


def outcomes(calls: list[str], path) -> dict[str, str]:
    """What became of each call; fails, naming the call, if the process died."""
    path.write_text(json.dumps(calls))
    result = fresh(f"CALLS = {str(path)!r}\n{RUNNER}", timeout=120, SPYRE_SOFT_CARDS=2)
    lines = result.stdout.splitlines()
    started = [int(line.split()[1]) for line in lines if line.startswith("started ")]
    assert lines[-1:] == ["all done"], (
        f"the process died (code {result.returncode}) in or after:\n  {calls[started[-1]]}\n"
        f"{result.stderr[-2000:]}"
    )
    ended = [json.loads(line[6:]) for line in lines if line.startswith("ended ")]
    return {calls[number]: outcome for number, outcome in ended}


def expressions(file: str) -> list[str]:
    lines = (CALLS / file).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_no_odd_call_ends_the_process_and_bad_ones_raise(tmp_path):
    refused, odd = expressions("must_raise.txt"), expressions("may_raise.txt")
    found = outcomes(refused + odd, tmp_path / "calls.json")
    assert [call for call in refused if found[call] == "returned"] == []
    systematic = ("SystemError", "MemoryError", "UnicodeDecodeError")
    assert [call for call, outcome in found.items() if outcome.startswith(systematic)] == []


NATIVE_ARGUMENTS = """
None, -1, 0, 1, 2**31, 2**63, 1.5, "x", b"x", [], [1, 2], (), {}, object(), torch.ones(2),
torch.ones(2, device="spyre"), torch.empty(2, device="meta"), half, torch.float64,
torch.device("spyre"), torch.device("cpu"), lay, Formats.IEEE_FP32, Formats(99),
torch.Stream("cpu"), torch.Event("spyre"), torch.Generator(), print,
"""


# Called by nobody but the package itself: these end the use of the device or occupy it for long.
NOT_TRIED = {"_mark_bad_fork", "_shutdown", "_sleep"}


def test_no_native_function_can_be_crashed_by_arguments_of_wrong_types(tmp_path):
    """Every function and class of _C, with every kind of argument in every place."""
    names = [name for name in dir(_C) if not name.startswith("__") and callable(getattr(_C, name))]
    places = (
        "(v,), (v, v), (v, v, v), (v, v, v, v), (v, v, v, v, v), (x, v), (v, x), (x, [3], [1], v), "
        "(v, lay, half), ([3], v, half), ([3], lay, v), ([3], [1], half, v), (v, [1], half, lay), "
        "(x, [3], [1], 0, v), (x, [3], v, 0, lay), (x, v, [1], 0, lay), (v, [3], [1], 0, lay)"
    )
    values = " ".join(NATIVE_ARGUMENTS.split())
    calls = [
        f"[try_(lambda: C.{name}(*a)) for v in [{values}] for a in [(), {places}]] and None"
        for name in names
        if name not in NOT_TRIED
    ]
    assert len(calls) > 40
    outcomes(calls, tmp_path / "calls.json")
