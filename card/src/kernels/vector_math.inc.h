// Elementary functions that a compiler turns into vector code: branch-free, without calls, plain
// multiplications and additions. Results are the same for every vector width.
//
// Most take fp32 values and compute in double: a polynomial error of 1e-10 is nothing beside the
// one rounding to fp32 at the end, so that results are within 0.51 units in the last place of fp32,
// and functions made of several of these need little care about cancellation. Arguments are fp32
// values or were made of such. The functions on float at the end are those that models spend their
// time in; they are within 4 units.
//
// Included once by a file that is compiled for a vector width, under the rules of
// convert_kernels.inc.h: nothing with external linkage, nothing from C++ headers.
//
// Coefficients are Chebyshev fits; each comment gives interval and error.

#include <stdint.h>

#ifndef SPYRE_SIMD_NAMESPACE
#error "define SPYRE_SIMD_NAMESPACE: this file is a part of files compiled for a vector width"
#endif

namespace spyre::card::SPYRE_SIMD_NAMESPACE {
namespace {

constexpr double kInf = __builtin_inf(), kNotANumber = __builtin_nan("");
constexpr double kLn2 = 0x1.62e42fefa39efp-1, kPi = 0x1.921fb54442d18p+1;
constexpr double kRound = 0x1.8p52;  // adding it leaves the nearest integer in the last bits

inline uint64_t bits64(double x) { return __builtin_bit_cast(uint64_t, x); }
inline double double64(uint64_t bits) { return __builtin_bit_cast(double, bits); }

/// c0 + c1 x + c2 x^2 + ...
template <typename... Rest>
inline double polynomial(double x, double c0, Rest... rest) {
  if constexpr (sizeof...(rest) == 0) {
    return c0;
  } else {
    return c0 + x * polynomial(x, rest...);
  }
}

// ---------------------------------------------------------------------------------- exponential

/// exp(r) - 1 for |r| <= ln(2)/2, to 5e-12.
inline double expm1_of_remainder(double r) {
  return r * polynomial(r, 0.9999999999955055, 0.4999999999995507, 0.1666666678638044,
                        0.041666666786337556, 0.008333283518768105, 0.001388883909064138,
                        0.00019907582591325134, 2.4867883453521802e-05);
}

/// 2^n from n + kRound, for the n of normal doubles.
inline double power_of_rounded(double shifted) { return double64((bits64(shifted) + 1023) << 52); }

inline double exp_of(double x) {
  const double shifted = x * (1 / kLn2) + kRound, n = shifted - kRound;
  const double scale = power_of_rounded(shifted);
  const double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
  const double result = scale + scale * expm1_of_remainder(r);
  const double not_over = x > 690 ? kInf : result;
  return x < -690 ? 0 : not_over;
}

inline double expm1_of(double x) {
  const double shifted = x * (1 / kLn2) + kRound, n = shifted - kRound;
  const double scale = power_of_rounded(shifted);
  const double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
  const double result = scale * expm1_of_remainder(r) + (scale - 1);
  const double not_over = x > 690 ? kInf : result, bounded = x < -690 ? -1 : not_over;
  return x == 0 ? x : bounded;  // the sign of zero
}

inline double exp2_of(double x) {
  const double shifted = x + kRound, n = shifted - kRound;
  const double scale = power_of_rounded(shifted);
  const double result = scale + scale * expm1_of_remainder((x - n) * kLn2);
  const double not_over = x > 1000 ? kInf : result;
  return x < -1000 ? 0 : not_over;
}

inline double sigmoid_of(double x) { return 1 / (1 + exp_of(-x)); }

// ------------------------------------------------------------------------------------- logarithm

/// Natural logarithm; x is no subnormal double. x = 2^k m with m in [sqrt(1/2), sqrt(2)); the
/// series in s = (m - 1)/(m + 1) to 5e-14.
inline double log_of(double x) {
  const uint64_t from_root_half = bits64(x) - 0x3FE6A09E667F3BCDu;
  const uint64_t biased_k = (from_root_half + (uint64_t{1024} << 52)) >> 52;
  const double k = double64(biased_k | 0x4330000000000000u) - (0x1p52 + 1024);
  const double f = double64(bits64(x) - (from_root_half & 0xFFF0000000000000u)) - 1;
  const double s = f / (2 + f), z = s * s;
  const double tail = polynomial(z, 0.6666666666666207, 0.4000000001123118, 0.28571424130490974,
                                 0.2222286313243771, 0.18140156550162828, 0.1662237988556164);
  double result = k * kLn2 + (2 * s + s * z * tail);
  result = x < kInf ? result : x;
  const double not_positive = x == 0 ? -kInf : kNotANumber;
  return x > 0 ? result : not_positive;
}

inline double log1p_of(double x) {
  const double series = x * (1 - x * (1. / 2 - x * (1. / 3 - x * (1. / 4))));
  const double direct = log_of(1 + x);
  return __builtin_fabs(x) < 0x1p-10 ? series : direct;
}

/// x^y with the special cases of C.
inline double pow_of(double x, double y) {
  const double log2_x = log_of(__builtin_fabs(x)) * (1 / kLn2);
  const bool one_to_infinity = (log2_x == 0) & (__builtin_fabs(y) == kInf);
  const double exponent = y * log2_x;
  double result = exp2_of(one_to_infinity ? 0 : exponent);
  // From 2^24 on every fp32 value is an even integer.
  const double a = __builtin_fabs(y), small = a < 0x1p24 ? a : 0;
  const double shifted = small + kRound;
  const bool whole = shifted - kRound == small;
  const uint64_t odd = whole ? bits64(shifted) & 1 : 0;
  result = double64(bits64(result) | ((odd << 63) & bits64(x)));
  const bool no_real_result = (x < 0) & (x > -kInf) & !whole;
  result = no_real_result ? kNotANumber : result;
  return ((y == 0) | (x == 1)) ? 1 : result;
}

// ------------------------------------------------------------------------------------ trigonometry

/// An angle less a multiple of pi/2: |r| is at most pi/4.
struct Angle {
  double r;
  uint64_t quadrant;  ///< how many pi/2; the last two bits count
};

/// Up to here reduce() is exact enough; reduce_large() does the rest.
constexpr float kLargeAngle = 0x1p20f;

/// Three parts of pi/2; multiples of the first two are exact.
inline Angle reduce(double x) {
  const double shifted = x * (2 / kPi) + kRound, n = shifted - kRound;
  const double r = ((x - n * 0x1.921fb544p0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69;
  return {r, bits64(shifted)};
}

/// Any finite angle from 2^20 on: multiplied by those 96 bits of 2/pi that neither give whole turns
/// nor are too small to matter.
inline Angle reduce_large(float x) {
  constexpr uint32_t bits_of_2_over_pi[] = {0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0,
                                            0xDB629599, 0x3C439041, 0xFE5163AB, 0xDEBBC561};
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t significand = (bits & 0x7FFFFF) | 0x800000;
  const int skip = static_cast<int>((bits >> 23) & 0xFF) - (127 + 23) - 2;
  const int word = skip > 0 ? skip / 32 : 0;
  unsigned __int128 window = 0;
  for (int i = 0; i < 4; ++i) window = window << 32 | bits_of_2_over_pi[word + i];
  // The 96 bits behind `skip`; a negative one means leading zeros.
  window = (window << (skip > 0 ? skip % 32 : 0)) >> (skip < 0 ? 32 - skip : 32);
  const unsigned __int128 product = window * significand;  // in units of 2^-94 right angles
  const unsigned __int128 rest = product & ((static_cast<unsigned __int128>(1) << 94) - 1);
  const bool up = rest >> 93;
  const __int128 nearest = static_cast<__int128>(rest) - (static_cast<__int128>(up) << 94);
  const double r = static_cast<double>(nearest) * 0x1p-94 * (kPi / 2);
  const uint64_t quadrant = static_cast<uint64_t>(product >> 94) + up;
  return bits >> 31 ? Angle{-r, 0 - quadrant} : Angle{r, quadrant};
}

/// sin(r) to 2e-11, cos(r) to 1e-12, for |r| <= pi/4.
inline double sin_of_remainder(double r) {
  const double z = r * r;
  return r + r * z *
                 polynomial(z, -0.16666666663854385, 0.008333331874358352, -0.0001984008654531293,
                            2.724990115829391e-06);
}
inline double cos_of_remainder(double r) {
  const double z = r * r;
  return 1 - z * 0.5 +
         z * z *
             polynomial(z, 0.04166666666432045, -0.0013888887671723142, 2.4800600218521467e-05,
                        -2.730093863463587e-07);
}

inline double sin_of(const Angle& angle) {
  const double sine = sin_of_remainder(angle.r), cosine = cos_of_remainder(angle.r);
  const double value = angle.quadrant & 1 ? cosine : sine;
  return double64(bits64(value) ^ ((angle.quadrant & 2) << 62));
}
inline double cos_of(const Angle& angle) { return sin_of({angle.r, angle.quadrant + 1}); }
inline double tan_of(const Angle& angle) {
  const double sine = sin_of_remainder(angle.r), cosine = cos_of_remainder(angle.r);
  const bool odd = angle.quadrant & 1;
  return (odd ? -cosine : sine) / (odd ? sine : cosine);
}

/// Turned by pi/4 or pi/2 to |t| <= tan(pi/8); there to 3e-14.
inline double atan_of(double x) {
  const double a = __builtin_fabs(x);
  const bool middle = a > 0x1.a827999fcef32p-2, high = a > 0x1.3504f333f9de6p+1;
  const double above = high ? -1 : a - 1, below = high ? a : a + 1;
  const double t = (middle ? above : a) / (middle ? below : 1);
  const double turned = high ? kPi / 2 : kPi / 4, offset = middle ? turned : 0;
  const double z = t * t;
  const double tail = polynomial(z, -0.3333333333333093, 0.1999999999772419, -0.14285713930284452,
                                 0.11111089644409773, -0.09090255833293258, 0.0768104360047793,
                                 -0.06550895460093378, 0.05168789533393382, -0.027232180104105892);
  return __builtin_copysign(offset + (t + t * z * tail), x);
}

inline double atan2_of(double y, double x) {
  const double a = __builtin_fabs(y), b = __builtin_fabs(x);
  double ratio = a / b;
  ratio = ((a == b) & (a == kInf)) ? 1 : ratio;
  ratio = ((a == 0) & (b == 0)) ? 0 : ratio;
  const double first = atan_of(ratio);
  const double angle = bits64(x) >> 63 ? kPi - first : first;
  return __builtin_copysign(angle, y);
}

// ---------------------------------------------------------------------------------- error function

/// exp(x^2) erfc(x) for x in [0, 10]: times (1 + 2x) in t = (x - 3)/(x + 3), to 1e-10.
inline double scaled_erfc_of(double x) {
  const double t = (x - 3) / (x + 3);
  const double scaled = polynomial(
      t, 1.25300805824133, -0.13562110716001385, -0.04756229114948793, 0.12964521317825906,
      -0.11927369546729556, 0.06830720794252892, -0.023770891597893425, 0.0025343389311838355,
      0.0018943955907603635, -0.000791368471023742, -0.0001277800840805051, 0.00012685970772722082,
      3.3348582686619454e-05);
  return scaled / (1 + 2 * x);
}

/// erfc(a) for a >= 0.
inline double erfc_of_positive(double a) {
  const double x = a > 30 ? 30 : a;  // keeps Infinity out; the result is zero long before
  return scaled_erfc_of(x) * exp_of(-(x * x));
}

inline double erfc_of(double x) {
  const double tail = erfc_of_positive(__builtin_fabs(x));
  return x < 0 ? 2 - tail : tail;
}

/// Below 3/4 a polynomial, to 5e-15.
inline double erf_of(double x) {
  const double z = x * x;
  const double small =
      x * polynomial(z, 1.128379167095507, -0.37612638903021944, 0.11283791663273132,
                     -0.026866169238915532, 0.005223964706041166, -0.0008547658380152959,
                     0.00012034908161867576, -1.45586354075073e-05, 1.2824079920767894e-06);
  const double large = __builtin_copysign(1 - erfc_of_positive(__builtin_fabs(x)), x);
  return __builtin_fabs(x) < 0.75 ? small : large;
}

/// The normal distribution's integral up to x.
inline double normal_integral_of(double x) { return 0.5 * erfc_of(x * -0x1.6a09e667f3bcdp-1); }
inline double normal_density_of(double x) {
  return exp_of(x * x * -0.5) * 0x1.9884533d43651p-2;  // 1/sqrt(2 pi)
}

/// The single-precision approximation of M. Giles (GPU Computing Gems, 2011), and a Newton step.
inline double erfinv_of(double y) {
  const double w = -log_of((1 - y) * (1 + y));
  const double centre =
      polynomial(w - 2.5, 1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087,
                 -4.39150654e-06, -3.5233877e-06, 3.43273939e-07, 2.81022636e-08);
  const double outside =
      polynomial(__builtin_sqrt(w) - 3, 2.83297682, 1.00167406, 0.00943887047, -0.0076224613,
                 0.00573950773, -0.00367342844, 0.00134934322, 0.000100950558, -0.000200214257);
  const double x = y * (w < 5 ? centre : outside), a = __builtin_fabs(y);
  // Which of erf(x) = y and erfc(x) = 1 - y has more digits to compare.
  const double by_erf = erf_of(x) - y;
  const double by_erfc = (1 - a) - erfc_of_positive(__builtin_fabs(x));
  const double error = a < 0.5 ? by_erf : y < 0 ? -by_erfc : by_erfc;
  const double better = x - error * exp_of(x * x) * 0x1.c5bf891b4ef6ap-1;  // sqrt(pi)/2
  return a == 1 ? __builtin_copysign(kInf, y) : better;
}

// ----------------------------------------------------------------------------------------- in fp32

#if defined(__FMA__) || defined(__aarch64__)
constexpr bool kFastFma = true;
#else
constexpr bool kFastFma = false;
#endif

/// a * b + c, rounded once. Without an instruction for it, the sum in double is rounded to odd, so
/// that rounding it again to fp32 gives what rounding once would.
inline float fma32(float a, float b, float c) {
  if constexpr (kFastFma) return __builtin_fmaf(a, b, c);
  const double product = static_cast<double>(a) * b, wide = c;  // exact
  const double sum = product + wide, added = sum - product;
  const double error = (product - (sum - added)) + (wide - added);
  const bool inexact = (error < 0) | (error > 0), away = (error < 0) == (sum < 0);
  const uint64_t bits = bits64(sum), odd = away ? bits + 1 : bits - 1;
  return static_cast<float>(double64((inexact & !(bits & 1)) ? odd : bits));
}

template <typename... Rest>
inline float polynomial32(float x, double c0, Rest... rest) {
  if constexpr (sizeof...(rest) == 0) {
    return static_cast<float>(c0);
  } else {
    return fma32(x, polynomial32(x, rest...), static_cast<float>(c0));
  }
}

constexpr float kExpVanishes = -104;  // below, exp is 0 in fp32

/// exp(at + more) for a small correction `more`, if there is one. Subnormal results too. `usual`:
/// at is in [-86, 88].
template <bool usual = false, typename... More>
inline float exp32_of(float at, More... more) {
  constexpr float kRound32 = 0x1.8p23f, kLowest = -86;
  const float x = !usual && at < kExpVanishes ? kExpVanishes : at;  // a NaN stays one
  const float shifted = fma32(x, 0x1.715476p+0f, kRound32), n = shifted - kRound32;
  const float remainder = fma32(n, 0x1.05c61p-29f, fma32(n, -0x1.62e43p-1f, x));
  const float p = polynomial32((remainder + ... + more), 1, 1, 0.49999993412469573,
                               0.16666520107626476, 0.04166839421741671, 0.008368780429083707,
                               0.0013814466740229732);  // to 3e-9
  // Times 2^n: the bits of `shifted` end with n. By way of 2^(n + 64) where that has no exponent.
  const uint32_t n_bits = __builtin_bit_cast(uint32_t, shifted);
  const uint32_t exponent = usual ? n_bits : n_bits + (x < kLowest ? 64 : 0);
  const float scaled =
      __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, p) + (exponent << 23));
  if constexpr (usual) return scaled;
  // Not even on the way are there subnormal numbers where the result is 0, as for the -Infinity of
  // masks: hosts take a hundred times as long for them.
  const float low = at < kExpVanishes ? 0 : 0x1p-64f;
  const float result = scaled * (x < kLowest ? low : 1);
  return x <= 0x1.62e42ep+6f ? result : x + __builtin_inff();  // a NaN stays one
}

inline float log32_of(float x) { return static_cast<float>(log_of(x)); }

template <bool usual = false>
inline float sigmoid32_of(float x) {
  const float z = exp32_of<usual>(-__builtin_fabsf(x));
  return (x < 0 ? z : 1) / (1 + z);
}

template <bool usual = false>
inline float silu32_of(float x) {
  const float z = exp32_of<usual>(-__builtin_fabsf(x));
  return x * (x < 0 ? z : 1) / (1 + z);
}

inline float tanh32_of(float x) {
  const float a = __builtin_fabsf(x), z = a * a;
  const float small =
      a + a * z *
              polynomial32(z, -0.3333333317196775, 0.13333303530739316, -0.0539592533789059,
                           0.021768868214501753, -0.008343780370479862, 0.0022925576991026523);
  const float large = 1 - 2 / (exp32_of(2 * a) + 1);
  return __builtin_copysignf(a < 0.625f ? small : large, x);
}

/// x times the normal distribution's integral up to x. As in erfc_of_positive(), with half of
/// exp(a^2/2) erfc(a/sqrt 2) (a + 4) in t = (a - 4)/(a + 4), to 2e-9. The square is split in two
/// parts, because its rounding would show in a large exponent.
inline float gelu32_of(float x) {
  const float limited = __builtin_fabsf(x) > 40 ? 40 : __builtin_fabsf(x);
  const float sum = limited + 4, t = (limited - 4) / sum;
  const float scaled = polynomial32(
      t, 0.7552851307723013, -0.6078966602403073, 0.38713735279131634, -0.18652126197922375,
      0.0603977744995294, -0.007545214822214001, -0.003490501231948916, 0.0016440579346261115,
      0.00017255054276985648, -0.00022911187820513293, -5.0497684221768607e-05);
  const float high = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, limited) & 0xFFFFF000);
  const float density =
      exp32_of(-0.5f * (high * high), -0.5f * ((limited - high) * (limited + high)));
  // Infinity times zero below, as by the definition, but not above.
  const float factor = x > 0 ? -limited : x;
  return (x > 0 ? x : 0) + factor * (scaled / sum) * density;
}

}  // namespace
}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
