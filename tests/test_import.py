"""What `import torch` brings and does not bring, and the names that are there."""

import importlib.metadata
import re
from pathlib import Path

import pytest
import torch
from subprocesses import forked, fresh

import torch_spyre
from torch_spyre import _C, public_names

# ------------------------------------------------------------------------------------------- import

STATE = """
    import os, json, sys
    import torch
    threads = len(os.listdir("/proc/self/task"))
    spyre = sys.modules.get("torch_spyre")
    started = [torch.spyre.is_initialized(), torch.spyre._is_in_bad_fork()] if spyre else None
    print(json.dumps([threads, bool(spyre), started, "numpy" in sys.modules]))
"""


def test_importing_torch_prints_nothing_starts_nothing_and_makes_no_thread():
    with_package, without = fresh(STATE), fresh(STATE, TORCH_DEVICE_BACKEND_AUTOLOAD=0)
    assert (with_package.stderr, without.stderr) == ("", "")
    threads, loaded, started, _ = with_package.value
    assert (loaded, started) == (True, [False, False])
    assert without.value[1] is False
    assert threads == without.value[0]


def test_queries_start_nothing():
    code = """
    import os, json, torch
    before = len(os.listdir("/proc/self/task"))
    spyre = torch.spyre
    spyre.is_available(), spyre.device_count(), spyre.current_device(), spyre.is_initialized()
    spyre.set_device(1), spyre.Stream(), spyre.current_stream(), spyre.default_stream()
    torch.accelerator.is_available(), torch.accelerator.device_count()
    torch.accelerator.current_accelerator(), torch.accelerator.current_stream()
    torch.manual_seed(3), spyre.manual_seed(3), spyre.get_rng_state()
    torch.Generator("spyre"), torch.device("spyre:1"), spyre.Event()
    spyre.memory_allocated(), spyre.memory_stats(), spyre.empty_cache()
    spyre.synchronize()
    torch.zeros(3).to("cpu"), torch.zeros(3).is_pinned(), torch.zeros(3).spyre
    print(json.dumps([spyre.is_initialized(), len(os.listdir("/proc/self/task")) - before]))
    """
    assert forked(code, SPYRE_SOFT_CARDS=2).value == [False, 0]


def test_layouts_are_available_before_the_device_starts():
    code = """
    import json, torch
    layout = torch.spyre.SpyreTensorLayout([4, 128], torch.float16)
    meta = torch.zeros(3).device_tensor_layout()
    from torch_spyre._C import DataFormats, get_device_dtype, get_elem_in_stick, encode_constant
    numbers = [get_elem_in_stick(torch.float16), encode_constant(1.0, DataFormats.SEN169_FP16)]
    print(json.dumps([layout.device_size, meta, numbers, torch.spyre.is_initialized()]))
    """
    assert forked(code).value == [[2, 4, 64], None, [64, 0x3E00], False]


def test_layout_arguments_of_to_and_empty_start_the_device_by_themselves():
    code = """
    import json, torch
    layout = torch.spyre.SpyreTensorLayout([4, 128], torch.float16)
    moved = torch.ones(4, 128, dtype=torch.float16).to("spyre", device_layout=layout)
    made = torch.empty(4, 128, dtype=torch.float16, device="spyre", device_layout=layout)
    same = [moved.device_tensor_layout() == layout, made.device_tensor_layout() == layout]
    print(json.dumps([same, torch.spyre.is_initialized()]))
    """
    assert forked(code).value == [[True, True], True]


@pytest.mark.parametrize(
    "use",
    [
        "torch.empty(3, device='spyre')",
        "torch.zeros(3).to('spyre')",
        "torch.zeros(3).spyre()",
        "torch.spyre.init()",
        "torch.spyre._lazy_init()",
        "torch.spyre._impl._lazy_init()",
        "torch.spyre.get_device_properties()",
        "torch.spyre.current_stream().synchronize()",
        "torch.spyre.Event().record()",
        "torch.spyre.mem_get_info()",
        "torch.accelerator.synchronize()",
        "torch_spyre._C.start_runtime()",
    ],
)
def test_the_first_use_starts_the_device(use):
    code = f"""
    import json, torch, torch_spyre._C
    before = torch.spyre.is_initialized()
    {use}
    print(json.dumps([before, torch.spyre.is_initialized()]))
    """
    assert forked(code).value == [False, True]


def test_starting_twice_is_harmless():
    torch.spyre.init()
    torch.spyre.init()
    _C.start_runtime()
    assert torch.spyre.is_initialized()


def test_importing_the_package_first_works_too():
    code = """
    import torch_spyre, torch
    print(torch.ones(3, device="spyre").cpu().tolist())
    """
    result = fresh(code)
    assert (result.value, result.stderr) == ([1, 1, 1], "")


