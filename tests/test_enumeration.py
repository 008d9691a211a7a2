"""Which devices a process sees, by environment. Every case is a process of its own."""

import pytest
from subprocesses import forked

CARDS = """
    import json, torch
    count = torch.spyre.device_count()
    for device in range(count):
        torch.zeros(1, device=f"spyre:{device}")
    print(json.dumps([count, torch.accelerator.device_count(), torch.spyre.is_available()]))
"""


def cards(**environment) -> list[int]:
    """Card numbers of the logical devices, in order, as the debug log says them."""
    result = forked(CARDS, TORCH_SPYRE_DEBUG=1, **environment)
    count, accelerator_count, available = result.value
    assert accelerator_count == count
    assert available == (count > 0)
    opened = [line for line in result.stderr.splitlines() if "opened device" in line]
    assert [line.split()[3] for line in opened] == [str(device) for device in range(count)]
    return [int(line.split()[-1]) for line in opened]


# ---------------------------------------------------------------------------------- how many, which


def test_one_card_by_default():
    assert cards() == [0]


@pytest.mark.parametrize("count", range(1, 9))
def test_soft_cards_says_how_many_the_machine_has(count):
    assert cards(SPYRE_SOFT_CARDS=count) == list(range(count))


@pytest.mark.parametrize(
    ("world_size", "expected"), [(1, [0]), (2, [0, 1]), (4, [0, 1, 2, 3]), (9, [0, 1, 2, 3])]
)
def test_world_size_is_an_upper_limit(world_size, expected):
    assert cards(SPYRE_SOFT_CARDS=4, AIU_WORLD_SIZE=world_size) == expected


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ("0", [0]),
        ("3", [3]),
        ("0,1,1", [0, 1]),  # each once
        ("1,0", [1, 0]),  # in this order
        ("3,1,3,2", [3, 1, 2]),
        ("2,9,0", [2, 0]),  # what does not exist is dropped
        ("9,0", [0]),
        (" 1 , 2 ", [1, 2]),
    ],
)
def test_spyre_devices_selects_and_orders(devices, expected):
    assert cards(SPYRE_SOFT_CARDS=4, SPYRE_DEVICES=devices) == expected


@pytest.mark.parametrize(
    ("world_size", "devices", "expected"),
    [(2, "0,1,2", [0, 1]), (3, "2,0", [2, 0]), (1, "3,0", [0])],
)
def test_spyre_devices_selects_within_the_world_size(world_size, devices, expected):
    environment = {"AIU_WORLD_SIZE": world_size, "SPYRE_DEVICES": devices}
    assert cards(SPYRE_SOFT_CARDS=4, **environment) == expected


@pytest.mark.parametrize("world_size", [1, 3, 8])
def test_mock_gives_as_many_cards_as_the_world_size(world_size):
    expected = list(range(world_size))
    assert cards(FLEX_DEVICE="MOCK", AIU_WORLD_SIZE=world_size) == expected


def test_mock_cards_can_be_selected():
    assert cards(FLEX_DEVICE="MOCK", AIU_WORLD_SIZE=4, SPYRE_DEVICES="3,1") == [3, 1]


def test_mock_supports_at_most_64_cards():
    assert cards(FLEX_DEVICE="MOCK", AIU_WORLD_SIZE=64) == list(range(64))


@pytest.mark.parametrize(
    "name", ["SPYRE_SOFT_CARDS", "AIU_WORLD_SIZE", "SPYRE_DEVICES", "FLEX_DEVICE", "LOCAL_RANK"]
)
def test_an_empty_variable_is_like_none(name):
    assert cards(**{name: ""}) == [0]


# -------------------------------------------------------------------------------------------- modes

MEMORY = """
    import torch
    tensor = torch.full((1000,), 3.0, dtype=torch.float16, device="spyre")
    assert (tensor.cpu() == 3).all()
    print([torch.spyre.mem_get_info()[1], torch.spyre.get_device_properties().total_memory])
"""


