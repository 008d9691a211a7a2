// What every conversion between element formats means, one element at a time.
//
// This is the reference: clear and exact, not fast. convert.h gives the same bits quickly.
// Do not include it in files that are compiled for a particular vector width: the linker could
// then take such a file's copy of an inline function for the whole program.
//
// Rules
//  * A value is rounded once, from its exact source value: to nearest, ties to even, except to
//    DLFloat16, where ties go away from zero.
//  * A NaN has neither sign nor payload after a conversion: it becomes the destination's positive
//    quiet NaN.
//  * Too large values become Infinity, or what the format has in its place: see FloatSpec.
//  * Float to integer truncates toward zero through int64 (NaN and what int64 cannot hold give its
//    minimum, as x86 does), then wraps; to int32 and shorter signed integers through int32, with
//    its minimum for what it cannot hold. Integer to integer wraps.
//  * BOOL holds 0 or 1; whatever is not zero, NaN included, becomes 1.
//
// DLFloat16 (SEN169_FP16): sign, 6 bits of exponent with bias 31, 9 bits of fraction. Magnitude 0
// is zero; there are no subnormals: exponent field 0 is an ordinary binade, and what rounds below
// its smallest member, 2^-31 (1 + 2^-9), becomes a zero that keeps the sign. The published format
// has one code, 0x7FFF, for NaN and Infinity alike. How special values use the top codes:
//   ieee    0x7FFF is NaN, 0x7FFE Infinity (with either sign). A value whose magnitude rounds to
//           0x7FFE or beyond is an overflow and becomes Infinity: the largest finite code is
//           0x7FFD = 8,564,768,768.
//   merged  as published: 0x7FFE = 8,573,157,376 is the largest finite value; NaN, both infinities
//           and overflow become 0x7FFF, which reads as NaN.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "spyre/card.h"

namespace spyre::card {

enum class Dl16Specials : std::uint8_t { ieee, merged };

/// How this process reads DLFloat16's top codes: SPYRE_DL16_SPECIALS, default `ieee`. Read once.
Dl16Specials dl16_specials();

constexpr bool usable(DataFormat format) { return format_info(format).bits > 0; }
constexpr std::int64_t element_bytes(DataFormat format) { return format_info(format).bits / 8; }

// -------------------------------------------------------------------------------------- DLFloat16

inline constexpr std::uint16_t kDl16Nan = 0x7FFF;
inline constexpr std::uint16_t kDl16Infinity = 0x7FFE;  ///< in mode `ieee`

/// Any finite value of `ieee` mode, and 0x7FFE of `merged`, is exact in float.
constexpr float dl16_to_float(std::uint16_t bits, Dl16Specials specials = Dl16Specials::ieee) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t magnitude = bits & 0x7FFF;
  if (magnitude == kDl16Nan) return std::numeric_limits<float>::quiet_NaN();
  if (magnitude == kDl16Infinity && specials == Dl16Specials::ieee)
    return std::bit_cast<float>(sign | 0x7F800000);
  if (magnitude == 0) return std::bit_cast<float>(sign);
  // Both formats are sign, exponent, fraction: shift the fraction into place, correct the bias.
  return std::bit_cast<float>(sign | ((magnitude << 14) + ((127u - 31u) << 23)));
}

constexpr std::uint16_t dl16_from_double(double value, Dl16Specials specials = Dl16Specials::ieee) {
  if (value != value) return kDl16Nan;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(value);
  const std::uint16_t sign = static_cast<std::uint16_t>(bits >> 48) & 0x8000;
  const std::int64_t magnitude = static_cast<std::int64_t>(bits & ~(std::uint64_t{1} << 63));
  // Half of the last kept bit is added before the rest is cut off: to nearest, ties away. A carry
  // out of the fraction increments the exponent, as it should.
  const std::int64_t rounded = (magnitude + (std::int64_t{1} << 42)) >> 43;
  const std::int64_t code = rounded - ((1023 - 31) << 9);
  if (code <= 0) return sign;
  if (specials == Dl16Specials::merged) {
    return code >= kDl16Nan ? kDl16Nan : static_cast<std::uint16_t>(sign | code);
  }
  return static_cast<std::uint16_t>(sign | (code >= kDl16Infinity ? kDl16Infinity : code));
}

/// float is exact in double, so that this, too, rounds once.
constexpr std::uint16_t dl16_from_float(float value, Dl16Specials specials = Dl16Specials::ieee) {
  return dl16_from_double(static_cast<double>(value), specials);
}

// ------------------------------------------------------------- binary formats with subnormals

/// A format with subnormals that has at most as many bits as float.
struct FloatSpec {
  int exponent_bits, fraction_bits, bias;
  std::uint32_t overflow;  ///< magnitude codes from here on are too large, or special
  std::uint32_t large;     ///< what too large values, infinities included, become
  std::uint32_t nan;
  bool unsigned_specials;  ///< "fnuz": zero and NaN have no sign
};

