"""Moving modules: Parameters stay the objects they were, with their ties, optimizers and hooks."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from subprocesses import forked
from torch import nn

from torch_spyre._C import SpyreTensorLayout


class Tied(nn.Module):
    """An embedding whose weight is the decoder's too, and one buffer under two names."""

    def __init__(self, **options: object) -> None:
        super().__init__()
        self.embedding = nn.Embedding(70, 48, **options)
        self.decoder = nn.Linear(48, 70, **options)
        self.decoder.weight = self.embedding.weight
        self.register_buffer("mask", torch.arange(6, dtype=torch.float32))
        self.register_buffer("alias", self.mask)
        self.register_buffer("steps", torch.tensor([3], dtype=torch.int32), persistent=False)


MOVES = {
    'to("spyre")': lambda m: m.to("spyre"),
    "to(device)": lambda m: m.to(torch.device("spyre", 0)),
    "to(device=)": lambda m: m.to(device="spyre"),
    "to(tensor)": lambda m: m.to(torch.zeros(1, device="spyre")),
    "spyre()": lambda m: m.spyre(),
    "spyre(0)": lambda m: m.spyre(0),
    'spyre("spyre:0")': lambda m: m.spyre("spyre:0"),
}


def everything(module: nn.Module) -> dict[str, torch.Tensor]:
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def copies(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: t.detach().cpu().clone() for name, t in everything(module).items()}


def check_values(module: nn.Module, expected: dict[str, torch.Tensor]) -> None:
    for name, tensor in everything(module).items():
        assert torch.equal(tensor.detach().cpu(), expected[name]), name


# ----------------------------------------------------------------------------------- there and back


@pytest.mark.parametrize("move", MOVES)
def test_every_way_to_move_a_module(move):
    module = Tied()
    expected = copies(module)
    assert MOVES[move](module) is module
    assert {t.device for t in everything(module).values()} == {torch.device("spyre", 0)}
    check_values(module, expected)


@pytest.mark.parametrize("move", MOVES)
def test_tied_weights_stay_tied(move):
    module = MOVES[move](Tied())
    assert module.decoder.weight is module.embedding.weight
    assert module.alias is module.mask
    with torch.no_grad():
        module.embedding.weight[0, 0] = 5
        module.mask[0] = 7
    assert module.decoder.weight[0, 0].item() == 5
    assert module.alias[0].item() == 7


@pytest.mark.parametrize("move", MOVES)
def test_parameters_are_the_same_objects_after_the_move(move):
    module = Tied()
    before = dict(module.named_parameters())
    MOVES[move](module)
    for name, parameter in module.named_parameters():
        assert parameter is before[name], name
        assert isinstance(parameter, nn.Parameter)


@pytest.mark.parametrize(
    "back", [lambda m: m.cpu(), lambda m: m.to("cpu"), lambda m: m.to(device="cpu")]
)
def test_back_to_the_cpu(back):
    module = Tied()
    expected, before = copies(module), dict(module.named_parameters())
    module.to("spyre")
    assert back(module) is module
    assert {t.device.type for t in everything(module).values()} == {"cpu"}
    assert module.decoder.weight is module.embedding.weight is before["embedding.weight"]
    assert module.alias is module.mask
    check_values(module, expected)


def test_to_another_card():
    module = Tied().to("spyre")
    expected = copies(module)
    weight = module.decoder.weight
    module.to("spyre:1")
    assert {t.device for t in everything(module).values()} == {torch.device("spyre", 1)}
    assert module.decoder.weight is module.embedding.weight is weight
    check_values(module, expected)
    assert module.spyre(0).mask.device == torch.device("spyre", 0)


def test_moving_where_a_module_is_already_changes_nothing():
    module = Tied().to("spyre")
    pointers = {name: t.data_ptr() for name, t in everything(module).items()}
    module.to("spyre").spyre()
    assert {name: t.data_ptr() for name, t in everything(module).items()} == pointers


