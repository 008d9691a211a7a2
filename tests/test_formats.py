"""Number formats: every conversion the card makes, against `oracle`, bit for bit."""

import hashlib
import itertools
import re

import numpy as np
import oracle
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracle import FORMATS, card_convert
from subprocesses import forked

from torch_spyre import _C
from torch_spyre._C import DataFormats

NARROWINGS = {"none": 0, "boolean": 1, "uint8": 2}
PAIRS = list(itertools.product(FORMATS, FORMATS))
ALL_16_BITS = np.arange(65536).astype(np.uint16)


def check(codes: np.ndarray, source: str, target: str, narrow: int = 0) -> None:
    expected = oracle.convert(codes, source, target, narrow)
    np.testing.assert_array_equal(card_convert(codes, source, target, narrow), expected)


def dl16(value: float) -> int:
    return int(card_convert(np.array([value]).view(np.uint64), "IEEE_FP64", "SEN169_FP16")[0])


def dl16_value(code: int) -> float:
    codes = np.array([code], np.uint16)
    return float(card_convert(codes, "SEN169_FP16", "IEEE_FP64").view(np.float64)[0])


# ---------------------------------------------------------------------------------------- DLFloat16


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (0x0000, 0.0),
        (0x0001, 2.0**-31 * (1 + 2.0**-9)),  # no subnormals: the lowest binade is an ordinary one
        (0x01FF, 2.0**-31 * (1 + 511 / 512)),
        (0x0200, 2.0**-30),
        (0x3E00, 1.0),
        (0xBE00, -1.0),
        (0x5E00, 65536.0),
        (0x7FFD, 8_564_768_768.0),  # the largest finite value
        (0x7FFE, float("inf")),
        (0xFFFE, float("-inf")),
    ],
)
def test_dl16_code_stands_for_its_value(code, value):
    assert dl16_value(code) == value
    assert dl16(value) == code


@pytest.mark.parametrize("code", [0x7FFF, 0xFFFF])
def test_dl16_nan_reads_as_nan(code):
    assert np.isnan(dl16_value(code))


def test_dl16_nan_is_written_without_sign():
    assert dl16(float("nan")) == dl16(-float("nan")) == 0x7FFF


def test_dl16_zero_keeps_its_sign():
    assert (dl16(0.0), dl16(-0.0)) == (0x0000, 0x8000)
    assert np.signbit(dl16_value(0x8000))


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (1 + 2.0**-10, 0x3E01),  # a tie goes away from zero, to an odd code ...
        (-(1 + 2.0**-10), 0xBE01),
        (1 + 3 * 2.0**-10, 0x3E02),  # ... and to an even one
        (1 + 2.0**-10 - 2.0**-40, 0x3E00),
        (2 - 2.0**-11, 0x4000),  # into the next binade
        (2.0**-31, 0x0000),  # magnitude zero is zero, not 2^-31
        (-(2.0**-31), 0x8000),
        (2.0**-31 * (1 + 2.0**-10), 0x0001),  # rounds to the smallest value
        (np.nextafter(2.0**-31 * (1 + 2.0**-10), 0), 0x0000),
        (2.0**-200, 0x0000),
        (5e-324, 0x0000),
        (8_568_963_072.0, 0x7FFE),  # halfway to the first value that is too large
        (np.nextafter(8_568_963_072.0, 0), 0x7FFD),
        (-1e300, 0xFFFE),
    ],
)
def test_dl16_rounds_to_nearest_with_ties_away_from_zero(value, code):
    assert dl16(value) == code


@pytest.mark.parametrize("target", FORMATS)
def test_all_dl16_patterns_convert_to(target):
    for narrow in NARROWINGS.values():
        check(ALL_16_BITS, "SEN169_FP16", target, narrow)


@pytest.mark.parametrize("source", [name for name in FORMATS if FORMATS[name].bits <= 16])
def test_all_patterns_convert_to_dl16_from(source):
    codes = np.arange(1 << FORMATS[source].bits).astype(FORMATS[source].uint)
    for narrow in NARROWINGS.values():
        check(codes, source, "SEN169_FP16", narrow)


def test_dl16_survives_a_trip_through_float32():
    there = card_convert(ALL_16_BITS, "SEN169_FP16", "IEEE_FP32")
    back = card_convert(there, "IEEE_FP32", "SEN169_FP16")
    expected = np.where(ALL_16_BITS == 0xFFFF, 0x7FFF, ALL_16_BITS)
    np.testing.assert_array_equal(back, expected)


