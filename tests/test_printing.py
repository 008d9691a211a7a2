"""Printing: the text the CPU tensor has, with the device added."""

import re

import pytest
import torch
from oracle import DEVICE_DTYPES as DTYPES


def without_device(text: str) -> str:
    """Drop the device and what depends on the length of the line it stands in."""
    text = re.sub(r"device='spyre:\d',?", "", text)
    return re.sub(r"\s+", " ", re.sub(r",\s*\)$", ")", text)).replace(" )", ")")


def check(host: torch.Tensor, device: str = "spyre:0") -> None:
    text = repr(host.detach().to(device).requires_grad_(host.requires_grad))
    assert f"device='{device}'" in text
    assert without_device(text) == without_device(repr(host))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "shape", [(), (1,), (5,), (3, 4), (2, 3, 2), (0,), (0, 3), (2, 0)], ids=str
)
def test_the_text_is_the_cpus(shape, dtype):
    count = torch.Size(shape).numel()
    host = torch.arange(count).remainder(2 if dtype == torch.bool else 4).to(dtype).reshape(shape)
    check(host)


def test_large_tensors_are_summarised():
    host = torch.arange(40000, dtype=torch.int32).reshape(200, 200)
    check(host)
    assert "..." in repr(host.to("spyre"))
    check(torch.arange(5000, dtype=torch.float32))


def test_printing_reads_a_tensor_once():
    card = torch.zeros(200, 200, device="spyre")
    before = torch.spyre.counters()
    repr(card)
    after = torch.spyre.counters()
    assert after.transfers_to_host - before.transfers_to_host == 1
    assert after.launches == before.launches


def test_requires_grad_is_shown():
    check(torch.tensor([1.0, 2.5], requires_grad=True))
    assert "requires_grad=True" in repr(torch.ones(2, device="spyre", requires_grad=True))
    assert "grad_fn=<" in repr(torch.ones(2, device="spyre", requires_grad=True).view(2, 1))


def test_parameters_say_so():
    text = repr(torch.nn.Parameter(torch.ones(2, device="spyre")))
    assert text.startswith("Parameter containing:\ntensor([1., 1.], device='spyre:0'")


@pytest.mark.parametrize(
    "values",
    [
        [1e-8, 1.0, 1e8],
        [0.5, 0.25, float("nan")],
        [float("inf"), -float("inf"), 1.0],
        [1000000.0, 2.0],
        [-0.0, 0.0],
    ],
    ids=str,
)
def test_numbers_are_formatted_as_on_the_cpu(values):
    check(torch.tensor(values))


def test_views_and_other_cards():
    host = torch.arange(200, dtype=torch.float32).reshape(10, 20)
    assert without_device(repr(host.to("spyre")[2:5, ::7])) == without_device(repr(host[2:5, ::7]))
    assert without_device(repr(host.to("spyre").t())) == without_device(repr(host.t()))
    check(torch.ones(3), device="spyre:1")


def test_print_options_apply():
    host = torch.tensor([1.23456789, 2.0])
    with torch._tensor_str.printoptions(precision=2, sci_mode=True):
        check(host)


def test_str_and_format():
    card = torch.ones(2, device="spyre")
    assert str(card) == repr(card) == f"{card}"
    assert f"{card[0]:.2f}" == "1.00"


def test_layouts_and_formats_have_readable_reprs():
    layout = torch.ones(512, 256, dtype=torch.float16, device="spyre").device_tensor_layout()
    assert repr(layout) == (
        "SpyreTensorLayout(device_size=[4, 512, 64], stride_map =[64, 256, 1], "
        "device_dtype=DataFormats.SEN169_FP16)"
    )


def test_printing_host_tensors_is_untouched():
    assert repr(torch.tensor([1.0, 2.0])) == "tensor([1., 2.])"
    assert repr(torch.ones(2, device="meta")) == "tensor(..., device='meta', size=(2,))"
