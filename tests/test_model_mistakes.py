"""Mistakes with models: each raises, says what and why, and the card works on afterwards."""

import pytest
import torch
from generation import generate, moved, on_card, prompts, static_cache
from torch import nn

from torch_spyre._inductor import config

pytestmark = pytest.mark.usefixtures("fresh_compiler")


@pytest.fixture(scope="module")
def granite():
    return on_card("granite")


@pytest.fixture(params=["op by op", "compiled"])
def prepared(request):
    """What makes a model of a model."""
    if request.param == "compiled":
        return lambda model: torch.compile(model, fullgraph=True)
    return lambda model: model


@pytest.fixture(autouse=True)
def _the_card_works_afterwards(granite):
    yield
    torch.spyre.synchronize()
    assert generate(granite, moved(prompts()), new_tokens=2).shape == (2, 2)


@pytest.fixture
def mlp():
    return nn.Sequential(nn.Linear(64, 64), nn.GELU()).half().to("spyre")


def test_tokens_on_the_cpu(granite, prepared):
    with pytest.raises(RuntimeError, match="two devices, spyre:0 and cpu"):
        prepared(granite)(input_ids=prompts()["input_ids"])


def test_numbers_on_the_cpu(mlp, prepared):
    with pytest.raises(RuntimeError, match="two devices, cpu and spyre:0"):
        prepared(mlp)(torch.ones(2, 64).half())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_numbers_of_another_dtype(mlp, prepared, dtype):
    x = torch.ones(2, 64, dtype=dtype, device="spyre")
    with pytest.raises(RuntimeError, match="same dtype"):
        prepared(mlp)(x)


@pytest.mark.parametrize(
    ("layer", "dims"),
    [(nn.Conv1d, 1), (nn.Conv2d, 2), (nn.Conv3d, 3), (nn.ConvTranspose2d, 2)],
)
def test_images_on_the_cpu(layer, dims, prepared):
    """PyTorch chooses a convolution by its input; its weights are on the card."""
    model = layer(3, 8, 3).half().to("spyre")
    with pytest.raises(RuntimeError, match="two devices, spyre:0 and cpu"):
        prepared(model)(torch.zeros(1, 3, *[8] * dims, dtype=torch.float16))


def test_the_compiler_says_which_dtypes_and_what_to_do(mlp):
    with pytest.raises(RuntimeError) as error:
        torch.compile(lambda x: mlp(x) + 1)(torch.ones(2, 64, device="spyre"))
    text = str(error.value)
    assert "float32 and float16" in text
    assert "x.to(torch.float16)" in text
    assert "mlp(x) + 1" in text  # the user's line


def test_tokens_that_are_no_integers(granite, prepared):
    with pytest.raises(RuntimeError, match=r"(?i)int.*(half|float16)"):
        prepared(granite)(input_ids=prompts()["input_ids"].half().to("spyre"))


def test_a_token_beyond_the_vocabulary(granite, prepared):
    ids = torch.tensor([[5, 512]], device="spyre")
    with pytest.raises(IndexError, match="index 512 is out of bounds for dimension 0 with size 51"):
        prepared(granite)(input_ids=ids).logits.cpu()


def test_more_tokens_than_the_cache_holds(granite, prepared):
    model, cache = prepared(granite), static_cache(granite, 14)
    ids = prompts(batch=1)["input_ids"].to("spyre")  # 13 of them
    with torch.inference_mode():
        model(input_ids=ids, past_key_values=cache)
        model(input_ids=ids[:, :1], past_key_values=cache)
        with pytest.raises(IndexError, match="index 14 is out of bounds for dimension 2 with size"):
            model(input_ids=ids[:, :1], past_key_values=cache).logits.cpu()


def test_a_prompt_longer_than_the_cache(granite, prepared):
    ids = prompts(batch=1)["input_ids"].to("spyre")
    with torch.inference_mode(), pytest.raises(IndexError, match=r"out of bounds.* with size 4"):
        prepared(granite)(input_ids=ids, past_key_values=static_cache(granite, 4)).logits.cpu()


def test_a_wrong_width(mlp, prepared):
    x = torch.ones(2, 32, dtype=torch.float16, device="spyre")
    with pytest.raises(RuntimeError, match=r"cannot be multiplied|same reduction dim"):
        prepared(mlp)(x)


def test_mixed_dtypes_are_no_reason_to_run_op_by_op(mlp):
    with config.patch(compile_fallback="warn"), pytest.raises(RuntimeError, match="same dtype"):
        torch.compile(mlp)(torch.ones(2, 64, device="spyre"))
