"""Random numbers: reproducible by seed and by state, and the same numbers as on the CPU.

A seed gives the device the numbers it gives the CPU, rounded to the device format. float32 and
integers have the same format on both sides, so there the numbers are identical.
"""

import pytest
import torch

FLOATS = [torch.float16, torch.bfloat16, torch.float32]

# Every random fill the device registers, on a float32 tensor of 101 elements (an odd number: normal
# numbers are made in pairs, and one is left over in the generator).
FILLS = {
    "uniform_": lambda t, g: t.uniform_(-2, 3, generator=g),
    "normal_": lambda t, g: t.normal_(1, 2, generator=g),
    "random_": lambda t, g: t.random_(generator=g),
    "random_.to": lambda t, g: t.random_(17, generator=g),
    "random_.from": lambda t, g: t.random_(-5, 17, generator=g),
    "bernoulli_.float": lambda t, g: t.bernoulli_(0.3, generator=g),
    "bernoulli_.Tensor": lambda t, g: t.bernoulli_(
        torch.full((101,), 0.3, device=t.device), generator=g
    ),
    "bernoulli": lambda t, g: torch.bernoulli(
        torch.full((101,), 0.3, device=t.device), generator=g
    ),
    "exponential_": lambda t, g: t.exponential_(1.5, generator=g),
    "geometric_": lambda t, g: t.geometric_(0.3, generator=g),
    "cauchy_": lambda t, g: t.cauchy_(1, 2, generator=g),
    "log_normal_": lambda t, g: t.log_normal_(1, 0.5, generator=g),
    "randperm": lambda t, g: torch.randperm(101, device=t.device, generator=g),
    "rand": lambda t, g: torch.rand(101, device=t.device, generator=g),
    "randn": lambda t, g: torch.randn(101, device=t.device, generator=g),
    "randint": lambda t, g: torch.randint(3, 90, (101,), device=t.device, generator=g),
    "normal": lambda t, g: torch.normal(2.0, 3.0, (101,), device=t.device, generator=g),
}


def drawn(fill: str, device: str, generator: torch.Generator | None = None) -> torch.Tensor:
    return FILLS[fill](torch.empty(101, device=device), generator).cpu()


@pytest.fixture(autouse=True)
def _restore_states():
    states = torch.spyre.get_rng_state_all(), torch.get_rng_state()
    yield
    torch.spyre.set_rng_state_all(states[0])
    torch.set_rng_state(states[1])


# -------------------------------------------------------------------------------------------- seeds


@pytest.mark.parametrize("fill", FILLS)
def test_a_seed_gives_the_same_numbers_again(fill):
    torch.spyre.manual_seed(7)
    first = drawn(fill, "spyre")
    second = drawn(fill, "spyre")
    assert not torch.equal(first, second)
    torch.spyre.manual_seed(7)
    assert torch.equal(drawn(fill, "spyre"), first)
    assert torch.equal(drawn(fill, "spyre"), second)


@pytest.mark.parametrize("fill", FILLS)
def test_a_seed_gives_the_numbers_it_gives_on_the_cpu(fill):
    torch.manual_seed(99)
    assert torch.equal(drawn(fill, "spyre"), drawn(fill, "cpu"))


# Elements: less than a part, several, and remainders of every kind.
@pytest.mark.parametrize("fill", ["uniform_", "normal_"])
@pytest.mark.parametrize(
    "shape", [(65_537,), (200_003,), (127, 1031), (300, 513), (1281, 70), (128, 2, 600)], ids=str
)
def test_large_tensors_are_drawn_in_parts_and_get_the_same_numbers(fill, shape):
    card = torch.Generator("spyre").manual_seed(5)
    host = torch.Generator().manual_seed(5)
    ours = FILLS[fill](torch.empty(shape, device="spyre"), card)
    assert torch.equal(ours.cpu(), FILLS[fill](torch.empty(shape), host))
    assert torch.equal(card.get_state(), host.get_state())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_numbers_are_rounded_to_the_device_format(dtype):
    torch.manual_seed(5)
    card = torch.randn(300, dtype=dtype, device="spyre")
    host = torch.randn(300, dtype=dtype)
    assert torch.equal(card.cpu(), host.to("spyre").cpu())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("ends", [(0.0, 1.0), (2.0, 3.0), (-1.0, 0.0), (-3.0, -1.0), (0.0, 1.7)])
def test_uniform_numbers_stay_below_the_end(dtype, ends):
    numbers = torch.empty(1 << 17, device="spyre", dtype=dtype).uniform_(*ends).float().cpu()
    assert ends[0] - 2**-6 < numbers.min()
    assert numbers.max() < ends[1]
    assert abs(numbers.mean() - sum(ends) / 2) < 0.02


def test_torch_manual_seed_seeds_every_device():
    torch.manual_seed(3)
    first = [torch.rand(5, device=f"spyre:{i}").cpu() for i in range(2)]
    torch.manual_seed(3)
    second = [torch.rand(5, device=f"spyre:{i}").cpu() for i in range(2)]
    assert torch.equal(torch.stack(first), torch.stack(second))
    assert torch.equal(first[0], first[1])


