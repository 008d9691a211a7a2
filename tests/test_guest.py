"""Good manners: a program that does without the card cannot tell that the package is there.

`guest_program.py` is such a program. It runs with the package and without, and what can be seen of
the two runs is compared: calls, results, modules, and the objects under PyTorch's names. A program
that uses the card gets PyTorch's own objects, too, wherever that is possible.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from subprocesses import clean_environment, forked, fresh
from torch.overrides import TorchFunctionMode
from torch.testing._internal.two_tensor import TwoTensor

from torch_spyre._C import SpyreTensorLayout

PROGRAM = Path(__file__).with_name("guest_program.py")


@functools.cache
def runs(*options: str) -> tuple[dict, dict]:
    """What is seen of the program without the package, and with it."""
    with tempfile.TemporaryDirectory() as folder:

        def run(autoload: int) -> dict:
            out = Path(folder, f"{autoload}.json")
            environment = clean_environment(
                PYTHONHASHSEED=0,
                TORCHINDUCTOR_CACHE_DIR=Path(folder, f"inductor{autoload}"),
                TORCH_DEVICE_BACKEND_AUTOLOAD=autoload,
                UNROLL_LOOPS="banana",  # other people's variables
                MAX_BUCKETS="a dozen",
            )
            command = [sys.executable, str(PROGRAM), str(out), *options]
            subprocess.run(command, env=environment, check=True)
            return json.loads(out.read_text())

        with ThreadPoolExecutor(2) as pool:
            without, with_package = pool.map(run, (0, 1))
        return without, with_package


PARTS = ["eager", "compile"]

# What PyTorch and Python ask every device's module, or every finder, whatever a program does.
ASKED = {
    "manual_seed_all",
    "_is_in_bad_fork",
    "is_available",
    "__getattr__",  # for Inductor's names
    "_Finder.find_spec",  # for safetensors
}


# What Dynamo does in every process that has an accelerator, whichever: it knows current streams.
OF_ACCELERATORS = (
    "torch/accelerator/",
    "torch/_dynamo/graph_bytecode_inputs.py",
    "torch/_dynamo/variables/streams.py",
    "CurrentStreamSource",
    ":get_current_stream",
    ":get_device_module",
    ":_get_custom_mod_func",
    "PyCodegen.call_function",
    "OutputGraph.compile_and_call_fx_graph.<locals>.<lambda>",
)


def test_a_program_without_the_card_makes_the_same_calls():
    without, with_package = runs("eager")
    assert without["of_package"] == []
    assert set(with_package["of_package"]) <= ASKED
    pairs = enumerate(zip(without["calls"], with_package["calls"], strict=False))
    first = next(((i, *pair) for i, pair in pairs if pair[0] != pair[1]), None)
    assert first is None
    assert len(without["calls"]) == len(with_package["calls"]) > 1000


@pytest.mark.long
def test_a_program_without_the_card_is_compiled_by_the_same_functions():
    without, with_package = runs("compile")
    assert set(with_package["of_package"]) <= ASKED
    called, with_us = set(without["calls"]), set(with_package["calls"])
    assert called - with_us == set()
    more = {name for name in with_us - called if not any(part in name for part in OF_ACCELERATORS)}
    assert more == set()


@pytest.mark.parametrize("part", PARTS)
def test_a_program_without_the_card_sees_the_same(part):
    without, with_package = runs(part)
    assert with_package["seen"] == without["seen"]
    assert "function empty ['empty']" in with_package["seen"]
    assert "function to ['to']" in with_package["seen"]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("when", ["names", "names_after"])
def test_a_program_without_the_card_finds_pytorchs_own_objects(part, when):
    without, with_package = (seen[when] for seen in runs(part))
    assert without.keys() <= with_package.keys()
    changed = {name for name in without if with_package[name] != without[name]}
    assert changed == set()
    added = with_package.keys() - without.keys()
    ours = ("spyre", "_spyre", "device_tensor_layout")
    assert all(any(word in name for word in ours) for name in added), added


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("when", ["modules", "modules_after"])
def test_a_program_without_the_card_loads_the_same_modules(part, when):
    without, with_package = (set(seen[when]) for seen in runs(part))
    assert without <= with_package
    added = {name for name in with_package - without if "spyre" not in name}
    assert {name for name in added if name.split(".")[0] == "torch"} == set()
    assert not any("_inductor" in name for name in with_package if "spyre" in name)


def test_the_decorator_loads_no_compiler():
    code = """
        import json, sys, torch
        before = set(sys.modules)
        torch.compile(lambda x: x, backend="eager")
        print(json.dumps(sorted(set(sys.modules) - before)))
    """
    without = fresh(code, TORCH_DEVICE_BACKEND_AUTOLOAD=0).value
    assert [name for name in fresh(code).value if "spyre" not in name] == without


def test_variables_of_others_are_errors_for_graphs_of_the_card_only():
    code = """
        import torch
        import torch_spyre._inductor
        torch_spyre._inductor.config.sencores

        def double(x):
            return x * 2

        print(torch.compile(double, backend="eager")(torch.ones(2, device="spyre")).tolist())
        try:
            torch.compile(double)(torch.ones(2, device="spyre"))
        except RuntimeError as error:
            print(error)
    """
    output = fresh(code, UNROLL_LOOPS="banana").output
    assert output.startswith("[2.0, 2.0]")
    assert "invalid UNROLL_LOOPS value 'banana'" in output


# -------------------------------------------------------------------- with the card, in one process


class Asked(TorchFunctionMode):
    """What a mode is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: list[object] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.functions.append(func)
        return func(*args, **(kwargs or {}))