inline constexpr FloatSpec kFp32{8, 23, 127, 0x7F800000, 0x7F800000, 0x7FC00000, false};
inline constexpr FloatSpec kFp16{5, 10, 15, 0x7C00, 0x7C00, 0x7E00, false};
inline constexpr FloatSpec kBf16{8, 7, 127, 0x7F80, 0x7F80, 0x7FC0, false};
// The fp8 formats as PyTorch encodes them (torch/headeronly/util/Float8_*.h): e4m3fn has no
// Infinity and saturates, the fnuz formats have neither Infinity nor -0 and turn overflow into NaN.
inline constexpr FloatSpec kE4m3fn{4, 3, 7, 0x7F, 0x7E, 0x7F, false};
inline constexpr FloatSpec kE5m2{5, 2, 15, 0x7C, 0x7C, 0x7F, false};
inline constexpr FloatSpec kE4m3fnuz{4, 3, 8, 0x80, 0x80, 0x80, true};
inline constexpr FloatSpec kE5m2fnuz{5, 2, 16, 0x80, 0x80, 0x80, true};

/// 2^exponent, for exponents of normal doubles.
constexpr double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

constexpr double decode_float(const FloatSpec& spec, std::uint32_t bits) {
  const int width = 1 + spec.exponent_bits + spec.fraction_bits;
  const std::uint32_t sign_bit = 1u << (width - 1);
  const std::uint32_t magnitude = bits & (sign_bit - 1);
  const bool negative = bits & sign_bit;
  const bool special = spec.unsigned_specials ? bits == spec.nan : magnitude >= spec.overflow;
  if (special) {
    const bool infinite = !spec.unsigned_specials && spec.large == spec.overflow;
    if (!infinite || magnitude != spec.large) return std::numeric_limits<double>::quiet_NaN();
    const double infinity = std::numeric_limits<double>::infinity();
    return negative ? -infinity : infinity;
  }
  const std::uint32_t hidden = 1u << spec.fraction_bits;
  const int field = static_cast<int>(magnitude >> spec.fraction_bits);
  const std::uint32_t fraction = magnitude & (hidden - 1);
  const std::uint32_t significand = field ? fraction | hidden : fraction;
  const int exponent = (field ? field : 1) - spec.bias - spec.fraction_bits;
  const double value = significand * power_of_two(exponent);
  return negative ? -value : value;
}

constexpr std::uint32_t encode_float(const FloatSpec& spec, double value) {
  if (value != value) return spec.nan;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(value);
  const std::uint32_t sign = static_cast<std::uint32_t>(bits >> 63)
                             << (spec.exponent_bits + spec.fraction_bits);
  const int exponent = static_cast<int>((bits >> 52) & 0x7FF) - 1023;
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  std::uint64_t code = 0;
  if (exponent > 128) {
    code = spec.overflow;
  } else if (exponent > -200) {  // below, and for zero and double's subnormals, the code is zero
    // In the subnormal range the weight of the last bit stays that of the smallest normal.
    const int smallest = 1 - spec.bias;
    const int below = exponent < smallest ? smallest - exponent : 0;
    const int cut = 52 - spec.fraction_bits + below < 62 ? 52 - spec.fraction_bits + below : 62;
    const std::uint64_t significand = fraction | (std::uint64_t{1} << 52);
    const std::uint64_t rest = significand & ((std::uint64_t{1} << cut) - 1);
    const std::uint64_t half = std::uint64_t{1} << (cut - 1);
    code = significand >> cut;
    code += rest > half || (rest == half && (code & 1));
    // `code` counts the hidden bit of a normal value: it makes up for one unit of the exponent.
    if (!below) code += static_cast<std::uint64_t>(exponent + spec.bias - 1) << spec.fraction_bits;
  }
  if (code >= spec.overflow) {
    if (spec.unsigned_specials) return spec.nan;
    return spec.large | sign;
  }
  if (spec.unsigned_specials && code == 0) return 0;
  return static_cast<std::uint32_t>(code) | sign;
}

// ------------------------------------------------------------------------------- any format

/// What an element is between decoding and encoding: double for the floating formats, otherwise
/// the integer type that holds all its values.
template <DataFormat F>
using ValueOf = std::conditional_t<
    format_info(F).kind == FormatKind::floating, double,
    std::conditional_t<F == DataFormat::HOST_UINT64, std::uint64_t, std::int64_t>>;

template <DataFormat F>
using BitsOf =
    std::conditional_t<format_info(F).bits == 8, std::uint8_t,
                       std::conditional_t<format_info(F).bits == 16, std::uint16_t,
                                          std::conditional_t<format_info(F).bits == 32,
                                                             std::uint32_t, std::uint64_t>>>;

