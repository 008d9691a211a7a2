"""What the tests hold the device against: number formats and layouts in plain numpy.

Nothing here calls the package's own conversions or its tiling. A format is the sorted list of the
values it can hold, and encoding is a search in that list; a layout is walked coordinate by
coordinate as its definition says.

Rules of conversion
* A value is rounded once, from the source's exact value to the target format: to nearest, ties to
  even, except to DLFloat16, where ties go away from zero.
* float -> integer truncates toward zero through int64 (what int64 cannot hold, and NaN, give its
  minimum) and then wraps; to int32 and shorter signed integers through int32 in the same way;
  integer -> integer wraps; to bool is "not zero".
* A NaN becomes the target's positive quiet NaN.
* float16, bfloat16 and bool live as DLFloat16 on the card, int64 as int32 (wraps), uint8 as 32 bits
  whose values stay below 256; every other dtype has the same format on both sides.
* From the card to float16, a magnitude of 65536 (where 65504 rounds to) returns as 65504.
"""

import functools
import itertools
from dataclasses import dataclass

import numpy as np
import torch

from torch_spyre import _C
from torch_spyre._C import DataFormats, SpyreTensorLayout

# --------------------------------------------------------------------------------------- formats


@dataclass(frozen=True)
class Format:
    """An element format. Floating formats have exponent and fraction bits, the others a sign."""

    bits: int
    kind: str  # "float", "signed", "unsigned", "bool"
    exponent: int = 0
    fraction: int = 0
    bias: int = 0
    overflow: int = 0  # first magnitude code that is no finite value
    large: int = 0  # code of a value that is too large, infinities included
    nan: int = 0
    has_infinity: bool = True
    fnuz: bool = False  # zero and NaN have no sign
    ties_away: bool = False
    subnormals: bool = True

    @property
    def uint(self) -> np.dtype:
        return np.dtype(f"uint{self.bits}")


FORMATS = {
    "SEN169_FP16": Format(
        16, "float", 6, 9, 31, 0x7FFE, 0x7FFE, 0x7FFF, ties_away=True, subnormals=False
    ),
    "IEEE_FP32": Format(32, "float", 8, 23, 127, 0x7F800000, 0x7F800000, 0x7FC00000),
    "IEEE_FP64": Format(64, "float", 11, 52, 1023, nan=0x7FF8000000000000),
    "IEEE_FP16": Format(16, "float", 5, 10, 15, 0x7C00, 0x7C00, 0x7E00),
    "BFLOAT16": Format(16, "float", 8, 7, 127, 0x7F80, 0x7F80, 0x7FC0),
    "SEN143_FP8": Format(8, "float", 4, 3, 7, 0x7F, 0x7E, 0x7F, has_infinity=False),
    "SEN152_FP8": Format(8, "float", 5, 2, 16, 0x80, 0x80, 0x80, has_infinity=False, fnuz=True),
    "FP8_E5M2": Format(8, "float", 5, 2, 15, 0x7C, 0x7C, 0x7F),
    "FP8_E4M3FNUZ": Format(8, "float", 4, 3, 8, 0x80, 0x80, 0x80, has_infinity=False, fnuz=True),
    "SENINT8": Format(8, "signed"),
    "SENINT16": Format(16, "signed"),
    "IEEE_INT32": Format(32, "signed"),
    "IEEE_INT64": Format(64, "signed"),
    "HOST_UINT8": Format(8, "unsigned"),
    "HOST_UINT16": Format(16, "unsigned"),
    "SENUINT32": Format(32, "unsigned"),
    "HOST_UINT64": Format(64, "unsigned"),
    "BOOL": Format(8, "bool"),
}
MERGED_DL16 = Format(
    16,
    "float",
    6,
    9,
    31,
    0x7FFF,
    0x7FFF,
    0x7FFF,
    has_infinity=False,
    ties_away=True,
    subnormals=False,
)

NARROW_NONE, NARROW_BOOLEAN, NARROW_UINT8 = 0, 1, 2


def format_of(name: str, merged: bool = False) -> Format:
    return MERGED_DL16 if merged and name == "SEN169_FP16" else FORMATS[name]