def test_storage_ties_of_views_survive():
    module = nn.Module()
    base = torch.arange(12.0)
    module.register_buffer("whole", base)
    module.register_buffer("again", base)
    module.to("spyre")
    assert module.whole is module.again


def test_ties_across_nested_modules_survive():
    inner = nn.Linear(4, 4)
    module = nn.Sequential(inner, nn.ModuleList([inner, nn.Linear(4, 4)]))
    module[1][1].bias = inner.bias
    module.to("spyre")
    assert module[0] is module[1][0]
    assert module[1][1].bias is module[0].bias
    assert module[0].bias.is_spyre


def test_modules_without_tensors_move():
    assert isinstance(nn.Sequential(nn.ReLU()).to("spyre"), nn.Sequential)


def test_only_the_part_that_is_moved_moves():
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5))
    module[1].to("spyre")
    assert module[0].weight.device.type == "cpu"
    assert module[1].weight.device.type == "spyre"
    module.to("spyre")
    assert module[0].weight.device.type == "spyre"


# ------------------------------------------------------------------------- what hangs on parameters


def test_an_optimizer_made_before_the_move_still_steps_the_parameters():
    module = nn.Linear(3, 4)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    module.to("spyre")
    assert optimizer.param_groups[0]["params"][0] is module.weight
    module.to("cpu")
    before = module.weight.detach().clone()
    module(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    torch.testing.assert_close(module.weight.detach(), before - 0.5)


def test_requires_grad_and_gradients_are_kept():
    module = nn.Linear(3, 4)
    module.bias.requires_grad_(False)
    module.weight.grad = torch.full((4, 3), 2.0)
    module.to("spyre")
    assert (module.weight.requires_grad, module.bias.requires_grad) == (True, False)
    assert module.weight.grad.is_spyre
    assert module.weight.grad.tolist() == [[2.0] * 3] * 4
    assert module.weight.is_leaf
    module.cpu()
    assert module.weight.grad.device.type == "cpu"


def test_hooks_on_parameters_stay():
    module = nn.Linear(3, 4)
    called = []
    module.weight.register_post_accumulate_grad_hook(lambda p: called.append(p))
    module.to("spyre").to("cpu")
    module(torch.ones(1, 3)).sum().backward()
    assert len(called) == 1
    assert called[0] is module.weight


def test_attributes_on_parameters_stay():
    module = nn.Linear(3, 4)
    module.weight.tensor_parallel = True
    module.to("spyre")
    assert module.weight.tensor_parallel


def test_the_graph_before_the_move_does_not_hold_it_up():
    module = nn.Linear(3, 4)
    loss = module(torch.ones(1, 3)).sum()
    loss.backward()
    del loss
    assert module.to("spyre").weight.is_spyre


# ------------------------------------------------------------------------------------------- dtypes


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(
    "move",
    [
        lambda m, d: m.to("spyre", d),
        lambda m, d: m.to(device="spyre", dtype=d),
        lambda m, d: m.to(torch.zeros(1, dtype=d, device="spyre")),
        lambda m, d: m.to(d).to("spyre"),
        lambda m, d: m.to("spyre").to(d),
        lambda m, d: m.to("spyre").to(dtype=d),
    ],
)
def test_floating_tensors_take_the_dtype_and_integers_do_not(move, dtype):
    module = move(Tied(), dtype)
    assert module.decoder.weight.dtype == module.mask.dtype == dtype
    assert module.steps.dtype == torch.int32
    assert module.decoder.weight is module.embedding.weight
    assert {t.device.type for t in everything(module).values()} == {"spyre"}


def test_conversions_on_the_card():
    module = Tied().to("spyre")
    weight = module.decoder.weight
    for convert, dtype in (
        (module.half, torch.float16),
        (module.bfloat16, torch.bfloat16),
        (module.float, torch.float32),
    ):
        convert()
        assert module.decoder.weight.dtype == dtype
        assert module.decoder.weight is module.embedding.weight is weight
        assert weight.is_spyre
    assert module.type(torch.float16).decoder.bias.dtype == torch.float16


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.float8_e8m0fnu], ids=str)
def test_a_dtype_the_card_has_not_is_refused_before_anything_moves(dtype):
    module = Tied()
    expected = copies(module)
    with pytest.raises(ValueError, match=f"dtype {dtype} has no Spyre device representation"):
        module.to("spyre", dtype)
    assert {t.device.type for t in everything(module).values()} == {"cpu"}
    check_values(module, expected)
    module.to("spyre")
    with pytest.raises((ValueError, TypeError), match=str(dtype).removeprefix("torch.")):
        module.to(dtype)
    assert module.decoder.weight.dtype == torch.float32
    check_values(module, expected)


