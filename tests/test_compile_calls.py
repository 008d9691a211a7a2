"""Calls of compiled functions: the first and the later ones, which leave out what graphs have no
use for, do the same."""

import sys

import pytest
import torch
from compiling import card
from torch._dynamo.testing import CompileCounterWithBackend

from torch_spyre._inductor import plain_graphs

CALLS = 3


@pytest.fixture(autouse=True)
def nothing_compiled_yet():
    torch._dynamo.reset()


@pytest.fixture
def shortened(monkeypatch):
    """Of each graph compiled, whether its later calls are short."""
    found = []
    original = plain_graphs.shortened

    def spy(value):
        result = original(value)
        if hasattr(value, "_torchdynamo_orig_callable"):
            found.append(result is not value)
        return result

    monkeypatch.setattr(plain_graphs, "shortened", spy)
    return found


def check_calls(function, make, compiled=None):
    """Compiled, every call gives what eager gives, and leaves its arguments so."""
    compiled = compiled or torch.compile(function)
    for _ in range(CALLS):
        ours, eager = make(), make()
        got, want = compiled(*ours), function(*eager)
        for a, b in zip([*flat(got), *ours], [*flat(want), *eager], strict=True):
            assert a.requires_grad == b.requires_grad
            torch.testing.assert_close(a.cpu(), b.cpu())
    return compiled


def flat(results):
    return results if isinstance(results, tuple) else (results,)


def views_of_an_input(x):
    return x.view(64, 8), x[2:] + 1


def changes_an_input(x):
    x.mul_(2)
    return x + 1


def a_view_of_a_result(x):
    y = x * 2
    return y, y[1]


def an_input_itself(x):
    return x, x - 1


def switches_gradients_off(x):
    y = x + 1
    torch.set_grad_enabled(torch.is_grad_enabled())
    return y


PLAIN = [
    lambda x: x + 1,
    lambda x: (torch.softmax(x, -1), x.sum()),
    a_view_of_a_result,
    an_input_itself,
    switches_gradients_off,
]
OTHERS = [views_of_an_input, changes_an_input]


@pytest.mark.parametrize("function", PLAIN)
def test_calls_of_plain_graphs_are_short(function, shortened):
    check_calls(function, lambda: [card(8, 64)])
    assert shortened == [True]


@pytest.mark.parametrize("function", OTHERS)
def test_calls_of_other_graphs_are_not(function, shortened):
    check_calls(function, lambda: [card(8, 64)])
    assert shortened == [False]


def functions_of(call):
    """The names of the Python functions that a call calls."""
    names = []
    sys.setprofile(lambda frame, event, _: event == "call" and names.append(frame.f_code.co_name))
    try:
        call()
    finally:
        sys.setprofile(None)
    return names


def test_what_is_left_out():
    """Of calls on the card; PyTorch's own still need it: else the patches can go."""
    left_out = {"runtime_wrapper", "_runtime_wrapper", "forward"}
    names = {}
    for device in ("cpu", "spyre"):
        compiled = torch.compile(lambda x: x + 1)
        x = card(8, 64).to(device)
        for _ in range(CALLS):
            compiled(x)
        names[device] = functions_of(lambda compiled=compiled, x=x: compiled(x))
    assert left_out <= set(names["cpu"])
    assert left_out.isdisjoint(names["spyre"])
    assert len(names["spyre"]) <= len(names["cpu"]) - 10

    module, x = torch.compile(torch.nn.PReLU().half().to("spyre")), card(8, 64)
    module(x)
    original = type(module).__call__.__wrapped__
    left_out = {"_set_in_optimized_module", "_call_impl"}
    assert left_out <= set(functions_of(lambda: original(module, x)))
    assert left_out.isdisjoint(functions_of(lambda: module(x)))


def test_one_tensor_twice(shortened):
    x = card(8, 64)
    check_calls(lambda x, y: x + 2 * y, lambda: [x, x])
    check_calls(lambda x, y: x.add_(y), lambda: [x.clone()] * 2)
    assert shortened == [True, False]


def test_graphs_of_a_cache(shortened):
    """What AOTAutograd finds in its cache it wraps another way."""
    for _ in range(2):
        torch._dynamo.reset()
        check_calls(lambda x: torch.relu(x) * 3, lambda: [card(8, 64)])
    assert shortened == [True, True]


def test_tensors_that_a_graph_holds(shortened):
    """Not arguments of Dynamo's function, but of Inductor's."""
    held = torch.arange(64, dtype=torch.float16)

    class Holding(torch.nn.Module):
        def forward(self, x):
            return x + torch.ops.aten.lift_fresh_copy(held).to("spyre")

    traced = torch.fx.symbolic_trace(Holding())
    check_calls(traced, lambda: [card(8, 64)])
    numbers = torch.tensor([1.0, 2.0])
    check_calls(lambda x: x * torch.tensor([2.0, 0.5], device="spyre"), lambda: [card(8, 2)])
    check_calls(lambda x: x + numbers.to("spyre"), lambda: [card(8, 2, dtype=torch.float32)])
    assert len(shortened) == 3


