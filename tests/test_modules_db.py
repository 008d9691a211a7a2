"""Every module of PyTorch's database on the card, forward and backward, against the CPU.

Right natively, right through warned fallbacks, or refused for a reason that `opinfo_refused.toml`
gives, as in `test_opinfo.py`.
"""

import moduleinfo
import pytest
import torch
from refusals import differences, groups, prove, small_and_quiet  # noqa: F401  (a fixture)


@pytest.mark.filterwarnings("ignore")  # samples use what PyTorch deprecates
@pytest.mark.parametrize("name", moduleinfo.MODULES)
def test_module(name, record_property):
    module = moduleinfo.MODULES[name]
    verdicts = prove(
        "modules",
        name,
        (torch.float16, torch.float32),
        lambda dtype, verdict: moduleinfo.run(module, dtype, verdict),
        lambda finding: record_property("modules", finding),
    )
    assert all(verdict.word != "no sample" for verdict in verdicts)


def test_the_list_names_modules_that_there_are():
    named = {name for group in groups("modules") for name in group.entries}
    named |= {entry.rsplit(" ", 1)[0] for entry in differences("modules")}
    assert named <= set(moduleinfo.MODULES)
