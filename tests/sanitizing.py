"""What `make sanitize-python` runs: a pytest plugin that chooses files and leaves out some tests.

The files are those in which the C++ of the package and the card does most of the work, in every
way it can be entered; files named on the command line run instead. LEFT_OUT holds for both.
"""

from pathlib import Path

import pytest

FILES = [
    "pointwise",
    "program_keys",
    "view_chains",
    "views",
    "copies",
    "fills",
    "transfers",
    "transfer_descriptors",
    "formats",
    "index",
    "index_brackets",
    "reductions",
    "rows",
    "matmul",
    "sort",
    "shape_ops",
    "conv",
    "pooling",
    "attention",
    "random",
    "fallbacks",
    "fused_optimizers",
    "int64",
    "layouts",
    "tensor_layouts",
    "factories",
    "set_resize",
    "uninitialised",
    "devices",
    "streams",
    "events",
    "queued_copies",
    "queued_errors",
    "threads",
    "memory",
    "out_of_memory",
    "fork",
    "serialization",
    "checkpoints",
    "errors",
    "odd_calls",
    "backend",
    "golden_bundles",
    "malformed_bundles",
    "spyrecode",
    "ring_moves",
    "across_kernels",
    "compile",
    "compile_streams",
    "checker",
    "fuzz",
]

# A test, or all tests whose names begin so, and why it cannot run under the sanitizers.
LEFT_OUT = {
    "test_memory.py::test_ten_thousand_iterations_leak_nothing": "ASan keeps what was freed",
    "test_memory.py::test_host_code_that_dereferences": "ASan reports the fault that is wanted",
    # An ASan older than GCC 14's may leave its lock taken in the child: one hang in 900 forks.
    "test_fork.py::test_forking_while_threads_pin_memory": "ASan allocates with a lock",
    "test_checkpoints.py::test_weights_are_in_memory_once": "ASan has copies of its own",
}


def pytest_configure(config):
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        config.args = [str(Path(__file__).with_name(f"test_{name}.py")) for name in FILES]


def pytest_collection_modifyitems(items):
    for item in items:
        for name, reason in LEFT_OUT.items():
            if item.nodeid.startswith(f"tests/{name}"):
                item.add_marker(pytest.mark.skip(reason=f"under sanitizers: {reason}"))