def test_manual_seed_all_seeds_every_device():
    torch.spyre.manual_seed_all(11)
    assert [torch.spyre.initial_seed(i) for i in range(2)] == [11, 11]


def test_manual_seed_seeds_the_current_device_only():
    torch.spyre.manual_seed_all(1)
    with torch.spyre.device(1):
        torch.spyre.manual_seed(22)
    assert [torch.spyre.initial_seed(i) for i in range(2)] == [1, 22]


def test_negative_seeds_count_from_the_end_as_on_the_cpu():
    torch.spyre.manual_seed(-1)
    assert torch.spyre.initial_seed() == 2**64 - 1


def test_seed_chooses_a_new_seed_each_time():
    torch.spyre.manual_seed(1)
    torch.spyre.seed()
    first = torch.spyre.initial_seed()
    torch.spyre.seed()
    assert torch.spyre.initial_seed() not in (1, first)
    torch.spyre.seed_all()
    assert torch.spyre.initial_seed(0) == torch.spyre.initial_seed(1)


def test_an_unseeded_process_draws_other_numbers_each_time():
    from subprocesses import forked

    code = "import torch; print(torch.rand(4, device='spyre').tolist())"
    assert forked(code).output != forked(code).output


def test_the_cpus_generator_is_left_alone():
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    torch.rand(50, device="spyre")
    torch.spyre.manual_seed(12345)
    assert torch.equal(torch.rand(3), expected)


# ------------------------------------------------------------------------------------------- states


@pytest.mark.parametrize("fill", FILLS)
def test_a_state_continues_where_it_was_taken(fill):
    torch.spyre.manual_seed(8)
    torch.randn(3, device="spyre")  # leaves one of a pair of normal numbers behind
    state = torch.spyre.get_rng_state()
    expected = drawn(fill, "spyre"), drawn("normal_", "spyre")
    torch.spyre.manual_seed(1)
    torch.spyre.set_rng_state(state)
    assert torch.equal(drawn(fill, "spyre"), expected[0])
    assert torch.equal(drawn("normal_", "spyre"), expected[1])


def test_a_state_after_an_odd_number_of_single_normals_continues():
    generator = torch.Generator(device="spyre").manual_seed(3)
    torch.empty(1, device="spyre").normal_(generator=generator)
    state = generator.get_state()
    expected = [
        torch.empty(1, device="spyre").normal_(generator=generator).item() for _ in range(4)
    ]
    generator.set_state(state)
    again = [torch.empty(1, device="spyre").normal_(generator=generator).item() for _ in range(4)]
    assert again == expected


def test_a_state_is_a_byte_tensor_on_the_cpu():
    state = torch.spyre.get_rng_state()
    assert (state.dtype, state.device.type) == (torch.uint8, "cpu")
    assert state.dim() == 1


def test_a_state_is_a_snapshot():
    state = torch.spyre.get_rng_state()
    before = state.clone()
    torch.rand(10, device="spyre")
    assert torch.equal(state, before)
    assert not torch.equal(torch.spyre.get_rng_state(), before)


def test_states_of_all_devices():
    states = torch.spyre.get_rng_state_all()
    expected = [torch.rand(5, device=f"spyre:{i}").cpu() for i in range(2)]
    torch.spyre.set_rng_state_all(states)
    for i in range(2):
        assert torch.equal(torch.rand(5, device=f"spyre:{i}").cpu(), expected[i])


def test_a_state_of_another_size_is_refused():
    size = torch.spyre.get_rng_state().numel()
    for wrong in (size - 1, size + 8, 0):
        with pytest.raises(
            RuntimeError, match=f"SpyreGeneratorImplState of size {size} .*{wrong}$"
        ):
            torch.spyre.set_rng_state(torch.zeros(wrong, dtype=torch.uint8))


def test_a_state_that_is_not_bytes_on_the_cpu_is_refused():
    state = torch.spyre.get_rng_state()
    for wrong in (state.float(), state.to("spyre")):
        with pytest.raises(RuntimeError, match="ByteTensor"):
            torch.spyre.set_rng_state(wrong)


def test_a_refused_state_leaves_the_generator_as_it_was():
    before = torch.spyre.get_rng_state()
    with pytest.raises(RuntimeError):
        torch.spyre.set_rng_state(torch.zeros_like(before))
    assert torch.equal(torch.spyre.get_rng_state(), before)


# ----------------------------------------------------------------------------------- own generators


@pytest.mark.parametrize("fill", FILLS)
def test_a_generator_of_its_own_is_used_and_the_default_is_not(fill):
    before = torch.spyre.get_rng_state()
    first = drawn(fill, "spyre", torch.Generator(device="spyre").manual_seed(6))
    again = drawn(fill, "spyre", torch.Generator(device="spyre").manual_seed(6))
    assert torch.equal(first, again)
    assert torch.equal(first, drawn(fill, "cpu", torch.Generator().manual_seed(6)))
    assert torch.equal(torch.spyre.get_rng_state(), before)


