"""Hints about what has no loop: dimensions of one element, constants, ops that are left out."""

import pytest
import torch
from compiling import assert_near, card
from hinting import code_of, declare_all, named, refusal, tiled

from torch_spyre import declare_tensor_dim, name_tensor_dims, spyre_hint
from torch_spyre._inductor import config


@pytest.fixture(autouse=True)
def declared(tmp_path, monkeypatch):
    declare_all(tmp_path, monkeypatch)


@pytest.fixture
def said(caplog):
    """What the log says of passes."""
    with caplog.at_level("INFO", logger="spyre.inductor.passes"):
        yield caplog


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_dimension_of_size_1_is_nothing_to_tile(dynamic, said):
    declare_tensor_dim("B", 1)

    def function(x):
        with spyre_hint(num_tiles_per_dim={"B": 1, "M": 2}, work_div={"B": 1}):
            return x * 2

    x = card(1, 256, 128)
    name_tensor_dims(x, ["B", "M", "N"])
    torch._dynamo.reset()
    with config.patch(compile_fallback="error"):
        got = torch.compile(function, fullgraph=True, dynamic=dynamic)(x)
    assert torch.equal(got.cpu(), (x * 2).cpu())
    if not dynamic:
        assert "nothing to do for dimension 'B': its size is 1" in said.text


def test_a_result_of_size_1_is_nothing_to_tile(said):
    declare_tensor_dim("B", 1)

    def function(x):
        with spyre_hint(named_dims=["B", "M"], num_tiles_per_dim={"B": 1}):
            return x.unsqueeze(0) * 2

    code_of(function, card(256))
    assert "nothing to do for dimension 'B': its size is 1" in said.text


def test_a_dimension_of_size_1_is_not_several_tiles():
    declare_tensor_dim("B", 1)

    def function(x):
        with spyre_hint(num_tiles_per_dim={"B": 4}):
            return x * 2

    x = card(1, 256, 128)
    name_tensor_dims(x, ["B", "M", "N"])
    assert "no op inside has a dimension 'B'" in refusal(function, x)


def test_constants_are_nothing_to_tile(said):
    """They are numbers of the loops that use them."""

    def function(x):
        with spyre_hint(named_dims=["M", "N"], num_tiles_per_dim={"M": 4}):
            y = torch.full((256, 128), 2.0, device=x.device, dtype=x.dtype)
        return x * y

    x = card(256, 128)
    got, code = code_of(function, x)
    assert torch.equal(got.cpu(), (x * 2).cpu())
    assert "LoopSpec(" not in code
    assert "nothing to do for dimension 'M'" in said.text


def test_names_that_a_constant_does_not_have_are_refused():
    def function(x):
        with spyre_hint(named_dims=["M", "N"], num_tiles_per_dim={"Q": 4}):
            y = torch.full((256, 128), 2.0, device=x.device, dtype=x.dtype)
        return x * y

    assert "no op inside has a dimension 'Q'" in refusal(function, card(256, 128))


FACTORIES = {
    "full": lambda x: torch.full((256, 128), 2.0, device=x.device, dtype=x.dtype),
    "float32": lambda x: torch.full((256, 128), 2.0, device=x.device),
    "like": lambda x: torch.full_like(x, 2.0),
    "sizes": lambda x: torch.full((x.shape[0], x.shape[1]), 2.0, device=x.device),
    "filled": lambda x: x.new_empty(256, 128).fill_(2.0),
    "row": lambda x: torch.full((128,), 2.0, device=x.device),
    "column": lambda x: torch.full((256, 1), 2.0, device=x.device),
    "number": lambda x: torch.full((), 2.0, device=x.device),
    "view": lambda x: torch.full((256, 1), 2.0, device=x.device).expand(256, 128),
    "transposed": lambda x: torch.full((128, 256), 2.0, device=x.device).t(),
    "folded": lambda x: torch.zeros(256, 128, device=x.device) * 3 + 2,
    "tensor": lambda x: torch.tensor(2.0),
}


@pytest.mark.parametrize("kind", ["num_tiles_per_dim", "work_div"])
@pytest.mark.parametrize("factory", FACTORIES)
def test_constants_without_names_are_nothing_to_tile(kind, factory, said):
    def function(x):
        with spyre_hint(**{kind: {"A": 2}}):
            y = FACTORIES[factory](x)
        return x * y, x + y

    x = card(256, 128)
    with config.patch(compile_fallback="error"):
        got, code = code_of(function, x)
    assert "LoopSpec(" not in code
    for ours, theirs in zip(got, (x.cpu().double() * 2, x.cpu().double() + 2), strict=True):
        assert_near(ours, theirs)
    assert "nothing to do for dimension 'A': but for constants, no op inside is left" in said.text


