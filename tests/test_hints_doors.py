"""How hints are given and asked for, and how caches know them."""

import pytest
import torch
from hinting import code_of, declare_all, named
from torch._dynamo.utils import counters

import torch_spyre
from torch_spyre import spyre_hint
from torch_spyre._inductor import get_op_hints
from torch_spyre._inductor.hints import hints_text


@pytest.fixture(autouse=True)
def declared(tmp_path, monkeypatch):
    declare_all(tmp_path, monkeypatch)


@pytest.mark.parametrize("older", ["tiles", "slices"])
def test_older_names_still_work(older):
    def function(x):
        with spyre_hint(**{older: {"M": 2}}):
            return x + 1

    with pytest.warns(DeprecationWarning, match=f"spyre_hint\\({older}=...\\)"):
        _, code = code_of(function, named("MN"))
    assert code.count("LoopSpec(") == 1
    with pytest.raises(TypeError, match="are the same: give one"):
        spyre_hint(num_tiles_per_dim={"M": 2}, **{older: {"M": 2}})


@pytest.mark.parametrize(
    ("argument", "value", "expected"),
    [
        ("num_tiles_per_dim", 4, "names of dimensions with whole numbers, such as {'M': 4}, not 4"),
        ("num_tiles_per_dim", {0: 2}, "names of dimensions"),
        ("work_div", ["M"], "names of dimensions with whole numbers"),
        ("named_dims", "MN", "a list of names of dimensions, such as ['M', 'N'], not 'MN'"),
        ("named_dims", 3, "a list of names"),
    ],
)
def test_arguments_of_another_kind(argument, value, expected):
    with pytest.raises(TypeError) as caught:
        spyre_hint(**{argument: value})
    assert f"spyre_hint: {argument} takes" in str(caught.value)
    assert expected in str(caught.value)


def test_hints_can_be_asked_for():
    seen = []

    def look(graph, inputs):
        nodes = graph.graph.find_nodes(op="call_function", target=torch.relu)
        seen.extend(map(get_op_hints, nodes))
        return graph.forward

    def function(x):
        with spyre_hint(num_tiles_per_dim={"M": 2}):
            with spyre_hint(work_div={"N": 2}):
                return torch.relu(x)

    torch.compile(function, backend=look)(torch.ones(4))
    assert seen == [[{"num_tiles_per_dim": {"M": 2}}, {"work_div": {"N": 2}}]]


def test_hints_do_nothing_without_the_compiler():
    with torch_spyre.spyre_hint(num_tiles_per_dim={"nothing": 3}):
        assert (torch.ones(2) + 1).tolist() == [2.0, 2.0]


def test_another_hint_is_another_graph_in_every_cache():
    count = 2

    def function(x):
        with spyre_hint(num_tiles_per_dim={"M": count}):
            return x + 1

    x = named("MN")
    results = []
    for count in (2, 4, 2):  # noqa: B007  # the function sees it
        torch._dynamo.reset()
        counters.clear()
        torch.compile(function)(x)
        results.append(counters["inductor"]["fxgraph_cache_hit"])
    assert results == [0, 0, 1]


def test_graphs_with_equal_hints_have_equal_keys():
    def graph_of(count):
        found = []

        def function(x):
            with spyre_hint(num_tiles_per_dim={"M": count}):
                return x + 1

        def look(graph, inputs):
            found.append(hints_text(graph.graph.nodes))
            return graph.forward

        torch._dynamo.reset()
        torch.compile(function, backend=look)(torch.ones(4))
        return found[0]

    assert graph_of(2) == graph_of(2) != graph_of(4)
