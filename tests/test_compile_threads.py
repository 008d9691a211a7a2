"""Threads that compile at the same time, also where Dynamo does not make them wait."""

import contextlib
import threading

import torch
from compiling import card
from torch._inductor import compile_fx, ir, lowering
from torch._inductor.graph import GraphLowering

from torch_spyre._inductor import compile as ours


def tables():
    """What differs in Inductor while a graph of the card is lowered."""
    functions = (ir.Loops.has_large_inner_fn, GraphLowering._update_scheduler)
    return dict(lowering.lowerings), functions, lowering.use_two_step_variance


def test_inductor_is_left_as_it_was(monkeypatch):
    card(1)  # starts what is started once
    inside, most = 0, 0
    one_is_there, other_is_there = threading.Event(), threading.Event()
    original = ours.spyre_compilation

    @contextlib.contextmanager
    def watched():
        nonlocal inside, most
        with original():
            inside += 1
            most = max(most, inside)
            first = not one_is_there.is_set()
            one_is_there.set()
            if first:
                other_is_there.wait(0.5)  # in vain, if threads wait for each other
            else:
                other_is_there.set()
            yield
            inside -= 1

    monkeypatch.setattr(ours, "spyre_compilation", watched)
    before, results = tables(), {}

    def work(factor):
        graph = torch.fx.symbolic_trace(lambda x: (x * factor,))
        x = torch.ones(4, device="spyre")
        results[factor] = compile_fx.compile_fx(graph, [x])(x)[0].tolist()

    threads = [threading.Thread(target=work, args=(factor,)) for factor in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {2: [2.0] * 4, 3: [3.0] * 4}
    assert most == 1
    assert tables() == before