def test_constants_of_sizes_that_change_are_nothing_to_tile(said):
    def function(x):
        with spyre_hint(num_tiles_per_dim={"A": 2}, work_div={"B": 2}):
            y = torch.full((x.shape[0], 128), 2.0, device=x.device, dtype=x.dtype)
        return x * y

    torch._dynamo.reset()
    run = torch.compile(function, fullgraph=True, dynamic=True)
    with config.patch(compile_fallback="error"):
        for rows in (70, 256):
            x = card(rows, 128)
            assert torch.equal(run(x).cpu(), x.cpu() * 2)
    for name in "AB":
        assert f"nothing to do for dimension '{name}'" in said.text


def test_constants_of_graphs_with_gradients_are_nothing_to_tile(said):
    def function(x):
        with spyre_hint(num_tiles_per_dim={"A": 2}):
            y = torch.full((256, 128), 2.0, device=x.device, dtype=x.dtype)
        return (x * y).sin() * y

    x = card(256, 128).requires_grad_()
    torch._dynamo.reset()
    with config.patch(compile_fallback="error"):
        torch.compile(function, fullgraph=True)(x).sum().backward()
    right = x.detach().cpu().double()
    assert_near(x.grad, (right * 2).cos() * 4)
    assert "nothing to do for dimension 'A'" in said.text


@pytest.mark.parametrize(
    "useless", [lambda x: x.clone(), lambda x: x.float().half(), lambda x: x.to(torch.float16)]
)
def test_what_the_compiler_drops_is_nothing_to_tile(useless, said):
    def function(x):
        with spyre_hint(num_tiles_per_dim={"A": 2}):
            y = useless(x)
        return y + 1

    x = card(256, 128)
    with config.patch(compile_fallback="error"):
        got, _ = code_of(function, x)
    assert_near(got, x.cpu().double() + 1)
    assert "nothing to do for dimension 'A'" in said.text


def test_a_block_of_a_constant_inside_of_one_with_ops():
    """The one does nothing, the other what it says."""

    def function(x):
        with spyre_hint(num_tiles_per_dim={"M": 4}):
            with spyre_hint(num_tiles_per_dim={"A": 2}):
                y = torch.full((256, 128), 2.0, device=x.device, dtype=x.dtype)
            return torch.relu(x * y)

    tiled(function, named("MN"), loops=1)


REAL = {
    "constant and op": lambda x: torch.full_like(x, 2.0) * x,
    "cast": lambda x: x.float() + 0,
    "written in place": lambda x: (x + 1).index_fill_(0, torch.tensor([0], device=x.device), 0),
    "slice of zeros": lambda x: (y := x + 1, y[0].zero_(), y)[-1],
    "random": lambda x: torch.rand_like(x),
    "eager call": lambda x: x.cumsum(0),
    "counted": lambda x: torch.arange(128, device=x.device, dtype=x.dtype) * x,
}


@pytest.mark.parametrize("kind", ["num_tiles_per_dim", "work_div"])
@pytest.mark.parametrize("ops", REAL)
def test_wrong_names_around_real_ops_are_refused(kind, ops):
    def function(x):
        with spyre_hint(**{kind: {"A": 2}}):
            y = REAL[ops](x)
        return y + 1

    assert "no op inside has a dimension 'A'" in refusal(function, named("MN"))


def test_only_what_is_written_in_place_has_lost_its_note():
    """Inductor puts a node of its own in the place of the assignment."""

    def function(x):
        y = x + 1
        with spyre_hint(num_tiles_per_dim={"A": 2}):
            y[0].zero_()
        return y

    assert "no op inside has a dimension 'A'" in refusal(function, named("MN"))


def test_a_constant_that_is_a_result_is_an_op():
    def function(x):
        with spyre_hint(num_tiles_per_dim={"A": 2}):
            y = torch.full((256, 128), 2.0, device=x.device, dtype=x.dtype)
        return x + y, y

    assert "no op inside has a dimension 'A'" in refusal(function, card(256, 128))
