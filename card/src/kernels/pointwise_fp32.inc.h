// The pointwise ops on real numbers, one function an op: those of + - * / on float, those made of
// other functions on double. See pointwise_kernels.inc.h.
//
// Ops have no branches, both sides of a choice are computed: that is what makes vector code of
// them.

#include "kernels/pointwise.h"
// clang-format off: each needs what comes before it
#include "kernels/vector_math.inc.h"
#include "kernels/run_math.inc.h"
// clang-format on

namespace spyre::card::SPYRE_SIMD_NAMESPACE {
namespace {
namespace fp32 {

using K = Constants<float>;
using DK = Constants<double>;

inline float truth(bool value) { return value ? 1.0f : 0.0f; }

// -------------------------------------------------------------------------- arithmetic, comparison

inline float identity(float a) { return a; }
inline float add(float a, float b) { return a + b; }
inline float sub(float a, float b) { return a - b; }
inline float rsub(float a, float b) { return b - a; }
inline float mul(float a, float b) { return a * b; }
inline float divide(float a, float b) { return a / b; }
inline float abs(float a) { return __builtin_fabsf(a); }
inline float neg(float a) { return -a; }
inline float square(float a) { return a * a; }
inline float reciprocal(float a) { return 1 / a; }
inline float sqrt(float a) { return __builtin_sqrtf(a); }
inline float rsqrt(float a) { return 1 / __builtin_sqrtf(a); }
inline float axpy(float a, float b, const K& k) { return a + k.k[0] * b; }
inline float addcmul(float a, float b, float c, const K& k) { return a + k.k[0] * b * c; }
inline float addcdiv(float a, float b, float c, const K& k) { return a + k.k[0] * b / c; }
inline float lerp(float a, float b, float weight) {
  const float low = a + weight * (b - a), high = b - (b - a) * (1 - weight);
  return __builtin_fabsf(weight) < 0.5f ? low : high;
}

inline float maximum(float a, float b) { return ((a > b) | (a != a)) ? a : b; }
inline float minimum(float a, float b) { return ((a < b) | (a != a)) ? a : b; }
inline float fmax(float a, float b) { return ((a > b) | (b != b)) ? a : b; }
inline float fmin(float a, float b) { return ((a < b) | (b != b)) ? a : b; }
inline float clip(float a, const K& k) {
  const float above = a < k.k[0] ? k.k[0] : a;
  return above > k.k[1] ? k.k[1] : above;
}

inline float equal(float a, float b) { return truth(a == b); }
inline float notequal(float a, float b) { return truth(a != b); }
inline float greaterthan(float a, float b) { return truth(a > b); }
inline float greaterequal(float a, float b) { return truth(a >= b); }
inline float lesserthan(float a, float b) { return truth(a < b); }
inline float lesserequal(float a, float b) { return truth(a <= b); }
inline float where(float condition, float a, float b) { return condition != 0 ? a : b; }
inline float logicaland(float a, float b) { return truth((a != 0) & (b != 0)); }
inline float logicalor(float a, float b) { return truth((a != 0) | (b != 0)); }
inline float logicalxor(float a, float b) { return truth((a != 0) != (b != 0)); }
inline float logicalnot(float a) { return truth(a == 0); }
inline float heaviside(float a, float at_zero) { return a == 0 ? at_zero : truth(a > 0); }
inline float maskscale(float a, float mask, const K& k) { return a * mask * k.k[0]; }

constexpr float kInfinity32 = __builtin_inff();
inline float isnan(float a) { return truth(a != a); }
inline float isinf(float a) { return truth(__builtin_fabsf(a) == kInfinity32); }
inline float isfinite(float a) { return truth(__builtin_fabsf(a) < kInfinity32); }
inline float nan_to_num(float a, const K& k) {
  float result = a != a ? k.k[0] : a;
  result = a == kInfinity32 ? k.k[1] : result;
  return a == -kInfinity32 ? k.k[2] : result;
}

// ------------------------------------------------------------------------------- rounding and
// signs

inline float copysign(float a, float b) { return __builtin_copysignf(a, b); }
inline float signbit(float a) { return truth(__builtin_bit_cast(int32_t, a) < 0); }
inline float sign(float a) { return truth(a > 0) - truth(a < 0); }

#if defined(__x86_64__) && !defined(__SSE4_1__)
// No instruction for these. From 2^23 on there are only whole numbers; below, int32 has room. Zeros
// keep their sign.
inline float trunc(float a) {
  const bool small = __builtin_fabsf(a) < 0x1p23f;
  const float whole = static_cast<float>(static_cast<int32_t>(small ? a : 0));
  return small ? __builtin_copysignf(whole, a) : a;
}
inline float floor(float a) {
  const float whole = trunc(a);
  return whole > a ? whole - 1 : whole;
}
inline float ceil(float a) {
  const float whole = trunc(a);
  return __builtin_copysignf(whole < a ? whole + 1 : whole, a);
}
#else
inline float trunc(float a) { return __builtin_truncf(a); }
inline float floor(float a) { return __builtin_floorf(a); }
inline float ceil(float a) { return __builtin_ceilf(a); }
#endif
inline float round(float a) {
  const float magnitude = __builtin_fabsf(a);
  const float nearest = (magnitude + 0x1p23f) - 0x1p23f;  // ties to even
  return magnitude < 0x1p23f ? __builtin_copysignf(nearest, a) : a;
}
inline float frac(float a) { return a - trunc(a); }
inline float truncdivide(float a, float b) { return trunc(a / b); }
inline float rounddecimals(float a, const K& k) {
  return round(a * k.k[0] / k.k[1]) * k.k[1] / k.k[0];
}

/// Exact where hard_division() is false: the quotient has at most 30 bits, so that its product with
/// the divisor fits in a double.
inline float fmod(float a, float b) {
  const double x = __builtin_fabsf(a), y = __builtin_fabsf(b);
  const double ratio = x / y, nearest = (ratio + 0x1p52) - 0x1p52;
  double rest = x - nearest * y;
  rest = rest < 0 ? rest + y : rest;
  return __builtin_copysignf(static_cast<float>(rest), a);
}
inline bool hard_division(float a, float b) {
  const float x = __builtin_fabsf(a), y = __builtin_fabsf(b);
  return !(x / y < 0x1p28f) | !(y < kInfinity32);
}
inline float fmod_exact(float a, float b) { return __builtin_fmodf(a, b); }

template <float (*fmod)(float, float)>
inline float remainder(float a, float b) {
  const float rest = fmod(a, b);
  return ((rest != 0) & ((rest < 0) != (b < 0))) ? rest + b : rest;
}

/// As Python and PyTorch define it: the quotient that fits the remainder.
template <float (*fmod)(float, float)>
inline float floordivide(float a, float b) {
  const float rest = fmod(a, b), ratio = a / b;
  float quotient = (a - rest) / b;
  quotient = ((rest != 0) & ((rest < 0) != (b < 0))) ? quotient - 1 : quotient;
  const float whole = floor(quotient), nearest = quotient - whole > 0.5f ? whole + 1 : whole;
  const float result = quotient != 0 ? nearest : __builtin_copysignf(0, ratio);
  return b == 0 ? ratio : result;
}

// ------------------------------------------------------------------------- transcendental
// functions

inline double sin(double x) {
  const double result = sin_of(reduce(x));
  return x == 0 ? x : result;  // the sign of zero
}
inline double cos(double x) { return cos_of(reduce(x)); }
inline double tan(double x) {
  const double result = tan_of(reduce(x));
  return x == 0 ? x : result;
}
inline bool large_angle(float x) { return !(__builtin_fabsf(x) < kLargeAngle); }
inline bool no_angle(float x) { return !(__builtin_fabsf(x) < kInfinity32); }
inline double sin_large(float x) { return no_angle(x) ? kNotANumber : sin_of(reduce_large(x)); }
inline double cos_large(float x) { return no_angle(x) ? kNotANumber : cos_of(reduce_large(x)); }
inline double tan_large(float x) { return no_angle(x) ? kNotANumber : tan_of(reduce_large(x)); }

inline double asin(double x) { return atan_of(x / __builtin_sqrt((1 - x) * (1 + x))); }
inline double acos(double x) { return 2 * atan_of(__builtin_sqrt((1 - x) / (1 + x))); }
inline double sinh(double x) {
  const double a = __builtin_fabs(x), u = expm1_of(a > 200 ? 200 : a);
  return __builtin_copysign(0.5 * (u + u / (u + 1)), x);
}
inline double cosh(double x) {
  const double a = __builtin_fabs(x), e = exp_of(a > 200 ? 200 : a);
  return 0.5 * (e + 1 / e);
}
inline double asinh(double x) {
  const double a = __builtin_fabs(x), bounded = a < 0x1p200 ? a : 0;
  const double result =
      log1p_of(bounded + bounded * bounded / (1 + __builtin_sqrt(bounded * bounded + 1)));
  return __builtin_copysign(a < kInf ? result : a, x);
}
inline double acosh(double x) {
  const double t = x - 1, result = log1p_of(t + __builtin_sqrt(t * (t + 2)));
  return x < 1 ? kNotANumber : result;
}
inline double atanh(double x) {
  const double a = __builtin_fabs(x);
  return __builtin_copysign(0.5 * log1p_of(2 * a / (1 - a)), x);
}
inline double log2(double x) { return log_of(x) * (1 / kLn2); }
inline double log10(double x) { return log_of(x) * 0x1.bcb7b1526e50ep-2; }
inline double hypot(double a, double b) {
  const double result = __builtin_sqrt(a * a + b * b);
  return ((__builtin_fabs(a) == kInf) | (__builtin_fabs(b) == kInf)) ? kInf : result;
}
inline double logaddexp(double a, double b) {
  const double larger = ((a > b) | (a != a)) ? a : b;
  const double result = larger + log1p_of(exp_of(-__builtin_fabs(a - b)));
  return ((a == b) & (__builtin_fabs(a) == kInf)) ? a : result;
}
inline double xlogy(double a, double b) {
  const double result = a * log_of(b);
  return ((a == 0) & (b == b)) ? 0 : result;
}

// ------------------------------------------------------------------------------------- activations

inline float relu(float a) { return a < 0 ? 0 : a; }
inline float leakyrelu(float a, const K& k) { return a > 0 ? a : a * k.k[0]; }
inline float six_bounded(float a) {
  const float above = a + 3 < 0 ? 0 : a + 3;
  return above > 6 ? 6 : above;
}
inline float hardswish(float a) { return a * six_bounded(a) / 6; }
inline float hardsigmoid(float a) { return six_bounded(a) / 6; }
inline float hardshrink(float a, const K& k) { return ((a >= -k.k[0]) & (a <= k.k[0])) ? 0 : a; }
inline float softshrink(float a, const K& k) {
  const float inside = a > k.k[0] ? a - k.k[0] : a * 0;
  return a < -k.k[0] ? a + k.k[0] : inside;
}
inline float threshold(float a, const K& k) { return a <= k.k[0] ? k.k[1] : a; }
inline float softsign(float a) { return a / (1 + __builtin_fabsf(a)); }
inline float prelu(float a, float weight) { return a > 0 ? a : a * weight; }
inline double glu(double a, double b) { return a * sigmoid_of(b); }

/// Twice the argument of tanh, because (1 + tanh(u)) / 2 is sigmoid(2 u).
inline double gelu_argument(double x) {
  return 2 * 0x1.9884533d43651p-1 * (x + 0.044715 * (x * x * x));
}
inline double gelutanh(double x) { return x / (1 + exp_of(-gelu_argument(x))); }
/// tanh(log(1 + w)) = n / (n + 2) with n = w (w + 2).
inline double mish(double x) {
  const double w = exp_of(x > 100 ? 100 : x), n = w * (w + 2);
  return x * (n / (n + 2));
}
inline double softplus(double x, const DK& k) {
  const double scaled = x * k.k[0], result = log1p_of(exp_of(scaled)) / k.k[0];
  return scaled > k.k[1] ? x : result;
}
inline double logsigmoid(double x) {
  return (x > 0 ? 0 : x) - log1p_of(exp_of(-__builtin_fabs(x)));
}
inline double elu(double x, const DK& k) {
  const double below = expm1_of(x * k.k[2]) * (k.k[0] * k.k[1]);
  return x > 0 ? x * k.k[1] : below;
}
inline double celu(double x, const DK& k) {
  const double below = expm1_of(x / k.k[0]) * k.k[0];
  return x > 0 ? x : below;
}

inline float layernormscale(float mean, float mean_of_squares, const K& k) {
  const float variance = mean_of_squares - mean * mean;
  return 1 / __builtin_sqrtf((variance < 0 ? 0 : variance) + k.k[0]);
}
inline float layernormnorm(float x, float mean, float scale, float weight, float bias) {
  return (x - mean) * scale * weight + bias;
}

// ------------------------------------------------------------------------------------- derivatives

inline float sigmoidbwd(float g, float y) { return g * (1 - y) * y; }
inline float tanhbwd(float g, float y) { return g * (1 - y * y); }
inline float relubwd(float g, float y) { return y <= 0 ? 0 : g; }
inline float thresholdbwd(float g, float x, const K& k) { return x <= k.k[0] ? 0 : g; }
inline float leakyrelubwd(float g, float x, const K& k) { return x > 0 ? g : g * k.k[0]; }
inline float hardtanhbwd(float g, float x, const K& k) {
  return ((x <= k.k[0]) | (x >= k.k[1])) ? 0 : g;
}
inline float hardswishbwd(float g, float x) {
  const float middle = x < 3 ? g * (x / 3 + 0.5f) : g;
  return x <= -3 ? 0 : middle;
}
inline float hardsigmoidbwd(float g, float x) { return ((x > -3) & (x < 3)) ? g / 6 : 0; }
inline float rsqrtbwd(float g, float y) { return -0.5f * g * (y * y * y); }

inline double silubwd(double g, double x) {
  const double s = sigmoid_of(x);
  return g * (s * (1 + x * (1 - s)));
}
inline double geluerfbwd(double g, double x) {
  return g * (normal_integral_of(x) + x * normal_density_of(x));
}
inline double gelutanhbwd(double g, double x) {
  const double s = sigmoid_of(gelu_argument(x));
  const double slope = 2 * 0x1.9884533d43651p-1 * (1 + 3 * 0.044715 * (x * x));
  return g * (s + x * (s * (1 - s)) * slope);
}
/// With w = exp(x) and n as in mish: n/(n+2) + 4 x w (w+1) / (n+2)^2.
inline double mishbwd(double g, double x) {
  const double bounded = x > 100 ? 100 : x;
  const double w = exp_of(bounded), n = w * (w + 2), scale = 1 / (n + 2);
  return g * (n * scale + 4 * bounded * (w * scale) * ((w + 1) * scale));
}
inline double elubwd(double g, double x, const DK& k) {
  const double below = k.k[2] * (k.k[0] * k.k[1]) * exp_of(x * k.k[2]);
  return g * (x > 0 ? k.k[1] : below);
}
inline double softplusbwd(double g, double x, const DK& k) {
  const double scaled = x * k.k[0], result = g * sigmoid_of(scaled);
  return scaled > k.k[1] ? g : result;
}
inline double logsigmoidbwd(double g, double x) { return g * sigmoid_of(-x); }
inline double glubwd(double g, double a, double b) {
  return g * a * (sigmoid_of(b) * sigmoid_of(-b));
}
inline float prelubwd(float g, float x, float weight) { return x > 0 ? g : g * weight; }
inline float preluweightbwd(float g, float x) { return x > 0 ? 0 : g * x; }
inline float shrinkbwd(float g, float x, const K& k) {
  return ((x >= -k.k[0]) & (x <= k.k[0])) ? 0 : g;
}
inline double elubwdresult(double g, double y, const DK& k) {
  const double below = k.k[2] * (y + k.k[0] * k.k[1]);
  return g * (y > 0 ? k.k[1] : below);
}

// ------------------------------------------------------------------------------------------ losses

inline float squareddifference(float a, float b) { return (a - b) * (a - b); }
inline float msebwd(float g, float a, float b, const K& k) { return k.k[0] * (a - b) * g; }

inline float smoothl1(float a, float b, const K& k) {
  const float z = __builtin_fabsf(a - b), near = 0.5f * z * z / k.k[0], far = z - 0.5f * k.k[0];
  return z < k.k[0] ? near : far;
}
inline float smoothl1bwd(float g, float a, float b, const K& k) {
  const float x = a - b, scaled = k.k[0] * g, near = k.k[0] * x * g / k.k[1];
  const float above = x >= k.k[1] ? scaled : near;
  return x <= -k.k[1] ? -scaled : above;
}

inline float huber(float a, float b, const K& k) {
  const float z = __builtin_fabsf(a - b), near = 0.5f * z * z, far = k.k[0] * (z - 0.5f * k.k[0]);
  return z <= k.k[0] ? near : far;
}
inline float huberbwd(float g, float a, float b, const K& k) {
  const float x = a - b, low = x < -k.k[1] ? -k.k[1] : x, clipped = low > k.k[1] ? k.k[1] : low;
  return k.k[0] * clipped * g;
}

/// A logarithm that a wrong answer given with certainty does not make infinite.
inline double bounded_log(double logarithm) { return logarithm < -100 ? -100 : logarithm; }
inline double bce(double x, double target, double weight) {
  const double yes = bounded_log(log_of(x)), no = bounded_log(log1p_of(-x));
  return ((target - 1) * no - target * yes) * weight;
}
inline double bcebwd(double g, double x, double target, double weight, const DK& k) {
  const double variance = (1 - x) * x, bounded = variance < 1e-12 ? 1e-12 : variance;
  return k.k[0] * g * weight * ((x - target) / bounded);
}

}  // namespace fp32
}  // namespace
}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