def test_the_package_registers_itself_as_a_backend():
    entries = importlib.metadata.entry_points(group="torch.backends")
    assert [entry.value for entry in entries if entry.name == "torch_spyre"] == [
        "torch_spyre:_autoload"
    ]


def test_the_version_is_that_of_the_distribution():
    assert torch_spyre.__version__ == torch_spyre.version.__version__
    assert torch_spyre.__version__ == importlib.metadata.version("torch-spyre")


# -------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    "name",
    [
        "_is_in_bad_fork",
        "manual_seed",
        "manual_seed_all",
        "get_rng_state",
        "set_rng_state",
        "initial_seed",
        "is_available",
        "is_initialized",
        "device_count",
        "current_device",
        "set_device",
        "_is_compiled",
        "get_amp_supported_dtype",
        "Stream",
        "Event",
        "stream",
        "current_stream",
        "default_stream",
        "synchronize",
        "get_device_properties",
        "get_device_name",
        "device",
        "memory_allocated",
        "max_memory_allocated",
        "memory_stats",
        "reset_peak_memory_stats",
        "reset_accumulated_memory_stats",
        "mem_get_info",
        "empty_cache",
        "counters",
        "reset",
        "SpyreTensorLayout",
        "DataFormats",
        "ElementArrangement",
        "get_downcast_warning",
        "set_downcast_warning",
        "get_spyre_tensor_layout",
        "set_spyre_tensor_layout",
    ],
)
def test_torch_spyre_has_callable(name):
    assert callable(getattr(torch.spyre, name))


def test_torch_spyre_has_memory_and_the_implementation_object():
    for name in ("memory_allocated", "max_memory_allocated", "memory_stats"):
        assert getattr(torch.spyre.memory, name) is getattr(torch.accelerator.memory, name)
    for name in ("is_initialized", "device_count", "Stream", "_lazy_init"):
        assert hasattr(torch.spyre._impl, name)
    assert torch.spyre._is_compiled() is True


@pytest.mark.parametrize("name", ["Scheduling", "GraphLowering", "Lowering", "Codegen", "Compile"])
def test_compiler_hooks_are_none(name):
    assert getattr(torch.spyre, name) is None


def test_the_profiler_is_none_for_now():
    assert torch_spyre.profiler is None


@pytest.mark.parametrize("name", ["_C", "no_such_name", "_no_such_name"])
def test_torch_spyre_does_not_have(name):
    with pytest.raises(AttributeError):
        getattr(torch.spyre, name)


def test_the_stubs_name_exactly_what_the_native_module_has():
    stub = Path(torch_spyre.__file__).with_name("_C.pyi").read_text()
    # _Enum is a base class that only the stub has.
    stubbed = set(re.findall(r"^(?:def |class (?!_Enum))(\w+)", stub, re.MULTILINE))
    native = {name for name in vars(_C) if not name.startswith("__")}
    assert stubbed == native - set(public_names.NATIVE)  # which are there once they were used


def test_everything_in_all_exists():
    for module in (torch.spyre, torch.spyre.memory, torch.spyre.random, torch.spyre.streams):
        for name in module.__all__:
            assert hasattr(module, name), (module, name)


def test_constants_name_the_device():
    from torch_spyre import constants

    assert constants.DEVICE_NAME == "spyre"
    assert constants.DISTRIBUTED_BACKEND_NAME == "spyreccl"


def test_free_runtime_leaves_the_device_usable():
    _C.free_runtime()
    assert torch.ones(3, device="spyre").cpu().tolist() == [1, 1, 1]


# ---------------------------------------------------------------------------------------- debug log

LOGGED = """
    import torch
    tensor = torch.full((64, 64), 3.0).to("spyre", torch.float16)
    tensor[3:].t().clone().cpu()
    tensor.zero_()
    handle = tensor.data_ptr()
    host = torch.zeros(10).pin_memory()
    print(handle, hex(handle), host.data_ptr(), hex(host.data_ptr()))
    del tensor
"""


def test_debug_logs_to_stderr_and_shows_no_addresses():
    result = forked(LOGGED, TORCH_SPYRE_DEBUG=1)
    pointers = result.output.split()
    lines = result.stderr.splitlines()
    assert lines
    assert all(line.startswith("[spyre] ") for line in lines)
    for word in ("opened device 0", "allocate 8192 bytes", "free 8192 bytes", "to card", "to host"):
        assert any(word in line for line in lines), word
    assert not any(pointer in result.stderr for pointer in pointers)
    assert not re.search(r"0x[0-9a-f]{6,}|\b\d{13,}\b", result.stderr)


@pytest.mark.parametrize("value", ["0", "", "off", "false", "no"])
def test_debug_is_off(value):
    assert forked(LOGGED, TORCH_SPYRE_DEBUG=value).stderr == ""
    assert forked(LOGGED).stderr == ""
