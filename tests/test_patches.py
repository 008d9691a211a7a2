"""PyTorch still needs every patch: a test fails here when it does without one, which can go then.

The patches are listed in `torch_spyre/patches/README.md`, each with its test. Some of these are
beside what the patch does, in other files.
"""

import contextlib
import dataclasses
import functools
import inspect
import re
import sys
import threading
import time
from pathlib import Path

import pytest
import safetensors
import safetensors.torch
import torch
from compiling import card, compiled
from subprocesses import forked, fresh
from torch._dynamo import guards, symbolic_convert
from torch._dynamo.callback import CallbackArgs
from torch._dynamo.testing import CompileCounter
from torch._inductor import compile_fx, ir
from torch._inductor import config as inductor_config
from torch._inductor.codegen.common import register_backend_for_device
from torch._inductor.fx_passes import joint_graph

from torch_spyre import patches
from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor.compile import CompileFallbackWarning
from torch_spyre.patches import tracing
from torch_spyre.patches.replacing import replaced, replaced_items


@pytest.fixture(autouse=True)
def nothing_compiled_yet():
    torch._dynamo.reset()
    with inductor_config.patch(force_disable_caches=True):
        yield


def test_the_list_names_every_file_and_tests_that_exist():
    folder = Path(patches.__file__).parent
    text = (folder / "README.md").read_text()
    files = {path.name for path in folder.glob("*.py")} - {"__init__.py"}
    assert files <= set(re.findall(r"`(\w+\.py)`", text))
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert set(re.findall(r"`(test_\w+)`", text)) <= set(
        re.findall(r"^def (test_\w+)", tests, re.M)
    )


# ----------------------------------------------------------------- from when PyTorch is imported

WITHOUT_THE_PACKAGE = """
    import json, types, torch

    asked, facts = [], {}

    class Device(types.ModuleType):
        def __getattr__(self, name):
            asked.append(name)
            raise AttributeError(name)

    class Model(torch.nn.Linear):
        def _apply(self, *args):
            facts["asked before a move"] = list(asked)
            return self

    def refused(call):
        try:
            call()
        except Exception as error:
            return type(error).__name__

    torch.utils.rename_privateuse1_backend("other")
    torch._register_device_module("other", Device("torch.other"))
    facts["empty"] = refused(lambda: torch.empty(1, device="other", device_layout=None))
    facts["to"] = refused(lambda: torch.ones(1).to("other", device_layout=None))
    asked.clear()
    Model(1, 1).to("other")
    asked.clear()
    facts["op"] = [refused(lambda: torch.ops.other.double), asked]
    print(json.dumps(facts))
"""


@functools.cache
def alone():
    """What PyTorch says without the package, to a device that registers itself."""
    return fresh(WITHOUT_THE_PACKAGE, TORCH_DEVICE_BACKEND_AUTOLOAD=0).value


def test_factories_take_no_keywords_of_devices():
    assert (alone()["empty"], alone()["to"]) == ("TypeError", "TypeError")


def test_devices_hear_nothing_of_a_module_that_is_to_be_moved():
    assert alone()["asked before a move"] == []


def test_nobody_is_asked_for_the_ops_of_a_namespace():
    assert alone()["op"] == ["AttributeError", []]


def test_safetensors_knows_a_list_of_devices(tmp_path):
    path = tmp_path / "x.safetensors"
    safetensors.torch.save_file({"x": torch.ones(1)}, path)
    with pytest.raises(safetensors.SafetensorError, match="privateuseone"):
        safetensors.torch.load_file(path, device="privateuseone")


def test_copies_lose_attributes():
    x = torch.ones(2)
    x.spoken_of = "x"
    moved = x.to("spyre")
    for copy in (x.clone(), x.to(torch.float64), moved, moved.cpu()):
        assert not hasattr(copy, "spoken_of")


