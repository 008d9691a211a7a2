"""int64 values outside of 32 bits, which `TORCH_SPYRE_INT64=error` refuses."""

import pytest
from subprocesses import forked

REFUSED = [
    "torch.tensor([1, 2**31]).to('spyre')",
    "torch.tensor([2.0**40]).to('spyre', torch.int64)",
    "torch.full((2,), 2**31, device='spyre', dtype=torch.int64)",
    "small.clone().fill_(-2**31 - 1)",
    "torch.tensor([3e9], device='spyre').long()",
    "(small * float('nan')).long()",
    "torch.arange(2**31 - 2, 2**31 + 1, device='spyre')",
    "torch.tensor(2**33, device='spyre')",
    "small.masked_fill(small > 1, 2**35)",
    "small + 2**31",
    "small * 2**31",
    "large + 1",
    "large * large",
    "-(-large - 1)",
    "large.clone().add_(1)",
    "large.sum()",
    "large.prod()",
    "large.cumsum(0)",
]

ALLOWED = [
    "large - 1",
    "torch.tensor([2**31 - 1, -2**31]).to('spyre')",
    "(large - 64) + 63",
    "large > 2**40",
    "small.sum()",
    "small.float() * 2.0**40",
    "torch.ones(3, dtype=torch.int32, device='spyre') * 5",
]

SETUP = """
import torch
torch.spyre.set_downcast_warning(False)
small = torch.tensor([1, 2, 3], device='spyre')
large = torch.tensor([2**31 - 1, 2**31 - 1], device='spyre')
def refused(text):
    try:
        eval(text)
    except ValueError as error:
        return 'TORCH_SPYRE_INT64' in str(error)
    return False
"""


def test_with_error_values_and_results_that_do_not_fit_are_refused():
    code = f"{SETUP}\nprint([text for text in {REFUSED!r} if not refused(text)])"
    result = forked(code, TORCH_SPYRE_INT64="error")
    assert result.output.strip() == "[]"


def test_with_error_all_else_works():
    code = f"{SETUP}\nprint([text for text in {ALLOWED!r} if refused(text)])"
    assert forked(code, TORCH_SPYRE_INT64="error").output.strip() == "[]"


@pytest.mark.parametrize("setting", [None, "wrap"])
def test_otherwise_they_wrap(setting):
    code = (
        f"{SETUP}\nprint([text for text in {REFUSED!r} if refused(text)], (small * 2**31).tolist())"
    )
    environment = {"TORCH_SPYRE_INT64": setting} if setting else {}
    assert forked(code, **environment).output.strip() == "[] [-2147483648, 0, -2147483648]"


def test_another_word_is_refused():
    result = forked(f"{SETUP}", TORCH_SPYRE_INT64="maybe")
    assert "TORCH_SPYRE_INT64='maybe': expected wrap or error" in result.stderr
