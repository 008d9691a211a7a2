"""Which op of the card converts one dtype to another."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch

from torch_spyre._inductor.constants import IDENTITY_OP
from torch_spyre.ops.table import OPS

# bfloat16 is held in the same format as float16.
SHORT_FLOATS = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, *SHORT_FLOATS, torch.float8_e4m3fn, torch.float8_e5m2fnuz)
INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def _table() -> dict[tuple[torch.dtype, torch.dtype], str]:
    table = dict.fromkeys(itertools.permutations((*FLOATS, *INTEGERS), 2), IDENTITY_OP)
    for short in SHORT_FLOATS:
        table[short, torch.float32] = "dl16tofp32"
        table[torch.float32, short] = "fp32todl16"
        table[torch.float8_e4m3fn, short] = "fp8todl16"
    return table


class DtypeOpTable:
    """Conversions that the card does itself."""

    _table = MappingProxyType(_table())

    @classmethod
    def get_operator(cls, src: torch.dtype, dst: torch.dtype) -> str | None:
        """The op, or None if there is none. From a dtype to itself no op is needed."""
        return cls._table.get((src, dst))

    @classmethod
    def get_table(cls) -> Mapping[tuple[torch.dtype, torch.dtype], str]:
        return cls._table

    @classmethod
    def get_dtype_pairs(cls) -> list[tuple[torch.dtype, torch.dtype]]:
        return list(cls._table)


def computes_in_integers(op: str, dtypes: Sequence[torch.dtype]) -> bool:
    """Whether an op on tensors of these dtypes, its result among them, takes 64-bit integers."""
    floats = any(dtype.is_floating_point for dtype in dtypes)
    # For bools float32 is exact, too, and fuses with the ops around.
    bools = OPS[op].fp32 and all(dtype == torch.bool for dtype in dtypes)
    return OPS[op].int64 and not floats and not bools
