"""Saving, loading, pickling and copying tensors, and storages as bytes.

A file that holds device tensors is an ordinary PyTorch file: its bytes are those of CPU tensors, so
it loads on a machine without the device, and files from such machines load onto the card.
"""

import collections
import copy
import io
import pickle

import pytest
import torch
from oracle import DEVICE_DTYPES as DTYPES
from torch import nn

from torch_spyre._C import DataFormats, SpyreTensorLayout


def values(dtype: torch.dtype = torch.float16, shape: tuple[int, ...] = (3, 70)) -> torch.Tensor:
    count = torch.Size(shape).numel()
    top = 2 if dtype == torch.bool else 8
    return torch.arange(count).remainder(top).to(dtype).reshape(shape)


def same(result: torch.Tensor, expected: torch.Tensor, device: str = "spyre:0") -> None:
    assert result.device == torch.device(device)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    assert result.stride() == expected.stride()
    torch.testing.assert_close(result.cpu(), expected.cpu(), rtol=0, atol=0)


def saved(thing: object, **options: object) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(thing, file, **options)
    file.seek(0)
    return file


def shares_storage(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


# ------------------------------------------------------------------------------------ save and load


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 70), (2, 3, 65)], ids=str)
def test_a_saved_tensor_comes_back_to_its_device(shape, dtype):
    card = values(dtype, shape).to("spyre")
    same(torch.load(saved(card)), card)


def test_a_tensor_of_another_card_comes_back_to_that_card():
    card = values().to("spyre:1")
    same(torch.load(saved(card)), card, "spyre:1")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "target",
    [
        pytest.param("cpu", id="name"),
        pytest.param(torch.device("cpu"), id="device"),
        pytest.param({"spyre:0": "cpu"}, id="dict"),
        pytest.param(lambda storage, location: storage.cpu(), id="callable"),
    ],
)
def test_a_device_file_loads_onto_the_cpu(target, dtype):
    host = values(dtype)
    result = torch.load(saved(host.to("spyre")), map_location=target)
    assert result.device.type == "cpu"
    torch.testing.assert_close(result, host, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "target",
    [
        pytest.param("spyre", id="name"),
        pytest.param("spyre:1", id="name with index"),
        pytest.param(torch.device("spyre", 1), id="device"),
        pytest.param({"cpu": "spyre:1"}, id="dict"),
    ],
)
def test_a_cpu_file_loads_onto_the_card(target, dtype):
    host = values(dtype)
    result = torch.load(saved(host), map_location=target)
    same(result, host, "spyre:0" if target == "spyre" else "spyre:1")


def test_a_callable_may_choose_the_device():
    host = values()
    result = torch.load(
        saved(host), map_location=lambda storage, location: storage.to(device="spyre:1")
    )
    same(result, host, "spyre:1")


def test_a_file_moves_between_cards():
    card = values().to("spyre:0")
    same(torch.load(saved(card), map_location="spyre:1"), card, "spyre:1")
    same(torch.load(saved(card), map_location={"spyre:0": "spyre:1"}), card, "spyre:1")


def test_a_card_that_is_not_there_is_named():
    with pytest.raises(RuntimeError, match="device 9"):
        torch.load(saved(values().to("spyre")), map_location="spyre:9")


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("zipped", [True, False])
def test_both_file_formats_and_both_unpicklers(weights_only, zipped):
    card = values().to("spyre")
    for thing in (card, [card, 5], collections.OrderedDict(a=card)):
        file = saved(thing, _use_new_zipfile_serialization=zipped)
        loaded = torch.load(file, weights_only=weights_only)
        result = loaded["a"] if isinstance(loaded, dict) else loaded
        same(result[0] if isinstance(loaded, list) else result, card)
        file.seek(0)
        loaded = torch.load(file, map_location="cpu", weights_only=weights_only)
        result = loaded["a"] if isinstance(loaded, dict) else loaded
        result = result[0] if isinstance(loaded, list) else result
        assert torch.equal(result, card.cpu())


def test_old_files_from_the_cpu_load_onto_the_card():
    host = values()
    file = saved(host, _use_new_zipfile_serialization=False)
    same(torch.load(file, map_location="spyre"), host)


def test_files_on_disk_and_memory_mapping(tmp_path):
    card = values(torch.float32, (64, 65)).to("spyre")
    path = tmp_path / "tensor.pt"
    torch.save(card, path)
    same(torch.load(path), card)
    assert torch.equal(torch.load(path, map_location="cpu", mmap=True), card.cpu())
    torch.save(card.cpu(), path)
    same(torch.load(path, map_location="spyre"), card)