def test_sizes_that_vary(shortened):
    compiled = torch.compile(lambda x: torch.relu(x) + x.shape[0], dynamic=True)
    for rows in (3, 7, 3, 9, 7):
        x = card(rows, 64)
        assert torch.equal(compiled(x).cpu(), (torch.relu(x) + rows).cpu())
    assert shortened == [False]  # AOTAutograd notes on results that their sizes vary


def test_gradients(shortened):
    weight = card(64, 64).requires_grad_()

    def function(x):
        return (x @ weight).relu().sum()

    compiled = torch.compile(function)
    x = card(8, 64, seed=1)
    function(x).backward()
    want, weight.grad = weight.grad, None
    for _ in range(CALLS):
        compiled(x).backward()
        torch.testing.assert_close(weight.grad.cpu(), want.cpu())
        weight.grad = None
    assert shortened == [False]


@pytest.mark.parametrize("enabled", [True, False])
def test_gradients_stay_as_they_were(enabled):
    compiled = torch.compile(lambda x: torch.sinc(x + 1))
    with torch.set_grad_enabled(enabled):
        for _ in range(CALLS):
            assert not compiled(card(8, 64)).requires_grad
            assert torch.is_grad_enabled() == enabled


def test_autocast():
    def function(x, y):
        with torch.autocast("spyre", dtype=torch.float16):
            return x @ y

    def make():
        return [card(8, 64, dtype=torch.float32), card(64, 8, dtype=torch.float32, seed=1)]

    check_calls(function, make)
    with torch.autocast("spyre", dtype=torch.float16):
        check_calls(lambda x, y: x @ y, make)


def test_dynamo_goes_on_after_a_graph():
    """A graph in the middle of a function: what follows it is compiled, too, and once."""
    counter = CompileCounterWithBackend("inductor")

    def function(x):
        y = x + 1
        torch._dynamo.graph_break()
        return torch.tanh(y) * 2

    check_calls(function, lambda: [card(8, 64)], torch.compile(function, backend=counter))
    assert counter.frame_count == 2


def test_an_error_leaves_nothing_behind(monkeypatch):
    compiled = torch.compile(lambda x: x + 1)
    x = card(8, 64)
    compiled(x)
    fault = RuntimeError("no such card")

    def fail(*args):
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr("torch_spyre.execution.kernel_runner.SDSCKernelRunner.run", fail)
        with pytest.raises(RuntimeError, match="no such card"):
            compiled(x)
    assert torch.is_grad_enabled()
    check_calls(lambda x: x + 1, lambda: [x], compiled)
    check_calls(lambda x: x * 5, lambda: [x])  # Dynamo still compiles


def test_profilers_see_graphs():
    compiled = torch.compile(lambda x: x + 1)
    x = card(8, 64)
    for _ in range(CALLS):
        compiled(x)
    with torch.profiler.profile() as profile:
        compiled(x)
    assert any("CompiledFxGraph" in event.key for event in profile.key_averages())


def test_modules_note_that_they_are_called():
    """Also if they fail, and inside of each other."""
    from torch._dynamo import eval_frame

    class Noting(torch.nn.Module):
        @torch._dynamo.disable
        def forward(self, x):
            noted.append(eval_frame._in_optimized_module)
            if x is None:
                raise ValueError("nothing to see")
            return x

    noted = []
    inner = torch.compile(Noting())
    outer = torch.compile(torch.nn.Sequential(inner))
    x = card(4)
    outer(x)
    with pytest.raises(ValueError, match="nothing to see"):
        inner(None)
    assert noted == [True, True]
    assert not eval_frame._in_optimized_module


def test_hooks_of_compiled_modules():
    module = torch.compile(torch.nn.Linear(64, 64).half().to("spyre"))
    x = card(8, 64)
    plain = module(x)
    with torch.no_grad():
        hook = module.register_forward_hook(lambda module, args, result: result * 2)
        torch.testing.assert_close(module(x).cpu(), plain.detach().cpu() * 2)
        hook.remove()
        hook = module.register_forward_pre_hook(lambda module, args: (args[0] * 0,))
        torch.testing.assert_close(module(x)[0].cpu(), module._orig_mod.bias.detach().cpu())
        hook.remove()
        seen = []
        hook = torch.nn.modules.module.register_module_forward_hook(
            lambda module, *rest: seen.append(type(module).__name__)
        )
        with pytest.warns(UserWarning, match="global hooks"):
            module(x)
        hook.remove()
        assert "OptimizedModule" in seen
        torch.testing.assert_close(module(x).cpu(), plain.detach().cpu())


def test_packing_saved_tensors_does_not_compile_again():
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(lambda x: x + 1, backend=counter)
    x = card(8, 64)
    compiled(x)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        compiled(x)
    assert counter.frame_count == 1


def test_packing_by_a_graph_compiles_again():
    """Such hooks become a part of the graph."""
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(lambda x: x * x, backend=counter)
    x = card(8, 64).requires_grad_()
    pack = torch.fx.symbolic_trace(lambda x: x * 1)
    unpack = torch.fx.symbolic_trace(lambda x: x * 1)
    compiled(x)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        compiled(x).sum().backward()
        assert counter.frame_count == 2
        compiled(x)
    assert counter.frame_count == 2
    torch.testing.assert_close(x.grad.cpu(), 2 * x.detach().cpu())
