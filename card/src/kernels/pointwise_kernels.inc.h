// The pointwise ops, and the loops around them. Included once by each pointwise_<level>.cpp, under
// the rules of convert_kernels.inc.h; every level gives the same bits (NaNs aside, whose sign and
// payload the caller removes).
//
// An op on float is computed in fp32; an op on double takes fp32 values and is rounded once, at the
// end; an op on int64_t wraps around.

#include "formats/dl16_math.inc.h"
#include "kernels/pointwise.h"
#include "kernels/pointwise_fp32.inc.h"
#include "kernels/pointwise_int64.inc.h"
#include "kernels/pointwise_special.inc.h"

namespace spyre::card::SPYRE_SIMD_NAMESPACE {
namespace {

// ------------------------------------------------------------------------------------------- loops

template <typename Value>
struct Buffer {
  typedef float Element __attribute__((may_alias));
};
template <>
struct Buffer<int64_t> {
  typedef int64_t Element __attribute__((may_alias));
};

inline int64_t saturated(double constant) {
  if (constant != constant) return 0;
  if (constant >= 0x1p63) return INT64_MAX;
  return constant < -0x1p63 ? INT64_MIN : static_cast<int64_t>(constant);
}

template <typename Value>
inline Constants<Value> constants_of(const double* constants) {
  Constants<Value> result;
  for (int i = 0; i < kMaxConstants; ++i) {
    if constexpr (static_cast<Value>(0.5) == 0) {
      result.k[i] = saturated(constants[i]);
    } else {
      result.k[i] = static_cast<Value>(constants[i]);
    }
  }
  return result;
}

template <typename Value, typename... Arguments>
Value value_of(Value (*op)(Arguments...));

template <auto op>
void each(const void* const* in, void* out, const double* constants, size_t n) {
  using Value = decltype(value_of(op));
  using Element = typename Buffer<Value>::Element;
  Element* __restrict const o = static_cast<Element*>(out);
  const Element* const a = static_cast<const Element*>(in[0]);
  if constexpr (requires(Value v) { op(v); }) {
    for (size_t i = 0; i < n; ++i) o[i] = static_cast<Element>(op(a[i]));
  } else if constexpr (requires(Value v, Constants<Value> k) { op(v, k); }) {
    const auto k = constants_of<Value>(constants);
    for (size_t i = 0; i < n; ++i) o[i] = static_cast<Element>(op(a[i], k));
  } else {
    const Element* const b = static_cast<const Element*>(in[1]);
    if constexpr (requires(Value v) { op(v, v); }) {
      for (size_t i = 0; i < n; ++i) o[i] = static_cast<Element>(op(a[i], b[i]));
    } else if constexpr (requires(Value v, Constants<Value> k) { op(v, v, k); }) {
      const auto k = constants_of<Value>(constants);
      for (size_t i = 0; i < n; ++i) o[i] = static_cast<Element>(op(a[i], b[i], k));
    } else {
      const Element* const c = static_cast<const Element*>(in[2]);
      if constexpr (requires(Value v) { op(v, v, v); }) {
        for (size_t i = 0; i < n; ++i) o[i] = static_cast<Element>(op(a[i], b[i], c[i]));
      } else if constexpr (requires(Value v, Constants<Value> k) { op(v, v, v, k); }) {
        const auto k = constants_of<Value>(constants);
        for (size_t i = 0; i < n; ++i) o[i] = static_cast<Element>(op(a[i], b[i], c[i], k));
      } else {
        const Element* const d = static_cast<const Element*>(in[3]);
        if constexpr (requires(Value v, Constants<Value> k) { op(v, v, v, v, k); }) {
          const auto k = constants_of<Value>(constants);
          for (size_t i = 0; i < n; ++i) o[i] = static_cast<Element>(op(a[i], b[i], c[i], d[i], k));
        } else {
          const Element* const e = static_cast<const Element*>(in[4]);
          for (size_t i = 0; i < n; ++i)
            o[i] = static_cast<Element>(op(a[i], b[i], c[i], d[i], e[i]));
        }
      }
    }
  }
}

/// An op of run_math.inc.h.
template <auto op>
void run(const void* const* in, void* out, const double*, size_t n) {
  op(static_cast<const float*>(in[0]), static_cast<float*>(out), static_cast<int64_t>(n));
}

template <auto op, bool first>
void with_number(const float* in, float number, float* out, size_t n) {
  float* __restrict const o = out;
  for (size_t i = 0; i < n; ++i) o[i] = first ? op(number, in[i]) : op(in[i], number);
}

/// Ops whose vector code does for nearly every element: a block with a `hard` one is done again
/// with `exact`.
template <auto usual, auto hard, auto exact>
void mostly(const void* const* in, void* out, const double*, size_t n) {
  using Element = Buffer<float>::Element;
  constexpr bool unary = requires(float v) { hard(v); };
  const Element* a = static_cast<const Element*>(in[0]);
  const Element* b = unary ? a : static_cast<const Element*>(in[1]);
  Element* __restrict o = static_cast<Element*>(out);
  while (n > 0) {
    const size_t count = n < 64 ? n : 64;
    int32_t trouble = 0;
    if constexpr (unary) {
      for (size_t i = 0; i < count; ++i) {
        o[i] = static_cast<float>(usual(a[i]));
        trouble |= hard(a[i]);
      }
      for (size_t i = 0; trouble && i < count; ++i)
        if (hard(a[i])) o[i] = static_cast<float>(exact(a[i]));
    } else {
      for (size_t i = 0; i < count; ++i) {
        o[i] = static_cast<float>(usual(a[i], b[i]));
        trouble |= hard(a[i], b[i]);
      }
      for (size_t i = 0; trouble && i < count; ++i)
        if (hard(a[i], b[i])) o[i] = static_cast<float>(exact(a[i], b[i]));
    }
    n -= count, a += count, b += count, o += count;
  }
}

// -------------------------------------------------------------------------- conversions, narrowing

template <typename From, typename To>
void widen(const void* src, void* dst, size_t n) {
  typedef From Packed __attribute__((aligned(1), may_alias));
  typedef To Wide __attribute__((may_alias));
  const Packed* const from = static_cast<const Packed*>(src);
  Wide* __restrict const to = static_cast<Wide*>(dst);
  for (size_t i = 0; i < n; ++i) to[i] = static_cast<To>(from[i]);
}

template <typename To>
void cut(const void* src, void* dst, size_t n) {
  typedef To Packed __attribute__((aligned(1), may_alias));
  typedef int64_t Wide __attribute__((may_alias));
  const Wide* const from = static_cast<const Wide*>(src);
  Packed* __restrict const to = static_cast<Packed*>(dst);
  for (size_t i = 0; i < n; ++i) to[i] = static_cast<To>(from[i]);
}

void clean_fp32(const void* src, void* dst, size_t n) {
  typedef float Packed __attribute__((aligned(1), may_alias));
  const Packed* const from = static_cast<const Packed*>(src);
  Packed* __restrict const to = static_cast<Packed*>(dst);
  for (size_t i = 0; i < n; ++i) {
    const float value = from[i];
    to[i] = value != value ? __builtin_nanf("") : value;
  }
}

void quiet_fp32(void* values, size_t n) {
  typedef float Element __attribute__((may_alias));
  Element* const value = static_cast<Element*>(values);
  for (size_t i = 0; i < n; ++i) value[i] = value[i] != value[i] ? __builtin_nanf("") : value[i];
}

template <typename Value>
void boolean(void* values, size_t n) {
  typedef Value Element __attribute__((may_alias));
  Element* const value = static_cast<Element*>(values);
  for (size_t i = 0; i < n; ++i) value[i] = value[i] != 0 ? Value{1} : Value{0};
}

template <bool merged>
void round_dl16(void* values, size_t n) {
  float* const x = static_cast<float*>(values);
  round_run<merged>(x, x, static_cast<int64_t>(n));
}

// ------------------------------------------------------------------------------------------ tables

using Op = PointwiseKernels::Op;
using F = OpFunc;

template <auto fp32>
constexpr Op real(OpFunc op) {
  return {op, each<fp32>, nullptr};
}
template <auto int64>
constexpr Op whole(OpFunc op) {
  return {op, nullptr, each<int64>};
}
template <auto fp32, auto int64>
constexpr Op both(OpFunc op) {
  return {op, each<fp32>, each<int64>};
}

constexpr Op kPointwiseOps[] = {
    both<fp32::identity, int64::identity>(F::identity),
    both<fp32::add, int64::add>(F::add),
    both<fp32::sub, int64::sub>(F::sub),
    both<fp32::mul, int64::mul>(F::mul),
    real<fp32::divide>(F::realdiv),
    both<fp32::abs, int64::abs>(F::abs),
    both<fp32::neg, int64::neg>(F::neg),
    both<fp32::maximum, int64::maximum>(F::maximum),
    both<fp32::minimum, int64::minimum>(F::minimum),
    both<fp32::clip, int64::clip>(F::clip),
    both<fp32::equal, int64::equal>(F::equal),
    both<fp32::notequal, int64::notequal>(F::notequal),
    both<fp32::greaterthan, int64::greaterthan>(F::greaterthan),
    both<fp32::greaterequal, int64::greaterequal>(F::greaterequal),
    both<fp32::lesserthan, int64::lesserthan>(F::lesserthan),
    both<fp32::lesserequal, int64::lesserequal>(F::lesserequal),
    both<fp32::where, int64::where>(F::where3),
    both<fp32::floor, int64::identity>(F::floor),
    real<fp32::reciprocal>(F::reciprocal),
    real<fp32::sqrt>(F::sqrt),
    real<fp32::rsqrt>(F::rsqrt),
    {F::exp, run<exp_run>, nullptr},
    real<log_of>(F::log),
    {F::sigmoid, run<sigmoid_run>, nullptr},
    real<tanh32_of>(F::tanh),
    both<fp32::relu, int64::relu>(F::relufwd),
    real<gelu32_of>(F::gelufwd),
    {F::silu, run<silu_run>, nullptr},
    real<fp32::softplus>(F::softplus),
    real<fp32::layernormscale>(F::layernormscale),
    real<fp32::layernormnorm>(F::layernormnorm),
    real<fp32::identity>(F::qfp8ch),
    real<fp32::identity>(F::dl16tofp32),
    real<fp32::identity>(F::fp32todl16),
    real<fp32::identity>(F::fp8todl16),

    {F::sin, mostly<fp32::sin, fp32::large_angle, fp32::sin_large>, nullptr},
    {F::cos, mostly<fp32::cos, fp32::large_angle, fp32::cos_large>, nullptr},
    {F::tan, mostly<fp32::tan, fp32::large_angle, fp32::tan_large>, nullptr},
    real<fp32::asin>(F::asin),
    real<fp32::acos>(F::acos),
    real<atan_of>(F::atan),
    real<fp32::sinh>(F::sinh),
    real<fp32::cosh>(F::cosh),
    real<fp32::asinh>(F::asinh),
    real<fp32::acosh>(F::acosh),
    real<fp32::atanh>(F::atanh),
    real<erf_of>(F::erf),
    real<erfc_of>(F::erfc),
    real<exp2_of>(F::exp2),
    real<expm1_of>(F::expm1),
    real<fp32::log2>(F::log2),
    real<fp32::log10>(F::log10),
    real<log1p_of>(F::log1p),
    both<pow_of, int64::pow>(F::pow),
    real<atan2_of>(F::atan2),
    real<fp32::hypot>(F::hypot),
    real<fp32::logaddexp>(F::logaddexp),
    real<fp32::xlogy>(F::xlogy),
    real<erfinv_of>(F::erfinv),

    {F::remainder,
     mostly<fp32::remainder<fp32::fmod>, fp32::hard_division, fp32::remainder<fp32::fmod_exact>>,
     each<int64::remainder>},
    {F::fmod, mostly<fp32::fmod, fp32::hard_division, fp32::fmod_exact>, each<int64::fmod>},
    {F::floordivide,
     mostly<fp32::floordivide<fp32::fmod>, fp32::hard_division,
            fp32::floordivide<fp32::fmod_exact>>,
     each<int64::floordivide>},
    both<fp32::truncdivide, int64::truncdivide>(F::truncdivide),
    both<fp32::round, int64::identity>(F::round),
    both<fp32::trunc, int64::identity>(F::trunc),
    both<fp32::ceil, int64::identity>(F::ceil),
    both<fp32::frac, int64::zero>(F::frac),
    both<fp32::sign, int64::sign>(F::sign),
    both<fp32::signbit, int64::signbit>(F::signbit),
    real<fp32::copysign>(F::copysign),
    both<fp32::fmax, int64::maximum>(F::fmax),
    both<fp32::fmin, int64::minimum>(F::fmin),
    both<fp32::square, int64::square>(F::square),
    both<fp32::rsub, int64::rsub>(F::rsub),
    both<fp32::axpy, int64::axpy>(F::axpy),
    both<fp32::addcmul, int64::addcmul>(F::addcmul),
    real<fp32::addcdiv>(F::addcdiv),
    real<fp32::lerp>(F::lerp),

    both<fp32::isnan, int64::zero>(F::isnan),
    both<fp32::isinf, int64::zero>(F::isinf),
    both<fp32::isfinite, int64::one>(F::isfinite),
    both<fp32::nan_to_num, int64::nan_to_num>(F::nan_to_num),
    both<fp32::logicaland, int64::logicaland>(F::logicaland),
    both<fp32::logicalor, int64::logicalor>(F::logicalor),
    both<fp32::logicalxor, int64::logicalxor>(F::logicalxor),
    both<fp32::logicalnot, int64::logicalnot>(F::logicalnot),
    whole<int64::bitwiseand>(F::bitwiseand),
    whole<int64::bitwiseor>(F::bitwiseor),
    whole<int64::bitwisexor>(F::bitwisexor),
    whole<int64::bitwisenot>(F::bitwisenot),
    whole<int64::shiftleft>(F::shiftleft),
    whole<int64::shiftright>(F::shiftright),

    real<gelu32_of>(F::geluerf),
    real<fp32::gelutanh>(F::gelutanh),
    real<fp32::mish>(F::mish),
    real<fp32::elu>(F::elu),
    real<fp32::celu>(F::celu),
    real<fp32::leakyrelu>(F::leakyrelu),
    real<fp32::hardswish>(F::hardswish),
    real<fp32::hardsigmoid>(F::hardsigmoid),
    real<fp32::hardshrink>(F::hardshrink),
    real<fp32::softshrink>(F::softshrink),
    both<fp32::threshold, int64::threshold>(F::threshold),
    real<fp32::logsigmoid>(F::logsigmoid),
    real<fp32::softsign>(F::softsign),

    real<fp32::sigmoidbwd>(F::sigmoidbwd),
    real<fp32::tanhbwd>(F::tanhbwd),
    both<fp32::relubwd, int64::relubwd>(F::relubwd),
    both<fp32::thresholdbwd, int64::thresholdbwd>(F::thresholdbwd),
    real<fp32::silubwd>(F::silubwd),
    real<fp32::geluerfbwd>(F::geluerfbwd),
    real<fp32::gelutanhbwd>(F::gelutanhbwd),
    real<fp32::mishbwd>(F::mishbwd),
    real<fp32::leakyrelubwd>(F::leakyrelubwd),
    real<fp32::elubwd>(F::elubwd),
    real<fp32::softplusbwd>(F::softplusbwd),
    real<fp32::logsigmoidbwd>(F::logsigmoidbwd),
    real<fp32::hardtanhbwd>(F::hardtanhbwd),
    real<fp32::hardswishbwd>(F::hardswishbwd),
    real<fp32::hardsigmoidbwd>(F::hardsigmoidbwd),
    real<fp32::rsqrtbwd>(F::rsqrtbwd),

    real<fp32::logit>(F::logit),
    real<fp32::sinc>(F::sinc),
    real<fp32::entr>(F::entr),
    real<fp32::erfcx>(F::erfcx),
    real<fp32::log_ndtr>(F::log_ndtr),
    real<fp32::lgamma>(F::lgamma),
    real<fp32::digamma>(F::digamma),
    real<fp32::bessel<0>>(F::i0),
    real<fp32::bessel_scaled<0>>(F::i0e),
    real<fp32::bessel<1>>(F::i1),
    real<fp32::bessel_scaled<1>>(F::i1e),
    real<fp32::logaddexp2>(F::logaddexp2),
    real<fp32::xlog1py>(F::xlog1py),
    both<fp32::heaviside, int64::heaviside>(F::heaviside),
    whole<int64::gcd>(F::gcd),
    whole<int64::lcm>(F::lcm),
    real<fp32::angle>(F::angle),
    real<fp32::rounddecimals>(F::rounddecimals),
    real<fp32::frexpmantissa>(F::frexpmantissa),
    real<fp32::frexpexponent>(F::frexpexponent),
    real<fp32::maskscale>(F::maskscale),

    real<fp32::glu>(F::glu),
    real<fp32::glubwd>(F::glubwd),
    real<fp32::prelu>(F::prelu),
    real<fp32::prelubwd>(F::prelubwd),
    real<fp32::preluweightbwd>(F::preluweightbwd),
    real<fp32::shrinkbwd>(F::shrinkbwd),
    real<fp32::elubwdresult>(F::elubwdresult),
    real<fp32::logitbwd>(F::logitbwd),

    real<fp32::squareddifference>(F::squareddifference),
    real<fp32::smoothl1>(F::smoothl1),
    real<fp32::huber>(F::huber),
    real<fp32::bce>(F::bce),
    real<fp32::msebwd>(F::msebwd),
    real<fp32::smoothl1bwd>(F::smoothl1bwd),
    real<fp32::huberbwd>(F::huberbwd),
    real<fp32::bcebwd>(F::bcebwd),
    {F{}, nullptr, nullptr},
};

template <auto op>
constexpr PointwiseKernels::NumberOp number(OpFunc func) {
  return {func, with_number<op, false>, with_number<op, true>};
}

void divided_by_number(const float* in, float number, float* out, size_t n) {
  divide_run(in, number, out, static_cast<int64_t>(n));
}

constexpr PointwiseKernels::NumberOp kNumberOps[] = {
    number<fp32::add>(F::add),
    number<fp32::sub>(F::sub),
    number<fp32::mul>(F::mul),
    {F::realdiv, divided_by_number, with_number<fp32::divide, true>},
    number<fp32::maximum>(F::maximum),
    number<fp32::minimum>(F::minimum),
    number<fp32::equal>(F::equal),
    number<fp32::notequal>(F::notequal),
    number<fp32::greaterthan>(F::greaterthan),
    number<fp32::greaterequal>(F::greaterequal),
    number<fp32::lesserthan>(F::lesserthan),
    number<fp32::lesserequal>(F::lesserequal),
    {F{}, nullptr, nullptr},
};

using D = DataFormat;

constexpr PointwiseKernels::Conversion kConversions[] = {
    {D::SENINT8, widen<int8_t, float>, widen<int8_t, int64_t>, cut<uint8_t>},
    {D::SENINT16, widen<int16_t, float>, widen<int16_t, int64_t>, cut<uint16_t>},
    {D::SENUINT32, widen<uint32_t, float>, widen<uint32_t, int64_t>, cut<uint32_t>},
    {D::INVALID, nullptr, nullptr, nullptr},
};

}  // namespace

extern const PointwiseKernels pointwise_kernels = {
    kPointwiseOps,  kNumberOps,       kConversions,      clean_fp32,      quiet_fp32,
    boolean<float>, boolean<int64_t>, round_dl16<false>, round_dl16<true>};

}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
