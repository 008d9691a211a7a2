"""Set-up that all tests share: two software cards, and how hypothesis looks for examples."""

import gc
import os
import sys
import zlib
from pathlib import Path

os.environ.setdefault("SPYRE_SOFT_CARDS", "2")  # before the first import of torch
sys.path.insert(0, str(Path(__file__).parent))  # importlib mode: makes `import oracle` work

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "spyre",
    deadline=None,  # the first example of a shape may start a card
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("ci", settings.get_profile("spyre"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "spyre")


def pytest_addoption(parser):
    parser.addoption(
        "--write-supported-operations",
        action="store_true",
        help="put what the tests of PyTorch's databases found into docs/supported-operations.md",
    )
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")
    parser.addoption(
        "--all-samples",
        action="store_true",
        help="special values in all samples of PyTorch's database, not in a few of each op",
    )
    parser.addoption("--part", metavar="K/N", help="only the tests of part K, 0 to N-1, of N equal")
    parser.addoption("--long-part", metavar="K/N", help="of the tests marked long only such a part")


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "unchecked(reason): skipped with SPYRE_CARD_CHECK=1 (make test-checked)"
    )
    config.addinivalue_line("markers", "long: takes long; CI runs some of them in turn")


def _in_part(item, part):
    if part is None:
        return True
    number, count = map(int, part.split("/"))
    # By name, so that a new test moves no other one, and a part has some of every kind.
    return zlib.crc32(item.nodeid.encode()) % count == number


def pytest_collection_modifyitems(config, items):
    kept = [
        item
        for item in items
        if _in_part(item, config.getoption("part"))
        and (not item.get_closest_marker("long") or _in_part(item, config.getoption("long_part")))
    ]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=list(set(items) - set(kept)))
        items[:] = kept
    if os.environ.get("SPYRE_CARD_CHECK") != "1":
        return
    for item in items:
        for marker in item.iter_markers("unchecked"):
            item.add_marker(pytest.mark.skip(reason=f"with the checker: {marker.args[0]}"))


def pytest_terminal_summary(terminalreporter, config):
    """What became of the entries of PyTorch's databases, if all of them ran."""
    everything = [report for group in terminalreporter.stats.values() for report in group]
    reports = [report for report in everything if getattr(report, "when", None) == "call"]
    for section in ("operations", "modules", "compiled"):
        findings = [
            (name, found, list(fallbacks))
            for report in reports
            for kind, (name, found, fallbacks) in (
                entry for entry in report.user_properties if entry[0] == section
            )
        ]
        if not findings:
            continue
        import supported_operations

        terminalreporter.section(f"PyTorch's databases on spyre: {section}")
        terminalreporter.line(supported_operations.counts(findings).plain())
        if config.getoption("write_supported_operations"):
            supported_operations.write(section, findings)


@pytest.fixture
def native():
    """Nothing may fall back to the CPU."""
    from torch_spyre.ops.fallbacks import refused

    with refused():
        yield


@pytest.fixture
def no_downcast_warning():
    """int64 tensors, of 32 bits on the card, come without a word."""
    import torch

    torch.spyre.set_downcast_warning(False)
    yield
    torch.spyre.set_downcast_warning(True)


@pytest.fixture
def settled():
    """Before and after: nothing is in flight; device 0 and the default streams are current."""
    import torch

    def settle():
        for device in (0, 1):
            torch.spyre.set_stream(torch.spyre.default_stream(device))
        torch.spyre.set_device(0)
        torch.spyre.synchronize()

    settle()
    yield
    settle()


@pytest.fixture
def collected(settled):
    """And nothing of an earlier test waits for the garbage collector."""
    gc.collect()


@pytest.fixture
def log_as_before():
    """What a test logs, and where, ends with it."""
    yield
    from torch_spyre import logging_config

    logging_config.set_log_file(None)
    logging_config.configure_python_logging()


@pytest.fixture
def update_golden(request):
    """Whether golden files are to be written instead of compared."""
    return request.config.getoption("--update-golden")


@pytest.fixture
def fresh_compiler(tmp_path_factory, monkeypatch):
    """Dynamo knows no graph, and its caches are those of this run of the tests."""
    import torch

    torch._dynamo.reset()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "inductor"))


@pytest.fixture
def empty_caches(fresh_compiler, tmp_path, monkeypatch):
    """No test has compiled anything before."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))


@pytest.fixture
def planned(monkeypatch):
    """A function's results, compiled, and the kernels that were planned for it."""
    import torch

    from torch_spyre._inductor.planning import plan_kernels

    made = []

    def plan(*args):
        kernels = plan_kernels(*args)
        made.extend(kernels)
        return kernels

    monkeypatch.setattr("torch_spyre._inductor.scheduling.plan_kernels", plan)

    def run(function, *args):
        made.clear()
        torch._dynamo.reset()
        with torch._inductor.config.patch(force_disable_caches=True):
            return torch.compile(function, fullgraph=True)(*args), list(made)

    return run
