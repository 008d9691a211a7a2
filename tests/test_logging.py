"""The log: names that ``TORCH_LOGS`` knows, and the same from a program."""

import logging

import pytest
from subprocesses import fresh

from torch_spyre import logging_config
from torch_spyre.logging_config import LogLevel

pytestmark = pytest.mark.usefixtures("log_as_before")

LEVELS = """
    import json, sys
    import torch
    from torch_spyre import logging_config
    levels = logging_config.get_effective_config()
    loaded = "torch._dynamo" in sys.modules
    print(json.dumps([levels, logging_config.get_config_source(), loaded]))
"""


def test_without_a_wish_only_warnings():
    levels, source, dynamo = fresh(LEVELS).value
    assert set(levels.values()) == {"WARNING"}
    assert source == "default"
    assert not dynamo


@pytest.mark.parametrize(
    ("setting", "component", "level", "others"),
    [
        ("+spyre", "spyre.execution", "DEBUG", "DEBUG"),
        ("spyre", "spyre.inductor.codegen", "INFO", "INFO"),
        ("spyre.inductor.stickify", "spyre.inductor.stickify", "INFO", "WARNING"),
        ("-spyre.inductor, +dynamo", "spyre.inductor.passes", "ERROR", "WARNING"),
    ],
)
def test_torch_logs_sets_levels(setting, component, level, others):
    levels, source, _ = fresh(LEVELS, TORCH_LOGS=setting).value
    assert levels[component] == level
    assert levels["spyre.device"] == others
    assert source == "TORCH_LOGS"


@pytest.mark.parametrize(
    ("settings", "level", "source"),
    [
        ({"SPYRE_INDUCTOR_LOG": "1"}, "INFO", "legacy:SPYRE_INDUCTOR_LOG"),
        (
            {"SPYRE_INDUCTOR_LOG": "1", "SPYRE_INDUCTOR_LOG_LEVEL": "debug"},
            "DEBUG",
            "legacy:SPYRE_INDUCTOR_LOG",
        ),
        ({"SPYRE_INDUCTOR_LOG": "0", "SPYRE_INDUCTOR_LOG_LEVEL": "debug"}, "WARNING", "default"),
        ({"SPYRE_INDUCTOR_LOG": "1", "TORCH_LOGS": "-spyre"}, "ERROR", "TORCH_LOGS"),
    ],
)
def test_older_names_of_settings(settings, level, source):
    levels, told, _ = fresh(LEVELS, **settings).value
    assert levels["spyre.inductor.passes"] == level
    assert told == source


def test_the_environment_names_a_file(tmp_path, empty_caches):
    path = tmp_path / "log.txt"
    code = """
        import torch
        torch.compile(lambda x: x + 1)(torch.ones(4, device="spyre"))
    """
    result = fresh(code, SPYRE_INDUCTOR_LOG=1, SPYRE_LOG_FILE=path)
    assert result.returncode == 0
    assert "[INFO] [spyre.inductor.lowering] sdsc_fused_add_0 computes" in path.read_text()


def test_a_level_that_does_not_exist_is_refused():
    result = fresh("import torch", SPYRE_INDUCTOR_LOG=1, SPYRE_INDUCTOR_LOG_LEVEL="loud")
    assert result.returncode != 0
    assert "invalid SPYRE_INDUCTOR_LOG_LEVEL value 'LOUD'" in result.stderr


def test_names_that_do_not_exist_are_refused():
    result = fresh("import torch", TORCH_LOGS="spyre_nothing")
    assert result.returncode != 0
    assert "spyre.inductor.stickify" in result.stderr  # one of those that do


def test_the_runtime_follows():
    code = """
        import torch
        from torch_spyre import logging_config
        torch.ones(64, device="spyre")
        logging_config.disable("spyre.runtime")
        torch.ones(128, device="spyre")  # 512 bytes
        logging_config.enable("spyre.runtime", "debug")
        torch.ones(256, device="spyre")
    """
    lines = fresh(code, TORCH_LOGS="+spyre.runtime").stderr
    assert "256 bytes" in lines
    assert "512 bytes" not in lines
    assert "1024 bytes" in lines


def test_components_inherit_levels():
    logging_config.set_log_level("spyre.inductor", "INFO")
    assert logging_config.get_log_level("spyre.inductor.passes") is LogLevel.INFO
    assert logging_config.get_log_level("spyre.device") is LogLevel.WARNING
    logging_config.disable("spyre.inductor.passes")
    assert logging_config.get_log_level("spyre.inductor.passes") is LogLevel.DISABLED
    assert not logging.getLogger("spyre.inductor.passes").isEnabledFor(logging.CRITICAL)
    assert logging_config.get_config_source() == "programmatic"
    logging_config.configure_python_logging()
    assert logging_config.get_config_source() == "default"
    assert logging_config.get_log_level("spyre.inductor.passes") is LogLevel.WARNING


def test_levels_in_every_form():
    for level in (LogLevel.INFO, logging.INFO, "info"):
        logging_config.enable("spyre.device", level)
        assert logging_config.get_config_for_cpp()["spyre.device"] == logging.INFO


def test_what_is_no_component_or_level():
    with pytest.raises(ValueError, match=r"spyre\.execution"):
        logging_config.get_log_level("spyre.nothing")
    with pytest.raises(KeyError):
        logging_config.set_log_level("spyre", "loud")


def test_a_file_gets_every_message_once(tmp_path):
    file = tmp_path / "log.txt"
    logging_config.set_log_file(file)
    assert logging_config.get_log_file() == str(file)
    assert logging_config.get_output_config()["file"] == str(file)
    logging_config.enable("spyre")
    logging.getLogger("spyre.inductor.codegen").info("one %d", 1)
    logging.getLogger("spyre").info("two")
    logging.getLogger("spyre.device").debug("unwanted")
    logging_config.set_log_file(None)
    logging.getLogger("spyre").info("three")
    assert logging_config.get_log_file() is None
    lines = file.read_text().splitlines()
    assert lines == ["[INFO] [spyre.inductor.codegen] one 1", "[INFO] [spyre] two"]


def test_components_are_those_that_are_documented():
    assert logging_config.list_components() == [
        "spyre",
        "spyre.inductor",
        "spyre.inductor.lowering",
        "spyre.inductor.stickify",
        "spyre.inductor.passes",
        "spyre.inductor.codegen",
        "spyre.runtime",
        "spyre.execution",
        "spyre.device",
    ]