def test_inductor_comes_to_a_backend_when_decompositions_are_chosen(monkeypatch):
    seen = []
    original = compile_fx.select_decomp_table

    def choose():
        seen.append("decompositions")
        return original()

    def ask():
        seen.append("backend")
        raise KeyboardInterrupt  # that is all

    monkeypatch.setattr(compile_fx, "select_decomp_table", choose)
    monkeypatch.setattr(compile_fx, "init_backend_registration", ask)
    with pytest.raises(KeyboardInterrupt):
        torch.compile(lambda x: x + 1)(torch.ones(3))
    assert seen[0] == "decompositions"
    assert seen[-1] == "backend"


# ----------------------------------------------------------------- from when the card is in use


def test_bytes_are_swapped_wherever_they_are():
    code = """
        import torch
        from torch_spyre import _C

        _C._open_byteswap_door = lambda function: None
        torch.ones(3, device="spyre").untyped_storage().byteswap(torch.int16)
    """
    assert forked(code).returncode < 0


def test_tensors_are_printed_with_dtypes_that_the_card_has_not():
    original = torch._tensor_str._tensor_str.__wrapped__
    with pytest.raises(TypeError, match="float64"):
        original(card(4), 0)


def test_modules_are_moved_tensor_by_tensor():
    def convert(tensor):
        if tensor.dim() == 1:
            raise MemoryError("no room for the bias")
        return tensor.to("spyre")

    original = torch.nn.Module._apply.__wrapped__
    for move, device in ((torch.nn.Module._apply, "cpu"), (original, "spyre")):
        module = torch.nn.Linear(3, 2)
        with pytest.raises(MemoryError):
            move(module, convert)
        assert module.weight.device.type == device


def test_guards_of_tensors_know_nothing_of_layouts(monkeypatch):
    x = card(64, 128)
    turned = x.to(device_layout=SpyreTensorLayout([64, 128], [128, 1], x.dtype, [1, 0]))
    original = guards.GuardBuilder.TENSOR_MATCH.__wrapped__
    for match, graphs in ((guards.GuardBuilder.TENSOR_MATCH, 2), (original, 1)):
        monkeypatch.setattr(guards.GuardBuilder, "TENSOR_MATCH", match)
        torch._dynamo.reset()
        counter = CompileCounter()
        double = torch.compile(lambda x: x * 2, backend=counter)
        for y in (x, turned):
            double(y)
        assert counter.frame_count == graphs


def test_backends_register_no_decompositions():
    """Nor anything else that Inductor's entry point would ask before it traces."""
    parameters = inspect.signature(register_backend_for_device).parameters
    assert set(parameters) == {
        "device",
        "device_scheduling",
        "device_wrapper_codegen",
        "device_cpp_wrapper_codegen",
        "device_fx_wrapper_codegen",
        "device_custom_pass",
        "device_custom_config",
    }


@pytest.fixture
def left_out(monkeypatch):
    """Leaves out one of our context managers."""

    def leave_out(owner, name):
        monkeypatch.setattr(owner, name, lambda *_: contextlib.nullcontext())

    return leave_out


def functions_of(call):
    """The functions that a call calls, those of C among them."""
    names = []

    def watch(frame, event, function):
        if event == "call":
            names.append(frame.f_code.co_qualname)
        elif event == "c_call":
            names.append(function.__qualname__)

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return names


def names_called():
    """By a later call of a function that was compiled for the card."""
    add, x = torch.compile(lambda x: x + 1), card(8, 64)
    for _ in range(3):
        add(x)
    return functions_of(lambda: add(x))


def test_dynamo_tells_nobody_whom_it_traces_for():
    """Its callbacks get an id and what started it, not the arguments."""
    fields = {field.name for field in dataclasses.fields(CallbackArgs)}
    assert fields == {"callback_trigger", "compile_id"}


def test_calls_tell_profilers_and_look_for_streams(left_out):
    more = {"record_pregraph_bytecode_enter", "get_current_stream", "CompiledFxGraph.__call__"}
    assert more.isdisjoint(names_called())
    left_out(tracing, "short_calls")
    torch._dynamo.reset()
    assert more <= set(names_called())


