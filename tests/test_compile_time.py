"""What is left out or put off while a spyre graph is compiled, and of other graphs is not."""

import gc
import logging

import pytest
import torch
from torch._dynamo import symbolic_convert
from torch._dynamo.comptime import comptime


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
