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
LEFT_OUT: dict[str, str] = {}


def pytest_configure(config):
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        config.args = [str(Path(__file__).with_name(f"test_{name}.py")) for name in FILES]


def pytest_collection_modifyitems(items):
    for item in items:
        for name, reason in LEFT_OUT.items():
            if item.nodeid.startswith(f"tests/{name}"):
                item.add_marker(pytest.mark.skip(reason=f"under sanitizers: {reason}"))