def test_the_bytes_in_a_file_are_those_of_the_cpu_tensor():
    host = values(torch.float32, (5, 70))
    assert bytes(host.to("spyre").untyped_storage()) == bytes(host.untyped_storage())
    assert len(saved(host.to("spyre")).getbuffer()) <= len(saved(host).getbuffer()) + 512


def test_a_view_is_saved_with_its_storage_and_comes_back_as_a_view():
    card = values(torch.float32, (6, 70)).to("spyre")
    view = card[2:5, 3:60:2]
    result = torch.load(saved(view))
    same(result, view)
    assert (result.stride(), result.storage_offset()) == (view.stride(), view.storage_offset())


@pytest.mark.parametrize("target", [None, "cpu", "spyre:1"])
def test_views_of_one_storage_still_share_it_after_loading(target):
    card = values(torch.float32, (6, 70)).to("spyre")
    base, row, turned = torch.load(saved([card, card[2], card.t()]), map_location=target)
    assert shares_storage(base, row)
    assert shares_storage(base, turned)
    row.fill_(42)
    assert base.cpu()[2].tolist() == [42.0] * 70
    assert turned.cpu()[5, 2] == 42


def test_host_views_still_share_after_loading_onto_the_card():
    host = values(torch.float16, (6, 70))
    row, base = torch.load(saved([host[2], host]), map_location="spyre")
    same(row, host[2])
    same(base, host)
    base[2] = 5
    assert row.tolist() == [5.0] * 70


def test_parameters_and_requires_grad_are_kept():
    parameter = nn.Parameter(values(torch.float32).to("spyre"))
    result = torch.load(saved({"p": parameter, "t": parameter.detach().requires_grad_()}))
    assert isinstance(result["p"], nn.Parameter)
    assert result["t"].requires_grad
    same(result["p"].detach(), parameter.detach())


def test_loading_what_the_card_has_no_format_for_says_so():
    with pytest.raises(TypeError, match="float64"):
        torch.load(saved(torch.ones(3, dtype=torch.float64)), map_location="spyre")