@pytest.mark.parametrize("fill", FILLS)
def test_a_generator_of_another_device_is_refused(fill):
    for generator in (torch.Generator(), torch.Generator(device="spyre:1")):
        with pytest.raises(RuntimeError, match="Expected a 'spyre:0' generator device but found"):
            drawn(fill, "spyre:0", generator)
    with pytest.raises(RuntimeError, match="generator"):
        drawn(fill, "cpu", torch.Generator(device="spyre"))


def test_a_generator_knows_its_device_and_seed():
    generator = torch.Generator(device="spyre:1")
    assert generator.device == torch.device("spyre", 1)
    assert generator.manual_seed(5) is generator
    assert generator.initial_seed() == 5
    assert generator.seed() == generator.initial_seed()
    assert torch.Generator(device="spyre").device == torch.device("spyre", 0)


def test_a_clone_of_a_generator_goes_its_own_way():
    generator = torch.Generator(device="spyre").manual_seed(5)
    torch.rand(3, device="spyre", generator=generator)
    clone = generator.clone_state()
    expected = torch.rand(4, device="spyre", generator=generator)
    torch.rand(9, device="spyre", generator=generator)
    assert torch.equal(torch.rand(4, device="spyre", generator=clone), expected)


def test_states_go_between_generators_of_cpu_and_card():
    host = torch.Generator().manual_seed(1)
    torch.rand(5, generator=host)
    card = torch.Generator(device="spyre")
    card.set_state(host.get_state())
    assert torch.equal(
        torch.rand(9, device="spyre", generator=card).cpu(), torch.rand(9, generator=host)
    )


def test_offsets_are_not_used():
    generator = torch.Generator(device="spyre")
    for call in (generator.get_offset, lambda: generator.set_offset(4)):
        with pytest.raises(RuntimeError, match="does not use offset"):
            call()


# ------------------------------------------------------------------------------------------ devices


def test_devices_have_generators_of_their_own():
    torch.spyre.manual_seed_all(4)
    expected = torch.rand(6, device="spyre:1").cpu()
    torch.spyre.manual_seed_all(4)
    torch.rand(100, device="spyre:0")
    assert torch.equal(torch.rand(6, device="spyre:1").cpu(), expected)


def test_fork_rng_restores_the_devices_it_was_given():
    torch.spyre.manual_seed_all(1)
    states = torch.spyre.get_rng_state_all()
    with torch.random.fork_rng(devices=[0, 1], device_type="spyre"):
        torch.spyre.manual_seed_all(2)
        torch.rand(5, device="spyre:0")
        torch.rand(5, device="spyre:1")
    assert all(
        torch.equal(a, b) for a, b in zip(states, torch.spyre.get_rng_state_all(), strict=True)
    )


@pytest.mark.filterwarnings("ignore:.*fork_rng without explicitly")
def test_fork_rng_of_all_devices():
    states = torch.spyre.get_rng_state_all()
    with torch.random.fork_rng(device_type="spyre"):
        torch.rand(5, device="spyre:1")
    assert all(
        torch.equal(a, b) for a, b in zip(states, torch.spyre.get_rng_state_all(), strict=True)
    )


def test_seeding_does_not_start_the_device():
    from subprocesses import forked

    assert not forked("""
        import torch
        torch.manual_seed(1)
        torch.spyre.manual_seed_all(2)
        torch.spyre.set_rng_state(torch.spyre.get_rng_state())
        print(str(torch.spyre.is_initialized()).lower())
    """).value


# ------------------------------------------------------------------------------------------ targets


def test_a_view_is_filled_and_nothing_else():
    card = torch.zeros(6, 140, device="spyre")
    torch.spyre.manual_seed(2)
    card[1:5:2, 3:70].normal_()
    torch.manual_seed(2)
    expected = torch.zeros(6, 140)
    expected[1:5:2, 3:70] = torch.empty(2, 67).normal_()
    assert torch.equal(card.cpu(), expected)


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool], ids=str
)
def test_random_fills_integers_over_their_range(dtype):
    torch.manual_seed(1)
    card = torch.empty(200, dtype=dtype, device="spyre").random_()
    host = torch.empty(200, dtype=dtype).random_()
    expected = host.to(torch.int32).to(dtype) if dtype == torch.int64 else host
    assert torch.equal(card.cpu(), expected)


def test_nothing_is_drawn_for_a_tensor_without_elements():
    torch.empty(0, 5, device="spyre").normal_()
    assert torch.rand(0, device="spyre").numel() == 0
    assert torch.randperm(0, device="spyre").numel() == 0


def test_impossible_parameters_are_refused():
    card = torch.zeros(3, device="spyre")
    for call, words in (
        (lambda: card.normal_(0, -1), "std"),
        (lambda: card.uniform_(3, 1), "from"),
        (lambda: card.bernoulli_(2.0), "p"),
        (lambda: card.exponential_(-1), "lambda"),
        (lambda: card.geometric_(5), "p"),
        (lambda: card.random_(5, 2), "from"),
        (lambda: torch.randint(5, 2, (3,), device="spyre"), "from"),
        (lambda: torch.randperm(-1, device="spyre"), "negative|non-negative"),
    ):
        with pytest.raises(RuntimeError, match=words):
            call()
    assert card.tolist() == [0.0, 0.0, 0.0]
