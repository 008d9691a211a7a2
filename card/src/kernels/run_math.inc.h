// Functions on runs of elements: nearly always all of a run are such that a shorter way leads to
// the same bits. A part of files compiled for a vector width, after vector_math.inc.h and
// dl16_math.inc.h.

namespace spyre::card::SPYRE_SIMD_NAMESPACE {
namespace {

/// Elements that are looked at together: many at first, few where some of them are not as usual.
constexpr int64_t kRunPiece = 512, kRunChunk = 64;

/// each(first, count) for pieces of a run.
template <class Each>
inline void in_pieces(int64_t n, int64_t piece, const Each& each) {
  for (int64_t begin = 0; begin < n; begin += piece)
    each(begin, n - begin < piece ? n - begin : piece);
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

template <auto op>
inline void each_of_run(const float* x, float* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = op(x[i]);
}

/// `out` may be `in`, and is nothing else that overlaps it. `usual` is a function that does up to
/// the limit; others(in, out, n) takes the rest.
template <auto usual, class Others>
inline void map_run(const float* in, float* out, int64_t n, float limit, const Others& others) {
  in_pieces(n, kRunPiece, [&](int64_t begin, int64_t count) {
    if (all_within(in + begin, count, limit))
      return each_of_run<usual>(in + begin, out + begin, count);
    in_pieces(count, kRunChunk, [&](int64_t inner, int64_t some) {
      const float* const x = in + begin + inner;
      float* const y = out + begin + inner;
      if (all_within(x, some, limit)) return each_of_run<usual>(x, y, some);
      others(x, y, some);
    });
  });
}

/// Up to which magnitude exp32_of<true> does.
constexpr float kExpUsual = 86;

/// Whether exp is 0 for all of them, as where attention is masked.
inline bool all_vanish(const float* x, int64_t n) {
  int32_t others = 0;
  for (int64_t i = 0; i < n; ++i) others |= x[i] < kExpVanishes ? 0 : 1;
  return !others;
}

inline void exp_run(const float* in, float* out, int64_t n) {
  map_run<exp32_of<true>>(in, out, n, kExpUsual, [](const float* x, float* y, int64_t count) {
    if (!all_vanish(x, count)) return each_of_run<exp32_of<false>>(x, y, count);
    for (int64_t i = 0; i < count; ++i) y[i] = 0;
  });
}

inline void sigmoid_run(const float* in, float* out, int64_t n) {
  map_run<sigmoid32_of<true>>(in, out, n, kExpUsual, each_of_run<sigmoid32_of<false>>);
}

inline void silu_run(const float* in, float* out, int64_t n) {
  map_run<silu32_of<true>>(in, out, n, kExpUsual, each_of_run<silu32_of<false>>);
}

template <bool merged>
inline void round_run(const float* in, float* out, int64_t n) {
  map_run<usual_rounded_to_dl16>(in, out, n, float_of(kUsualFp32),
                                 each_of_run<rounded_to_dl16<merged>>);
}

/// Whether quotient_of() does for these: each is 0, or neither too small nor too large.
inline bool all_divide_plainly(const float* x, int64_t n) {
  constexpr uint32_t kLow = (127 - 90) << 23, kHigh = (127 + 90) << 23;
  uint32_t smallest = kHigh, largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = __builtin_bit_cast(uint32_t, x[i]) & 0x7FFFFFFF;
    const uint32_t less = magnitude - 1;  // of 0, the largest number
    smallest = less < smallest ? less : smallest;
    largest = magnitude > largest ? magnitude : largest;
  }
  return smallest >= kLow && largest <= kHigh;
}

/// A positive number to divide by, and its reciprocal: correctly rounded; and twice as precise, in
/// two parts of which neither is negative.
struct Divisor {
  float number, reciprocal, high, low;

  explicit Divisor(float of) : number(of), reciprocal(1 / of), high(reciprocal) {
    if (fma32(-high, of, 1) < 0)
      high = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, high) - 1);
    low = fma32(-high, of, 1) * reciprocal;
  }
  /// Whether quotient_of() does for it, and is quick.
  bool plain() const { return kFastFma && number >= 0x1p-30f && number <= 0x1p30f; }
};

/// x / number, exactly: the first quotient is one of the two neighbours of the true one, for which
/// the second is right (Markstein, IBM J. Res. Dev. 34, 1990). What is corrected by is how much too
/// large a quotient is, and parts of the reciprocal are not negative, so that a zero keeps its
/// sign.
inline float quotient_of(float x, const Divisor& by) {
  const float first = fma32(x, by.high, x * by.low);
  return fma32(fma32(first, by.number, -x), -by.reciprocal, first);
}

/// in / number.
inline void divide_run(const float* in, float number, float* out, int64_t n) {
  const Divisor by(number);
  const bool plain = by.plain();
  in_pieces(n, kRunPiece, [&](int64_t begin, int64_t count) {
    const float* const x = in + begin;
    float* const y = out + begin;
    if (plain && all_divide_plainly(x, count)) {
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) y[i] = quotient_of(x[i], by);
    } else {
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) y[i] = x[i] / number;
    }
  });
}

}  // namespace
}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