def test_pf_gives_the_whole_card():
    assert forked(MEMORY, FLEX_DEVICE="PF").value == forked(MEMORY).value == [112 << 30, 128 << 30]


def test_vf_gives_a_quarter_of_the_card():
    assert forked(MEMORY, FLEX_DEVICE="VF").value == [32 << 30, 32 << 30]


def test_vf_is_a_share_of_the_card_size():
    environment = {"FLEX_DEVICE": "VF", "SPYRE_CARD_MEMORY": "64M"}
    assert forked(MEMORY, **environment).value == [16 << 20, 16 << 20]


def test_vf_refuses_more_than_its_share():
    code = """
    import torch
    try:
        torch.empty(10 << 20, dtype=torch.float16, device="spyre")
    except torch.OutOfMemoryError as error:
        print(error)
    """
    message = forked(code, FLEX_DEVICE="VF", SPYRE_CARD_MEMORY="64M").output
    assert "16.00 MiB" in message
    assert forked(code, FLEX_DEVICE="PF", SPYRE_CARD_MEMORY="64M").output == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [("64M", 64 << 20), ("1G", 1 << 30), ("2GiB", 2 << 30), ("131072", 131072), ("128K", 131072)],
)
def test_card_memory_sets_the_size(text, expected):
    assert forked(MEMORY, SPYRE_CARD_MEMORY=text).value[0] == expected


# ----------------------------------------------------------------------------------- nothing to see

NOTHING = """
    import json, torch
    print(json.dumps([torch.spyre.is_available(), torch.accelerator.is_available(),
                      torch.spyre.device_count(), torch.spyre.is_initialized()]))
    torch.manual_seed(1)
    torch.spyre.synchronize()
    try:
        torch.zeros(2, device="spyre")
    except RuntimeError as error:
        print(error)
"""


@pytest.mark.parametrize(
    "environment",
    [
        {"SPYRE_DEVICES": "7"},
        {"AIU_WORLD_SIZE": "0"},
        {"SPYRE_DEVICES": "1", "AIU_WORLD_SIZE": "1"},
    ],
    ids=str,
)
def test_no_visible_device_is_not_an_error_until_one_is_used(environment):
    first, message = forked(NOTHING, SPYRE_SOFT_CARDS=2, **environment).output.split("\n", 1)
    assert first == "[false, false, 0, false]"
    assert "No Spyre device is visible" in message
    assert "LOCAL_RANK" not in message  # it has nothing to do with it
    assert all(name in message for name in environment)  # what to change


# --------------------------------------------------------------------------------------- bad values

BAD = """
    import json, torch
    def failure(function):
        try:
            function()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "no error"
    report = {
        "available": torch.spyre.is_available(),
        "accelerator": torch.accelerator.is_available(),
        "initialized": torch.spyre.is_initialized(),
        "seed": failure(lambda: torch.manual_seed(1)),
        "cpu": failure(lambda: torch.zeros(2)),
        "device_count": failure(torch.spyre.device_count),
        "zeros": failure(lambda: torch.zeros(2, device="spyre")),
        "zeros again": failure(lambda: torch.zeros(2, device="spyre:0")),
        "to": failure(lambda: torch.zeros(2).to("spyre")),
        "current_device": failure(torch.spyre.current_device),
        "properties": failure(torch.spyre.get_device_properties),
        "init": failure(torch.spyre.init),
    }
    print(json.dumps(report))
"""