def test_modes_of_others_are_asked_about_pytorchs_functions():
    layout = SpyreTensorLayout([3], torch.float16)
    x = torch.ones(3, dtype=torch.float16, device="spyre")
    with Asked() as asked:
        torch.empty(3)
        x.to("cpu")
        torch.empty(3, dtype=torch.float16, device_layout=layout)
        x.to(device_layout=layout)
    assert asked.functions[0] is torch.empty
    assert torch.Tensor.to in asked.functions[:2]
    assert [func for func in asked.functions if func is torch.empty] == [torch.empty] * 2
    assert [func for func in asked.functions if func is torch.Tensor.to] == [torch.Tensor.to] * 2
    assert torch.empty is torch._C._VariableFunctions.empty
    assert torch.Tensor.to is torch._C.TensorBase.to


def test_a_mode_may_answer_for_a_layout():
    class Meta(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if kwargs.pop("device_layout", None) is not None:
                kwargs["device"] = "meta"
            return func(*args, **kwargs)

    with Meta():
        assert torch.empty(3, device_layout=SpyreTensorLayout([3], torch.float32)).is_meta


def test_no_layout_is_no_layout():
    assert torch.empty(3, device_layout=None).device.type == "cpu"
    assert torch.ones(3).to(torch.float16, device_layout=None).dtype == torch.float16


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.usefixtures("fresh_compiler")
def test_subclasses_around_tensors_of_the_card_are_compiled(backend):
    def double(x):
        return x * 2 + 1

    one = torch.arange(6.0).reshape(2, 3)
    x = TwoTensor(one.to("spyre"), (one + 1).to("spyre"))
    assert x.device_tensor_layout() is None
    got = torch.compile(double, backend=backend)(x)
    assert torch.equal(got.a.cpu(), double(one))
    assert torch.equal(got.b.cpu(), double(one + 1))


@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_module_of_the_cpu_is_called_in_pytorchs_way():
    called = []
    model = torch.nn.Linear(3, 2)
    compiled = torch.compile(model, backend="eager")

    def watch(frame, event, _):
        if event == "call":
            called.append(frame.f_code.co_qualname)

    compiled(torch.ones(1, 3))
    sys.setprofile(watch)
    compiled(torch.ones(1, 3))
    sys.setprofile(None)
    assert "Module._wrapped_call_impl" in called


def test_autoload_twice_is_harmless():
    code = """
        import torch, torch_spyre
        torch_spyre._autoload()
        torch_spyre._autoload()
        print(torch.ones(3, device="spyre").cpu().tolist())
    """
    result = forked(code)
    assert (result.value, result.stderr) == ([1, 1, 1], "")


def test_the_first_touch_may_be_a_compiled_factory():
    code = """
        import torch
        print(torch.compile(lambda: torch.ones(3, device="{device}") + 1)().cpu().tolist())
    """
    environment = {"TORCHINDUCTOR_CACHE_DIR": os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")}
    chosen = {name: value for name, value in environment.items() if value}
    for device in ("spyre", "spyre:0"):
        assert fresh(code.format(device=device), **chosen).value == [2, 2, 2]
