"""Hints of users: names of dimensions, tiles, core splits; what they do and what they refuse."""

import re
import warnings

import pytest
import torch
from compiling import assert_near, card, wide
from hinting import code_of, declare_all, named, refusal, tiled
from torch._inductor.utils import run_and_get_code

from torch_spyre import declare_tensor_dim, name_tensor_dims, spyre_hint
from torch_spyre._inductor import config
from torch_spyre._inductor.errors import Unsupported
from torch_spyre._inductor.propagate_named_dims import dims_of_tensor, reset


@pytest.fixture(autouse=True)
def declared(tmp_path, monkeypatch):
    declare_all(tmp_path, monkeypatch)


# -------------------------------------------------------------------------------------------- tiles


def test_softmax_over_rows_in_tiles():
    def softmax(x):
        with spyre_hint(num_tiles_per_dim={"M": 4}):
            return torch.softmax(x, -1)

    code = tiled(softmax, named("MN"), loops=1)
    assert "'l0': (64," in code


def test_softmax_along_what_it_reduces_takes_three_loops():
    def softmax(x):
        with spyre_hint(num_tiles_per_dim={"N": 2}):
            return torch.softmax(x, -1)

    tiled(softmax, named("MN"), loops=3, same_bits=False)


def test_product_with_tiles_of_k():
    def product(x, y):
        with spyre_hint(num_tiles_per_dim={"K": 4}):
            return x @ y

    tiled(product, named("MK"), named("KN", seed=1), loops=1, same_bits=False)


def test_softmax_in_uneven_tiles():
    def softmax(x):
        with spyre_hint(num_tiles_per_dim={"M": 3}):
            return torch.softmax(x, -1)

    code = tiled(softmax, named("MN"), loops=1)
    assert "'l0': (86," in code
    assert "'c0': (84," in code


def test_uneven_loops_nest():
    """Seven tiles of rows, the last of 34; in each two tiles of columns."""

    def chain(x):
        with spyre_hint(num_tiles_per_dim={"M": 7, "N": 2}):
            return torch.relu(x * 2) + 1

    tiled(chain, named("MN"), loops=3)


def test_product_in_uneven_tiles_accumulates():
    declare_tensor_dim("K", 320)

    def product(x, y):
        with spyre_hint(num_tiles_per_dim={"M": 3, "K": 3}):
            return torch.relu(x @ y)

    tiled(product, named("MK", 256, 320), named("KN", 320, 128, seed=1), loops=3, same_bits=False)


def test_mlp_with_tiles_of_m_keeps_a_tile_of_the_hidden_layer():
    def mlp(x, up, down):
        with spyre_hint(num_tiles_per_dim={"M": 4}):
            return torch.nn.functional.silu(x @ up) @ down

    args = [named("MK", scale=0.1), named("KN", seed=1, scale=0.1), named("NP", seed=2)]
    code = tiled(mlp, *args, loops=1)
    assert "[2, 64, 64]" in code  # the hidden layer: 64 of 256 rows
    assert "[2, 256, 64]" in code  # the result


def test_attention_in_nested_loops():
    def attention(q, k, v):
        with (
            spyre_hint(num_tiles_per_dim={"B": 2, "H": 2}),
            spyre_hint(num_tiles_per_dim={"S": 2}),
        ):
            return torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v

    args = [named("BHSD"), named("BHTD", seed=1), named("BHTD", seed=2)]
    code = tiled(attention, *args, loops=3)
    # Inductor makes one op of it all, and every part of that is inside of the loops.
    assert code.rindex("LoopSpec(") < code.index("OpSpec('batchmatmul'")


def test_a_reduction_inside_of_tiles():
    def norm(x, y):
        with spyre_hint(num_tiles_per_dim={"M": 2}):
            with spyre_hint(num_tiles_per_dim={"K": 2}):
                z = x @ y
            return torch.relu(z) + 1

    tiled(norm, named("MK"), named("KN", seed=1), loops=2, same_bits=False)