@functools.cache
def magnitudes(format: Format) -> np.ndarray:
    """The value of each magnitude code up to `overflow`, on the format's grid, in order."""
    codes = np.arange(format.overflow + 1, dtype=np.int64)
    field, fraction = codes >> format.fraction, codes & ((1 << format.fraction) - 1)
    unit = 1 << format.fraction
    subnormal = format.subnormals & (field == 0)
    significand = np.where(subnormal, fraction, unit + fraction).astype(np.float64)
    exponent = np.where(subnormal, 1, field) - format.bias - format.fraction
    return np.ldexp(significand, exponent).astype(np.longdouble)


def decode(format: Format, codes: np.ndarray) -> np.ndarray:
    """Values of bit patterns: float64 for floating formats, else int64 or uint64."""
    codes = codes.astype(format.uint, copy=False)
    if format.kind == "bool":
        return (codes != 0).astype(np.int64)
    if format.kind == "signed":
        return codes.view(f"int{format.bits}").astype(np.int64)
    if format.kind == "unsigned":
        return codes.astype(np.uint64 if format.bits == 64 else np.int64)
    if format.bits >= 32:  # numpy's own
        with np.errstate(invalid="ignore"):  # signalling NaNs
            return codes.view(f"float{format.bits}").astype(np.float64)
    sign_bit = 1 << (format.bits - 1)
    magnitude = (codes & (sign_bit - 1)).astype(np.int64)
    table = magnitudes(format).astype(np.float64)
    values = table[np.minimum(magnitude, len(table) - 1)]
    values[magnitude == 0] = 0.0  # DLFloat16's grid starts at 2^-31, its code 0 is zero
    if format.fnuz:
        values = np.where(codes == sign_bit, np.nan, values)
    else:
        special = magnitude >= format.overflow
        infinite = special & (magnitude == format.overflow) & format.has_infinity
        values = np.where(infinite, np.inf, np.where(special, np.nan, values))
    return np.where(codes & sign_bit, -values, values)


def encode_float(format: Format, values: np.ndarray) -> np.ndarray:
    exact = values.astype(np.longdouble)  # holds every float64, int64 and uint64
    if format.bits >= 32:
        with np.errstate(over="ignore", under="ignore"):
            # From the integers in one step, too: numpy's cast rounds once.
            codes = values.astype(f"float{format.bits}").view(format.uint).copy()
        codes[np.isnan(exact)] = format.nan
        return codes
    grid = magnitudes(format)
    middles = (grid[:-1] + grid[1:]) / 2  # exact: one bit more than the format has
    size = np.abs(np.where(np.isnan(exact), 0, exact))
    index = np.searchsorted(middles, size, side="left")
    tie = (index < len(middles)) & (middles[np.minimum(index, len(middles) - 1)] == size)
    index = index + (tie & (format.ties_away | (index % 2 == 1)))
    over = index >= format.overflow
    codes = np.where(over, format.large, index).astype(np.int64)
    sign_bit = 1 << (format.bits - 1)
    negative = np.signbit(exact)
    if format.fnuz:
        negative = negative & (index > 0) & ~over
    codes = codes | np.where(negative, sign_bit, 0)
    # The published DLFloat16 merges overflow with NaN, which has no sign.
    codes = np.where(np.isnan(exact) | (over & (format.large == format.nan)), format.nan, codes)
    return codes.astype(format.uint)


def truncated(values: np.ndarray) -> np.ndarray:
    """Integers of values: toward zero through int64, its minimum where it cannot hold them."""
    if values.dtype != np.float64:
        return values
    inside = (values >= -(2.0**63)) & (values < 2.0**63)
    return np.where(inside, np.trunc(np.where(inside, values, 0)), -(2.0**63)).astype(np.int64)


def encode(format: Format, values: np.ndarray) -> np.ndarray:
    if format.kind == "bool":
        return (values != 0).astype(np.uint8)
    if format.kind == "float":
        return encode_float(format, values)
    whole = truncated(values)
    if values.dtype == np.float64 and format.kind == "signed" and format.bits <= 32:
        whole = np.where(np.abs(whole.astype(np.float64) + 0.5) < 2.0**31, whole, -(2**31))
    return whole.astype(np.uint64).astype(format.uint)  # wraps


def convert(
    codes: np.ndarray, source: str, target: str, narrow: int = NARROW_NONE, merged: bool = False
) -> np.ndarray:
    """Bit patterns of `source` as bit patterns of `target`."""
    if source == target and narrow == NARROW_NONE:
        return codes
    values = decode(format_of(source, merged), codes)
    if narrow == NARROW_BOOLEAN:
        values = (values != 0).astype(np.int64)
    elif narrow == NARROW_UINT8:
        whole = truncated(values)
        values = (whole & whole.dtype.type(255)).astype(np.int64)
    elif (source, target) == ("SEN169_FP16", "IEEE_FP16"):
        values = np.where(np.abs(values) == 65536.0, np.copysign(65504.0, values), values)
    return encode(format_of(target, merged), values)


