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


# ------------------------------------------------------- arguments and results of every kind


quietly = pytest.mark.filterwarnings("ignore::torch_spyre.ops.fallbacks.FallbackWarning")


@quietly
def test_results_may_be_lists_of_tensors():
    x = torch.rand(20, 2)
    counts, edges = torch.histogramdd(x.to("spyre"), bins=[3, 4])
    expected, expected_edges = torch.histogramdd(x, bins=[3, 4])
    assert torch.equal(counts.cpu(), expected)
    assert all(torch.equal(a.cpu(), b) for a, b in zip(edges, expected_edges, strict=True))


@quietly
def test_several_out_tensors_are_written_and_grow():
    x = torch.rand(4, 3)
    q, r = torch.empty(0, device="spyre"), torch.empty(0, device="spyre")
    result = torch.linalg.qr(x.to("spyre"), out=(q, r))
    assert result[0] is q
    assert result[1] is r
    for ours, cpu in zip((q, r), torch.linalg.qr(x), strict=True):
        assert torch.equal(ours.cpu(), cpu)


@quietly
def test_writing_to_a_view_changes_its_base():
    base = torch.arange(24.0).reshape(4, 6)
    card = base.to("spyre")
    for x in (base, card):
        x[1:, ::2].T.put_(torch.tensor([0, 4], device=x.device), torch.tensor([7.0, 8.0]).to(x))
    assert torch.equal(card.cpu(), base)


@quietly
def test_optional_tensors_may_be_missing():
    x = torch.rand(5, 4)
    labels = torch.tensor([0, 3, 1, 2, 0])
    for weight in (None, torch.rand(4)):
        ours = torch.nn.functional.multi_margin_loss(
            x.to("spyre"), labels.to("spyre"), weight=None if weight is None else weight.to("spyre")
        )
        cpu = torch.nn.functional.multi_margin_loss(x, labels, weight=weight)
        torch.testing.assert_close(ours.cpu(), cpu)


@quietly
def test_a_number_may_be_a_tensor_of_the_cpu():
    x = torch.rand(5).to("spyre")
    assert torch.equal(torch.heaviside(x, torch.tensor(0.5)).cpu(), torch.ones(5))


@quietly
def test_random_ops_draw_from_the_generator_of_the_device():
    weights = torch.rand(50)

    def draw(device, generator=None):
        return torch.multinomial(weights.to(device), 10, generator=generator).cpu()

    torch.spyre.manual_seed(3)
    first = draw("spyre")
    torch.manual_seed(9)  # the CPU's numbers do not matter
    torch.spyre.manual_seed(3)
    assert torch.equal(draw("spyre"), first)
    assert not torch.equal(draw("spyre"), first)
    own = [torch.Generator(device).manual_seed(5) for device in ("spyre", "cpu")]
    assert torch.equal(draw("spyre", own[0]), draw("cpu", own[1]))
    with pytest.raises(RuntimeError, match="generator"):
        draw("spyre", own[1])


@quietly
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_op_that_the_cpu_has_not_in_16_bits_runs_in_float32(dtype):
    x = torch.rand(2, 3, 4, 4, 4).to(dtype).to("spyre")
    with pytest.raises(NotImplementedError):
        torch.nn.functional.multilabel_margin_loss(x[0, 0, 0].cpu(), torch.zeros(4, 4).long())
    ours = torch.nn.functional.multilabel_margin_loss(
        x[0, 0, 0], torch.zeros(4, 4, device="spyre").long()
    )
    cpu = torch.nn.functional.multilabel_margin_loss(
        x[0, 0, 0].cpu().float(), torch.zeros(4, 4).long()
    )
    assert ours.dtype == dtype
    torch.testing.assert_close(ours.cpu().float(), cpu, rtol=2**-7, atol=0)


@quietly
def test_kernels_that_pytorch_has_for_every_device_but_ours():
    x = torch.tensor([[1.0, 2, 2], [3, 3, 1]])
    for ours, cpu in zip(x.to("spyre").mode(), x.mode(), strict=True):
        assert torch.equal(ours.cpu(), cpu)
    torch.testing.assert_close(torch.linalg.pinv(x.to("spyre")).cpu(), torch.linalg.pinv(x))
    assert torch.linalg.matrix_rank(x.to("spyre")).item() == 2
    parameter = x.to("spyre").requires_grad_()
    torch.linalg.pinv(parameter).sum().backward()
    expected = x.clone().requires_grad_()
    torch.linalg.pinv(expected).sum().backward()
    torch.testing.assert_close(parameter.grad.cpu(), expected.grad)
