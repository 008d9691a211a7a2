"""The machine description, ``machine.toml``, as typed values.

>>> from torch_spyre.machine import MACHINE
>>> MACHINE.value("card.cores")
32
"""

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path

DESCRIPTION = Path(__file__).with_name("machine.toml")


@dataclass(frozen=True)
class Number:
    """One number of the machine and where it comes from."""

    name: str
    value: int | float
    unit: str
    source: str


@dataclass(frozen=True)
class Format:
    """One element format."""

    name: str
    id: int
    bits: int
    elems_per_stick: int
    kind: str
    note: str


@dataclass(frozen=True)
class Machine:
    numbers: dict[str, Number]
    formats: dict[str, Format]

    def value(self, name: str) -> int | float:
        """The number called ``section.name``."""
        return self.numbers[name].value


@functools.cache
def load() -> Machine:
    text = tomllib.loads(DESCRIPTION.read_text())
    formats = {name: Format(name=name, **entry) for name, entry in text.pop("formats").items()}
    numbers = {
        f"{section}.{name}": Number(name=f"{section}.{name}", **entry)
        for section, entries in text.items()
        for name, entry in entries.items()
    }
    return Machine(numbers, formats)


def __getattr__(name: str) -> Machine:
    if name == "MACHINE":  # read on first use: importing torch must stay cheap
        return load()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
