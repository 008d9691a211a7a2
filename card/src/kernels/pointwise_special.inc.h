// Special functions among the pointwise ops, on double. See pointwise_kernels.inc.h.
//
// The gamma functions loop, one element at a time: they are rare.

// The functions of vector_math.inc.h are there already.

#include "kernels/pointwise.h"

namespace spyre::card::SPYRE_SIMD_NAMESPACE {
namespace {
namespace fp32 {

using DK = Constants<double>;

inline double clipped(double x, double low, double high) {
  const double above = x > high ? high : x;
  return x < low ? low : above;
}
inline double logit(double x, const DK& k) {
  const double z = k.k[0] < 0 ? x : clipped(x, k.k[0], 1 - k.k[0]);
  return log_of(z / (1 - z));
}
inline double logitbwd(double g, double x, const DK& k) {
  const double low = k.k[0] < 0 ? 0 : k.k[0], high = 1 - low;
  const double inside = g / (x * (1 - x)), outside = k.k[0] < 0 ? kNotANumber : 0;
  return ((x < low) | (x > high)) ? outside : inside;
}

/// Half turns are taken off before the multiplication by pi: whole numbers give exact zeros. From
/// 2^23 on there are no others.
inline double sinc(double x) {
  const bool large = (__builtin_fabs(x) >= 0x1p23) & (__builtin_fabs(x) < kInf);
  const double bounded = large ? 1 : x, shifted = bounded + kRound;
  const double sine = sin_of(reduce((bounded - (shifted - kRound)) * kPi));
  const double turned = double64(bits64(sine) ^ (bits64(shifted) << 63));
  return x == 0 ? 1 : turned / (bounded * kPi);
}

inline double entr(double x) {
  const double result = -x * log_of(x), not_positive = x == 0 ? 0 : -kInf;
  return x <= 0 ? not_positive : result;
}

/// The polynomial of erfc_of_positive() without the exponential; from 10 on, where that is no
/// longer fitted, the asymptotic series, to 1e-11.
inline double erfcx_of_positive(double a) {
  const double z = 1 / (a * a);
  const double far =
      0x1.20dd750429b6dp-1 / a *
      polynomial(z, 1, -1. / 2, 3. / 4, -15. / 8, 105. / 16, -945. / 32, 10395. / 64);
  return a < 10 ? scaled_erfc_of(a) : far;
}
inline double erfcx(double x) {
  const double tail = erfcx_of_positive(__builtin_fabs(x));
  return x < 0 ? 2 * exp_of(x * x) - tail : tail;
}
inline double log_ndtr(double x) {
  const double a = x * 0x1.6a09e667f3bcdp-1;  // 1/sqrt(2)
  const double below = log_of(0.5 * erfcx_of_positive(-a)) - a * a;
  const double above = log1p_of(-0.5 * erfc_of(a));
  return x < -1 ? below : above;
}

// The gamma functions have zeros near which everything cancels. So what they are made of is exact
// to a unit or two in the last place of double, where the functions of vector_math.inc.h stop at
// what a result in fp32 shows.

/// Natural logarithm of a positive double that is not subnormal.
inline double close_log(double x) {
  const uint64_t from_root_half = bits64(x) - 0x3FE6A09E667F3BCDu;
  const uint64_t biased_k = (from_root_half + (uint64_t{1024} << 52)) >> 52;
  const double k = double64(biased_k | 0x4330000000000000u) - (0x1p52 + 1024);
  const double f = double64(bits64(x) - (from_root_half & 0xFFF0000000000000u)) - 1;
  const double s = f / (2 + f), z = s * s;
  const double tail = 2 * z *
                      polynomial(z, 1. / 3, 1. / 5, 1. / 7, 1. / 9, 1. / 11, 1. / 13, 1. / 15,
                                 1. / 17, 1. / 19, 1. / 21, 1. / 23);
  return k * 0x1.62e42feep-1 + (f - (s * (f - tail) - k * 0x1.a39ef35793c76p-33));
}

/// Sine and cosine of x times pi, for |x| <= 1/2: their series.
inline double sin_pi(double x) {
  const double y = x * kPi, z = y * y;
  return y * polynomial(z, 1, -1. / 6, 1. / 120, -1. / 5040, 1. / 362880, -1. / 39916800,
                        1. / 6227020800, -1. / 1307674368000, 1. / 355687428096000,
                        -1. / 121645100408832000, 1. / 51090942171709440000.);
}
inline double cos_pi(double x) {
  const double z = x * kPi * (x * kPi);
  return polynomial(z, 1, -1. / 2, 1. / 24, -1. / 720, 1. / 40320, -1. / 3628800, 1. / 479001600,
                    -1. / 87178291200, 1. / 20922789888000, -1. / 6402373705728000,
                    1. / 2432902008176640000);
}

/// log(gamma(2 + t)) for |t| <= 1/2, to 2e-18.
inline double lgamma_near_two(double t) {
  return t * polynomial(t, 0.42278433509846713, 0.3224670334241132, -0.06735230105319814,
                        0.02058080842778457, -0.0073855510286681535, 0.002890510330738737,
                        -0.0011927539120010226, 0.0005096695248853096, -0.00022315475074520367,
                        9.945750909889392e-05, -4.4926351103833334e-05, 2.050726741605779e-05,
                        -9.438458716242811e-06, 4.374374916915131e-06, -2.0449201467015115e-06,
                        9.578663334114758e-07, -4.303558760359961e-07, 2.0304806751615227e-07,
                        -1.3412819758517287e-07, 6.379047507619774e-08);
}
/// From 10 on: Stirling's series, to 1e-17.
inline double lgamma_far(double x) {
  const double z = 1 / (x * x);
  const double series = polynomial(z, 1. / 12, -1. / 360, 1. / 1260, -1. / 1680, 1. / 1188,
                                   -691. / 360360, 1. / 156, -3617. / 122400) /
                        x;
  return (x - 0.5) * close_log(x) - x + (0x1.d67f1c864beb5p-1 + series);  // log(2 pi) / 2
}

/// Between -10 and 10 by recurrence to 2, below by reflection.
inline double lgamma(double x) {
  if (!(__builtin_fabs(x) < kInf)) return x * x;
  if (x >= 10) return lgamma_far(x);
  const double part = x - __builtin_rint(x);  // exact; from floor() it would not be
  if ((x <= 0) & (part == 0)) return kInf;
  if (x <= -10) return close_log(kPi / __builtin_fabs(sin_pi(part))) - lgamma_far(1 - x);
  double above = 1, below = 1;
  for (; x >= 2.5; above *= x) x -= 1;
  for (; x < 1.5; x += 1) below *= x;
  // One of the two is 1.
  return lgamma_near_two(x - 2) + close_log(above) - close_log(__builtin_fabs(below));
}

/// By recurrence to 10 and more, where the asymptotic series is exact enough; the negative side by
/// reflection.
inline double digamma(double x) {
  if (x == 0) return __builtin_copysign(kInf, -x);
  if (!(__builtin_fabs(x) < kInf)) return x > 0 ? x : kNotANumber;
  double result = 0;
  if (x < 0) {
    const double part = x - __builtin_rint(x);
    if (!(part != 0)) return kNotANumber;
    result = -kPi * cos_pi(part) / sin_pi(part);
    x = 1 - x;
  }
  for (; x < 10; ++x) result -= 1 / x;
  const double z = 1 / (x * x);
  return result + (close_log(x) - 0.5 / x -
                   z * polynomial(z, 1. / 12, -1. / 120, 1. / 252, -1. / 240, 1. / 132,
                                  -691. / 32760, 1. / 12));
}

/// Modified Bessel functions: the power series up to 20, then the asymptotic one; both to 1e-12.
constexpr double kBesselFar = 20;

template <int order>
inline double bessel_near(double a) {
  const double quarter = a * a / 4;
  double term = order == 0 ? 1 : a / 2, sum = term;
  for (int k = 1; k < 60; ++k) {
    term *= quarter / (k * (k + order));
    sum += term;
  }
  return sum;
}
template <int order>
inline double bessel_far_scaled(double a) {
  constexpr int mu = 4 * order * order;
  double term = 1, sum = 1;
  for (int k = 1; k < 20; ++k) {
    term *= ((2 * k - 1) * (2 * k - 1) - mu) / (8 * k * a);
    sum += term;
  }
  return sum / __builtin_sqrt(2 * kPi * a);
}
template <int order>
inline double bessel(double x) {
  const double a = __builtin_fabs(x);
  const double far = a > 200 ? kInf : bessel_far_scaled<order>(a) * exp_of(a);
  const double result = a > kBesselFar ? far : bessel_near<order>(a);
  return order == 0 ? result : __builtin_copysign(result, x);
}
template <int order>
inline double bessel_scaled(double x) {
  const double a = __builtin_fabs(x);
  const double near = bessel_near<order>(a) * exp_of(-a);
  const double result = a > kBesselFar ? bessel_far_scaled<order>(a) : near;
  return order == 0 ? result : __builtin_copysign(result, x);
}

inline double logaddexp2(double a, double b) {
  const double larger = ((a > b) | (a != a)) ? a : b;
  const double result = larger + log1p_of(exp2_of(-__builtin_fabs(a - b))) * (1 / kLn2);
  return ((a == b) & (__builtin_fabs(a) == kInf)) ? a : result;
}
inline double xlog1py(double a, double b) {
  const double result = a * log1p_of(b);
  return ((a == 0) & (b == b)) ? 0 : result;
}

inline double angle(double x) {
  const double not_below = x != x ? x : 0;
  return x < 0 ? kPi : not_below;
}

/// Every fp32 value but zero is a normal double, so that the exponent is its field.
inline bool has_exponent(double x) { return (x != 0) & (__builtin_fabs(x) < kInf); }
inline double frexpmantissa(double x) {
  const double mantissa = double64((bits64(x) & 0x800FFFFFFFFFFFFFu) | 0x3FE0000000000000u);
  return has_exponent(x) ? mantissa : x;
}
inline double frexpexponent(double x) {
  const double field = double64(((bits64(x) >> 52) & 0x7FF) | 0x4330000000000000u) - 0x1p52;
  return has_exponent(x) ? field - 1022 : 0;
}

}  // namespace fp32
}  // namespace
}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
