"""A bundle in, a program out."""

from dataclasses import dataclass
from pathlib import Path

from torch_spyre.backend.account import Accounts, accounts_of
from torch_spyre.backend.bundle import Bundle, BundleFiles, bundle_files, parse_bundle
from torch_spyre.backend.check import check
from torch_spyre.backend.emit import steps_of
from torch_spyre.backend.program import program
from torch_spyre.backend.schedule import Group, groups, works
from torch_spyre.backend.spyrecode import SpyreCode, write_spyrecode


@dataclass(frozen=True)
class Compiled:
    """The program of a bundle, and what it consists of."""

    program: bytes
    code: SpyreCode
    ops: int
    cores: int
    steps: int  # between which cores wait for each other


def compile_files(files: BundleFiles) -> bytes:
    """The program of a bundle. Raises :class:`~torch_spyre.backend.errors.MalformedBundle`."""
    bundle = parse_bundle(files)
    check(bundle)
    return _program(bundle, groups(bundle))


def compile_bundle(directory: Path) -> bytes:
    """The program of a bundle directory. Nothing but the files in it is looked at."""
    return compile_files(bundle_files(Path(directory)))


def compile_to_spyrecode(directory: Path, output: Path) -> Compiled:
    """Compile a bundle directory and write a SpyreCode directory."""
    bundle = parse_bundle(bundle_files(directory))
    check(bundle)
    scheduled = groups(bundle)
    binary = _program(bundle, scheduled)
    code = write_spyrecode(output, bundle, binary)
    ops = [work.op for group in scheduled for work in works(group.works)]
    cores = max((op.cores for op in ops), default=0)
    return Compiled(binary, code, len(ops), cores, len(scheduled))


def _program(bundle: Bundle, scheduled: list[Group]) -> bytes:
    handover = [bundle.handover] if bundle.handover else []
    return program([Accounts(accounts_of(bundle)), *handover, *steps_of(bundle, scheduled)])
