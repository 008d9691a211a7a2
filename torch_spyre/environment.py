"""Every knob, and the environment variable it is read from: ``knobs.toml`` as typed values.

>>> from torch_spyre.environment import KNOBS
>>> KNOBS["sencores"].legal
'a whole number from 1 to 32'

``python -m torch_spyre env`` prints the table. A test checks that no other variable is read
anywhere, in Python or C++. Software cards and the runtime read theirs in C++.
"""

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("knobs.toml")
ON, OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class InvalidValue(ValueError):
    """A knob has a value without a meaning: what it is, and what it could be."""

    def __str__(self) -> str:
        return ": ".join(self.args)


@dataclass(frozen=True)
class Knob:
    name: str
    group: str  # who reads it: "card", "runtime" or "compiler"
    variable: str
    kind: str  # "flag", "number", "bytes", "choice" or "text"
    meaning: str
    default: Any = None
    shown: str = ""  # the default in words
    alias: str = ""  # the variable's public name, if it has another one
    range: tuple[Any, ...] = ()
    choices: tuple[str, ...] = ()

    @property
    def variables(self) -> list[str]:
        return [name for name in (self.variable, self.alias) if name]

    @property
    def default_text(self) -> str:
        return self.shown or str(int(self.default) if self.kind == "flag" else self.default)

    @property
    def text(self) -> str | None:
        """What the process has, or None if it is not set."""
        return self._found()[1]

    def _found(self) -> tuple[str, str | None]:
        """The variable that says it, and what it says."""
        for name in self.variables:
            if text := os.environ.get(name, "").strip():
                return name, text
        return self.variable, None

    def read(self) -> Any:
        """The value, the default if it is not set. Raises :class:`InvalidValue`."""
        name, text = self._found()
        if text is None:
            return self.default
        value = self._parsed(text)
        if not self.accepts(value):
            raise InvalidValue(f"invalid {name} value {text!r}", f"{name} is {self.words}")
        return value

    def check(self, value: Any) -> None:
        """Raises :class:`InvalidValue` for a value that a program gave it."""
        if not self.accepts(value):
            what = f"invalid {self.variables[-1]} value {value!r}"
            raise InvalidValue(what, f"config.{self.name} is {self.legal}")

    def _parsed(self, text: str) -> Any:
        if self.kind == "flag":
            word = text.lower()
            return word in ON if word in ON + OFF else None
        if self.kind == "number":
            try:
                return type(self.default)(text)
            except ValueError:
                return None
        return text.lower() if self.kind == "choice" else text

    def accepts(self, value: Any) -> bool:
        """Whether it is a value with a meaning."""
        if self.kind == "flag":
            return isinstance(value, bool)
        if self.kind == "number":
            types = (int, float) if isinstance(self.default, float) else (int,)
            least, most = (*self.range, None, None)[:2]
            return (
                type(value) in types
                and (least is None or value >= least)
                and (most is None or value <= most)
            )
        return isinstance(value, str) and (not self.choices or value in self.choices)

    @property
    def legal(self) -> str:
        """Which values have a meaning."""
        if self.kind == "flag":
            return "True or False"
        if self.kind == "number":
            kind = "a number" if isinstance(self.default, float) else "a whole number"
            return kind + "".join(
                f" {word} {end}" for word, end in zip(("from", "to"), self.range, strict=False)
            )
        return " or ".join(self.choices)

    @property
    def words(self) -> str:
        """The same of what the variable may say."""
        if self.kind == "flag":
            return f"one of {', '.join(ON)}, or of {', '.join(OFF)}"
        return self.legal


def _load() -> dict[str, Knob]:
    table = tomllib.loads(TABLE.read_text())
    return {
        name: Knob(
            name,
            group,
            **entry | {key: tuple(entry[key]) for key in ("range", "choices") if key in entry},
        )
        for group, entries in table.items()
        for name, entry in entries.items()
    }


KNOBS = _load()
