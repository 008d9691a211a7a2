// Functions on runs of elements: nearly always all of a run are such that a shorter way leads to
// the same bits. A part of files compiled for a vector width, after vector_math.inc.h.

namespace spyre::card::SPYRE_SIMD_NAMESPACE {
namespace {

constexpr int64_t kRunPiece = 512;  // elements that are looked at together

/// each(from, count) for pieces of a run.
template <class Each>
inline void in_pieces(int64_t n, const Each& each) {
  for (int64_t begin = 0; begin < n; begin += kRunPiece)
    each(begin, n - begin < kRunPiece ? n - begin : kRunPiece);
}

/// Whether no magnitude is above the limit, nor NaN.
inline bool all_within(const float* x, int64_t n, float limit) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = __builtin_bit_cast(uint32_t, x[i]) & 0x7FFFFFFF;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest <= __builtin_bit_cast(uint32_t, limit);
}

/// `out` may be `in`, and is nothing else that overlaps it. The usual function does up to the
/// limit.
template <auto usual, auto exact>
inline void map_run(const float* in, float* out, int64_t n, float limit) {
  in_pieces(n, [&](int64_t begin, int64_t count) {
    const float* const x = in + begin;
    float* const y = out + begin;
    if (all_within(x, count, limit)) {
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) y[i] = usual(x[i]);
    } else {
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) y[i] = exact(x[i]);
    }
  });
}

inline void exp_run(const float* in, float* out, int64_t n) {
  map_run<exp32_of<true>, exp32_of<false>>(in, out, n, 86);
}

inline void sigmoid_run(const float* in, float* out, int64_t n) {
  map_run<sigmoid32_of<true>, sigmoid32_of<false>>(in, out, n, 86);
}

inline void silu_run(const float* in, float* out, int64_t n) {
  map_run<silu32_of<true>, silu32_of<false>>(in, out, n, 86);
}

/// Whether quotient_of() does for these: each is 0, or neither too small nor too large.
inline bool all_divide_plainly(const float* x, int64_t n) {
  constexpr uint32_t kLow = (127 - 90) << 23, kRange = 180u << 23;
  uint32_t trouble = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, x[i]);
    trouble |= ((bits & 0x7FFFFFFF) - kLow > kRange) & (bits != 0);
  }
  return !trouble;
}

/// x / number, exactly, of the correctly rounded reciprocal: the second quotient is one of the two
/// neighbours of the true one, for which the third is right (Markstein, IBM J. Res. Dev. 34, 1990).
inline float quotient_of(float x, float number, float reciprocal) {
  const float first = x * reciprocal;
  const float second = fma32(fma32(-first, number, x), reciprocal, first);
  return fma32(fma32(-second, number, x), reciprocal, second);
}

/// in / number.
inline void divide_run(const float* in, float number, float* out, int64_t n) {
  const float reciprocal = 1 / number, size = __builtin_fabsf(number);
  const bool plain = kFastFma && size >= 0x1p-30f && size <= 0x1p30f;
  in_pieces(n, [&](int64_t begin, int64_t count) {
    const float* const x = in + begin;
    float* const y = out + begin;
    if (plain && all_divide_plainly(x, count)) {
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) y[i] = quotient_of(x[i], number, reciprocal);
    } else {
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) y[i] = x[i] / number;
    }
  });
}

}  // namespace
}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