def test_16384_of_31744_finite_non_negative_float16_patterns_are_exact():
    codes = np.arange(0x7C00).astype(np.uint16)
    assert len(codes) == 31_744
    back = card_convert(card_convert(codes, "IEEE_FP16", "SEN169_FP16"), "SEN169_FP16", "IEEE_FP32")
    exact = back.view(np.float32) == codes.view(np.float16).astype(np.float32)
    assert exact.sum() == 16_384


def test_float16_65504_returns_as_itself():
    codes = np.array([65504, -65504], np.float16).view(np.uint16)
    there = card_convert(codes, "IEEE_FP16", "SEN169_FP16")
    np.testing.assert_array_equal(there, [0x5E00, 0xDE00])
    np.testing.assert_array_equal(card_convert(there, "SEN169_FP16", "IEEE_FP16"), codes)


def test_dl16_above_65536_is_infinite_in_float16():
    codes = np.array([0x5E01, 0x7FFD, 0xDE01], np.uint16)
    back = card_convert(codes, "SEN169_FP16", "IEEE_FP16").view(np.float16)
    np.testing.assert_array_equal(back, [np.inf, np.inf, -np.inf])


def float32_neighbours_of_dl16() -> np.ndarray:
    """Every DL16 value and every tie between two, as float32, with the float32s around them."""
    values = (np.arange(0x8000, dtype=np.int64) << 14) + (96 << 23)
    ties = values + (1 << 13)
    around = np.concatenate([edge + step for edge in (values, ties) for step in (-1, 0, 1)])
    return np.concatenate([around, around | 0x80000000]).astype(np.uint32)


def test_float32_converts_to_dl16_around_every_value_and_every_tie():
    check(float32_neighbours_of_dl16(), "IEEE_FP32", "SEN169_FP16")


def test_random_float32_patterns_convert_to_dl16():
    codes = np.random.default_rng(1).integers(0, 2**32, 200_000, dtype=np.uint32)
    check(codes, "IEEE_FP32", "SEN169_FP16")


@given(st.floats(width=64))
def test_any_float64_converts_to_dl16(value):
    check(np.array([value]).view(np.uint64), "IEEE_FP64", "SEN169_FP16")


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_int64_converts_to_dl16_in_one_rounding(value):
    check(np.array([value], np.int64).view(np.uint64), "IEEE_INT64", "SEN169_FP16")


@pytest.mark.parametrize("target", ["SEN169_FP16", "IEEE_FP32", "IEEE_FP16", "BFLOAT16"])
def test_int64_just_beside_a_tie_is_not_rounded_twice(target):
    fraction = FORMATS[target].fraction
    # Rounding to double first would land on the tie.
    values = [s * ((1 << 62) + (1 << (61 - fraction)) + d) for s in (1, -1) for d in (-1, 0, 1)]
    check(np.array(values, np.int64).view(np.uint64), "IEEE_INT64", target)


# ---------------------------------------------------------------------------------------- all pairs


@pytest.mark.parametrize("narrow", NARROWINGS)
@pytest.mark.parametrize("source", FORMATS)
def test_format_converts_to_every_format(source, narrow):
    codes = oracle.interesting_codes(source)
    for target in FORMATS:
        check(codes, source, target, NARROWINGS[narrow])


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", ["IEEE_FP16", "BFLOAT16"])
def test_all_half_precision_patterns_convert(source, target):
    check(ALL_16_BITS, source, target)


@pytest.mark.parametrize("count", [0, 1, 7, 31, 33, 63, 64, 65, 257])
def test_conversion_leaves_no_element_out(count):
    """Vector code works in blocks; what is left over takes another way."""
    for source, target in PAIRS:
        check(oracle.interesting_codes(source)[:count], source, target)