def test_a_module_that_holds_such_a_dtype_names_the_tensor_and_the_way_out():
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5).double())
    with pytest.raises(ValueError, match=r"1\.weight: dtype torch.float64") as error:
        module.to("spyre")
    assert "model.to('spyre', torch.float16)" in str(error.value)
    assert module[0].weight.device.type == "cpu"
    assert module.to("spyre", torch.float32)[1].weight.is_spyre


def test_converting_to_double_on_the_card_changes_nothing():
    module = Tied().to("spyre")
    expected = copies(module)
    with pytest.raises((TypeError, ValueError), match="float64"):
        module.double()
    check_values(module, expected)


def test_integer_dtypes_are_refused_as_pytorch_does():
    with pytest.raises(TypeError, match="only accepts floating point"):
        nn.Linear(3, 4).to("spyre", torch.int8)


# ------------------------------------------------------------------------------------------ layouts


def test_linear_weights_have_their_output_features_in_the_stick():
    module = nn.Linear(200, 70, dtype=torch.float16).to("spyre")
    expected = SpyreTensorLayout([70, 200], [200, 1], torch.float16, [1, 0])
    assert module.weight.device_tensor_layout() == expected
    assert module.bias.device_tensor_layout() == SpyreTensorLayout([70], torch.float16)


@pytest.mark.parametrize(
    "move",
    [
        lambda m: m.to("spyre", torch.float16),
        lambda m: m.half().spyre(),
        lambda m: m.to("spyre:1", torch.float16),
    ],
)
def test_linear_weights_get_that_layout_on_every_way(move):
    module = move(nn.Sequential(nn.Linear(200, 70)))
    expected = SpyreTensorLayout([70, 200], [200, 1], torch.float16, [1, 0])
    assert module[0].weight.device_tensor_layout() == expected


def test_other_weights_keep_the_default_layout():
    module = nn.Embedding(70, 200, dtype=torch.float16).to("spyre")
    assert module.weight.device_tensor_layout() == SpyreTensorLayout([70, 200], torch.float16)


def test_the_layout_does_not_change_what_is_read():
    module = nn.Linear(200, 70)
    expected = module.weight.detach().clone()
    module.to("spyre")
    assert torch.equal(module.weight.detach().cpu(), expected)
    assert module.weight.stride() == expected.stride()
    assert torch.equal(module.weight.detach()[3:, 7].cpu(), expected[3:, 7])


# -------------------------------------------------------------------------------------------- empty


def test_to_empty_moves_without_values_and_keeps_ties():
    module = Tied()
    weight = module.decoder.weight
    module.to_empty(device="spyre")
    assert module.decoder.weight is module.embedding.weight is weight
    assert weight.is_spyre
    assert weight.shape == (70, 48)


def test_meta_modules_are_materialised_with_to_empty():
    with torch.device("meta"):
        module = Tied()
    module.to_empty(device="spyre")
    assert {t.device.type for t in everything(module).values()} == {"spyre"}
    assert module.decoder.weight is module.embedding.weight
    module.load_state_dict(Tied().state_dict())