@pytest.mark.parametrize(
    ("name", "value", "others"),
    [
        ("SPYRE_SOFT_CARDS", "0", {}),
        ("SPYRE_SOFT_CARDS", "9", {}),
        ("SPYRE_SOFT_CARDS", "-1", {}),
        ("SPYRE_SOFT_CARDS", "two", {}),
        ("SPYRE_SOFT_CARDS", "2x", {}),
        ("AIU_WORLD_SIZE", "x", {}),
        ("AIU_WORLD_SIZE", "1.5", {}),
        ("AIU_WORLD_SIZE", "-1", {}),
        ("SPYRE_DEVICES", "a", {}),
        ("SPYRE_DEVICES", "0;1", {}),
        ("SPYRE_DEVICES", "0,,1", {}),
        ("FLEX_DEVICE", "XX", {}),
        ("FLEX_DEVICE", "pf", {}),
        ("AIU_WORLD_SIZE", "0", {"FLEX_DEVICE": "MOCK"}),
        ("AIU_WORLD_SIZE", "-2", {"FLEX_DEVICE": "MOCK"}),
        ("AIU_WORLD_SIZE", "", {"FLEX_DEVICE": "MOCK"}),
        ("AIU_WORLD_SIZE", "65", {"FLEX_DEVICE": "MOCK"}),
        ("AIU_WORLD_SIZE", "200", {"FLEX_DEVICE": "MOCK"}),
        ("AIU_WORLD_SIZE", str(2**40), {"FLEX_DEVICE": "MOCK"}),
        ("SPYRE_CARD_LIBRARY", "/nowhere/card.so", {}),
    ],
)
def test_a_bad_value_is_named_by_every_error_and_hides_the_device(name, value, others):
    report = forked(BAD, **{name: value}, **others).value
    assert (report.pop("available"), report.pop("accelerator")) == (False, False)
    assert report.pop("initialized") is False
    assert (report.pop("seed"), report.pop("cpu")) == ("no error", "no error")
    for use, message in report.items():
        assert name in message, (use, message)


@pytest.mark.parametrize("value", ["foo", "1", "0", "-5", "64X", "1000G", "1e9"])
def test_a_bad_card_memory_is_named_when_the_card_is_opened(value):
    report = forked(BAD, SPYRE_CARD_MEMORY=value).value
    assert (report["available"], report["seed"]) == (True, "no error")
    for use in ("zeros", "zeros again", "to", "properties", "init"):
        assert "Failed to initialize Spyre runtime" in report[use]
        assert "SPYRE_CARD_MEMORY" in report[use]


@pytest.mark.parametrize("name", ["SPYRE_CARD_WARM_BYTES", "SPYRE_CARD_THREADS"])
@pytest.mark.parametrize("value", ["foo", "-5"])
def test_bad_tuning_variables_are_named_when_the_card_is_opened(name, value):
    report = forked(BAD, **{name: value}).value
    for use in ("zeros", "zeros again", "to", "init"):
        assert name in report[use], (use, report[use])


# --------------------------------------------------------------------------------------- LOCAL_RANK


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_local_rank_picks_the_first_device(rank):
    code = """
    import threading, torch
    seen = [torch.spyre.current_device(), torch.zeros(1, device="spyre").device.index]
    thread = threading.Thread(target=lambda: seen.append(torch.spyre.current_device()))
    thread.start(), thread.join()
    torch.spyre.set_device(0)
    print(seen + [torch.spyre.current_device()])
    """
    assert forked(code, SPYRE_SOFT_CARDS=3, LOCAL_RANK=rank).value == [rank, rank, rank, 0]


def test_set_device_before_the_first_use_beats_local_rank():
    code = """
    import torch
    torch.spyre.set_device(0)
    print(torch.zeros(1, device="spyre").device.index)
    """
    assert forked(code, SPYRE_SOFT_CARDS=2, LOCAL_RANK=1).value == 0


@pytest.mark.parametrize("rank", [2, 5, 127, 128, 255, 256, 257, -1, 2**40])
def test_a_local_rank_out_of_range_is_an_error(rank):
    report = forked(BAD, SPYRE_SOFT_CARDS=2, LOCAL_RANK=rank).value
    assert report["available"] is True
    for use in ("zeros", "to", "current_device", "init"):
        message = report[use]
        assert f"Device index out of bounds. logical_device_id={rank}" in message, (use, message)
        assert "number of visible devices=2" in message
        assert "LOCAL_RANK" in message


def test_a_local_rank_that_is_no_number_is_named():
    report = forked(BAD, LOCAL_RANK="first").value
    assert report["seed"] == "no error"
    for use in ("zeros", "to", "current_device", "init"):
        assert "LOCAL_RANK" in report[use]