@pytest.mark.parametrize("reduce", [torch.sum, torch.mean, torch.amax, torch.amin])
def test_reductions_over_tiles(reduce):
    def function(x):
        with spyre_hint(num_tiles_per_dim={"M": 4, "N": 2}):
            return reduce(x * 2)

    tiled(function, named("MN"), loops=2, same_bits=False)


def test_any_over_tiles():
    def function(x):
        with spyre_hint(num_tiles_per_dim={"M": 4}):
            return (x > 2.5).any(0)

    got, code = code_of(function, x := named("MN"))
    assert code.count("LoopSpec(") == 1
    assert torch.equal(got.cpu(), function(x.cpu()))


def test_scopes_are_separate_loops():
    def function(x):
        with spyre_hint(num_tiles_per_dim={"M": 4}):
            y = x * 2
        with spyre_hint(num_tiles_per_dim={"M": 4}):
            return y + x

    tiled(function, named("MN"), loops=2)


def test_gradients_of_what_was_tiled_are_right():
    """Backward graphs have no hints: there, the bias is a sum over M, which cores do not share."""

    def function(x, y, bias):
        with spyre_hint(num_tiles_per_dim={"K": 2}, work_div={"M": 4}):
            return (x.exp() @ y + bias).tanh()

    args = [named(n, seed=i, scale=0.1) for i, n in enumerate(("MK", "KN", "N"))]
    args = [arg.detach().requires_grad_() for arg in args]
    for tensor, names in zip(args, ("MK", "KN", "N"), strict=True):
        name_tensor_dims(tensor, list(names))

    def run(*args):
        result = torch.compile(function)(*args)
        result.sum().backward()

    with config.patch(compile_fallback="error"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="a dimension of .* has no name")
        _, (forward, backward) = run_and_get_code(run, *args)
    assert forward.count("LoopSpec(") == 1
    assert "LoopSpec(" not in backward
    right = [arg.detach().cpu().double().requires_grad_() for arg in args]
    function(*right).sum().backward()
    for ours, theirs in zip(args, right, strict=True):
        assert_near(ours.grad, theirs.grad)


# -------------------------------------------------------------------------------------------- names


def test_names_pass_through_views():
    """A dimension of two names is cut where a view cuts it."""

    def function(x, y):
        with spyre_hint(num_tiles_per_dim={"H": 2}):
            heads = (x * 2).view(128, 4, 64).transpose(0, 1)
            return (heads + 1) * y

    tiled(function, named("SHD", 128, 256), named("HSD", seed=1), loops=1)


def test_what_a_view_cuts_another_one_puts_together():
    """Keys and values of all rows are needed before the first row of scores: a second loop."""

    def function(x, y):
        with spyre_hint(num_tiles_per_dim={"S": 2}):
            heads = (x * 2).view(128, 4, 64).transpose(0, 1).relu()
            scores = heads @ heads.transpose(1, 2)
            rows = (torch.softmax(scores, -1) @ heads).transpose(0, 1).reshape(128, 256)
        with spyre_hint(work_div={"K": 4}):
            return rows * y

    code = tiled(function, named("SK"), named("SK", seed=1), loops=2, same_bits=False)
    assert splits_in(code)[-1] == ("mul", [1, 4])


def test_names_pass_through_broadcasts_reductions_and_products():
    def function(x, y, z):
        a = (x.sum(1, keepdim=True) + y) @ z  # M, N from its parts
        with spyre_hint(num_tiles_per_dim={"M": 2, "P": 2}):
            return a.relu() + a

    tiled(function, named("MK"), named("MN", seed=1), named("NP", seed=2), loops=2)


def test_a_dimension_inside_of_another_one_is_cut_out():
    declare_tensor_dim("G", 4)
    declare_tensor_dim("R", 64)

    def function(x):
        with spyre_hint(num_tiles_per_dim={"R": 4}):
            return x.exp() * x

    tiled(function, named("GRN", 256, 128), loops=1)