def test_meta_modules_cannot_be_moved_with_values():
    with torch.device("meta"):
        module = nn.Linear(3, 4)
    with pytest.raises(NotImplementedError, match=r"to_empty"):
        module.to("spyre")
    assert module.weight.is_meta


def test_modules_can_be_made_on_the_card():
    module = nn.Linear(3, 4, device="spyre", dtype=torch.float16)
    assert module.weight.is_spyre
    with torch.device("spyre:1"):
        assert Tied().mask.device == torch.device("spyre", 1)


def test_skip_init_works():
    module = torch.nn.utils.skip_init(nn.Linear, 3, 4, device="spyre")
    assert module.weight.is_spyre


def test_initialisation_on_the_card_draws_the_cpus_numbers():
    torch.manual_seed(0)
    card = nn.Linear(30, 40, device="spyre")
    torch.manual_seed(0)
    host = nn.Linear(30, 40)
    assert torch.equal(card.weight.detach().cpu(), host.weight.detach())


# ---------------------------------------------------------------------------------- everything else


def test_modules_on_the_cpu_behave_as_without_the_package():
    module = Tied()
    weight, pointer = module.decoder.weight, module.decoder.weight.data_ptr()
    assert module.to("cpu") is module
    assert module.cpu().decoder.weight.data_ptr() == pointer
    module.to(torch.float64)
    assert module.decoder.weight is weight
    assert weight.dtype == torch.float64
    module.to("meta")
    assert module.decoder.weight.is_meta
    assert not torch.__future__.get_swap_module_params_on_conversion()


def test_the_swap_switch_is_put_back_after_an_error():
    with pytest.raises(IndexError):
        nn.Linear(3, 4).to("spyre:9")
    assert not torch.__future__.get_swap_module_params_on_conversion()


def test_a_module_that_could_not_be_moved_is_left_as_it_was():
    module = Tied()
    expected = copies(module)
    with pytest.raises(IndexError, match="out of range"):
        module.to("spyre:9")
    assert {t.device.type for t in everything(module).values()} == {"cpu"}
    check_values(module, expected)


def test_bad_arguments_are_refused_as_pytorch_does():
    with pytest.raises(TypeError):
        nn.Linear(3, 4).to("spyre", "spyre")
    with pytest.raises((ValueError, RuntimeError)):
        nn.Linear(3, 4).spyre("cpu")


def test_channels_last_weights_move():
    module = nn.Conv2d(3, 4, 3)
    before = module.weight.detach().clone()
    module.to("spyre", memory_format=torch.channels_last)
    assert module.weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(module.weight.cpu(), before)


def test_train_state_and_buffers_that_are_not_persistent_survive():
    module = Tied().eval().to("spyre")
    assert not module.training
    assert module.steps.tolist() == [3]
    assert "steps" not in module.state_dict()


@pytest.mark.parametrize("device", ["cpu", "spyre"])
def test_lazy_modules_stay_lazy(device):
    module = nn.LazyLinear(4).to(device)
    assert module.has_uninitialized_params()
    assert module.weight.device.type == device


# ----------------------------------------------------------------------------------- all or nothing