constexpr const FloatSpec& float_spec(DataFormat format) {
  switch (format) {
    case DataFormat::IEEE_FP16:
      return kFp16;
    case DataFormat::BFLOAT16:
      return kBf16;
    case DataFormat::SEN143_FP8:
      return kE4m3fn;
    case DataFormat::SEN152_FP8:
      return kE5m2fnuz;
    case DataFormat::FP8_E5M2:
      return kE5m2;
    case DataFormat::FP8_E4M3FNUZ:
      return kE4m3fnuz;
    default:
      return kFp32;
  }
}

template <DataFormat F>
constexpr ValueOf<F> decode(BitsOf<F> bits, Dl16Specials specials) {
  if constexpr (F == DataFormat::SEN169_FP16) {
    return dl16_to_float(bits, specials);
  } else if constexpr (F == DataFormat::IEEE_FP64) {
    return std::bit_cast<double>(bits);
  } else if constexpr (F == DataFormat::IEEE_FP32) {
    return std::bit_cast<float>(bits);
  } else if constexpr (format_info(F).kind == FormatKind::floating) {
    return decode_float(float_spec(F), bits);
  } else if constexpr (format_info(F).kind == FormatKind::boolean) {
    return bits != 0;
  } else if constexpr (format_info(F).kind == FormatKind::signed_) {
    return static_cast<std::make_signed_t<BitsOf<F>>>(bits);
  } else {
    return bits;
  }
}

/// Toward zero; NaN and what the integer cannot hold give its minimum.
template <typename Integer = std::int64_t>
constexpr Integer truncate(double value) {
  constexpr double beyond = -static_cast<double>(std::numeric_limits<Integer>::min());
  if (!(value > -beyond - 1 && value < beyond)) return std::numeric_limits<Integer>::min();
  return static_cast<Integer>(value);
}

/// The integer as a double whose last bit is set if bits were lost ("round to odd"): rounding that
/// to 51 bits or less gives what rounding the integer itself would.
template <typename Integer>
constexpr double to_odd_double(Integer value) {
  const bool negative = value < 0;
  const std::uint64_t bits = static_cast<std::uint64_t>(value);
  const std::uint64_t magnitude = negative ? 0 - bits : bits;
  const int excess = 11 - std::countl_zero(magnitude);  // bits more than the 53 of a double
  double result = static_cast<double>(magnitude);
  if (excess > 0) {
    const std::uint64_t kept = magnitude >> excess;
    const bool lost = magnitude & ((std::uint64_t{1} << excess) - 1);
    result = static_cast<double>(kept | lost) * power_of_two(excess);
  }
  return negative ? -result : result;
}

template <DataFormat F, typename Value>
constexpr BitsOf<F> encode(Value value, Dl16Specials specials) {
  if constexpr (format_info(F).kind == FormatKind::boolean) {
    return value != 0;
  } else if constexpr (F == DataFormat::IEEE_FP64) {
    const double converted = static_cast<double>(value);
    return converted != converted ? 0x7FF8000000000000 : std::bit_cast<std::uint64_t>(converted);
  } else if constexpr (format_info(F).kind == FormatKind::floating) {
    if constexpr (!std::is_same_v<Value, double>) {
      return encode<F>(to_odd_double(value), specials);
    } else if constexpr (F == DataFormat::SEN169_FP16) {
      return dl16_from_double(value, specials);
    } else {
      return static_cast<BitsOf<F>>(encode_float(float_spec(F), value));
    }
  } else if constexpr (std::is_same_v<Value, double> && sizeof(BitsOf<F>) <= 4 &&
                       format_info(F).kind == FormatKind::signed_) {
    return static_cast<BitsOf<F>>(truncate<std::int32_t>(value));
  } else if constexpr (std::is_same_v<Value, double>) {
    return static_cast<BitsOf<F>>(truncate(value));
  } else {
    return static_cast<BitsOf<F>>(value);
  }
}

/// One element from format S to format D.
template <DataFormat S, DataFormat D>
constexpr BitsOf<D> convert_element(BitsOf<S> bits, Narrow narrow, Dl16Specials specials) {
  if constexpr (S == D) {
    if (narrow == Narrow::none) return bits;
  }
  const ValueOf<S> value = decode<S>(bits, specials);
  if (narrow == Narrow::boolean) return encode<D>(std::int64_t{value != 0}, specials);
  if (narrow == Narrow::uint8) {
    if constexpr (std::is_same_v<ValueOf<S>, double>) {
      return encode<D>(truncate(value) & 0xFF, specials);
    } else {
      return encode<D>(static_cast<std::int64_t>(value & 0xFF), specials);
    }
  }
  if constexpr (S == DataFormat::SEN169_FP16 && D == DataFormat::IEEE_FP16) {
    // 65536 is where float16's largest value, 65504, rounds to: it must come back as itself.
    if (value == 65536.0) return encode<D>(65504.0, specials);
    if (value == -65536.0) return encode<D>(-65504.0, specials);
  }
  return encode<D>(value, specials);
}

}  // namespace spyre::card
