"""`torch_spyre.explain`: numbers that add up, and names for what went wrong."""

import contextlib
import math
import threading
from pathlib import Path

import pytest
import torch
from compiling import card
from hypothesis import given, settings
from hypothesis import strategies as st
from subprocesses import forked
from torch import nn

import torch_spyre
from torch_spyre._inductor import config
from torch_spyre.execution import kernel_runner
from torch_spyre.explanation import recording, report_of
from torch_spyre.explanation.text import short_line
from torch_spyre.machine import load as load_machine

ROOT = Path(__file__).parents[1]
WAITS = ("memory", "compute", "lx", "ring", "overhead")
LAUNCH_NS = load_machine().value("overhead.launch_ns")


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.up = nn.Linear(size, 2 * size)
        self.down = nn.Linear(2 * size, size)

    def forward(self, x):
        return x + self.down(torch.nn.functional.silu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, size=64):
        super().__init__()
        self.layers = nn.ModuleList([Block(size), Block(size)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def net():
    return Net().half().to("spyre")


def gained(run):
    """What the card's counters gain, read without any of the code under test."""
    torch.spyre.synchronize()
    before = torch.spyre.counters()
    result = run()
    torch.spyre.synchronize()
    after = torch.spyre.counters()
    del result
    return {name: value - getattr(before, name) for name, value in vars(after).items()}


def assert_adds_up(report, counters):
    """Every table adds up to the totals, and these are what the card counted."""
    assert report.modelled_ns == counters["modelled_ns"]
    assert report.launches == counters["launches"]
    assert report.total.read_bytes == counters["device_bytes_read"]
    assert report.total.written_bytes == counters["device_bytes_written"]
    assert report.total.lx_bytes == counters["lx_bytes"]
    assert report.total.ring_bytes == counters["ring_bytes"]
    assert report.total.macs == counters["macs"]
    assert report.total.elements == counters["sfp_elements"]
    for wait in WAITS:
        assert report.total.waits.get(wait, 0) == counters[f"{wait}_ns"]
    for rows in (report.ops, report.layers, report.lines):
        assert sum(row.ns for row in rows) == report.total.ns == report.modelled_ns
        assert sum(row.device_bytes for row in rows) == report.total.device_bytes
        assert len({row.name for row in rows}) == len(rows)
        assert [row.ns for row in rows] == sorted((row.ns for row in rows), reverse=True)


# ----------------------------------------------------------------------------------------- numbers


def test_a_compiled_model():
    model, x = net(), card(100, 64)
    compiled = torch.compile(model)
    report = torch_spyre.explain(compiled, x)
    assert_adds_up(report, gained(lambda: compiled(x)))
    assert report.title == "Net"
    assert report.launches == 1
    assert report.compilation.frames == 1
    assert report.compilation.seconds > 0
    assert report.total.macs == 100 * 64 * 128 * 4
    assert report.wall_seconds > 0
    [kernel] = report.kernels
    assert (kernel.launches, kernel.ns) == (1, report.modelled_ns)


def test_a_plain_model_is_compiled():
    model, x = net(), card(100, 64)
    report = torch_spyre.explain(model, x)
    assert report.launches == len(report.kernels) == report.compilation.frames == 1
    assert report.modelled_ns == gained(lambda: torch.compile(model)(x))["modelled_ns"]


def test_eager():
    model, x = net(), card(100, 64)
    model(x)  # programs are there
    report = torch_spyre.explain(model, x, compiled=False)
    assert_adds_up(report, gained(lambda: model(x)))
    assert not report.kernels
    assert {row.name for row in report.ops} == {
        *("aten.add", "aten.addmm", "aten.native_layer_norm", "aten.silu", "(launch)")
    }
    [launches] = [row for row in report.ops if row.name == "(launch)"]
    assert launches.ns == report.launches * LAUNCH_NS


def test_layers_are_the_same_compiled_and_eager():
    model, x = net(), card(100, 64)
    compiled = torch_spyre.explain(model, x)
    eager = torch_spyre.explain(model, x, compiled=False)
    parts = {f"layers.{i}{part}" for i in (0, 1) for part in ("", ".norm", ".up", ".down")}
    for report in (compiled, eager):
        assert {row.name for row in report.layers if not row.name.startswith("(")} == parts
    macs = [
        {row.name: row.macs for row in report.layers if row.macs} for report in (compiled, eager)
    ]
    assert (
        macs[0] == macs[1] == {name: 100 * 64 * 128 for name in parts if name[9:] in ("up", "down")}
    )


def test_source_lines_are_named():
    def function(x):
        y = x * 2
        return y.sum(0)

    for compiled in (True, False):
        report = torch_spyre.explain(function, card(64, 64), compiled=compiled)
        lines = [short_line(row.name) for row in report.lines]
        assert any(line.endswith("y = x * 2") for line in lines), lines
        assert any(line.endswith("return y.sum(0)") for line in lines), lines
        assert all(line.startswith(("test_explain.py:", "(launch)")) for line in lines), lines


def test_lines_are_those_of_this_function_though_an_equal_graph_is_cached():
    def one(x):
        return x * 2 + x.cos()

    def other(y):
        return y * 2 + y.cos()

    x = card(33, 64)
    torch.compile(one)(x)
    torch._dynamo.reset()
    lines = [short_line(row.name) for row in torch_spyre.explain(other, x).lines]
    assert any(line.endswith("return y * 2 + y.cos()") for line in lines), lines
    assert not any(line.endswith("return x * 2 + x.cos()") for line in lines), lines


@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(1, 200),
    columns=st.integers(1, 200),
    which=st.lists(st.sampled_from(["add", "softmax", "sum", "t", "matmul", "host"]), max_size=5),
)
def test_eager_ops_and_transfers_add_up(rows, columns, which):
    steps = {
        "add": lambda x: x + 1,
        "softmax": lambda x: torch.softmax(x, -1),
        "sum": lambda x: x.sum(0, keepdim=True),
        "t": lambda x: x.t().contiguous(),
        "matmul": lambda x: x @ x.t(),
        "host": lambda x: x.cpu().to("spyre"),
    }

    def run():
        x = start
        for name in which:
            x = steps[name](x)
        return x

    start = card(rows, columns)
    run()
    report = torch_spyre.explain(run, compiled=False)
    assert report.ran == bool(which)
    assert_adds_up(report, gained(run))
    assert report.transfers_to_card == report.transfers_to_host == which.count("host")
    assert report.least_bytes <= report.total.device_bytes


def test_the_first_launch_sends_a_program():
    x = card(3, 77, 5)

    def function(x):
        return torch.atan2(x, x + 3)

    report = torch_spyre.explain(function, x, compiled=False)
    assert report.program_bytes > 0
    assert "(program)" in {row.name for row in report.ops}
    assert report.modelled_ns == report.total.ns


def test_training_adds_up():
    model, x = net(), card(32, 64)
    with torch.enable_grad():

        def step():
            model.zero_grad()
            model(x).sum().backward()

        step()
        report = torch_spyre.explain(step, compiled=False)
        assert_adds_up(report, gained(step))
        assert "(backward)" in {row.name for row in report.layers}

        compiled = torch.compile(model)

        def compiled_step():
            model.zero_grad()
            compiled(x).sum().backward()

        compiled_step()
        with recording() as record:
            compiled_step()
        report = report_of("step", record)
        assert report.modelled_ns == report.total.ns
        layers = {row.name for row in report.layers}
        assert {"layers.0.up", "layers.0.up (backward)"} <= layers


def test_dynamic_shapes():
    compiled = torch.compile(lambda x: torch.softmax(x, -1) * 2, dynamic=True)
    x = card(33, 70)
    report = torch_spyre.explain(compiled, x)
    assert_adds_up(report, gained(lambda: compiled(x)))
    assert report.kernels[0].intermediates


def test_counters_that_are_reset_meanwhile():
    x = card(64, 64)

    def function():
        y = x + 1
        torch.spyre.reset()
        return y + 1

    function()
    one = torch_spyre.explain(lambda: x + 1, compiled=False)
    report = torch_spyre.explain(function, compiled=False)
    assert report.launches == 2
    assert report.total.ns == 2 * one.total.ns


def test_several_cards_work_side_by_side():
    result = forked(
        """
        import torch, torch_spyre
        x, y = (torch.ones(64, 64).half().to(f"spyre:{i}") for i in (0, 1))
        def function():
            return x + 1, y + 1, y * 2
        function()
        one = torch_spyre.explain(lambda: x + 1, compiled=False)
        all = torch_spyre.explain(function, compiled=False)
        print([one.modelled_ns, all.modelled_ns, all.total.ns, all.launches])
        """,
        SPYRE_SOFT_CARDS=2,
    )
    one, clock, engines, launches = result.value
    assert (clock, engines, launches) == (2 * one, 3 * one, 3)


# ------------------------------------------------------------------------------- memory and padding


def sticks(*size):
    """Bytes on the card of a contiguous tensor of 16-bit elements."""
    return math.prod(size[:-1]) * math.ceil(size[-1] / 64) * 128


def test_the_least_traffic_is_inputs_and_outputs_once():
    x = card(40, 100)
    report = torch_spyre.explain(lambda x: torch.softmax(x, -1), x)
    assert report.least_bytes == 2 * sticks(40, 100)
    assert report.total.device_bytes > report.least_bytes  # intermediates


@pytest.mark.parametrize("compiled", [True, False])
def test_intermediates_between_launches_are_not_needed(compiled):
    def function(x, y):
        z = x + y
        torch._dynamo.graph_break()
        return z * x

    report = torch_spyre.explain(function, card(40, 100), card(40, 100, seed=1), compiled=compiled)
    assert report.launches == 2
    assert report.total.device_bytes == 6 * sticks(40, 100)
    assert report.least_bytes == 3 * sticks(40, 100)


def test_an_op_in_place_reads_and_writes():
    x = card(64, 64)
    report = torch_spyre.explain(lambda: x.add_(1), compiled=False)
    assert report.least_bytes == report.total.device_bytes == 2 * sticks(64, 64)


def test_padding():
    x = card(5, 70)
    report = torch_spyre.explain(lambda x: x + 1, x)
    stored = 2 * sticks(5, 70)
    assert report.padding.stored_bytes == stored
    assert report.padding.stored_padding == stored - 2 * 5 * 70 * 2
    assert report.padding.elements == 5 * 70
    assert report.padding.extra_elements >= 5 * 128 - 5 * 70
    none = torch_spyre.explain(lambda x: x + 1, card(64, 64)).padding
    assert (none.stored_padding, none.extra_elements) == (0, 0)


def test_intermediates_live_as_long_as_they_are_used():
    report = torch_spyre.explain(lambda x: torch.softmax(x, 0), card(512, 1024))
    [kernel] = report.kernels
    assert kernel.intermediates
    assert kernel.in_lx + kernel.evicted != []
    for each in kernel.intermediates:
        assert 0 <= each.born_ns < each.dies_ns <= kernel.ns
        assert each.reason or each.where == "lx"
    for each in kernel.evicted:
        assert 0 <= each.address <= each.address + each.bytes <= kernel.pool_bytes
    for each in kernel.in_lx:
        assert each.address + each.bytes <= report.peaks.lx_bytes


def test_intermediates_in_lx_and_why_others_are_not():
    def function(x):
        return torch.softmax(x + 1, -1).sum(0)

    x = card(256, 512)

    def reasons(**settings):
        torch._dynamo.reset()
        with config.patch({"auto_tiling": False} | settings):
            [kernel] = torch_spyre.explain(function, x).kernels
        return len(kernel.in_lx), {each.reason for each in kernel.evicted}

    assert not reasons()[1]
    in_lx, why = reasons(lx_ring_moves=False)
    assert in_lx > 0
    assert why == {"realdiv and sum split it differently"}
    in_lx, why = reasons(lx_planning=False)
    assert in_lx == 0
    assert why == {"LX planning is off"}
    one_core = {"sencores": 1, "lx_in_place": False}  # 256 or 512 KiB each
    _, why = reasons(**one_core, dxp_lx_frac_avail=1 - 2**17 / 2**21)
    assert why == {"a core's part is larger than its LX"}
    in_lx, why = reasons(**one_core, dxp_lx_frac_avail=1 - 600 * 2**10 / 2**21)
    assert in_lx > 0
    assert why == {"no room beside what saves more time"}


def test_restickifies_are_counted():
    report = torch_spyre.explain(lambda x, y: x + y.t(), card(128, 128), card(128, 128, seed=1))
    assert report.restickifies.count == 1
    assert report.restickifies.device_bytes == 2 * sticks(128, 128)
    assert "restickifies: 1 in kernels" in str(report)


def test_arguments_that_are_copied_are_counted():
    function = torch.compile(lambda x: x + 1)
    base = card(4, 64, 128)
    report = torch_spyre.explain(function, base[0])
    assert report.copied_arguments == 0
    with recording() as record:
        result = function(base[1])  # begins elsewhere
    report = report_of("copied", record)
    assert result.shape == (64, 128)
    assert (report.copied_arguments, report.launches, report.compilation.frames) == (1, 2, 0)
    assert "copied arguments: 1" in str(report)
    assert report.modelled_ns == report.total.ns


# ---------------------------------------------------------------------------------- what went wrong


@pytest.mark.filterwarnings("ignore::torch_spyre.ops.fallbacks.FallbackWarning")
def test_fallbacks_are_named():
    x = card(4, 4, dtype=torch.float32) + torch.eye(4).to("spyre") * 9
    report = torch_spyre.explain(lambda: torch.linalg.inv(x), compiled=False)
    assert report.fallbacks == {"aten::linalg_inv_ex.inverse": 1}
    assert "CPU fallbacks: 1x aten::linalg_inv_ex.inverse" in str(report)
    assert torch_spyre.explain(lambda: x + 1, compiled=False).fallbacks == {}


def test_graph_breaks_are_named():
    def function(x):
        y = x + 1
        print("break")
        return y * 2

    report = torch_spyre.explain(function, card(64, 64))
    [(reason, count)] = report.compilation.graph_breaks.items()
    assert count == 1
    assert 'print("break")' in reason
    assert "test_explain.py" in reason
    assert "builtin operator `print`" in reason
    assert 'print("break")' in str(report)
    assert report.compilation.frames == 2


def test_what_was_compiled_before_is_said():
    function = torch.compile(lambda x: x + 1)
    x = card(64, 64)
    function(x)
    assert "compiled before" in str(torch_spyre.explain(function, x))


def test_recompilations_are_named():
    @torch.compile(dynamic=False)
    def function(x):
        return x + 1

    with recording() as record:
        function(card(3, 64))
        function(card(4, 64))
    report = report_of("twice", record)
    [(reason, count)] = report.compilation.recompilations.items()
    assert count == 1
    assert "expected 3, actual 4" in reason


@pytest.mark.filterwarnings("ignore::torch_spyre._inductor.compile.CompileFallbackWarning")
def test_graphs_that_run_op_by_op_are_named(monkeypatch):
    from torch_spyre._inductor import scheduling
    from torch_spyre._inductor.errors import Unsupported

    def refuse(ops):
        raise Unsupported("not today")

    monkeypatch.setattr(scheduling, "settle", refuse)
    report = torch_spyre.explain(lambda x: x.sin() + 17, card(64, 64))
    [reason] = report.compilation.op_by_op
    assert reason.startswith("not today")
    assert {"aten.sin", "aten.add"} <= {row.name for row in report.ops}


def test_nothing_ran_on_the_card():
    report = torch_spyre.explain(lambda x: x + 1, torch.ones(3), compiled=False)
    assert not report.ran
    assert "nothing ran on a card" in str(report)
    assert report.modelled_ns == report.launches == 0


def test_an_error_passes_and_recording_ends():
    def function():
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        torch_spyre.explain(function, compiled=False)
    assert kernel_runner.watchers == ()
    assert torch_spyre.explain(lambda: card(4, 4) + 1, compiled=False).launches == 1


def test_recordings_of_threads_may_overlap():
    """Each has what its own thread does, and none goes on when it has ended."""
    x = card(64, 64)
    functions = [torch.compile(lambda x: x * 2), torch.compile(lambda x: torch.relu(x) + 1)]
    for function in functions:
        function(x)
    begun = threading.Barrier(2)
    done = [threading.Event(), threading.Event()]
    records, failed = [None, None], []

    def record(number, function):
        try:
            with recording() as records[number]:
                begun.wait(30)
                for _ in range(number + 1):
                    function(x)
                if number == 0:
                    done[1].wait(30)  # what began last ends first
            done[number].set()
        except BaseException as error:
            failed.append(error)
            done[number].set()

    threads = [threading.Thread(target=record, args=each) for each in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    kernels = [[k.name for e in r.events for k in e.kernels] for r in records]
    assert [len(names) for names in kernels] == [1, 2]
    assert not set(kernels[0]) & set(kernels[1])
    assert kernel_runner.watchers == ()
    events = [len(r.events) for r in records]
    functions[0](x)
    assert [len(r.events) for r in records] == events


def test_a_recording_that_began_first_may_end_first():
    x = card(64, 64)
    function = torch.compile(lambda x: x * 2)
    function(x)
    first, second = contextlib.ExitStack(), contextlib.ExitStack()
    seen = []

    def watch(name):
        @contextlib.contextmanager
        def launch(launches):
            seen.append(name)
            yield

        return kernel_runner.watched_by(launch)

    first.enter_context(watch("first"))
    second.enter_context(watch("second"))
    function(x)
    first.close()
    function(x)
    second.close()
    function(x)
    assert seen == ["first", "second", "second"]
    assert kernel_runner.watchers == ()


def test_gradients_are_recorded():
    """Though threads of autograd launch their kernels."""
    x = card(64, 256).requires_grad_()
    function = torch.compile(lambda x: torch.softmax(x, -1))
    with torch.enable_grad():
        function(x).sum().backward()
        with recording() as record:
            function(x).sum().backward()
    assert sum(len(event.kernels) for event in record.events) >= 2


def test_one_inside_of_another():
    x = card(64, 64)
    inner = []

    def function():
        inner.append(torch_spyre.explain(torch.compile(lambda x: x + 1), x))
        return x * 2

    outer = torch_spyre.explain(function, compiled=False)
    assert inner[0].launches == 1
    assert outer.launches == 3
    assert outer.modelled_ns == outer.total.ns
