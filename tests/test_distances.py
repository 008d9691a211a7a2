"""Distances between rows on the card, against PyTorch on the CPU in float64."""

import math

import pytest
import torch
from gradients import FLOATS, agree, check, random, refused_as_on_the_cpu

pytestmark = pytest.mark.usefixtures("native")


@pytest.mark.parametrize("p", [0, 0.5, 1, 2, 3, math.inf])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_cdist(dtype, p):
    # At most 25 rows: beyond, PyTorch takes a matrix product for p = 2.
    for a, b in [((5, 7), (4, 7)), ((2, 5, 70), (2, 4, 70)), ((3, 1, 5, 3), (2, 4, 3))]:
        op = lambda x, y: torch.cdist(x, y, p=p)  # noqa: E731
        agree(op, [random(*a), random(*b, seed=1)], dtype, scale=100, gradients=False)


def test_many_rows_go_in_blocks():
    x, y = random(3000, 16), random(700, 16, seed=1)
    check(torch.cdist(x.to("spyre"), y.to("spyre"), p=1), torch.cdist(x.double(), y.double(), p=1))


def test_nothing():
    assert torch.cdist(
        torch.ones(0, 3, device="spyre"), torch.ones(2, 3, device="spyre")
    ).shape == (0, 2)
    nothing = torch.cdist(torch.ones(4, 0, device="spyre"), torch.ones(2, 0, device="spyre"))
    assert torch.equal(nothing.cpu(), torch.zeros(4, 2))


@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.cdist(torch.ones(4, 3, device=d), torch.ones(4, 2, device=d)),
        lambda d: torch.cdist(torch.ones(3, device=d), torch.ones(4, 3, device=d)),
        lambda d: torch.cdist(torch.ones(4, 3, device=d), torch.ones(4, 3, device=d), p=-1),
    ],
    ids=["columns", "rank", "p"],
)
def test_what_the_cpu_refuses_is_refused(call):
    refused_as_on_the_cpu(call)
