"""Constants of an op, from the bits a SuperDSC holds."""

import functools
import math
import struct

from torch_spyre._C import DataFormats, _convert, encode_constant


def decode_constant(bits: int, format: DataFormats) -> float:
    """The number behind ``encode_constant()``: fp32 bits, or DLFloat16 for every other format."""
    if format == DataFormats.IEEE_FP32:
        return struct.unpack("<f", struct.pack("<I", bits))[0]
    data = struct.pack("<H", bits & 0xFFFF)
    wide = _convert(data, DataFormats.SEN169_FP16, DataFormats.IEEE_FP32)
    return struct.unpack("<f", wide)[0]


@functools.cache
def special_values() -> str:
    """What decides which number bits are, besides the bits: whether the card's DLFloat16 has an
    Infinity. Part of the name of whatever was compiled with constants, on any card."""
    format = DataFormats.SEN169_FP16
    return f"infinity is {decode_constant(encode_constant(math.inf, format), format)}"
