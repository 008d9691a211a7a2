"""Knobs of the compiler. ``torch_spyre._inductor.config.patch({...})`` changes them for a while.

Which there are, and what they mean, says ``torch_spyre/knobs.toml``. Each is read from the
environment once, when this module is imported, which a program may do that compiles nothing for the
card. So a value without a meaning is no error here, but when such a graph is compiled (see
``check_settings``). Inductor hashes this module into its cache keys.
"""

import sys
from typing import TYPE_CHECKING, Any

from torch.utils._config_module import install_config_module

from torch_spyre import environment


def _read(knob: environment.Knob) -> Any:
    try:
        return knob.read()
    except environment.InvalidValue:
        return knob.default


def knobs() -> list[environment.Knob]:
    """Those of the compiler."""
    return [knob for knob in environment.KNOBS.values() if knob.group == "compiler"]


globals().update((knob.name, _read(knob)) for knob in knobs())

if TYPE_CHECKING:
    from torch.utils._config_typing import *  # noqa: F403

    def __getattr__(name: str) -> Any: ...


install_config_module(sys.modules[__name__])