def test_results_can_be_named():
    def function(x):
        y = x.reshape(128, 256)
        with spyre_hint(num_tiles_per_dim={"rows": 4}, named_dims=["rows", "columns"]):
            return y * 2 + 1

    tiled(function, card(256, 128), loops=1)


def test_unnamed_dimensions_are_told_of():
    def function(x, y):
        with spyre_hint(num_tiles_per_dim={"M": 2}):
            return x @ y

    with pytest.warns(UserWarning, match="_untracked_128"):
        torch.compile(function)(named("MK"), card(256, 128))


def test_other_names_are_another_graph():
    def function(x):
        with spyre_hint(num_tiles_per_dim={"M": 2}):
            return x * 2

    x = named("MN")
    run = torch.compile(function)
    run(x)
    name_tensor_dims(x, ["K", "P"])
    with pytest.raises(Unsupported, match="no op inside has a dimension 'M'; there are K, P"):
        run(x)


def test_names_must_be_declared_and_fit():
    x = card(256, 128)
    with pytest.raises(KeyError, match="Named dim 'Q' used in name_tensor_dims but not declared"):
        name_tensor_dims(x, ["Q", "N"])
    with pytest.raises(ValueError, match="N=128, M=256 do not make up the sizes"):
        name_tensor_dims(x, ["N", "M"])
    with pytest.raises(ValueError, match="a size is a positive number, not 0"):
        declare_tensor_dim("Q", 0)


def test_tensors_are_named_outside_of_compiled_code():
    def function(x):
        name_tensor_dims(x, ["M", "N"])
        return x * 2

    with pytest.raises(Exception, match="name tensors outside of compiled code"):
        torch.compile(function, fullgraph=True)(card(256, 128))


def test_a_reset_forgets_names():
    def function(x):
        with spyre_hint(num_tiles_per_dim={"M": 2}):
            return x * 2

    x = named("MN")
    reset()
    assert "no op inside has a dimension 'M'" in refusal(function, x)


# ------------------------------------------------------------------------------------ work division


def splits_in(code):
    """The splits of each op of a kernel."""
    spaces = re.findall(r"OpSpec\('(\w+)', \w+, \{(.*?)\}, \[\n", code)
    return [(op, [int(n) for n in re.findall(r"\(\d+, (\d+)\)", space)]) for op, space in spaces]


def test_work_is_divided_as_told():
    def function(x, y):
        with spyre_hint(work_div={"M": 4, "N": 2, "K": 2}):
            return x @ y

    got, code = code_of(function, named("MK"), named("KN", seed=1))
    assert splits_in(code) == [("batchmatmul", [4, 2, 2])]
    assert_near(got, function(wide(named("MK")), wide(named("KN", seed=1))))


def test_uneven_parts_and_tiles_are_divided_as_told():
    """Three tiles of rows, the last of 84: parts of 11 and 7, and of 11 and 9."""

    def function(x):
        with spyre_hint(work_div={"M": 8}, num_tiles_per_dim={"M": 3}):
            return torch.relu(x + 1)

    _, code = code_of(function, named("MN"))
    assert dict(splits_in(code)) == {"add": [8, 1], "relufwd": [8, 1]}
    tiled(function, named("MN"), loops=1)


def test_a_smaller_last_tile_may_have_fewer_parts():
    """Six tiles of 15 rows, and one of 10."""

    def function(x):
        with spyre_hint(work_div={"M": 15}, num_tiles_per_dim={"M": 7}):
            return x + 1

    declare_tensor_dim("M", 100)
    code = tiled(function, named("MN", 100, 128), loops=1)
    assert splits_in(code) == [("add", [15, 1]), ("add", [10, 1])]


