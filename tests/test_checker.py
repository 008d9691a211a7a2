"""The card's checker seen from Python: what it says, and when (docs/checker.md)."""

import re

import pytest
import torch
from subprocesses import forked

from torch_spyre import _C
from torch_spyre.backend.program import Loop, Nest, Operand, Pointwise, Reduce, program


def doubled_in_place(elements: int) -> _C._Program:
    """Operand 0 = operand 0 + operand 0: so many elements of fp32 from the start of its memory."""
    fp32 = _C.DataFormats.IEEE_FP32
    x, nest = Operand(0, fp32), Nest([Loop(elements, [1, 1, 1])], [0, 0, 0])
    return _C._Program(program([Pointwise("add", [x, x], x, [nest])]))


def test_a_program_for_another_tensor_cannot_reach_the_neighbours():
    # What a cache does that finds the program of a whole tensor, padding and all, for a prefix.
    kept = doubled_in_place(32)
    whole = torch.arange(5.0, device="spyre")
    longer = torch.arange(6.0, device="spyre")
    with torch.spyre.checked():
        kept.launch([whole])
        with pytest.raises(RuntimeError) as raised:
            kept.launch([longer[:5]])
        message = str(raised.value)
    assert "step 0 (pointwise add): writes element 5 of the storage, which is not in" in message
    assert "(operand 0, float32[5]): that is not what the launch was asked to write" in message
    assert re.search(r"at .*test_checker\.py:\d+", message)
    assert longer.tolist() == [0, 1, 2, 3, 4, 5]  # found before it did harm


def test_views_that_share_a_program_keep_to_themselves():
    with torch.spyre.checked():
        x = torch.arange(5.0, device="spyre")
        x.add_(1)
        a = torch.arange(6.0, device="spyre")
        a[:5].add_(1)
        assert a.tolist() == [1, 2, 3, 4, 5, 5]


def test_memory_never_written_is_named_with_who_allocated_it():
    with torch.spyre.checked():
        x = torch.empty(3, 4, device="spyre")
        x[0] = 1
        assert x[0].tolist() == [1, 1, 1, 1]
        y = x + 1  # element by element: nothing has been lost yet
        with pytest.raises(RuntimeError, match=r"a copy to the host: reads element \(1, 0\)"):
            y.cpu()
        with pytest.raises(RuntimeError) as raised:
            x.sum()
        message = str(raised.value)
    assert "check: aten::" in message
    assert "element (1, 0) of" in message
    assert "float32[3, 4]), which was never written since it was allocated by aten::" in message
    assert message.count("test_checker.py:") == 2


def test_padding_that_reaches_a_sum_is_named():
    fp32 = _C.DataFormats.IEEE_FP32
    x, y = Operand(0, fp32), Operand(1, fp32)
    lines = Nest([Loop(32, [1, 0, 1])], [0, 0, 0])
    kept = _C._Program(program([Reduce("sum", x, y, 1, 32, [lines], [Nest([], [0, 0])])]))
    with torch.spyre.checked():
        total = torch.zeros(1, device="spyre")
        kept.launch([torch.ones(32, device="spyre"), total])
        assert total.tolist() == [32]
        with pytest.raises(RuntimeError) as raised:
            kept.launch([torch.ones(5, device="spyre"), total])
    message = str(raised.value)
    assert "step 0 (reduce sum): element (0) of the output (operand 1, float32[1]) is" in message
    assert "made of byte 20, which is padding, of the input (operand 0, float32[5])" in message


@pytest.mark.filterwarnings("ignore:.*falling back")
def test_results_of_fallbacks_need_not_be_written_before():
    with torch.spyre.checked():
        x = torch.zeros(5, device="spyre")
        assert torch.special.bessel_j0(x).tolist() == [1.0] * 5
        with pytest.raises(RuntimeError, match="never written"):
            torch.empty(5, device="spyre").cpu()  # checks go on


def test_compiled_kernels_are_checked_and_named():
    def f(x, y):
        return (x * y).sum(-1)

    x, y = torch.ones(8, 100, device="spyre"), torch.empty(8, 100, device="spyre")
    compiled = torch.compile(f)
    assert compiled(x, x).tolist() == [100.0] * 8
    with torch.spyre.checked():
        z = torch.ones(8, 100, device="spyre")
        assert compiled(x, z).tolist() == [100.0] * 8
        y = torch.empty(8, 100, device="spyre")
        with pytest.raises(RuntimeError, match=r"check: sdsc_.* at .*test_checker\.py") as raised:
            compiled(x, y)
    assert "which was never written" in str(raised.value)


@pytest.mark.unchecked("it wants streams that do not check")
def test_only_the_stream_that_checks_is_slowed_down():
    stream = torch.spyre.Stream()
    before = torch.empty(4, device="spyre")
    with torch.spyre.checked(stream):
        torch.empty(4, device="spyre").cpu()  # the default stream does not check
        with stream:
            before.cpu()  # was there before
            with pytest.raises(RuntimeError, match="never written"):
                torch.empty(4, device="spyre").cpu()
    with stream:
        torch.empty(4, device="spyre").cpu()


def test_the_environment_checks_everything():
    script = """
import torch

with torch.spyre.checked(on=False):
    torch.empty(2, device="spyre").cpu()
torch.empty(2, device="spyre").cpu()
"""
    checked = forked(script, SPYRE_CARD_CHECK=1).stderr
    assert "line 6" in checked
    assert "RuntimeError: check: a copy to the host" in checked
    assert forked(script).returncode == 0