def test_lines_are_looked_up_in_their_files(monkeypatch, left_out):
    asked = []
    monkeypatch.setattr(symbolic_convert, "get_funcname", lambda *line: asked.append(line))
    compiled(lambda x: x + 1, card(4))
    assert not asked
    left_out(tracing, "unnamed_lines")
    compiled(lambda x: x + 1, card(4))
    assert asked


# ------------------------------------------------------------ while a graph of the card is compiled


def test_no_pass_of_inductors_is_between_lowering_and_the_scheduler():
    """A new one may be; these come before the one, or after the other."""
    names = inductor_config.get_config_copy()
    assert {name for name in names if re.search(r"(custom|fusion).*_pass$", name)} == {
        "pre_grad_custom_pass",
        "joint_custom_pre_pass",
        "joint_custom_post_pass",
        "post_grad_custom_pre_pass",
        "post_grad_custom_post_pass",
        "_pre_fusion_custom_pass",
        "_post_fusion_custom_pass",
    }


def test_inductor_orders_loops_and_traces_them_for_it(monkeypatch, left_out):
    orders, traced = [], []

    def watch(owner, name, found):
        original = getattr(owner, name)

        def watched(self, *args, **options):
            found.append(original(self, *args, **options))
            return found[-1]

        monkeypatch.setattr(owner, name, watched)

    watch(ir.ComputedBuffer, "get_fill_order", orders)
    watch(ir.ComputedBuffer, "simplify_and_reorder", traced)

    def turned(x):
        return torch.relu(x.t()).sum(0)

    compiled(turned, card(8, 64))
    assert not any(orders)
    assert not traced
    left_out(patches, "loops_as_lowered")
    compiled(turned, card(8, 64))
    assert any(orders)
    assert traced


def test_patterns_are_made_for_every_graph(monkeypatch, left_out):
    asked = []
    monkeypatch.setattr(joint_graph, "lazy_init", asked.append)
    compiled(lambda x: x @ x, card(64, 64))
    assert not asked
    left_out(patches, "patterns_when_needed")
    compiled(lambda x: x @ x, card(64, 64))
    assert [device.type for device in asked] == ["spyre"]


def test_lowerings_are_those_of_all_devices(left_out):
    def product(x):
        return x @ x

    assert compiled(product, card(64, 64)).kernels == 1
    left_out(patches, "lowered_by")
    assert compiled(product, card(64, 64)).kernels == 0  # it is called


@pytest.fixture
def answered(monkeypatch):
    """Lets Inductor answer one of the questions that we answer."""
    original = patches.lowering._always_on_card

    def answer(question):
        def always(owner, name):
            return contextlib.nullcontext() if name == question else original(owner, name)

        monkeypatch.setattr(patches.lowering, "_always_on_card", always)

    return answer


def test_variances_are_made_of_what_the_card_has_not(answered):
    answered("use_two_step_variance")
    with pytest.warns(CompileFallbackWarning, match="welford"):
        torch.compile(lambda x: x.var(-1))(card(8, 64))


def test_values_that_are_used_twice_are_computed_twice(answered, planned):
    def function(x):
        y = torch.exp(x)
        return y + 1, y.t() * 2

    def times():
        _, kernels = planned(function, card(64, 64))
        return [op.op for kernel in kernels for op in kernel.specs].count("exp")

    assert times() == 1
    answered("has_large_inner_fn")
    assert times() == 2


# ---------------------------------------------------------------------------- and put back


def test_what_was_replaced_comes_back():
    class Base:
        one, two = 1, 2

    class Derived(Base):
        two = 3

    table = {"one": 1, "two": 2}

    def fail():
        with replaced(Derived, "one", 5), replaced(Derived, "two", 6):
            with replaced_items(table, {"two": 7, "three": 8}):
                assert (Derived.one, Derived.two, table["two"], table["three"]) == (5, 6, 7, 8)
                raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (Derived.one, Derived.two, table) == (1, 3, {"one": 1, "two": 2})
    assert "one" not in vars(Derived)


def test_threads_replace_one_after_the_other():
    class Shared:
        value = 0

    seen = []

    def work(number):
        with replaced(Shared, "value", number):
            time.sleep(0.01)
            seen.append(Shared.value == number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 4
    assert Shared.value == 0
