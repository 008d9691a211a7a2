"""Every module of PyTorch's database on the card, forward and backward, against the CPU.

Right natively, right through warned fallbacks, or refused for a reason that `opinfo_refused.toml`
gives, as in `test_opinfo.py`.
"""

import moduleinfo
import pytest
import torch
from proof import Verdict, WrongResult, name_of
from refusals import check_listed, differences, groups


@pytest.fixture(autouse=True, scope="module")
def _small_and_quiet():
    """Samples are tiny: a second thread of the CPU's would only spin."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.spyre.set_downcast_warning(False)
    yield
    torch.spyre.set_downcast_warning(True)
    torch.set_num_threads(threads)


@pytest.mark.filterwarnings("ignore")  # samples use what PyTorch deprecates
@pytest.mark.parametrize("name", moduleinfo.MODULES)
def test_module(name, record_property):
    verdicts, wrong, found = [], {}, {}
    for dtype in (torch.float16, torch.float32):
        verdict = Verdict()
        try:
            moduleinfo.run(moduleinfo.MODULES[name], dtype, verdict)
        except WrongResult as error:
            wrong[f"{name} {name_of(dtype)}"] = str(error)
        verdicts.append(verdict)
        found[name_of(dtype)] = "differs" if f"{name} {name_of(dtype)}" in wrong else verdict.word
    fallbacks = sorted({entry for verdict in verdicts for entry in verdict.fallbacks})
    record_property("modules", (name, found, fallbacks))

    listed = {entry for entry in differences("modules") if entry.rsplit(" ", 1)[0] == name}
    unexpected = {entry: text for entry, text in wrong.items() if entry not in listed}
    assert not unexpected
    assert listed == set(wrong), "no longer different: remove it from opinfo_refused.toml"
    check_listed("modules", name, verdicts)
    assert "no sample" not in found.values()


def test_the_list_names_modules_that_there_are():
    named = {name for group in groups("modules") for name in group.entries}
    named |= {entry.rsplit(" ", 1)[0] for entry in differences("modules")}
    assert named <= set(moduleinfo.MODULES)