def test_same_format_copies_bits():
    for name in FORMATS:
        codes = oracle.interesting_codes(name)
        np.testing.assert_array_equal(card_convert(codes, name, name), codes)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.float8_e5m2fnuz,
        torch.float8_e4m3fnuz,
    ],
)
def test_float32_rounds_to_the_small_formats_as_pytorch_does(dtype):
    codes = oracle.interesting_codes("IEEE_FP32", 20_000)
    expected = oracle.from_host_codes(codes, torch.float32, (len(codes),)).to(dtype)
    converted = card_convert(codes, "IEEE_FP32", oracle.DTYPES[dtype].host)
    actual = oracle.from_host_codes(converted, dtype, (len(codes),))
    # As values: PyTorch keeps the sign of a NaN.
    torch.testing.assert_close(actual.double(), expected.double(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["INVALID", "SENINT4", "SEN18F_FP24", "SEN153_FP9"])
def test_format_without_storage_is_refused(name):
    with pytest.raises(ValueError, match=f"no conversion from {name} to IEEE_FP32"):
        _C._convert(b"", getattr(DataFormats, name), DataFormats.IEEE_FP32)
    with pytest.raises(ValueError, match=f"no conversion from IEEE_FP32 to {name}"):
        _C._convert(b"", DataFormats.IEEE_FP32, getattr(DataFormats, name))


def test_unknown_narrowing_is_refused():
    with pytest.raises(ValueError, match="narrow is 0"):
        _C._convert(bytes(4), DataFormats.IEEE_FP32, DataFormats.IEEE_INT32, 3)


# ----------------------------------------------------------------------------------- dtypes, consts


@pytest.mark.parametrize("dtype", oracle.DEVICE_DTYPES)
def test_dtype_has_its_device_format(dtype):
    format = oracle.DTYPES[dtype].device
    assert _C.get_device_dtype(dtype) == getattr(DataFormats, format)
    assert _C.get_elem_in_stick(dtype) == 1024 // FORMATS[format].bits


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float64,
        torch.complex64,
        torch.complex128,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.float8_e8m0fnu,
    ],
)
def test_dtype_without_device_format_is_refused(dtype):
    with pytest.raises(TypeError, match=f"Spyre backend does not support dtype {dtype}"):
        _C.get_device_dtype(dtype)
    with pytest.raises(TypeError, match=f"Spyre backend does not support dtype {dtype}"):
        _C.get_elem_in_stick(dtype)


def test_something_that_is_no_dtype_is_refused():
    with pytest.raises(TypeError, match=r"arg0: torch\.dtype.*\n\nInvoked with: .float16"):
        _C.get_device_dtype("float16")


@pytest.mark.parametrize(
    ("value", "format", "bits"),
    [
        (1.0, DataFormats.SEN169_FP16, 0x3E00),
        (-0.5, DataFormats.SEN169_FP16, 0xBC00),
        (float("-inf"), DataFormats.SEN169_FP16, 0xFFFE),
        (float("nan"), DataFormats.SEN169_FP16, 0x7FFF),
        (1.0, DataFormats.IEEE_FP32, 0x3F800000),
        (0.1, DataFormats.IEEE_FP32, 0x3DCCCCCD),
        (1e39, DataFormats.IEEE_FP32, 0x7F800000),
    ],
)
def test_encode_constant_gives_the_bits_a_program_holds(value, format, bits):
    assert _C.encode_constant(value, format) == bits


# ----------------------------------------------------------------------------- modes and processors

MERGED_CHECK = """
import numpy as np
import oracle

sources = {name: oracle.interesting_codes(name) for name in oracle.FORMATS}
sources["SEN169_FP16"] = np.arange(65536).astype(np.uint16)
for source, codes in sources.items():
    for target in oracle.FORMATS if source == "SEN169_FP16" else ["SEN169_FP16"]:
        for narrow in (0, 1, 2):
            expected = oracle.convert(codes, source, target, narrow, merged=True)
            actual = oracle.card_convert(codes, source, target, narrow)
            np.testing.assert_array_equal(actual, expected, f"{source} -> {target}, {narrow}")
"""


def test_merged_mode_has_one_code_for_nan_infinity_and_overflow():
    assert forked(MERGED_CHECK, SPYRE_DL16_SPECIALS="merged").output == ""


def test_merged_mode_holds_for_tensors():
    code = """
import torch
x = torch.tensor([float("inf"), float("-inf"), float("nan"), 8573157376.0, 1e10, 2.0])
print(x.to("spyre", torch.bfloat16).to("cpu", torch.float32).tolist())
"""
    output = forked(code, SPYRE_DL16_SPECIALS="merged").output
    assert output == "[nan, nan, nan, 8573157376.0, nan, 2.0]"


def test_unknown_mode_is_refused():
    code = """
import torch_spyre._C as C
try:
    C._convert(bytes(4), C.DataFormats.IEEE_FP32, C.DataFormats.SEN169_FP16)
except (RuntimeError, ValueError) as error:
    print(error)
"""
    output = forked(code, SPYRE_DL16_SPECIALS="both").output
    assert re.search("SPYRE_DL16_SPECIALS.*both.*ieee.*merged", output)


def digest_of_all_conversions() -> str:
    digest = hashlib.sha256()
    for (source, target), narrow in itertools.product(PAIRS, NARROWINGS.values()):
        codes = oracle.interesting_codes(source, 70_000)
        digest.update(card_convert(codes, source, target, narrow).tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("level", ["baseline", "avx2", "avx512"])
def test_every_vector_width_gives_the_same_bits(level):
    code = "import test_formats; print(test_formats.digest_of_all_conversions())"
    assert forked(code, SPYRE_CARD_SIMD=level).output == digest_of_all_conversions()
