// What every pointwise op means, one element at a time: straight from the definitions, in double or
// long arithmetic, for tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "spyre/ops.h"

namespace spyre::card::test {

/// x are the inputs, k the constants.
struct RealReference {
  std::function<double(const double* x, const double* k)> value;
  double ulps = 0;      ///< of fp32 that the card may be off
  double absolute = 0;  ///< or by this much, times the largest input or result
};

inline constexpr long double kPi = 3.14159265358979323846264338327950288L;

/// exp(x x) erfc(x), from the definition where the factors have a size, else by the first terms of
/// the asymptotic series.
inline double scaled_erfc(double x) {
  const long double wide = x, z = 1 / (wide * wide);
  const long double far = (1 - z / 2 + 3 * z * z / 4) / (wide * std::sqrt(kPi));
  return static_cast<double>(x > 100 ? far : std::exp(wide * wide) * std::erfc(wide));
}

/// By recurrence to a thousand, where two terms of the asymptotic series suffice.
inline long double slow_digamma(long double x) {
  if (x == 0) return std::copysign(std::numeric_limits<long double>::infinity(), -x);
  if (x < 0) {
    const long double part = std::remainder(x, 1.0L);
    if (part == 0 || part != part) return std::numeric_limits<long double>::quiet_NaN();
    return slow_digamma(1 - x) - kPi / std::tan(kPi * part);
  }
  long double result = 0;
  for (; x < 1000; ++x) result -= 1 / x;
  return result + std::log(x) - 1 / (2 * x) - 1 / (12 * x * x) + 1 / (120 * x * x * x * x);
}

/// exp(-|x|) times a modified Bessel function.
inline double bessel(int order, double x) {
  const double a = std::fabs(x), sign = order == 1 && std::signbit(x) ? -1 : 1;
  if (std::isnan(x)) return x;
  const double mu = 4 * order * order, far = 1 - (mu - 1) / (8 * a) +
                                             (mu - 1) * (mu - 9) / (128 * a * a) -
                                             (mu - 1) * (mu - 9) * (mu - 25) / (3072 * a * a * a);
  if (a > 500) return sign * far / std::sqrt(2 * M_PI * a);
  return sign * static_cast<double>(std::cyl_bessel_i(static_cast<long double>(order), a) *
                                    std::exp(-static_cast<long double>(a)));
}

inline const std::map<OpFunc, RealReference>& real_references() {
  using F = OpFunc;
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto is = [](bool truth) { return truth ? 1.0 : 0.0; };
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const auto cdf = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  const auto pdf = [](double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); };
  const auto cubic = [](double x) { return std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); };
  const auto clamp = [](double x, double low, double high) {
    return x < low ? low : x > high ? high : x;
  };
  // fp32 operations one by one, for ops that are defined as a sequence of them.
  const auto f = [](double x) { return static_cast<float>(x); };
