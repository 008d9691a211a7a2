// exp and log in fp32 for row operations, where they set the pace: vector_math.inc.h computes in
// double, which takes more than twice as long. A part of reduce_<level>.cpp, under its rules.

namespace spyre::card::SPYRE_SIMD_NAMESPACE {
namespace {

inline uint32_t bits32(float x) { return __builtin_bit_cast(uint32_t, x); }
inline float float32(uint32_t bits) { return __builtin_bit_cast(float, bits); }

/// Within 1.5 units in the last place; what is below the smallest normal number becomes 0.
inline float line_exp(float x) {
  constexpr float kRound = 0x1.8p23f;  // leaves the nearest integer in the last bits
  constexpr float kLn2High = 0x1.62ep-1f, kLn2Low = 0x1.0bfbe8p-15f;  // n * kLn2High is exact
  const float shifted = x * 0x1.715476p+0f + kRound;
  const float n = shifted - kRound;
  const float r = x - n * kLn2High - n * kLn2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  // Times 2^n. The bits of `shifted` end with n.
  const float y = float32(bits32(p) + (bits32(shifted) << 23));
  float result = x < -0x1.5d589ep+6f ? 0.0f : y;            // ln 2^-126
  result = x > 0x1.62e42ep+6f ? __builtin_inff() : result;  // the last whose exp is finite
  return x != x ? x : result;
}

/// In double, rounded to fp32 once. -Infinity of 0, NaN below.
inline float line_log(float x) {
  const double wide = x;  // a normal number, even where x is not
  const uint64_t bits = __builtin_bit_cast(uint64_t, wide);
  // m in [sqrt 1/2, sqrt 2), x = m 2^e
  const uint64_t shifted = bits + (0x3FF0000000000000 - 0x3FE6A09E667F3BCD);
  const int32_t e = static_cast<int32_t>(shifted >> 52) - 1023;
  const double m =
      __builtin_bit_cast(double, (shifted & 0x000FFFFFFFFFFFFF) + uint64_t{0x3FE6A09E667F3BCD});
  const double s = (m - 1) / (m + 1), q = s * s;  // log m = 2 atanh s
  double p = 1.0 / 15;
  p = p * q + 1.0 / 13;
  p = p * q + 1.0 / 11;
  p = p * q + 1.0 / 9;
  p = p * q + 1.0 / 7;
  p = p * q + 1.0 / 5;
  p = p * q + 1.0 / 3;
  p = p * q + 1.0;
  const float y = static_cast<float>(e * 0x1.62e42fefa39efp-1 + 2 * s * p);
  float result = x < 0 ? __builtin_nanf("") : y;
  result = x == 0 ? -__builtin_inff() : result;
  return (x != x) | (x == __builtin_inff()) ? x : result;
}

}  // namespace
}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
