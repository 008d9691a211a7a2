"""Constants of an op, from the bits a SuperDSC holds."""

import struct

from torch_spyre._C import DataFormats, _convert


def decode_constant(bits: int, format: DataFormats) -> float:
    """The number behind ``encode_constant()``: fp32 bits, or DLFloat16 for every other format."""
    if format == DataFormats.IEEE_FP32:
        return struct.unpack("<f", struct.pack("<I", bits))[0]
    data = struct.pack("<H", bits & 0xFFFF)
    wide = _convert(data, DataFormats.SEN169_FP16, DataFormats.IEEE_FP32)
    return struct.unpack("<f", wide)[0]