#define OP(expression)                                                                \
  [=]([[maybe_unused]] const double* x, [[maybe_unused]] const double* k) -> double { \
    return expression;                                                                \
  }
  static const std::map<OpFunc, RealReference> references = {
      {F::identity, {OP(x[0])}},
      {F::qfp8ch, {OP(x[0])}},
      {F::dl16tofp32, {OP(x[0])}},
      {F::fp32todl16, {OP(x[0])}},
      {F::fp8todl16, {OP(x[0])}},
      {F::add, {OP(x[0] + x[1])}},
      {F::sub, {OP(x[0] - x[1])}},
      {F::rsub, {OP(x[1] - x[0])}},
      {F::mul, {OP(x[0] * x[1])}},
      {F::square, {OP(x[0] * x[0])}},
      {F::realdiv, {OP(x[0] / x[1])}},
      {F::reciprocal, {OP(1 / x[0])}},
      {F::sqrt, {OP(std::sqrt(x[0]))}},
      {F::rsqrt, {OP(1 / f(std::sqrt(x[0])))}},
      {F::abs, {OP(std::fabs(x[0]))}},
      {F::neg, {OP(-x[0])}},
      {F::maximum, {OP(x[0] != x[0] || x[1] != x[1] ? nan : std::fmax(x[0], x[1]))}},
      {F::minimum, {OP(x[0] != x[0] || x[1] != x[1] ? nan : std::fmin(x[0], x[1]))}},
      {F::fmax, {OP(std::fmax(x[0], x[1]))}},
      {F::fmin, {OP(std::fmin(x[0], x[1]))}},
      {F::clip, {OP(clamp(x[0], f(k[0]), f(k[1])))}},
      {F::equal, {OP(is(x[0] == x[1]))}},
      {F::notequal, {OP(is(x[0] != x[1]))}},
      {F::greaterthan, {OP(is(x[0] > x[1]))}},
      {F::greaterequal, {OP(is(x[0] >= x[1]))}},
      {F::lesserthan, {OP(is(x[0] < x[1]))}},
      {F::lesserequal, {OP(is(x[0] <= x[1]))}},
      {F::where3, {OP(x[0] != 0 ? x[1] : x[2])}},
      {F::floor, {OP(std::floor(x[0]))}},
      {F::ceil, {OP(std::ceil(x[0]))}},
      {F::trunc, {OP(std::trunc(x[0]))}},
      {F::round, {OP(std::nearbyint(x[0]))}},
      {F::frac, {OP(x[0] - std::trunc(x[0]))}},
      {F::sign, {OP(is(x[0] > 0) - is(x[0] < 0))}},
      {F::signbit, {OP(is(std::signbit(x[0])))}},
      {F::copysign, {OP(std::copysign(x[0], x[1]))}},
      {F::exp, {OP(std::exp(x[0])), 1}},
      {F::exp2, {OP(std::exp2(x[0])), 1}},
      {F::expm1, {OP(std::expm1(x[0])), 1}},
      {F::log, {OP(std::log(x[0])), 1}},
      {F::log2, {OP(std::log2(x[0])), 1}},
      {F::log10, {OP(std::log10(x[0])), 1}},
      {F::log1p, {OP(std::log1p(x[0])), 1}},
      {F::sin, {OP(std::sin(x[0])), 1}},
      {F::cos, {OP(std::cos(x[0])), 1}},
      {F::tan, {OP(std::tan(x[0])), 1}},
      {F::asin, {OP(std::asin(x[0])), 1}},
      {F::acos, {OP(std::acos(x[0])), 1}},
      {F::atan, {OP(std::atan(x[0])), 1}},
      {F::atan2, {OP(std::atan2(x[0], x[1])), 1}},
      {F::sinh, {OP(std::sinh(x[0])), 1}},
      {F::cosh, {OP(std::cosh(x[0])), 1}},
      {F::tanh, {OP(std::tanh(x[0])), 2}},
      {F::asinh, {OP(std::asinh(x[0])), 1}},
      {F::acosh, {OP(std::acosh(x[0])), 1}},
      {F::atanh, {OP(std::atanh(x[0])), 1}},
      {F::erf, {OP(std::erf(x[0])), 1}},
      {F::erfc, {OP(std::erfc(x[0])), 1}},
      {F::pow, {OP(std::pow(x[0], x[1])), 1}},
      {F::hypot, {OP(std::hypot(x[0], x[1])), 1}},
      {F::logaddexp,
       {OP(x[0] == x[1] ? x[0] + std::log(2.0)
           : x[0] != x[0] || x[1] != x[1]
               ? nan
               : std::fmax(x[0], x[1]) + std::log1p(std::exp(-std::fabs(x[0] - x[1])))),
        1, 0x1p-45}},
      {F::xlogy,
       {OP(x[1] != x[1] ? nan
           : x[0] == 0  ? 0
                        : x[0] * std::log(x[1])),
        1}},
      {F::sigmoid, {OP(sigmoid(x[0])), 3}},
      {F::silu, {OP(x[0] / (1 + std::exp(-x[0]))), 3, 0x1p-148}},
      {F::gelufwd, {OP(x[0] * cdf(x[0])), 6}},
      {F::geluerf, {OP(x[0] * cdf(x[0])), 6}},
      {F::gelutanh, {OP(x[0] * sigmoid(2 * cubic(x[0]))), 1}},
      {F::mish, {OP(x[0] * std::tanh(std::log1p(std::exp(x[0])))), 1}},
      {F::softplus, {OP(x[0] * k[0] > k[1] ? x[0] : std::log1p(std::exp(x[0] * k[0])) / k[0]), 1}},
      {F::logsigmoid, {OP((x[0] > 0 ? 0 : x[0]) - std::log1p(std::exp(-std::fabs(x[0])))), 1}},
      {F::elu, {OP(x[0] > 0 ? x[0] * k[1] : k[0] * k[1] * std::expm1(x[0] * k[2])), 1}},
      {F::celu, {OP(x[0] > 0 ? x[0] : k[0] * std::expm1(x[0] / k[0])), 1}},
      {F::relufwd, {OP(x[0] < 0 ? 0 : x[0])}},
      {F::leakyrelu, {OP(x[0] > 0 ? x[0] : x[0] * f(k[0]))}},
      {F::hardswish, {OP(f(x[0] * clamp(f(x[0] + 3), 0, 6)) / 6)}},
      {F::hardsigmoid, {OP(clamp(f(x[0] + 3), 0, 6) / 6)}},
      {F::hardshrink, {OP(std::fabs(x[0]) <= f(k[0]) ? 0 : x[0])}},
      {F::softshrink,
       {OP(x[0] > f(k[0])    ? x[0] - f(k[0])
           : x[0] < -f(k[0]) ? x[0] + f(k[0])
                             : x[0] * 0)}},
      {F::threshold, {OP(x[0] <= f(k[0]) ? f(k[1]) : x[0])}},
      {F::softsign, {OP(x[0] / f(1 + std::fabs(x[0])))}},
      {F::layernormscale,
       {OP(1 / f(std::sqrt(
                   f((f(x[1] - f(x[0] * x[0])) < 0 ? 0 : f(x[1] - f(x[0] * x[0]))) + f(k[0])))))}},
      {F::layernormnorm, {OP(f(f(f(x[0] - x[1]) * x[2]) * x[3]) + x[4])}},
      {F::axpy, {OP(x[0] + f(f(k[0]) * x[1]))}},
      {F::addcmul, {OP(x[0] + f(f(f(k[0]) * x[1]) * x[2]))}},
      {F::addcdiv, {OP(x[0] + f(f(f(k[0]) * x[1]) / x[2]))}},
      {F::lerp,
       {OP(std::fabs(x[2]) < 0.5 ? x[0] + f(x[2] * f(x[1] - x[0]))
                                 : x[1] - f(f(x[1] - x[0]) * f(1 - x[2])))}},
      {F::fmod, {OP(std::fmod(x[0], x[1]))}},
      {F::remainder, {OP([&] {
         const double rest = std::fmod(x[0], x[1]);
         return rest != 0 && (rest < 0) != (x[1] < 0) ? rest + x[1] : rest;
       }())}},
      {F::floordivide, {OP([&] {
         if (x[1] == 0) return x[0] / x[1];
         const double rest = std::fmod(x[0], x[1]);
         float quotient = f(f(x[0] - rest) / x[1]);
         if (rest != 0 && (rest < 0) != (x[1] < 0)) quotient -= 1;
         if (quotient == 0) return std::copysign(0.0, x[0] / x[1]);
         const float whole = std::floor(quotient);
         return double{quotient - whole > 0.5f ? whole + 1 : whole};
       }())}},
      {F::truncdivide, {OP(std::trunc(f(x[0] / x[1])))}},
      {F::isnan, {OP(is(x[0] != x[0]))}},
      {F::isinf, {OP(is(std::isinf(x[0])))}},
      {F::isfinite, {OP(is(std::isfinite(x[0])))}},
      {F::nan_to_num,
       {OP(x[0] != x[0]       ? f(k[0])
           : std::isinf(x[0]) ? (x[0] > 0 ? f(k[1]) : f(k[2]))
                              : x[0])}},
      {F::logicaland, {OP(is(x[0] != 0 && x[1] != 0))}},
      {F::logicalor, {OP(is(x[0] != 0 || x[1] != 0))}},
      {F::logicalxor, {OP(is((x[0] != 0) != (x[1] != 0)))}},
      {F::logicalnot, {OP(is(x[0] == 0))}},
      {F::sigmoidbwd, {OP(f(x[0] * f(1 - x[1])) * x[1])}},
      {F::tanhbwd, {OP(x[0] * f(1 - f(x[1] * x[1])))}},
      {F::relubwd, {OP(x[1] <= 0 ? 0 : x[0])}},
      {F::thresholdbwd, {OP(x[1] <= f(k[0]) ? 0 : x[0])}},
      {F::leakyrelubwd, {OP(x[1] > 0 ? x[0] : x[0] * f(k[0]))}},
      {F::hardtanhbwd, {OP(x[1] <= f(k[0]) || x[1] >= f(k[1]) ? 0 : x[0])}},
      {F::hardswishbwd,
       {OP(x[1] <= -3 ? 0
           : x[1] < 3 ? x[0] * f(f(x[1] / 3) + 0.5)
                      : x[0])}},
      {F::hardsigmoidbwd, {OP(x[1] > -3 && x[1] < 3 ? x[0] / 6 : 0)}},
      {F::rsqrtbwd, {OP(f(-0.5 * x[0]) * f(f(x[1] * x[1]) * x[1]))}},
      {F::silubwd, {OP(x[0] * sigmoid(x[1]) * (1 + x[1] * (1 - sigmoid(x[1])))), 1, 0x1p-40}},
      {F::geluerfbwd, {OP(x[0] * (cdf(x[1]) + x[1] * pdf(x[1]))), 1, 0x1p-33}},
      {F::gelutanhbwd,
       {OP([&] {
          const double s = sigmoid(2 * cubic(x[1]));
          const double slope = std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x[1] * x[1]);
          return x[0] * (s + 2 * x[1] * s * (1 - s) * slope);
        }()),
        1, 0x1p-33}},
      {F::mishbwd,
       {OP([&] {
          const double t = std::tanh(std::log1p(std::exp(x[1])));
          return x[1] > 100 ? x[0] : x[0] * (t + x[1] * sigmoid(x[1]) * (1 - t * t));
        }()),
        1, 0x1p-40}},
      {F::elubwd, {OP(x[0] * (x[1] > 0 ? k[1] : k[0] * k[1] * k[2] * std::exp(x[1] * k[2]))), 1}},
      {F::softplusbwd, {OP(x[1] * k[0] > k[1] ? x[0] : x[0] * sigmoid(x[1] * k[0])), 1}},
      {F::logsigmoidbwd, {OP(x[0] * sigmoid(-x[1])), 1}},
      {F::logit,
       {OP(std::log(clamp(x[0], k[0], 1 - k[0]) / (1 - clamp(x[0], k[0], 1 - k[0])))), 1}},
      {F::logitbwd, {OP(x[1] < k[0] || x[1] > 1 - k[0] ? 0 : x[0] / (x[1] * (1 - x[1]))), 1}},
      {F::sinc,
       {OP([&]() -> double {
          const long double turns = std::remainder(static_cast<long double>(x[0]), 2.0L);
          const long double sine = turns == std::floor(turns) ? 0 : std::sin(kPi * turns);
          return static_cast<double>(x[0] == 0 ? 1 : sine / (kPi * x[0]));
        }()),
        1}},
      {F::entr,
       {OP(x[0] < 0    ? -infinity
           : x[0] == 0 ? 0
                       : -x[0] * std::log(x[0])),
        1}},
      {F::erfcx, {OP(scaled_erfc(x[0])), 1}},
      {F::log_ndtr,
       {OP(x[0] < -1 ? std::log(scaled_erfc(-x[0] / std::sqrt(2.0)) / 2) - x[0] * x[0] / 2
                     : std::log1p(-std::erfc(x[0] / std::sqrt(2.0)) / 2)),
        1}},
      {F::lgamma, {OP(static_cast<double>(std::lgamma(static_cast<long double>(x[0])))), 1}},
      {F::digamma, {OP(static_cast<double>(slow_digamma(x[0]))), 1}},
      {F::i0,
       {OP(std::fabs(x[0]) > 95 ? infinity : bessel(0, x[0]) * std::exp(std::fabs(x[0]))), 1}},
      {F::i0e, {OP(bessel(0, x[0])), 1}},
      {F::i1,
       {OP(std::fabs(x[0]) > 95 ? std::copysign(infinity, x[0])
                                : bessel(1, x[0]) * std::exp(std::fabs(x[0]))),
        1}},
      {F::i1e, {OP(bessel(1, x[0])), 1}},
      {F::logaddexp2,
       {OP(x[0] == x[1] ? x[0] + 1
           : x[0] != x[0] || x[1] != x[1]
               ? nan
               : std::fmax(x[0], x[1]) +
                     std::log1p(std::exp2(-std::fabs(x[0] - x[1]))) / std::log(2.0)),
        1, 0x1p-45}},
      {F::xlog1py,
       {OP(x[1] != x[1] ? nan
           : x[0] == 0  ? 0
                        : x[0] * std::log1p(x[1])),
        1}},
      {F::heaviside, {OP(x[0] == 0 ? x[1] : is(x[0] > 0))}},
      {F::angle, {OP(x[0] != x[0] ? nan : std::atan2(0.0, x[0] == 0 ? 0 : x[0]))}},
      {F::rounddecimals, {OP(std::nearbyint(f(x[0] * 100)) / 100)}},
      {F::frexpmantissa, {OP([&] {
         int exponent;
         return std::frexp(x[0], &exponent);
       }())}},
      {F::frexpexponent, {OP([&]() -> double {
         int exponent = 0;
         if (std::isfinite(x[0])) std::frexp(x[0], &exponent);
         return exponent;
       }())}},
      {F::maskscale, {OP(f(x[0] * x[1]) * f(k[0]))}},
      {F::glu, {OP(x[0] * sigmoid(x[1])), 1}},
      {F::glubwd, {OP(x[0] * x[1] * (sigmoid(x[2]) * sigmoid(-x[2]))), 1}},
      {F::prelu, {OP(x[0] > 0 ? x[0] : x[0] * x[1])}},
      {F::prelubwd, {OP(x[1] > 0 ? x[0] : x[0] * x[2])}},
      {F::preluweightbwd, {OP(x[1] > 0 ? 0 : x[0] * x[1])}},
      {F::shrinkbwd, {OP(std::fabs(x[1]) <= f(k[0]) ? 0 : x[0])}},
      {F::elubwdresult, {OP(x[0] * (x[1] > 0 ? k[1] : k[2] * (x[1] + k[0] * k[1]))), 1}},
      {F::squareddifference, {OP(double{f(x[0] - x[1])} * f(x[0] - x[1]))}},
      {F::msebwd, {OP(f(f(k[0]) * f(x[1] - x[2])) * x[0])}},
      {F::smoothl1, {OP([&] {
         const float z = f(std::fabs(x[0] - x[1]));
         const float beta = f(k[0]);
         return z < beta ? double{f(f(0.5 * z) * z)} / beta : double{z} - f(0.5 * beta);
       }())}},
      {F::smoothl1bwd, {OP([&] {
         const float z = f(x[1] - x[2]);
         const float norm = f(k[0]);
         const float beta = f(k[1]);
         if (std::fabs(z) >= beta) return std::copysign(1.0, z) * norm * x[0];
         return double{f(f(norm * z) * x[0])} / beta;
       }())}},
      {F::huber, {OP([&] {
         const float z = f(std::fabs(x[0] - x[1]));
         const float delta = f(k[0]);
         return z <= delta ? double{f(0.5 * z)} * z : double{delta} * f(z - f(0.5 * delta));
       }())}},
      {F::huberbwd, {OP(f(f(k[0]) * f(clamp(f(x[1] - x[2]), -f(k[1]), f(k[1])))) * x[0])}},
      {F::bce,
       {OP([&] {
          const double yes = std::log(x[0]);
          const double no = std::log1p(-x[0]);
          return ((x[1] - 1) * (no < -100 ? -100 : no) - x[1] * (yes < -100 ? -100 : yes)) * x[2];
        }()),
        1, 0x1p-40}},
      {F::bcebwd,
       {OP(k[0] * x[0] * x[3] *
           ((x[1] - x[2]) / ((1 - x[1]) * x[1] < 1e-12 ? 1e-12 : (1 - x[1]) * x[1]))),
        1}},
  };
