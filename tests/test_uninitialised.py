"""Memory that nobody wrote, under `torch.use_deterministic_algorithms(True)`."""

import oracle
import pytest
import torch


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    "make",
    [
        lambda dtype: torch.empty(3, 70, dtype=dtype, device="spyre"),
        lambda dtype: torch.empty_strided((3, 5), (1, 3), dtype=dtype, device="spyre"),
        lambda dtype: torch.empty_strided((3, 5), (0, 1), dtype=dtype, device="spyre"),
        lambda dtype: torch.empty_like(torch.ones(4, 4, device="spyre"), dtype=dtype),
        lambda dtype: torch.ones(4, device="spyre").new_empty((), dtype=dtype),
        lambda dtype: torch.empty(0, dtype=dtype, device="spyre").resize_(7, 9),
        lambda dtype: torch.zeros(5, dtype=dtype, device="spyre").resize_(2, 40).flatten()[5:],
    ],
    ids=["empty", "empty_strided", "overlapping", "empty_like", "new_empty", "resize_", "grown"],
)
@pytest.mark.parametrize("dtype", oracle.DEVICE_DTYPES, ids=str)
def test_deterministic_algorithms_fill_memory_that_nobody_wrote(
    make, dtype, deterministic, no_downcast_warning
):
    filled = make(dtype).cpu()
    if dtype.is_floating_point:
        assert filled.float().isnan().all()
    elif dtype == torch.bool:
        assert filled.all()
    else:
        held = torch.int32 if dtype == torch.int64 else dtype
        assert (filled == torch.iinfo(held).max).all()


def test_what_a_tensor_had_stays_when_it_grows_deterministically(deterministic):
    grown = torch.arange(5.0, device="spyre").resize_(3, 4).cpu().flatten()
    assert torch.equal(grown[:5], torch.arange(5.0))
    assert grown[5:].isnan().all()


def test_uninitialised_memory_is_left_alone_unless_asked_for(deterministic, monkeypatch):
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
    before = torch.spyre.counters().launches
    torch.empty(3, 70, device="spyre")
    assert torch.spyre.counters().launches == before
