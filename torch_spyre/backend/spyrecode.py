"""SpyreCode directories: what a runtime needs to run a bundle, ``docs/spyrecode.md``.

``spyrecode.json`` lists commands, first those that bring the program to the card, then those of
every run. ``init.bin`` is the program.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch_spyre.backend.bundle import Bundle
from torch_spyre.backend.errors import MalformedSpyreCode
from torch_spyre.machine import load as load_machine

DIRECTORY = "spyreCodeDir"
FILE = "spyrecode.json"
PROGRAM_FILE = "init.bin"
PROGRAM_BASE = int(load_machine().value("memory.program_segment_base"))
SEGMENT_BYTES = int(load_machine().value("memory.segment_bytes"))
GRANULARITY = int(load_machine().value("memory.allocation_granularity"))
ADDRESS_BYTES = 8
CORRECTION = "correction"  # the host buffer with the addresses of a run


class _Properties:
    """The properties of one command. What is missing or of another kind is refused."""

    def __init__(self, command: str, values: Mapping[str, Any]) -> None:
        self.command, self.values = command, values

    def any(self, name: str) -> Any:
        if name not in self.values:
            raise ValueError(f"{self.command} command missing '{name}' property")
        return self.values[name]

    def text(self, name: str) -> str:
        value = self.any(name)
        if not isinstance(value, str):
            raise ValueError(f"{self.command} '{name}' must be a string")
        return value

    def number(self, name: str) -> int:
        value = self.text(name)
        if not value.isdecimal() or len(value) > 18:
            raise ValueError(f"{self.command} '{name}' must be a decimal number, found {value!r}")
        return int(value)

    def pointer(self, name: str) -> int:
        value = self.number(name)
        if not PROGRAM_BASE <= value < PROGRAM_BASE + SEGMENT_BYTES:
            raise ValueError(f"{self.command} '{name}': {value} is not in the program segment")
        return value


@dataclass(frozen=True)
class Allocate:
    """Device memory for the program and what is sent along with it."""

    size: int
    command: ClassVar[str] = "Allocate"

    def properties(self) -> dict[str, Any]:
        return {"size": str(self.size)}

    @classmethod
    def read(cls, properties: _Properties) -> Allocate:
        return cls(properties.number("size"))


@dataclass(frozen=True)
class InitTransfer:
    """Bytes of a file, to the card, once."""

    init_bin_file: str
    dev_ptr: int
    size: int
    command: ClassVar[str] = "InitTransfer"

    def properties(self) -> dict[str, Any]:
        return {
            "init_bin_file": self.init_bin_file,
            "dev_ptr": str(self.dev_ptr),
            "size": str(self.size),
        }

    @classmethod
    def read(cls, properties: _Properties) -> InitTransfer:
        return cls(
            properties.text("init_bin_file"),
            properties.pointer("dev_ptr"),
            properties.number("size"),
        )


@dataclass(frozen=True)
class ComputeOnDevice:
    """Run the program at an address."""

    job_bin_ptr: int
    command: ClassVar[str] = "ComputeOnDevice"
    step_type: ClassVar[str] = "Compute"

    def properties(self) -> dict[str, Any]:
        return {"job_bin_ptr": str(self.job_bin_ptr)}

    @classmethod
    def read(cls, properties: _Properties) -> ComputeOnDevice:
        return cls(properties.pointer("job_bin_ptr"))


@dataclass(frozen=True)
class ComputeOnHost:
    """Fill a host buffer; ``hcm`` says with what."""

    ohandle: str
    size: int
    ishape: tuple[str, ...]
    ihandle: str
    hcm: Mapping[str, Any]
    command: ClassVar[str] = "ComputeOnHost"
    step_type: ClassVar[str] = "HostCompute"

    def properties(self) -> dict[str, Any]:
        return {
            "ohandle": self.ohandle,
            "size": str(self.size),
            "ishape": list(self.ishape),
            "ihandle": self.ihandle,
            "hcm": self.hcm,
        }

    @classmethod
    def read(cls, properties: _Properties) -> ComputeOnHost:
        ohandle, size = properties.text("ohandle"), properties.number("size")
        shape = properties.any("ishape")
        if not isinstance(shape, list):
            raise ValueError("ComputeOnHost 'ishape' must be an array")
        if not all(isinstance(entry, str) for entry in shape):
            raise ValueError("ComputeOnHost 'ishape' elements must be strings")
        ihandle, hcm = properties.text("ihandle"), properties.any("hcm")
        if not isinstance(hcm, dict):
            raise ValueError("ComputeOnHost 'hcm' must be an object")
        return cls(ohandle, size, tuple(shape), ihandle, hcm)


@dataclass(frozen=True)
class DataTransfer:
    """A host buffer to the card, or back."""

    to_host: bool
    dev_ptr: int
    size: int
    host_handle: str
    command: ClassVar[str] = "DataTransfer"

    @property
    def step_type(self) -> str:
        return "D2H" if self.to_host else "H2D"

    def properties(self) -> dict[str, Any]:
        return {
            "dirn": "true" if self.to_host else "false",
            "dev_ptr": str(self.dev_ptr),
            "size": str(self.size),
            "host_handle": self.host_handle,
        }

    @classmethod
    def read(cls, properties: _Properties) -> DataTransfer:
        direction = properties.text("dirn")
        if direction not in ("true", "false"):
            raise ValueError(f"DataTransfer 'dirn' must be 'true' or 'false', found {direction!r}")
        return cls(
            direction == "true",
            properties.pointer("dev_ptr"),
            properties.number("size"),
            properties.text("host_handle"),
        )


Preparation = Allocate | InitTransfer
Execution = ComputeOnDevice | ComputeOnHost | DataTransfer
_PREPARATION = {kind.command: kind for kind in (Allocate, InitTransfer)}
_EXECUTION = {kind.command: kind for kind in (ComputeOnDevice, ComputeOnHost, DataTransfer)}


@dataclass(frozen=True)
class SpyreCode:
    preparation: list[Preparation]
    execution: list[Execution]

    @property
    def allocation_bytes(self) -> int:
        first = self.preparation[0]
        return first.size if isinstance(first, Allocate) else 0

    def text(self) -> str:
        """``spyrecode.json``; equal for equal bundles."""
        document = {
            "JobPreparationPlan": [_entry(command) for command in self.preparation],
            "JobExecPlan": [_entry(command) for command in self.execution],
        }
        return json.dumps(document, indent=2) + "\n"


def _entry(command: Preparation | Execution) -> dict[str, Any]:
    return {"command": command.command, "properties": command.properties()}


def _aligned(size: int) -> int:
    return -(-size // GRANULARITY) * GRANULARITY


def spyrecode(parameters: Sequence[str], program: bytes) -> SpyreCode:
    """The commands that run the program of a bundle with these parameters."""
    table = PROGRAM_BASE + _aligned(len(program))
    # Argument n of a launch is operand n of the program: the pool, if any, then the tensors.
    arguments = {
        name: 0 if name == "pool" else int(name.removeprefix("arg_")) + ("pool" in parameters)
        for name in parameters
    }
    table_bytes = len(arguments) * ADDRESS_BYTES
    preparation: list[Preparation] = [
        Allocate(_aligned(len(program)) + _aligned(table_bytes)),
        InitTransfer(PROGRAM_FILE, PROGRAM_BASE, len(program)),
    ]
    execution: list[Execution] = []
    if arguments:
        hcm = {
            "arguments": [
                {"parameter": name, "argument": str(number)} for name, number in arguments.items()
            ]
        }
        execution = [
            ComputeOnHost(CORRECTION, table_bytes, (str(len(arguments)),), "", hcm),
            DataTransfer(False, table, table_bytes, CORRECTION),
        ]
    return SpyreCode(preparation, [*execution, ComputeOnDevice(PROGRAM_BASE)])


def write_spyrecode(directory: Path, bundle: Bundle, program: bytes) -> SpyreCode:
    """Write ``spyrecode.json`` and ``init.bin`` into ``directory``."""
    code = spyrecode(bundle.parameters, program)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / PROGRAM_FILE).write_bytes(program)
    (directory / FILE).write_text(code.text())
    return code


def read_spyrecode(directory: Path) -> SpyreCode:
    """The commands in a directory. Raises :class:`MalformedSpyreCode`."""
    if not directory.is_dir():
        raise MalformedSpyreCode(str(directory), FILE, "SpyreCode directory does not exist")
    path = directory / FILE
    if not path.is_file():
        raise MalformedSpyreCode(str(directory), FILE, "spyrecode.json not found")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise MalformedSpyreCode(str(path), "JSON", f"Failed to parse: {error}") from None
    preparation = _commands(path, document, "JobPreparationPlan", _PREPARATION)
    execution = _commands(path, document, "JobExecPlan", _EXECUTION)
    kinds = [type(command) for command in preparation]
    if len(kinds) < 2 or kinds[0] is not Allocate or set(kinds[1:]) != {InitTransfer}:
        raise MalformedSpyreCode(
            str(path), "JobPreparationPlan", "must be one Allocate, then InitTransfers"
        )
    return SpyreCode(preparation, execution)


def _commands(path: Path, document: Any, plan: str, kinds: Mapping[str, Any]) -> list[Any]:
    entries = document.get(plan) if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise MalformedSpyreCode(str(path), plan, "must be an array of commands")
    commands = []
    for i, entry in enumerate(entries):
        try:
            if not isinstance(entry, dict) or not isinstance(entry.get("properties"), dict):
                raise ValueError("expected an object with 'command' and 'properties'")
            name = entry.get("command")
            if not isinstance(name, str) or name not in kinds:
                raise ValueError(f"unknown command {name!r}; {plan} has {', '.join(kinds)}")
            commands.append(kinds[name].read(_Properties(name, entry["properties"])))
        except ValueError as error:
            raise MalformedSpyreCode(
                str(path), f"{plan}[{i}]", f"Failed to parse SpyreCode command: {error}"
            ) from None
    return commands