def test_a_device_file_loads_in_a_process_without_the_device(tmp_path):
    from subprocesses import fresh

    path = tmp_path / "tensor.pt"
    host = values(torch.float32)
    torch.save({"a": host.to("spyre"), "b": host.half().to("spyre")}, path)
    result = fresh(
        f"""
        import torch
        loaded = torch.load({str(path)!r}, map_location="cpu")
        print(hasattr(torch, "spyre"), loaded["a"].sum().item(), loaded["b"].dtype)
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD=0,
    )
    assert result.output == f"False {host.sum().item()} torch.float16"


# ------------------------------------------------------------------------------------- pickle, copy


# PyTorch itself cannot pickle float8 tensors outside of torch.save.
@pytest.mark.parametrize("dtype", [d for d in DTYPES if "float8" not in str(d)], ids=str)
def test_pickle(dtype):
    card = values(dtype).to("spyre")
    same(pickle.loads(pickle.dumps(card)), card)


def test_pickle_keeps_views_of_one_storage_together():
    card = values(torch.float32).to("spyre")
    base, row = pickle.loads(pickle.dumps([card, card[1]]))
    same(base, card)
    same(row, card[1])


def test_copy_shares_the_storage():
    card = values().to("spyre")
    result = copy.copy(card)
    assert result is not card
    assert shares_storage(result, card)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 70), (2, 3, 65)], ids=str)
def test_deepcopy_is_a_tensor_of_its_own(shape, dtype):
    card = values(dtype, shape).to("spyre")
    result = copy.deepcopy(card)
    same(result, card)
    assert not shares_storage(result, card)
    assert result.device_tensor_layout() == card.device_tensor_layout()


def test_deepcopy_keeps_the_layout():
    layout = SpyreTensorLayout([70, 90], [90, 1], torch.float16, [1, 0])
    host = values(torch.float16, (70, 90))
    card = host.to(device_layout=layout)
    result = copy.deepcopy(card)
    assert result.device_tensor_layout() == layout
    same(result, host)
    result = copy.deepcopy(card[3:, 5:])
    assert result.device_tensor_layout() == layout
    same(result, host[3:, 5:])


def test_deepcopy_keeps_views_of_one_storage_together():
    card = values(torch.float32).to("spyre")
    base, row = copy.deepcopy([card, card[1]])
    assert shares_storage(base, row)
    row.fill_(9)
    assert base.cpu()[1].tolist() == [9.0] * 70
    assert card.cpu()[1].tolist() != [9.0] * 70


def test_deepcopy_keeps_requires_grad_and_grad():
    card = values(torch.float32).to("spyre").requires_grad_()
    card.grad = torch.ones_like(card)
    result = copy.deepcopy(card)
    assert result.requires_grad
    same(result.grad, torch.ones(3, 70))


def test_deepcopy_stays_on_its_card():
    same(copy.deepcopy(values().to("spyre:1")), values(), "spyre:1")


def test_deepcopy_of_a_module_keeps_ties_and_layouts():
    model = tied_model().to("spyre")
    clone = copy.deepcopy(model)
    assert clone.decoder.weight is clone.encoder.weight
    assert clone.decoder.weight is not model.decoder.weight
    same(clone.encoder.weight.detach(), model.encoder.weight.detach())
    for name, parameter in model.named_parameters():
        layout = dict(clone.named_parameters())[name].device_tensor_layout()
        assert layout == parameter.device_tensor_layout(), name


@pytest.mark.parametrize("change", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_layouts_can_be_copied_and_pickled(change):
    layout = SpyreTensorLayout([512, 8, 256], torch.float16)
    assert change(layout) == layout
    assert hash(change(layout)) == hash(layout)
    assert change(DataFormats.SEN169_FP16) == DataFormats.SEN169_FP16


# -------------------------------------------------------------------------------------- state dicts


def tied_model() -> nn.Module:
    model = nn.ModuleDict(
        {"encoder": nn.Embedding(70, 48), "norm": nn.BatchNorm1d(48), "decoder": nn.Linear(48, 70)}
    )
    model.decoder.weight = model.encoder.weight
    return model


def test_a_state_dict_goes_from_the_card_to_the_cpu_and_back():
    model = tied_model()
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.to("spyre")
    state = torch.load(saved(model.state_dict()), map_location="cpu")
    fresh_model = tied_model()
    fresh_model.load_state_dict(state)
    for name, tensor in fresh_model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    fresh_model.to("spyre").load_state_dict(model.state_dict())
    for name, tensor in fresh_model.state_dict().items():
        assert tensor.is_spyre
        assert torch.equal(tensor.cpu(), expected[name]), name


def test_a_cpu_checkpoint_loads_into_a_model_on_the_card():
    source, target = tied_model(), tied_model().to("spyre")
    weight = target.encoder.weight
    target.load_state_dict(torch.load(saved(source.state_dict())))
    assert target.encoder.weight is weight
    assert target.decoder.weight is weight
    assert torch.equal(weight.detach().cpu(), source.encoder.weight.detach())


def test_a_checkpoint_can_be_assigned():
    source, target = tied_model(), tied_model()
    state = torch.load(saved(source.state_dict()), map_location="spyre")
    target.load_state_dict(state, assign=True)
    assert target.encoder.weight.is_spyre
    assert torch.equal(target.decoder.bias.detach().cpu(), source.decoder.bias.detach())


def test_a_whole_module_can_be_saved():
    model = nn.Linear(3, 4).to("spyre")
    result = torch.load(saved(model), weights_only=False)
    same(result.weight.detach(), model.weight.detach())
    result = torch.load(saved(model), weights_only=False, map_location="cpu")
    assert torch.equal(result.weight, model.weight.cpu())


def test_optimizer_state_goes_through_a_file():
    model = nn.Linear(3, 4).to("spyre")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer.state[model.weight]["momentum_buffer"] = torch.ones_like(model.weight)
    state = torch.load(saved(optimizer.state_dict()), map_location="cpu")
    other = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    other.load_state_dict(state)
    same(other.state[model.weight]["momentum_buffer"], torch.ones(4, 3))


# ----------------------------------------------------------------------------------------- storages


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_storage_shows_the_bytes_of_the_cpu_storage(dtype):
    host = values(dtype)
    storage = host.to("spyre").untyped_storage()
    assert storage.nbytes() == host.untyped_storage().nbytes()
    assert len(storage) == len(host.untyped_storage())
    assert storage.device == torch.device("spyre", 0)
    assert storage.cpu().tolist() == host.untyped_storage().tolist()
    assert bytes(storage) == bytes(host.untyped_storage())


def test_storages_can_be_cloned_and_moved():
    card = values(torch.float32).to("spyre")
    expected = card.cpu().untyped_storage().tolist()
    clone = card.untyped_storage().clone()
    card.zero_()
    assert clone.cpu().tolist() == expected
    assert clone.device == torch.device("spyre", 0)
    host = torch.tensor([1.0, 2.0]).untyped_storage()
    moved = host.to(device="spyre:1")
    assert moved.device == torch.device("spyre", 1)
    assert moved.cpu().tolist() == host.tolist()


def test_storages_can_be_indexed():
    host = values(torch.float32)
    storage = host.to("spyre").untyped_storage()
    reference = host.untyped_storage()
    for index in (0, 4, 7, 100, -1):
        assert storage[index] == reference[index]
    with pytest.raises(IndexError):
        storage[len(storage)]
    storage[6] = 64
    reference[6] = 64
    assert storage.cpu().tolist() == reference.tolist()


def test_filling_a_storage_changes_its_tensors():
    card = values(torch.float32).to("spyre")
    card.untyped_storage().fill_(0)
    assert card.cpu().count_nonzero() == 0
    integers = torch.zeros(4, dtype=torch.int32, device="spyre")
    integers.untyped_storage().fill_(1)
    assert integers.tolist() == [0x01010101] * 4


def test_storages_can_be_copied_into_each_other():
    card = values(torch.float32).to("spyre")
    target = torch.empty(3, 70, device="spyre")
    target.untyped_storage().copy_(card.untyped_storage())
    same(target, card)
    target.untyped_storage().copy_(torch.ones(3, 70).untyped_storage())
    same(target, torch.ones(3, 70))
    back = torch.empty(3, 70)
    back.untyped_storage().copy_(card.untyped_storage())
    assert torch.equal(back, card.cpu())


def test_a_grown_storage_keeps_its_elements():
    card = values(torch.float16, (100,)).to("spyre")
    storage = card.untyped_storage()
    storage.resize_(400)
    assert storage.nbytes() == 400
    same(card, values(torch.float16, (100,)))
    assert card.new_empty(0).set_(storage, 0, (200,), (1,))[:100].tolist() == card.tolist()


def test_a_storage_can_be_emptied_and_grown_again_as_sharding_libraries_do():
    card = values(torch.float32).to("spyre")
    before = torch.spyre.memory_allocated()
    card.untyped_storage().resize_(0)
    assert card.untyped_storage().nbytes() == 0
    assert torch.spyre.memory_allocated() < before
    card.untyped_storage().resize_(3 * 70 * 4)
    card.copy_(values(torch.float32))
    same(card, values(torch.float32))


def test_an_emptied_storage_is_reported_and_not_read():
    card = values(torch.float32).to("spyre")
    card.untyped_storage().resize_(0)
    for use in (
        lambda: card.cpu(),
        lambda: card.fill_(1),
        lambda: card.copy_(torch.ones(3, 70)),
        lambda: card.clone(),
        lambda: torch.empty_like(card).copy_(card),
        lambda: card.to("spyre:1"),
        lambda: card[0, 0].item(),
        lambda: repr(card),
    ):
        with pytest.raises(RuntimeError, match="storage"):
            use()
    assert torch.ones(3, device="spyre").tolist() == [1.0] * 3


def test_a_shrunk_storage_is_reported_and_not_read_beyond():
    card = values(torch.float16, (100,)).to("spyre")
    card.untyped_storage().resize_(60)
    with pytest.raises(RuntimeError, match="storage"):
        card.cpu()
    assert card[:30].tolist() == values(torch.float16, (100,))[:30].tolist()


def test_storages_can_be_made_and_used():
    storage = torch.UntypedStorage(8, device="spyre")
    storage.fill_(0)
    storage[3] = 64
    assert storage.tolist() == [0, 0, 0, 64, 0, 0, 0, 0]
    card = torch.empty(0, dtype=torch.float32, device="spyre").set_(storage, 0, (2,), (1,))
    assert card.tolist() == [2.0, 0.0]


@pytest.mark.unchecked(
    "each byte that is written to a storage brings all of them to the host and back"
)
def test_storages_can_be_made_of_lists():
    assert torch.UntypedStorage([1, 2, 3], device="spyre:1").cpu().tolist() == [1, 2, 3]


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_typed_storages_show_elements():
    host = values(torch.float16)
    storage = host.to("spyre").storage()
    assert storage.dtype == torch.float16
    assert len(storage) == host.numel()
    assert storage.tolist() == host.flatten().tolist()
    assert storage[5] == host.flatten()[5]
    assert "of size 210" in str(storage)
