"""How near models come to the CPU: the DLFloat16 emulation, first choices of decoders."""

import copy
import functools

import numpy as np
import oracle
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_runs import case

from torch_spyre import zoo
from torch_spyre.zoo.emulation import DLFloat16Emulation, round_weights, rounded
from torch_spyre.zoo.measure import (
    ERROR_MARGIN,
    Measurement,
    Run,
    cast_inputs,
    cpu_references,
    rms_difference,
)
from torch_spyre.zoo.training import MarkovText, trained

DL16 = oracle.FORMATS["SEN169_FP16"]


def oracle_rounded(tensor):
    values = tensor.double().numpy()
    return torch.from_numpy(oracle.decode(DL16, oracle.encode_float(DL16, values))).float()


@given(st.lists(st.floats(width=32), max_size=40))
def test_rounding_is_that_of_the_format(values):
    tensor = torch.tensor(values, dtype=torch.float32)
    torch.testing.assert_close(
        rounded(tensor), oracle_rounded(tensor), rtol=0, atol=0, equal_nan=True
    )


def test_emulation_rounds_every_result_once():
    x = torch.randn(3, 70, generator=torch.Generator().manual_seed(0)).half()
    y = torch.randn(70, 5, generator=torch.Generator().manual_seed(1)).half()
    with DLFloat16Emulation():
        product, transposed, wide = x @ y, x.t(), x.float() * 3
        narrow = wide.half()
        grown = torch.full((2,), torch.finfo(torch.float16).min, dtype=torch.float16) * 1
    exact = x.double() @ y.double()
    assert torch.equal(product.float(), oracle_rounded(exact.float()))
    assert torch.equal(transposed, x.t())  # a view has no result of its own
    assert torch.equal(wide, x.float() * 3)  # float32 is float32 on the card
    assert torch.equal(narrow.float(), oracle_rounded(wide))
    assert torch.isfinite(grown).all()


@pytest.mark.parametrize("name", ["roberta", "modernbert", "granitemoe", "llama"])
def test_the_card_does_what_the_emulation_does(name):
    """Op by op both round at the same places: they are nearer to each other than to float32."""
    this = case(name)
    half = round_weights(copy.deepcopy(this.module).half())
    module, inputs = this.on_card()
    with torch.no_grad():
        ours = this.model.output(module(**inputs)).float().cpu()
        with DLFloat16Emulation():
            emulated = this.model.output(half(**cast_inputs(this.inputs, torch.float16))).float()
    assert rms_difference(ours, emulated) < 0.3 * this.error


def test_the_text_has_the_entropy_it_should():
    """Five successors, the first one in six of ten cases."""
    text = MarkovText()
    tokens = text.sample(64, 257)
    assert tokens.min() >= 3
    assert tokens.max() < 3 + 128
    followers = text.successors[tokens[:, :-1] - 3] + 3
    place = (followers == tokens[:, 1:, None]).float().argmax(-1)
    assert (followers == tokens[:, 1:, None]).any(-1).all()
    shares = np.bincount(place.flatten().numpy(), minlength=5) / place.numel()
    np.testing.assert_allclose(shares, [0.6, 0.2, 0.1, 0.06, 0.04], atol=0.01)


@functools.cache
def trained_decoder(name):
    """With 512 teacher-forced positions, and what the CPU makes of them."""
    model, text = zoo.get(name), MarkovText()
    module = trained(model, zoo.SIZES["tiny"], text)
    [argument] = model.inputs(1, 1)
    tokens = {argument: text.sample(4, 128)}
    return model, module, tokens, cpu_references(model, module, tokens)


@pytest.mark.parametrize(
    ("name", "compiles"),
    [("granite", False), ("granitehybrid", False), ("gptoss", False),
     ("fms-granite", False), ("fms-granite", True), ("fms-mixtral", False), ("fms-mixtral", True)],
)  # fmt: skip
def test_first_choices_of_decoders(name, compiles, fresh_compiler):
    """The same token as float32, at least 99 of 100 times."""
    model, module, tokens, references = trained_decoder(name)
    exact = references.fp32
    confidence = exact.softmax(-1).amax(-1).mean().item()
    assert 0.43 < confidence < 0.8  # neither a coin toss nor a foregone conclusion
    module = copy.deepcopy(module).half().to("spyre")
    function = torch.compile(module, fullgraph=True) if compiles else module
    arguments = cast_inputs(tokens, torch.float16, "spyre")
    with torch.inference_mode():
        module(**arguments)  # the stack makes its tables of positions once
        ours = model.output(function(**arguments)).float().cpu()
    assert (ours.argmax(-1) == exact.argmax(-1)).float().mean().item() >= 0.99
    assert rms_difference(ours, exact) <= ERROR_MARGIN * rms_difference(references.dl16, exact)


def test_complaints_about_accuracy():
    """What `python -m torch_spyre models` ends with an error for."""
    fine = Run(rms_error_fp32=0.01, top1_agreement=0.995)
    done = Measurement("granite", "transformers", "decoder", "tiny", 1, 4, 128, trained=True)
    done.dl16_rms_error, done.eager, done.compiled = 0.01, fine, fine
    assert done.complaints() == []
    done.compiled = Run(rms_error_fp32=0.02, top1_agreement=0.9)
    assert [text.split()[0] for text in done.complaints()] == ["compiled", "compiled"]
    done.eager = Run(rms_error_fp32=float("nan"), top1_agreement=0.995)
    assert any("eager results" in text for text in done.complaints())
