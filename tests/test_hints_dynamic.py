"""Hints in graphs of dynamic sizes: applied to each size that comes, or refused for it."""

import warnings

import pytest
import torch
from compiling import assert_near, card, wide
from hinting import declare_all, named, refusal
from torch._dynamo.utils import counters

from torch_spyre import declare_tensor_dim, name_tensor_dims, spyre_hint
from torch_spyre._inductor import config
from torch_spyre._inductor.errors import InvalidHint, Unsupported
from torch_spyre._inductor.op_spec import LoopSpec
from torch_spyre.execution import template_runner


@pytest.fixture(autouse=True)
def declared(tmp_path, monkeypatch):
    declare_all(tmp_path, monkeypatch)


@pytest.fixture
def planned(monkeypatch):
    """The kernels that launches make of templates."""
    kernels = []
    original = template_runner.compiled

    def compiled(name, kernel):
        kernels.append(kernel)
        return original(name, kernel)

    monkeypatch.setattr(template_runner, "compiled", compiled)
    return kernels


def sized(names, *shape, seed=0, scale=1.0):
    """A named tensor whose names have new sizes."""
    for name, size in zip(names, shape, strict=True):
        declare_tensor_dim(name, size)
    return named(names, *shape, seed=seed, scale=scale)


def counts(entries):
    """How often loops run, those inside of others in lists of their own."""
    return [[e.count, *counts(e.body)] for e in entries if isinstance(e, LoopSpec)]


def loops_of(kernels):
    return [loop for kernel in kernels for loop in counts(kernel.specs)]


def run_all(function, inputs, planned, dynamic):
    """One graph for all inputs; the results, and the kernels made for each."""
    torch._dynamo.reset()
    counters.clear()
    run = torch.compile(function, fullgraph=True, dynamic=dynamic)
    results, kernels = [], []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="a dimension of .* has no name")
        for args in inputs:
            planned.clear()
            results.append(run(*args).cpu())
            kernels.append(list(planned))
    assert counters["stats"]["unique_graphs"] == 1
    return results, kernels


def check(function, inputs, planned, same_bits=True, dynamic=True):
    """Right for all inputs, and the same bits as without hints; the kernels made for each."""
    with config.patch(compile_fallback="error"):
        results, kernels = run_all(function, inputs, planned, dynamic)
        with config.patch(ignore_work_division_hints=True):
            plain, without = run_all(function, inputs, planned, dynamic)
    assert not any(map(loops_of, without))
    for args, got, other in zip(inputs, results, plain, strict=True):
        assert_near(got, function(*map(wide, args)))
        assert not same_bits or torch.equal(got, other)
    return kernels


# ------------------------------------------------------------------------------------ what they do


@pytest.mark.parametrize("argument", ["num_tiles_per_dim", "tiles", "slices"])
@pytest.mark.filterwarnings("ignore:.*is called num_tiles_per_dim now")
def test_tiles_are_cut_for_each_size(planned, argument):
    """100 rows in 3 tiles are 34, 34 and 32: a loop, and what comes after it."""

    def softmax(x):
        with spyre_hint(**{argument: {"M": 3}}):
            return torch.softmax(x, -1)

    inputs = [(sized("MN", rows, 128),) for rows in (99, 100, 3)]
    kernels = check(softmax, inputs, planned)
    assert [loops_of(each) for each in kernels] == [[[3]], [[2]], [[3]]]


def test_a_second_size_makes_the_first_one_dynamic(planned):
    def function(x):
        with spyre_hint(num_tiles_per_dim={"M": 4}):
            return torch.relu(x * 2) + 1

    run = torch.compile(function, fullgraph=True)
    for rows in (64, 96, 128):
        x = sized("MN", rows, 128)
        assert_near(run(x), function(wide(x)))
    assert loops_of(planned) == [[4], [4]]  # the first was compiled for fixed sizes


def test_products_of_one_scope_are_in_one_loop(planned):
    """Without hints every product begins a kernel of its own."""

    def mlp(x, up, down):
        with spyre_hint(num_tiles_per_dim={"M": 2}):
            return torch.nn.functional.silu(x @ up) @ down

    def args(rows):
        weights = sized("KN", 64, 128, seed=1, scale=0.1), sized("NP", 128, 64, seed=2)
        return sized("MK", rows, 64, scale=0.1), *weights

    kernels = check(mlp, [args(32), args(96)], planned)
    assert [loops_of(each) for each in kernels] == [[[2]], [[2]]]
    assert [len(each) for each in kernels] == [1, 1]


