"""A sample of the fuzzers (`make fuzz`), and that they find what is planted.

The same sample each time if `CI` is set.
"""

import pytest
from fuzzing import bundles, scripts, session
from fuzzing.prelude import Difference, run

pytestmark = pytest.mark.usefixtures("settled", "no_downcast_warning")


@pytest.mark.parametrize("variant", ["eager", "layouts", "streams", "cards", "threads"])
def test_random_programs_agree_with_the_cpu(variant):
    session.sample(variant)


def test_random_compiled_programs_agree_with_the_cpu(fresh_compiler):
    session.sample("compiled", runs=5)


def test_changed_bundles_are_refused_or_run():
    fuzzer = bundles.Fuzzer(1, cover=False)
    outcomes = [fuzzer.accepted(fuzzer.next()) for _ in range(300)]
    assert 0 < outcomes.count(True) < 300


# ----------------------------------------------------------------------------------- planted faults

# What statements can do to differ on the card: read the name of their device.
PLANTED = {
    "a value": "t1[0] += device != 'cpu'",
    "a neighbour": "t1.as_strided((1,), (1,), 5).add_(int(device != 'cpu'))",
    "a dtype": "t2 = t0.to(torch.float16 if device == 'cpu' else torch.bfloat16)",
    "a stride": "t2 = torch.ones(2, 2, device=device)\nt2 = t2.mT if device == 'cpu' else t2",
    "an error": "t0.view(3) if device == 'cpu' else None",
    "another error": "t0.view(3) if device == 'cpu' else t0[9]",
    "an error of the card": "t0.view(4 if device == 'cpu' else 3)",
    "a number": "t2 = [1, 2 + (device == 'cpu')]",
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_difference_is_found(kind):
    program = "t0 = torch.arange(4., device=device)\nt1 = torch.arange(6, device=device)[:5]\n"
    program += "t3 = t1.as_strided((6,), (1,), 0)\n"
    run(program + "t1.add_(1)")
    with pytest.raises(Difference):
        run(program + PLANTED[kind])


def test_a_failure_becomes_a_small_script():
    """The difference needs two statements of an earlier run, and one of the last."""
    noise = [["t0 = torch.arange(4., device=device)", "t1 = t0 + 1", "t0.mul_(2)", "del t1"]]
    cause = [["t0 = torch.ones(3, device=device)", "torch.kept = t0.device.type", "t0.add_(1)"]]
    effect = [
        [
            "t0 = torch.zeros(2, device=device)",
            "t1 = t0 + 1",
            "t1.add_(torch.kept == 'spyre' and device != 'cpu')",
        ]
    ]
    runs = [noise, noise, cause, noise, effect]
    assert "t1: 2 of 2 elements differ" in scripts.outcome(runs)
    small = scripts.smaller(runs)
    assert small == [[cause[0][:2]], effect]
    assert scripts.outcome(small)
    assert scripts.outcome([noise, noise]) is None
