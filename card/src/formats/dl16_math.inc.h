// DLFloat16 in single elements, branch-free, for loops that a compiler turns into vector code. A
// part of files compiled for a vector width, under the rules of convert_kernels.inc.h; formats.h
// says what the conversions mean.

#include <stddef.h>
#include <stdint.h>

#ifndef SPYRE_SIMD_NAMESPACE
#error "define SPYRE_SIMD_NAMESPACE: this file is a part of files compiled for a vector width"
#endif

namespace spyre::card::SPYRE_SIMD_NAMESPACE {
namespace {

/// Memory as the caller has it: any alignment, any type. Members of a class, because a template
/// argument loses its attributes.
template <int bytes>
struct Packed;
template <>
struct Packed<1> {
  typedef uint8_t Element __attribute__((may_alias));
};
template <>
struct Packed<2> {
  typedef uint16_t Element __attribute__((aligned(1), may_alias));
};
template <>
struct Packed<4> {
  typedef uint32_t Element __attribute__((aligned(1), may_alias));
};
template <>
struct Packed<8> {
  typedef uint64_t Element __attribute__((aligned(1), may_alias));
};

inline uint32_t bits_of(float value) { return __builtin_bit_cast(uint32_t, value); }
inline float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }

constexpr int32_t kDl16Nan = 0x7FFF, kDl16Infinity = 0x7FFE;
constexpr int32_t kFp32Bias = (127 - 31) << 9;  // between the exponents, in units of DL16's code
constexpr uint32_t kFp32Shift = static_cast<uint32_t>(kFp32Bias) << 14;  // the same in bits of fp32

/// Code of a magnitude that may be out of range on either side, with the source's sign.
template <bool merged>
inline uint16_t finish_dl16(int32_t code, bool nan, uint32_t sign) {
  code = code < 0 ? 0 : code;
  if (merged) {
    nan |= code >= kDl16Nan;
  } else {
    code = code > kDl16Infinity ? kDl16Infinity : code;
  }
  return static_cast<uint16_t>(nan ? kDl16Nan : static_cast<int32_t>(sign & 0x8000) | code);
}

template <bool merged>
inline uint16_t dl16_from_fp32(uint32_t bits) {
  const int32_t magnitude = static_cast<int32_t>(bits & 0x7FFFFFFF);
  const int32_t code = (magnitude - static_cast<int32_t>(kFp32Shift) + 0x2000) >> 14;
  return finish_dl16<merged>(code, magnitude > 0x7F800000, bits >> 16);
}

/// Numbers that neither overflow nor are NaN need less. Up to kUsualFp32 they do not, by far;
/// `largest` becomes the largest magnitude.
inline uint16_t dl16_from_usual_fp32(uint32_t bits, uint32_t& largest) {
  constexpr uint32_t kZero = kFp32Shift - 0x2000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  largest = magnitude > largest ? magnitude : largest;
  const uint32_t code = ((magnitude > kZero ? magnitude : kZero) - kZero) >> 14;
  return static_cast<uint16_t>(code | ((bits >> 16) & 0x8000));
}
constexpr uint32_t kUsualFp32 = 158u << 23;

template <bool merged>
inline uint32_t fp32_from_dl16(uint16_t bits) {
  const uint32_t magnitude = bits & 0x7FFF, sign = (bits & 0x8000u) << 16;
  uint32_t result = (magnitude << 14) + kFp32Shift;
  result = magnitude == 0 ? 0 : result;
  if (!merged) result = magnitude == kDl16Infinity ? 0x7F800000 : result;
  return magnitude == kDl16Nan ? 0x7FC00000 : result | sign;
}

/// The same where there is neither NaN nor Infinity: sign and magnitude are shifted into place
/// together. `largest` becomes the largest magnitude; from kDl16Infinity on, that will not do.
inline uint32_t fp32_from_usual_dl16(uint16_t bits, uint16_t& largest) {
  const uint16_t magnitude = bits & 0x7FFF;
  const uint32_t placed = (static_cast<uint32_t>(static_cast<int16_t>(bits)) << 14) & 0x9FFFFFFF;
  largest = magnitude > largest ? magnitude : largest;
  return magnitude == 0 ? placed : placed + kFp32Shift;
}

/// Rounded to nine bits of fraction, ties away from zero; nothing below 2^-31 (1 + 2^-9) is left,
/// nor beyond the largest finite value.
template <bool merged>
inline float rounded_to_dl16(float value) {
  constexpr uint32_t kNan = 0x7FC00000, kInfinity = 0x7F800000;
  constexpr uint32_t kSmallest = kFp32Shift + (1u << 14);
  constexpr uint32_t kTooLarge = kFp32Shift + ((merged ? 0x7FFFu : 0x7FFEu) << 14);
  const uint32_t bits = bits_of(value), magnitude = bits & 0x7FFFFFFF, sign = bits & 0x80000000;
  uint32_t rounded = (magnitude + 0x2000) & 0xFFFFC000;
  rounded = rounded < kSmallest ? 0 : rounded;
  if (merged) return float_of(rounded >= kTooLarge ? kNan : rounded | sign);
  rounded = rounded >= kTooLarge ? kInfinity : rounded;
  return float_of(magnitude > kInfinity ? kNan : rounded | sign);
}

/// The same for what is neither too large nor NaN: up to kUsualFp32.
inline float usual_rounded_to_dl16(float value) {
  constexpr uint32_t kNothing = kFp32Shift + 0x2000;
  const uint32_t bits = bits_of(value), sign = bits & 0x80000000;
  const uint32_t rounded = (bits + 0x2000) & 0xFFFFC000;
  return float_of((bits & 0x7FFFFFFF) < kNothing ? sign : rounded);
}

}  // namespace
}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