def test_loops_nest_and_sum_tiles(planned):
    def product(x, y):
        with spyre_hint(num_tiles_per_dim={"M": 2, "K": 2}):
            return torch.relu(x @ y)

    inputs = [
        (sized("MK", 32, k, scale=0.1), sized("KN", k, 64, seed=1, scale=0.1)) for k in (128, 256)
    ]
    kernels = check(product, inputs, planned, same_bits=False)
    assert [loops_of(each) for each in kernels] == [[[2, [2]]], [[2, [2]]]]


def test_work_is_divided_as_told(planned):
    def function(x):
        with spyre_hint(work_div={"M": 4, "N": 2}):
            return torch.relu(x + 1)

    kernels = check(function, [(sized("MN", rows, 128),) for rows in (64, 30)], planned)
    for each in kernels:
        splits = [[n for _, n in spec.iteration_space.values()] for k in each for spec in k.ops]
        assert splits == [[4, 2]] * 2


def test_results_can_be_named(planned):
    def function(x):
        y = x.t() * 2
        with spyre_hint(num_tiles_per_dim={"rows": 2}, named_dims=["rows", "columns"]):
            return y.contiguous() + 1

    kernels = check(function, [(card(64, columns),) for columns in (128, 256)], planned)
    assert [loops_of(each) for each in kernels] == [[[2]], [[2]]]


def test_names_pass_through_views(planned):
    """Rows vary; heads, which share a dimension with what is in them, do not."""

    def function(x):
        with spyre_hint(num_tiles_per_dim={"H": 2, "S": 4}):
            heads = (x * 2).view(-1, 4, 64).transpose(0, 1)
            return torch.softmax(heads + 1, -1)

    def args(rows):
        declare_tensor_dim("S", rows)
        x = card(rows, 256)
        name_tensor_dims(x, ["S", "H", "D"])
        torch._dynamo.mark_dynamic(x, 0)
        return (x,)

    kernels = check(function, [args(32), args(64)], planned, dynamic=None)
    assert [loops_of(each) for each in kernels] == [[[2, [4]]]] * 2


def test_layers_with_equal_hints_share_kernels(planned):
    def function(x, y):
        for _ in range(3):
            with spyre_hint(num_tiles_per_dim={"M": 2}):
                x = torch.softmax(x @ y, -1)
        return x

    inputs = [(sized("MN", rows, 64, scale=0.1), sized("NN", 64, 64)) for rows in (32, 96)]
    kernels = check(function, inputs, planned)
    assert [len(each) for each in kernels] == [1, 1]


# ----------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("tiles", "parts", "rows", "words"),
    [
        ({"M": 8}, {}, 5, "8 tiles of dimension 'M': its size 5 cannot be so many"),
        ({}, {"M": 8}, 9, "dimension 'M': its size 9 cannot be 8 parts"),
    ],
)
def test_a_size_that_cannot_be_so_is_refused_when_it_comes(tiles, parts, rows, words):
    def function(x):
        with spyre_hint(num_tiles_per_dim=tiles, work_div=parts):
            return x + 1

    run = torch.compile(function, dynamic=True)
    run(sized("MN", 64, 128))
    with pytest.raises(InvalidHint) as caught:
        run(sized("MN", rows, 128))
    text = str(caught.value)
    for word in (words, "op: add", f"float16[{rows}, 128]", "test_hints_dynamic.py", "way out: "):
        assert word in text
    x = sized("MN", 128, 128)
    assert torch.equal(run(x).cpu(), (x + 1).cpu()), "other sizes go on"


def test_the_sizes_seen_are_refused_at_once():
    def function(x):
        with spyre_hint(num_tiles_per_dim={"M": 300}):
            return x + 1

    text = refusal(function, sized("MN", 256, 128), dynamic=True)
    assert "300 tiles of dimension 'M': its size 256 cannot be so many" in text


def test_names_that_nothing_has_are_refused():
    def function(x):
        with spyre_hint(num_tiles_per_dim={"Q": 2}):
            return x + 1

    assert "no op inside has a dimension 'Q'; there are M, N" in refusal(
        function, named("MN"), dynamic=True
    )


def test_several_names_of_what_varies_are_none():
    """Nobody says which of them does."""

    def function(x):
        with spyre_hint(num_tiles_per_dim={"B": 2}):
            return x + 1

    x = card(256, 128)
    name_tensor_dims(x, ["B", "S", "N"])
    assert "no op inside has a dimension 'B'" in refusal(function, x, dynamic=True)


def test_other_names_are_another_graph():
    def function(x):
        with spyre_hint(num_tiles_per_dim={"M": 2}):
            return x * 2

    run = torch.compile(function, dynamic=True)
    run(named("MN"))
    with pytest.raises(Unsupported, match="no op inside has a dimension 'M'; there are K, P"):
        run(named("KP"))
    with pytest.raises(Unsupported, match="no op inside has a dimension 'M'; there are _untracked"):
        run(card(64, 128))