class Faulty(nn.Module):
    """A module with a parameter, whose turn comes last, that cannot be moved."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Tied()
        self.recurrent = nn.LSTM(4, 5)
        self.last = nn.Linear(3, 4)
        self.body.decoder.weight.grad = torch.ones(70, 48)


def state(module: nn.Module) -> list[object]:
    """Where everything lies, and what it is."""
    gradients = {f"{n}.grad": p.grad for n, p in module.named_parameters() if p.grad is not None}
    tensors = {**everything(module), **gradients}
    return [(name, id(t), t.device, t.data_ptr(), t.dtype) for name, t in tensors.items()]


def test_a_module_that_does_not_fit_is_left_as_it_was():
    code = """
        import json, torch
        from torch import nn

        model = nn.Sequential(nn.Linear(256, 256), nn.BatchNorm1d(256), nn.Linear(256, 4096))
        model[0].weight.grad = torch.ones(256, 256)
        inputs = torch.randn(3, 256)
        model.eval()

        def state():
            tensors = [*model.parameters(), *model.buffers(), model[0].weight.grad]
            return [(id(t), str(t.device), t.data_ptr()) for t in tensors]

        before, expected = state(), model(inputs)
        try:
            model.to("spyre")
        except torch.OutOfMemoryError as error:
            print(json.dumps([
                state() == before, torch.equal(model(inputs), expected),
                torch.spyre.memory_allocated(), "out of memory" in str(error),
            ]))
        """
    assert forked(code, SPYRE_CARD_MEMORY="2M").value == [True, True, 0, True]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_whatever_goes_wrong_nothing_has_moved(error):
    module = Faulty()
    before, expected = state(module), copies(module)
    last = module.last.bias
    calls = []

    def convert(tensor):
        calls.append(tensor)
        if tensor is last:
            raise error("no")
        return tensor.to("spyre")

    torch.spyre.init()
    with pytest.raises(error):
        module._apply(convert)
    assert len(calls) > 5
    assert state(module) == before
    check_values(module, expected)
    assert module.to("spyre").last.bias.is_spyre


def test_what_a_part_says_while_it_is_exchanged_undoes_all():
    class Stubborn(nn.Linear):
        def _apply(self, fn, recurse=True):
            super()._apply(fn, recurse)
            raise RuntimeError("not me")

    module = nn.Sequential(Tied(), nn.LSTM(4, 5), Stubborn(3, 4))
    module[0].mask.requires_grad_(False)
    before, expected = state(module), copies(module)
    with pytest.raises(RuntimeError, match="not me"):
        module.to("spyre")
    assert state(module) == before
    check_values(module, expected)


def test_no_switch_of_the_process_is_touched(monkeypatch):
    monkeypatch.setattr(torch.__future__, "set_swap_module_params_on_conversion", None)
    monkeypatch.setattr(torch.__future__, "set_overwrite_module_params_on_conversion", None)
    module = Tied().to("spyre").cpu()
    assert module.decoder.weight is module.embedding.weight


def test_modules_move_in_several_threads():
    modules = [Tied() for _ in range(4)]
    expected = [copies(module) for module in modules]

    def move(module):
        for _ in range(5):
            module.to("spyre").cpu()
        return module.to("spyre")

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(move, modules)) == modules
    for module, values in zip(modules, expected, strict=True):
        assert module.decoder.weight is module.embedding.weight
        check_values(module, values)


def test_the_first_thing_a_process_does_may_be_to_move_a_module():
    code = """
        import torch
        model = torch.nn.Linear(200, 70)
        model.register_buffer("one", torch.ones(2))
        model.register_buffer("two", model.one)
        weight = model.weight
        model.to("spyre")
        print([model.weight is weight, model.one is model.two, list(
            weight.device_tensor_layout().device_size)])
    """
    assert forked(code.replace("True", "1")).output == "[True, True, [3, 200, 32]]"


def test_what_is_moved_by_hand_stays_the_object_it_is():
    parameter = nn.Parameter(torch.ones(3))
    parameter.data = torch.full((3,), 2.0, device="spyre")
    assert parameter.is_spyre
    (parameter * 2).sum().backward()
    assert parameter.grad.tolist() == [2, 2, 2]
    parameter.data = torch.zeros(3)
    assert parameter.device.type == "cpu"


def test_data_under_a_layout_of_its_own_keeps_it():
    """`view(dtype)` shows the memory of one format as another."""
    numbers = torch.arange(64, dtype=torch.float32)
    for device in ("cpu", "spyre"):
        parameter = nn.Parameter(torch.zeros(64, device=device), requires_grad=False)
        parameter.data = numbers.to("spyre").view(torch.int32)
        assert torch.equal(parameter.cpu(), numbers.view(torch.int32))
