"""What is left out or put off while a spyre graph is compiled, and of other graphs is not."""

import gc
import logging

import pytest
import torch
import torch._inductor.config
from torch._dynamo import symbolic_convert
from torch._dynamo.comptime import comptime
from torch._dynamo.utils import counters
from torch._inductor.fx_passes import joint_graph

from torch_spyre._inductor.passes import CustomPostPasses


@pytest.mark.parametrize("device", ["spyre", "cpu"])
def test_the_collector_rests_only_for_the_card(device: str) -> None:
    seen = []

    def look(context: object) -> None:
        seen.append(gc.isenabled())

    @torch.compile
    def function(x: torch.Tensor) -> torch.Tensor:
        comptime(look)
        return x + 1

    assert gc.isenabled()
    function(torch.ones(4, 64, device=device))
    assert seen == [device == "cpu"]
    assert gc.isenabled()


def test_the_collector_works_again_after_an_error() -> None:
    @torch.compile(fullgraph=True)
    def function(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x

    with pytest.raises(torch._dynamo.exc.Unsupported):
        function(torch.ones(4, 64, device="spyre"))
    assert gc.isenabled()


@pytest.mark.parametrize("level", [logging.DEBUG, logging.WARNING])
def test_lines_have_names_if_the_log_says_them(level: int) -> None:
    log = symbolic_convert.trace_call_log
    named = []

    def look(context: object) -> None:
        line = test_lines_have_names_if_the_log_says_them.__code__.co_firstlineno + 1
        named.append(symbolic_convert.get_funcname(__file__, line))

    @torch.compile
    def function(x: torch.Tensor) -> torch.Tensor:
        comptime(look)
        return x * 2

    torch._dynamo.reset()  # the other level compiled the same code
    before = log.level
    log.setLevel(level)
    try:
        function(torch.ones(4, 64, device="spyre"))
    finally:
        log.setLevel(before)
    name = test_lines_have_names_if_the_log_says_them.__name__
    assert named == [name if level == logging.DEBUG else None]


@torch._inductor.config.patch(force_disable_caches=True)
def test_patterns_are_made_when_a_graph_could_match(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    original = joint_graph.lazy_init
    monkeypatch.setattr(joint_graph, "lazy_init", lambda *args: made.append(original(*args)))

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (q @ k.transpose(-2, -1)).div(8.0).softmax(dim=-1) @ v

    x = torch.randn(2, 4, 64, 64, dtype=torch.float16, device="spyre")
    torch.compile(lambda x: x @ x)(x)
    assert not made
    counters.clear()
    result = torch.compile(attention)(x, x, x)
    assert made
    assert counters["inductor"]["fuse_attention"] == 1
    torch.testing.assert_close(result, attention(x, x, x), atol=1e-2, rtol=1e-2)


def test_passes_see_the_tensors_of_what_passes_changed() -> None:
    def doubled(graph: torch.fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.sum.dim_IntList):
            node.args = (node.args[0], [0])

    CustomPostPasses.register(doubled)
    try:
        x = torch.ones(64, 64, device="spyre")
        found = torch.compile(lambda x: x.sum(1) * 2 + 1)(x)
    finally:
        CustomPostPasses.passes.remove(doubled)
    assert found.tolist() == [129.0] * 64
