// Special functions among the pointwise ops, on double. See pointwise_kernels.inc.h.
//
// The gamma functions call the C library or loop, one element at a time: they are rare.

// The functions of vector_math.inc.h are there already.

#include "pointwise.h"

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
  return (x < low) | (x > high) ? outside : inside;
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

inline double lgamma(double x) {
  int sign;
  return __builtin_lgamma_r(x, &sign);
}

/// By recurrence to 10 and more, where the asymptotic series is exact enough; the negative side by
/// reflection.
inline double digamma(double x) {
  if (x == 0) return __builtin_copysign(kInf, -x);
  double result = 0;
  if (x < 0) {
    const double part = x - __builtin_rint(x);  // exact; from floor() it would not be
    if (!(part != 0)) return kNotANumber;
    result = -kPi / __builtin_tan(kPi * part);
    x = 1 - x;
  }
  for (; x < 10; ++x) result -= 1 / x;
  const double z = 1 / (x * x);
  return result + (__builtin_log(x) - 0.5 / x -
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
  const double larger = (a > b) | (a != a) ? a : b;
  const double result = larger + log1p_of(exp2_of(-__builtin_fabs(a - b))) * (1 / kLn2);
  return (a == b) & (__builtin_fabs(a) == kInf) ? a : result;
}
inline double xlog1py(double a, double b) {
  const double result = a * log1p_of(b);
  return (a == 0) & (b == b) ? 0 : result;
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