#undef OP
  return references;
}

inline std::int64_t wrapped(unsigned __int128 value) { return static_cast<std::int64_t>(value); }

/// Null for ops that do not compute in int64.
using WholeReference = std::function<std::int64_t(const std::int64_t* x, const std::int64_t* k)>;

inline const std::map<OpFunc, WholeReference>& whole_references() {
  using F = OpFunc;
  using W = __int128;
#define OP(expression)                                          \
  [=]([[maybe_unused]] const std::int64_t* x,                   \
      [[maybe_unused]] const std::int64_t* k) -> std::int64_t { \
    return wrapped(static_cast<unsigned __int128>(expression)); \
  }
  static const auto floor_divide = [](std::int64_t a, std::int64_t b) -> W {
    if (b == 0) return 0;
    const W quotient = W{a} / b;
    return quotient - (quotient * b != a && (a < 0) != (b < 0));
  };
  static const std::map<OpFunc, WholeReference> references = {
      {F::identity, OP(x[0])},
      {F::add, OP(W{x[0]} + x[1])},
      {F::sub, OP(W{x[0]} - x[1])},
      {F::rsub, OP(W{x[1]} - x[0])},
      {F::mul, OP(W{x[0]} * x[1])},
      {F::square, OP(W{x[0]} * x[0])},
      {F::abs, OP(x[0] < 0 ? -W{x[0]} : W{x[0]})},
      {F::neg, OP(-W{x[0]})},
      {F::maximum, OP(std::max(x[0], x[1]))},
      {F::minimum, OP(std::min(x[0], x[1]))},
      {F::fmax, OP(std::max(x[0], x[1]))},
      {F::fmin, OP(std::min(x[0], x[1]))},
      {F::clip, OP(std::min(std::max(x[0], k[0]), k[1]))},
      {F::equal, OP(x[0] == x[1])},
      {F::notequal, OP(x[0] != x[1])},
      {F::greaterthan, OP(x[0] > x[1])},
      {F::greaterequal, OP(x[0] >= x[1])},
      {F::lesserthan, OP(x[0] < x[1])},
      {F::lesserequal, OP(x[0] <= x[1])},
      {F::where3, OP(x[0] != 0 ? x[1] : x[2])},
      {F::floor, OP(x[0])},
      {F::ceil, OP(x[0])},
      {F::trunc, OP(x[0])},
      {F::round, OP(x[0])},
      {F::frac, OP(0)},
      {F::sign, OP(x[0] > 0   ? 1
                   : x[0] < 0 ? -1
                              : 0)},
      {F::signbit, OP(x[0] < 0)},
      {F::relufwd, OP(x[0] > 0 ? x[0] : 0)},
      {F::pow, OP([&]() -> W {
         if (x[1] < 0) return x[0] == 1 ? 1 : x[0] == -1 ? (x[1] % 2 ? -1 : 1) : 0;
         std::uint64_t power = 1;
         for (std::int64_t i = 0; i < x[1] % 100000; ++i) power *= static_cast<std::uint64_t>(x[0]);
         return static_cast<std::int64_t>(power);
       }())},
      {F::remainder, OP(x[1] == 0 ? W{0} : W{x[0]} - floor_divide(x[0], x[1]) * x[1])},
      {F::fmod, OP(x[1] == 0 ? W{0} : W{x[0]} % x[1])},
      {F::floordivide, OP(floor_divide(x[0], x[1]))},
      {F::truncdivide, OP(x[1] == 0 ? W{0} : W{x[0]} / x[1])},
      {F::axpy, OP(W{x[0]} + W{k[0]} * x[1])},
      {F::addcmul, OP(W{x[0]} + W{wrapped(static_cast<unsigned __int128>(W{k[0]} * x[1]))} * x[2])},
      {F::isnan, OP(0)},
      {F::isinf, OP(0)},
      {F::isfinite, OP(1)},
      {F::nan_to_num, OP(x[0])},
      {F::logicaland, OP(x[0] && x[1])},
      {F::logicalor, OP(x[0] || x[1])},
      {F::logicalxor, OP(!x[0] != !x[1])},
      {F::logicalnot, OP(!x[0])},
      {F::heaviside, OP(x[0] == 0 ? x[1] : x[0] > 0)},
      {F::gcd, OP(std::gcd(x[0], x[1]))},
      {F::lcm, OP([&]() -> W {
         if (x[0] == 0 || x[1] == 0) return 0;
         const W product = W{x[0]} * x[1] / std::gcd(x[0], x[1]);
         return std::abs(wrapped(static_cast<unsigned __int128>(product)));
       }())},
      {F::bitwiseand, OP(x[0] & x[1])},
      {F::bitwiseor, OP(x[0] | x[1])},
      {F::bitwisexor, OP(x[0] ^ x[1])},
      {F::bitwisenot, OP(~x[0])},
      {F::shiftleft,
       OP(x[1] < 0 || x[1] > 63 ? 0 : static_cast<unsigned __int128>(W{x[0]}) << x[1])},
      {F::shiftright, OP(x[1] < 0 || x[1] > 63 ? (x[0] < 0 ? -1 : 0) : x[0] >> x[1])},
      {F::threshold, OP(x[0] <= k[0] ? k[1] : x[0])},
      {F::relubwd, OP(x[1] <= 0 ? 0 : x[0])},
      {F::thresholdbwd, OP(x[1] <= k[0] ? 0 : x[0])},
  };
#undef OP
  return references;
}

}  // namespace spyre::card::test