def card_convert(codes: np.ndarray, source: str, target: str, narrow: int = 0) -> np.ndarray:
    """The same by the card: what is tested, not the oracle."""
    formats = getattr(DataFormats, source), getattr(DataFormats, target)
    return np.frombuffer(_C._convert(codes.tobytes(), *formats, narrow), FORMATS[target].uint)


@functools.cache
def interesting_codes(name: str, count: int = 2000) -> np.ndarray:
    """Bit patterns of a format: all of them if there are few, else edges, ties and random ones."""
    format = FORMATS[name]
    if format.bits <= 16 and 1 << format.bits <= max(count, 256):
        return np.arange(1 << format.bits).astype(format.uint)
    random = np.random.default_rng(format.bits + len(name))
    parts = [random.integers(0, 2**format.bits, count // 2, dtype=np.uint64)]
    # Around every power of two, and around what the other formats can just and just not hold.
    powers = np.ldexp(1.0, np.arange(-40, 66))
    values = np.concatenate(
        [
            powers,
            np.nextafter(powers, 0),
            np.nextafter(powers, np.inf),
            *(powers * (1 + k / 1024) for k in (1, 2, 3, 4, 12, 1021, 1023)),
            *(powers * (1 + 1 / 1024 + s * 2.0**-20) for s in (-1, 1)),
            np.arange(0, 300) / 2,
            [0.0, np.inf, np.nan, 448, 464, 480, 57344, 61440, 65504, 65519, 65520, 65535, 65536],
            [8564768768.0, 8568963072.0, 8573157376.0, 8577351680.0, 3.4e38, 3.5e38, 1e300],
        ]
    )
    values = np.concatenate([values, -values])
    parts.append(encode(format, values).astype(np.uint64))
    return np.concatenate(parts).astype(format.uint)


# ---------------------------------------------------------------------------------------- dtypes


@dataclass(frozen=True)
class Dtype:
    """Formats of a torch dtype on the host and on the card (None: it has no device tensors)."""

    host: str
    device: str | None
    narrow: int = NARROW_NONE


DTYPES = {
    torch.float16: Dtype("IEEE_FP16", "SEN169_FP16"),
    torch.bfloat16: Dtype("BFLOAT16", "SEN169_FP16"),
    torch.float32: Dtype("IEEE_FP32", "IEEE_FP32"),
    torch.bool: Dtype("BOOL", "SEN169_FP16", NARROW_BOOLEAN),
    torch.int8: Dtype("SENINT8", "SENINT8"),
    torch.int16: Dtype("SENINT16", "SENINT16"),
    torch.int32: Dtype("IEEE_INT32", "IEEE_INT32"),
    torch.int64: Dtype("IEEE_INT64", "IEEE_INT32"),
    torch.uint8: Dtype("HOST_UINT8", "SENUINT32", NARROW_UINT8),
    torch.float8_e4m3fn: Dtype("SEN143_FP8", "SEN143_FP8"),
    torch.float8_e5m2fnuz: Dtype("SEN152_FP8", "SEN152_FP8"),
    torch.float64: Dtype("IEEE_FP64", None),
    torch.uint16: Dtype("HOST_UINT16", None),
    torch.uint32: Dtype("SENUINT32", None),
    torch.uint64: Dtype("HOST_UINT64", None),
    torch.float8_e5m2: Dtype("FP8_E5M2", "FP8_E5M2"),
    torch.float8_e4m3fnuz: Dtype("FP8_E4M3FNUZ", "FP8_E4M3FNUZ"),
}
DEVICE_DTYPES = [dtype for dtype, formats in DTYPES.items() if formats.device]
HOST_DTYPES = list(DTYPES)


def to_device_codes(codes: np.ndarray, source: torch.dtype, target: torch.dtype) -> np.ndarray:
    """Host elements of `source` as the card holds them in a tensor of `target`."""
    narrow = NARROW_NONE if source == target else DTYPES[target].narrow
    return convert(codes, DTYPES[source].host, DTYPES[target].device, narrow)


def to_host_codes(codes: np.ndarray, source: torch.dtype, target: torch.dtype) -> np.ndarray:
    """Device elements of a `source` tensor as host elements of `target`."""
    return convert(codes, DTYPES[source].device, DTYPES[target].host)


def across_card_codes(codes: np.ndarray, source: torch.dtype, target: torch.dtype) -> np.ndarray:
    """Device elements of a `source` tensor as device elements of a `target` tensor."""
    narrow = NARROW_NONE if source == target else DTYPES[target].narrow
    return convert(codes, DTYPES[source].device, DTYPES[target].device, narrow)


def host_round_trip(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """What `tensor.to("spyre", dtype).cpu()` must be."""
    dtype = dtype or tensor.dtype
    device = to_device_codes(host_codes(tensor), tensor.dtype, dtype)
    return from_host_codes(to_host_codes(device, dtype, dtype), dtype, tensor.shape)


# ------------------------------------------------------------------------------------ host memory

_SAME_WIDTH = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def host_codes(tensor: torch.Tensor) -> np.ndarray:
    """Bit patterns of a CPU tensor's elements in logical order."""
    assert tensor.device.type == "cpu"
    bits = tensor.detach().contiguous().view(_SAME_WIDTH[tensor.element_size()])
    return bits.numpy().reshape(-1).view(f"uint{8 * tensor.element_size()}").copy()


def from_host_codes(codes: np.ndarray, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    signed = codes.view(f"int{8 * codes.itemsize}") if codes.itemsize > 1 else codes
    return torch.from_numpy(signed.copy()).view(dtype).reshape(shape)


def random_host(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """A CPU tensor full of the values of `dtype` that are hard to convert."""
    codes = interesting_codes(DTYPES[dtype].host)
    if dtype == torch.bool:
        codes = np.array([0, 1], np.uint8)  # PyTorch's bools hold nothing else
    picked = np.random.default_rng(seed).choice(codes, int(np.prod(shape, dtype=np.int64)))
    return from_host_codes(picked, dtype, shape)


def assert_same_bits(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Both on the CPU, same dtype and shape, every bit equal."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(host_codes(actual), host_codes(expected))


# ---------------------------------------------------------------------------------------- layouts


def view_offsets(size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> np.ndarray:
    """Storage offsets of a strided view's elements in logical order."""
    offsets = np.full((), offset, dtype=np.int64)
    for extent, step in zip(size, stride, strict=True):
        offsets = offsets[..., None] + np.arange(extent, dtype=np.int64) * step
    return offsets.reshape(-1)


def storage_offsets(tensor: torch.Tensor) -> np.ndarray:
    return view_offsets(tuple(tensor.shape), tensor.stride(), tensor.storage_offset())


class Walk:
    """All device coordinates of a layout, each with the storage offset it holds.

    Device memory is row-major over `device_size`, every coordinate of the second-last dimension
    starting a new stick. Coordinate c holds offset dot(c, stride_map): dimensions of stride 0
    repeat their elements, of those with stride -1 only coordinate 0 holds any. Where a tile sticks
    out of the tensor, padding coordinates run into offsets that belong elsewhere: an offset's own
    place is the coordinate that is largest in the dimensions of larger stride. One dimension may
    be all padding, the one that counts the sticks of a row: if rows lie closer together than its
    stride, only its coordinate 0 has elements wherever another row reaches.
    """

    def __init__(self, layout: SpyreTensorLayout) -> None:
        eps = layout.elems_per_stick()
        sizes, strides = list(layout.device_size), list(layout.stride_map)
        rank, unit = len(sizes), list(strides)
        next_stick = strides[-1] * sizes[-1]
        count = rank - 3  # where the default layouts count sticks
        if (
            rank >= 3
            and sizes[count] > 1
            and strides[count] == next_stick > 0
            and any(
                strides[-1] < strides[i] <= next_stick <= strides[i] * (sizes[i] - 1)
                for i in range(rank - 1)
                if i != count
            )
        ):
            unit[count] = strides[-1]
        order = sorted(range(rank), key=lambda i: (-unit[i], -strides[i]))
        self.places: dict[int, list[int]] = {}
        best: dict[int, tuple[int, ...]] = {}
        for coordinate in itertools.product(*(range(size) for size in sizes)):
            offset = position = 0
            for i, (c, stride) in enumerate(zip(coordinate, strides, strict=True)):
                position = position * (eps if i == len(sizes) - 1 else sizes[i]) + c
                if stride > 0:
                    offset += c * stride
            if any(c and stride < 0 for c, stride in zip(coordinate, strides, strict=True)):
                continue
            rank = tuple(coordinate[i] for i in order if strides[i] > 0)
            if rank > best.get(offset, ()):
                best[offset] = rank
                self.places[offset] = []
            if rank == best.get(offset, ()):
                self.places.setdefault(offset, []).append(position)

    def place(self, offset: int) -> int:
        """The device position that is read for a storage offset: the first replica."""
        return self.places[offset][0]


@functools.lru_cache(maxsize=256)
def walk(layout: SpyreTensorLayout) -> Walk:
    return Walk(layout)


def read(codes: np.ndarray, tensor: torch.Tensor) -> np.ndarray:
    """Elements of a device tensor, in logical order, taken from its device memory."""
    places = walk(tensor.device_tensor_layout())
    return codes[[places.place(int(offset)) for offset in storage_offsets(tensor)]]


def written(codes: np.ndarray, tensor: torch.Tensor, elements: np.ndarray) -> np.ndarray:
    """Device memory after `elements` were written to a tensor; nothing else changes."""
    result = codes.copy()
    places = walk(tensor.device_tensor_layout()).places
    for offset, element in zip(storage_offsets(tensor), elements, strict=True):
        result[places[int(offset)]] = element
    return result


# ---------------------------------------------------------------------------------- device memory


# Host dtypes that take and give the bits of a device format unchanged. DLFloat16 is exact in
# float32, but for the sign of a NaN.
_EXACT_ON_HOST = {
    "SEN169_FP16": torch.float32,
    "IEEE_FP32": torch.float32,
    "IEEE_INT32": torch.int32,
    "SENUINT32": torch.uint32,
    "SENINT8": torch.int8,
    "SENINT16": torch.int16,
    "SEN143_FP8": torch.float8_e4m3fn,
    "SEN152_FP8": torch.float8_e5m2fnuz,
    "FP8_E5M2": torch.float8_e5m2,
    "FP8_E4M3FNUZ": torch.float8_e4m3fnuz,
}


def _whole_memory(tensor: torch.Tensor) -> torch.Tensor:
    """All elements of the tensor's device memory, padding included, in memory order."""
    layout = tensor.device_tensor_layout()
    eps, sticks = layout.elems_per_stick(), layout.device_bytes() // 128
    # Two more dimensions than needed: a layout that no tensor has by itself.
    flat = SpyreTensorLayout([1, 1, sticks, eps], [-1, -1, eps, 1], layout.device_dtype)
    return _C.as_strided_with_layout(tensor, [sticks * eps], [1], 0, flat)


def device_codes(tensor: torch.Tensor) -> np.ndarray:
    """Bit patterns of the tensor's device memory, padding included, in memory order."""
    layout = tensor.device_tensor_layout()
    format = layout.device_dtype.name
    if layout.device_bytes() == 0:
        return np.empty(0, FORMATS[format].uint)
    flat = _whole_memory(tensor)
    stream = torch.spyre.current_stream(tensor.device)
    with torch.spyre.checked(stream, on=False):  # nobody need have written padding
        host = torch.empty(flat.shape, dtype=_EXACT_ON_HOST[format]).copy_(flat)
    return convert(host_codes(host), DTYPES[host.dtype].host, format)


def scramble(tensor: torch.Tensor, seed: int = 0) -> np.ndarray:
    """Fill the tensor's device memory, padding included, and say with what.

    Bools become True, since a bool tensor holds nothing but 0 and 1; uint8 random values below
    256; everything else random bits.
    """
    layout = tensor.device_tensor_layout()
    if layout.device_bytes() > 0:
        flat, format = _whole_memory(tensor), layout.device_dtype.name
        if tensor.dtype == torch.bool:
            noise = torch.ones(flat.shape, dtype=torch.bool)
        elif tensor.dtype == torch.uint8:
            noise = random_host(tuple(flat.shape), torch.uint8, seed)
        else:
            uint, dtype = FORMATS[format].uint, _EXACT_ON_HOST[format]
            high = np.iinfo(uint).max
            codes = np.random.default_rng(seed).integers(0, high, flat.numel(), uint, endpoint=True)
            noise = convert(codes, format, DTYPES[dtype].host)
            noise = from_host_codes(noise, dtype, tuple(flat.shape))
        flat.copy_(noise)
    return device_codes(tensor)
