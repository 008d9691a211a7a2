"""`python -m torch_spyre models`, and what the zoo promises besides its models."""

import json
import subprocess
import sys

import pytest
import torch

from torch_spyre import zoo
from torch_spyre.__main__ import main
from torch_spyre.tools.models_command import _accuracy
from torch_spyre.zoo import registry
from torch_spyre.zoo.justified import justified_fallbacks, unjustified
from torch_spyre.zoo.measure import Measurement, Run


class TwoOps(torch.nn.Module):
    """A model without a library: one product, and something of the caller's choice."""

    def __init__(self, then):
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)
        self.then = then

    def forward(self, x):
        return self.then(self.linear(x))


@pytest.fixture
def add_model(monkeypatch):
    """Registers a small model for the test."""
    zoo.models()
    monkeypatch.setattr(registry, "_models", dict(registry._models))

    def add(name, then):
        zoo.register(
            zoo.ZooModel(
                name,
                "transformers",
                "vision",
                lambda size: TwoOps(then),
                lambda size, batch, length: {"x": torch.randn(batch, 64)},
            )
        )

    return add


def measured(tmp_path, *arguments):
    path = tmp_path / "models.json"
    code = main(["models", *arguments, "--json", str(path)])
    return code, json.loads(path.read_text())


def test_numbers_and_table(add_model, tmp_path, capsys, fresh_compiler):
    add_model("small", torch.relu)
    code, numbers = measured(tmp_path, "small", "--batch", "3")
    printed = capsys.readouterr()
    assert code == 0
    assert "Runs" in printed.out
    assert "Accuracy" in printed.out
    assert "[1/1] small done" in printed.err
    [model] = numbers["models"]
    assert model["parameters"] == 64 * 65
    assert model["eager"]["ops"] == 2
    assert model["compiled"]["kernels"] == 1
    assert model["graphs"] == 1
    assert (model["graph_breaks"], model["op_by_op"]) == (0, 0)
    for run in (model["eager"], model["compiled"]):
        assert run["fallbacks"] == {}
        assert run["percent_native"] == 100
        assert 0 < run["error_fp32"] < 0.01
        assert run["wall_ms"] > 0
    assert 0 < model["compiled"]["modelled_us"] < model["eager"]["modelled_us"]
    assert 0 < model["compile_seconds"] < 60


def test_fallbacks_and_graph_breaks_are_seen(add_model, tmp_path, capsys, fresh_compiler):
    """The exit code says it, and the others still run."""

    def breaks(x):
        torch._dynamo.graph_break()
        return torch.relu(x)

    def falls_back(x):
        return torch.special.bessel_j0(x.float())

    def fails(x):
        raise ArithmeticError("no such number")

    add_model("breaks", breaks)
    add_model("falls_back", falls_back)
    add_model("fails", fails)
    code, numbers = measured(tmp_path, "breaks", "fails", "falls_back", "--markdown")
    printed = capsys.readouterr()
    assert code == 1
    assert [model["name"] for model in numbers["models"]] == ["breaks", "falls_back"]
    assert numbers["models"][0]["graph_breaks"] >= 1
    falling = numbers["models"][1]["eager"]
    assert falling["fallbacks"]
    on_the_cpu = sum(falling["fallbacks"].values())
    assert falling["percent_native"] == 100 * (1 - on_the_cpu / falling["ops"]) < 100
    assert numbers["failures"] == {"fails": "ArithmeticError: no such number"}
    assert "error: breaks: " in printed.err
    assert "bessel_j0.out ran on the CPU" in printed.err
    assert "| breaks |" in printed.out


def test_the_lower_agreement_is_shown():
    """Whichever way has it, also if the other one has the larger error."""
    done = Measurement("granite", "transformers", "decoder", "tiny", 1, 4, 128, trained=True)
    done.eager = Run(error_fp32=0.02, top1_agreement=1.0)
    done.compiled = Run(error_fp32=0.01, top1_agreement=0.9)
    [row] = [line for line in _accuracy([done]).markdown().splitlines() if "| granite |" in line]
    assert "| 0.02 |" in row
    assert "| 90.0 % |" in row


def test_list_and_mistakes(capsys):
    assert main(["models", "--list"]) == 0
    printed = capsys.readouterr().out
    assert all(model.name in printed for model in zoo.models())
    for arguments, message in (
        (["models", "granit"], "no model 'granit' in the zoo; there are granite"),
        (["models", "--size", "huge"], "no size 'huge'; there are tiny, small, medium"),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        assert message in capsys.readouterr().err


def test_justified_fallbacks(tmp_path):
    file = tmp_path / "fallbacks.toml"
    file.write_text('[[fallback]]\nmodel = "a"\nop = "aten::x"\nreason = "why"\n')
    assert justified_fallbacks("a", file) == {"aten::x": "why"}
    assert justified_fallbacks("b", file) == {}
    assert unjustified("granite", {"aten::x": 3}) == ["aten::x"]


def test_every_justified_fallback_names_a_model_and_a_reason():
    names = {model.name for model in zoo.models()}
    for name in names:
        for op, reason in justified_fallbacks(name).items():
            assert op.startswith("aten::")
            assert len(reason) > 20


def test_builds_and_inputs_are_the_same_every_time():
    model = zoo.get("llama")
    torch.manual_seed(11)
    one = model.build().state_dict()
    torch.manual_seed(12)
    two = model.build().state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert torch.equal(model.inputs()["input_ids"], model.inputs()["input_ids"])
    assert torch.initial_seed() == 12
    with pytest.raises(ValueError, match="has a model 'llama' already"):
        zoo.register(model)


def test_nothing_is_imported_before_it_is_needed():
    code = (
        "import sys, torch; assert 'torch_spyre.zoo' not in sys.modules;"
        "from torch_spyre import zoo; zoo.models();"
        "assert not {'transformers', 'fms'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
