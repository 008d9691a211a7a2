"""Ops without a kernel run on the CPU: right, counted, and never silently."""

import warnings

import pytest
import torch
from subprocesses import fresh

from torch_spyre.ops.fallbacks import (
    FallbackWarning,
    fallback_counts,
    refused,
    reset_fallback_counts,
)


def test_the_result_is_right_and_on_the_card():
    x = torch.arange(12.0).reshape(3, 4).to("spyre")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        result = torch.kron(x, x)
        inverse = torch.linalg.inv(torch.eye(3, device="spyre") * 2)
    assert result.device.type == "spyre"
    assert torch.equal(result.cpu(), torch.kron(x.cpu(), x.cpu()))
    assert torch.equal(inverse.cpu(), torch.eye(3) / 2)


def test_the_first_use_warns_and_every_use_counts():
    reset_fallback_counts()
    x = torch.eye(3, device="spyre")
    with pytest.warns(FallbackWarning, match="linalg_inv.*is falling back to cpu"):
        torch.linalg.inv(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        torch.linalg.inv(x)
    assert sum(n for op, n in fallback_counts().items() if "linalg_inv" in op) == 2


def test_a_fallback_can_be_refused():
    with refused(), pytest.raises(NotImplementedError, match="has no kernel for spyre"):
        torch.linalg.inv(torch.eye(3, device="spyre"))


def test_a_warning_turned_into_an_error_reaches_the_caller():
    reset_fallback_counts()
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        with pytest.raises(FallbackWarning):
            torch.linalg.inv(torch.eye(3, device="spyre"))
    assert torch.ones(2, device="spyre").tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore::torch_spyre.ops.fallbacks.FallbackWarning")
def test_mutation_and_out_are_kept():
    x = torch.tensor([3.0, 1.0, 2.0], device="spyre")
    x.index_fill_(0, torch.tensor([0], device="spyre"), 7)
    assert x.tolist() == [7, 1, 2]
    out = torch.empty(3, 3, device="spyre")
    assert torch.linalg.inv(torch.eye(3, device="spyre"), out=out) is out
    assert torch.equal(out.cpu(), torch.eye(3))


def test_the_environment_can_refuse():
    result = fresh(
        "import torch\n"
        "try:\n"
        "    torch.linalg.inv(torch.eye(3, device='spyre'))\n"
        "except NotImplementedError as error:\n"
        "    print('refused', 'TORCH_SPYRE_FALLBACK' in str(error))\n",
        TORCH_SPYRE_FALLBACK="error",
    )
    assert "refused True" in str(result)
