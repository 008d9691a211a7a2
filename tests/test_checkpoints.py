"""Safetensors checkpoints: straight to the card, right, in memory once, and saved from there."""

import copy

import pytest
import safetensors
import safetensors.torch
import torch
import transformers
from generation import generate, moved, on_card, on_cpu, prompts
from model_runs import TRANSFORMERS, case
from subprocesses import fresh

from torch_spyre import zoo
from torch_spyre._C import SpyreTensorLayout
from torch_spyre.zoo.fms_models import ARCHITECTURES
from torch_spyre.zoo.measure import cast_inputs


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A directory with a small Granite in float16."""
    path = tmp_path_factory.mktemp("granite")
    on_cpu("granite").half().save_pretrained(path)
    return path


@pytest.mark.parametrize("device", ["spyre", "spyre:1", torch.device("spyre", 0)], ids=str)
def test_a_file_is_loaded_onto_a_card(tmp_path, device):
    path = tmp_path / "x.safetensors"
    tensors = {
        "half": torch.randn(3, 70).half(),
        "brain": torch.randn(64, 5).bfloat16(),
        "single": torch.randn(7),
        "numbers": torch.arange(130, dtype=torch.int32),
        "nothing": torch.empty(0, 4),
    }
    safetensors.torch.save_file(tensors, path)
    loaded = safetensors.torch.load_file(path, device=device)
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].device == torch.device("spyre", torch.device(device).index or 0)
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name].cpu(), tensor.to(device).cpu())


def test_parts_of_a_tensor(tmp_path):
    path, x = tmp_path / "x.safetensors", torch.arange(12.0).reshape(3, 4)
    safetensors.torch.save_file({"x": x}, path, metadata={"format": "pt"})
    with safetensors.safe_open(path, framework="pt", device="spyre") as file:
        assert file.metadata() == {"format": "pt"}
        part = file.get_slice("x")
        assert part.get_shape() == [3, 4]
        assert part[1:, 2:].device.type == "spyre"
        assert torch.equal(part[1:, 2:].cpu(), x[1:, 2:])
    with safetensors.safe_open(path, framework="pt") as file:
        assert file.get_tensor("x").device.type == "cpu"


def test_a_missing_file_and_an_unknown_device(tmp_path):
    with pytest.raises(FileNotFoundError):
        safetensors.torch.load_file(tmp_path / "none.safetensors", device="spyre")
    safetensors.torch.save_file({"x": torch.ones(2)}, tmp_path / "x.safetensors")
    with pytest.raises((RuntimeError, safetensors.SafetensorError), match="nonsense"):
        safetensors.torch.load_file(tmp_path / "x.safetensors", device="nonsense")


@pytest.mark.parametrize("first", ["safetensors.torch", "torch"])
def test_any_order_of_imports(saved, first):
    result = fresh(
        f"import {first}, safetensors.torch\n"
        f"loaded = safetensors.torch.load_file({str(saved / 'model.safetensors')!r}, 'spyre')\n"
        "print({tensor.device.type for tensor in loaded.values()})"
    )
    assert "{'spyre'}" in result.stdout, result.stderr


def test_weights_for_a_model_without_any(saved):
    config = transformers.AutoConfig.from_pretrained(saved)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float16)
    weights = safetensors.torch.load_file(saved / "model.safetensors", device="spyre")
    model.load_state_dict(weights, assign=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # computed, not saved
    model.eval().to("spyre")
    want = generate(on_card("granite"), moved(prompts()))
    assert torch.equal(generate(model, moved(prompts())), want)
    # Moving lays out the weights of linear layers, whether they were on the card or not.
    laid_out = on_card("granite").lm_head.weight.device_tensor_layout()
    assert model.lm_head.weight.device_tensor_layout() == laid_out


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_every_model_takes_weights_from_a_file(name, tmp_path):
    """Built on the card, its weights read straight to the card."""
    this, path = case(name), tmp_path / "model.safetensors"
    safetensors.torch.save_model(copy.deepcopy(this.module).half(), path)
    with torch.device("spyre"):
        model = type(this.module)(this.module.config).half().eval()
    weights = safetensors.torch.load_file(path, device="spyre")
    assert {tensor.device.type for tensor in weights.values()} == {"spyre"}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected
    assert shared(missing, this.module)
    with torch.inference_mode():
        this.judge(model(**cast_inputs(this.inputs, torch.float16, "spyre")))


def shared(names, module):
    """Whether all of them are second names of other tensors: a file has those once."""
    places = {}
    for name, tensor in module.state_dict().items():
        places.setdefault(tensor.data_ptr(), []).append(name)
    return all(len(same) > 1 for same in places.values() if set(same) & set(names))


def test_the_foundation_model_stack_reads_a_file_to_the_card(tmp_path):
    granite, settings = zoo.get("fms-granite"), ARCHITECTURES["granite"]
    host = granite.build().half()
    weights = {name: tensor.clone() for name, tensor in host.state_dict().items()}
    safetensors.torch.save_file(weights, tmp_path / "model.safetensors")
    model = pytest.importorskip("fms.models").get_model(
        "granite",
        settings.variant,
        model_path=str(tmp_path),
        device_type="spyre",
        data_type=torch.float16,
        **settings.config(zoo.SIZES["tiny"]),
    )
    assert {tensor.device.type for tensor in model.parameters()} == {"spyre"}
    inputs = granite.inputs()
    with torch.inference_mode():
        want = granite.output(host.float()(**inputs))
        ours = granite.output(model.eval()(**moved(inputs))).float().cpu()
    torch.testing.assert_close(ours, want, rtol=0, atol=2**-7 * want.abs().max().item())


def test_a_layout_that_was_chosen_stays():
    linear = torch.nn.Linear(70, 130, bias=False).half()
    layout = SpyreTensorLayout([130, 70], [70, 1], torch.float16, [1, 0])
    moved_once = linear.to("spyre")
    assert moved_once.weight.device_tensor_layout() == layout
    pointer = moved_once.weight.data_ptr()
    assert moved_once.to("spyre").weight.data_ptr() == pointer


def test_from_pretrained_and_back(saved, tmp_path):
    model = transformers.AutoModelForCausalLM.from_pretrained(saved, dtype=torch.float16)
    model.to("spyre")
    want = generate(on_card("granite"), moved(prompts()))
    assert torch.equal(generate(model, moved(prompts())), want)
    model.save_pretrained(tmp_path)
    again = safetensors.torch.load_file(tmp_path / "model.safetensors")
    for name, tensor in safetensors.torch.load_file(saved / "model.safetensors").items():
        # DLFloat16 has a fraction bit less than float16: what the card holds is what is saved.
        assert torch.equal(again[name], tensor.to("spyre").cpu())


# Sizes in KiB, as Linux counts them for this process.
PEAK = """
import safetensors.torch, torch

def kib(field):
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field)))

torch.ones(1, device="spyre").add(1).cpu()
before = kib("VmRSS")
if {how!r} == "file":
    kept = safetensors.torch.load_file({path!r}, device="spyre")
else:
    kept = torch.nn.ModuleList(torch.nn.Linear(2048, 4096, False, "meta") for _ in range(8))
    kept.load_state_dict(safetensors.torch.load_file({path!r}), assign=True)
    kept.to("spyre")
print("peak", kib("VmHWM") - before)
"""


@pytest.mark.parametrize("how", ["file", "model"])
def test_weights_are_in_memory_once(tmp_path, how):
    path = tmp_path / "model.safetensors"
    weights = {f"{i}.weight": torch.full((4096, 2048), i, dtype=torch.float16) for i in range(8)}
    safetensors.torch.save_file(weights, path)
    result = fresh(PEAK.format(path=str(path), how=how))
    peak = int(result.output.removeprefix("peak"))
    assert peak * 1024 < 1.25 * sum(weight.nbytes for weight in weights.values())
