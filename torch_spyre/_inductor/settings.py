"""Knobs of the compiler, as the environment has them.

Read when ``config`` is imported, which a program may do that compiles nothing for the card. So a
value without a meaning is no error there, but when such a graph is compiled: see :data:`problems`.
"""

import os

from torch_spyre._inductor.errors import InvalidSetting

problems: list[InvalidSetting] = []  # of variables that have a value without a meaning


def _invalid(name: str, value: str, hint: str) -> None:
    problems.append(InvalidSetting(f"invalid {name} value {value!r}", hint=hint))


def environment_flag(name: str, default: bool) -> bool:
    value = os.environ.get(name, "").strip().lower() or str(default).lower()
    on, off = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
    if value not in on + off:
        _invalid(name, value, f"{name} is one of {', '.join(on)}, or of {', '.join(off)}")
        return default
    return value in on


def environment_number(name: str, default: int) -> int:
    value = os.environ.get(name, "").strip() or str(default)
    try:
        return int(value)
    except ValueError:
        _invalid(name, value, "a number")
        return default


def environment_fraction(name: str, default: float) -> float:
    value = os.environ.get(name, "").strip() or str(default)
    try:
        found = float(value)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        _invalid(name, value, "a number from 0 to 1")
        return default
    return found


def environment_choice(name: str, default: str, others: tuple[str, ...]) -> str:
    value = os.environ.get(name, "").strip().lower() or default
    if value not in (default, *others):
        _invalid(name, value, " or ".join((default, *others)))
        return default
    return value