def test_the_innermost_division_counts_and_tiles_are_divided():
    def function(x):
        with spyre_hint(work_div={"M": 16}, num_tiles_per_dim={"M": 4}):
            y = x * 2
            with spyre_hint(work_div={"M": 2, "N": 2}):
                return y + 1

    _, code = code_of(function, named("MN"))
    assert splits_in(code) == [("mul", [16, 1]), ("add", [2, 2])]


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        ({"M": 0}, ["'M'", "0 is not a positive number"]),
        ({"M": 2.5}, ["'M'", "2.5 is not a positive number"]),
        ({"M": 31}, ["'M'", "its size 256 cannot be 31 parts, all but the last equal"]),
        ({"N": 4}, ["'N'", "its size 128, 2 sticks of 64, cannot be 4 parts"]),
        ({"M": 32, "N": 2}, ["takes 64 cores, there are 32"]),
        ({"Q": 2}, ["no op inside has a dimension 'Q'; there are M, N"]),
    ],
)
def test_divisions_that_cannot_be(hint, words):
    def function(x):
        with spyre_hint(work_div=hint):
            return x + 1

    text = refusal(function, named("MN"))
    assert text.startswith("work_division_hint: ")
    for word in [*words, "op: "]:
        assert word in text


def test_only_products_share_sums():
    def function(x):
        with spyre_hint(work_div={"M": 2}):
            return x.sum(0)

    text = refusal(function, named("MN"))
    assert "work_division_hint: dimension 'M': sum reduces it" in text


# ----------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        ({"M": -1}, "tiles of dimension 'M': -1 is not a positive number"),
        ({"M": 300}, "300 tiles of dimension 'M': its size 256 cannot be so many"),
        ({"N": 4}, "4 tiles of dimension 'N': its size 128 in whole sticks of 64 of "),
        ({"Q": 2}, "no op inside has a dimension 'Q'; there are M, N"),
    ],
)
def test_tiles_that_cannot_be(hint, words):
    def function(x):
        with spyre_hint(num_tiles_per_dim=hint):
            return x + 1

    text = refusal(function, named("MN"))
    assert text.startswith(f"spyre_hint: {words}")
    assert "op: " in text


def test_argmax_is_not_tiled_along_what_it_looks_through():
    def function(x):
        with spyre_hint(num_tiles_per_dim={"M": 2}):
            return x.argmax(0)

    assert "argmax of tiles does not give argmax of all" in refusal(function, named("MN"))


def test_a_dimension_is_tiled_once():
    def function(x):
        with spyre_hint(num_tiles_per_dim={"M": 2}), spyre_hint(num_tiles_per_dim={"M": 2}):
            return x + 1

    assert "it is tiled already" in refusal(function, named("MN"))


def test_scopes_without_compiled_ops_are_refused():
    def function(x):
        with spyre_hint(num_tiles_per_dim={"M": 2}):
            y = x.cumsum(0)
        return y + 1

    assert "there are none that is compiled" in refusal(function, named("MN"))


# -------------------------------------------------------------------------------- names of copies


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x.to("spyre"),
        lambda x: x.spyre(),
        lambda x: x.to(device="spyre", dtype=torch.float32),
        lambda x: x.to("spyre").cpu().to("spyre"),
        lambda x: x.to("spyre").to("cpu").spyre(),
        lambda x: x.to("spyre").to(torch.float32),
    ],
)
def test_names_go_along_to_the_card_and_back(move):
    def softmax(x):
        with spyre_hint(num_tiles_per_dim={"M": 4}):
            return torch.softmax(x, -1)

    x = torch.randn(256, 128).half()
    name_tensor_dims(x, ["M", "N"])
    _, code = code_of(softmax, move(x))
    assert code.count("LoopSpec(") == 1


def test_names_of_parameters_go_along_with_their_module():
    module = torch.nn.Linear(128, 256, bias=False)
    name_tensor_dims(module.weight, ["M", "N"])
    module.to("spyre")
    assert dims_of_tensor(module.weight) == ((("M", 256),), (("N", 128),))


def test_tensors_without_names_stay_so():
    name_tensor_dims(torch.zeros(256, 128), ["M", "N"])
    assert dims_of_tensor(card(256, 128).cpu()) is None
