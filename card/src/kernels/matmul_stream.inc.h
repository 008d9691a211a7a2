// Products of few rows: the right operand, DLFloat16, is read where it is and unpacked in
// registers. A part of matmul_kernels.inc.h, inside of its namespace.

/// DLFloat16 to float, but times 1 / kStreamScale, which costs less. `placed` has a code shifted to
/// its place with the sign extended, and anything below; the bits of `codes` are those of its
/// magnitude.
template <bool merged, bool exact>
inline Floats scaled_from_dl16(Signed placed, Signed codes, int32_t bits) {
  if constexpr (exact) return exact_from_codes<merged>(placed >> 14) * (1 / kStreamScale);
  constexpr int32_t scale = 0x40000000;  // brings the exponent's bias from 31 to 127 - 32
#if defined(__AVX512F__)
  constexpr int and_or = 0xEA;
  const __mmask16 set = _mm512_test_epi32_mask(reinterpret_cast<__m512i>(codes),
                                               reinterpret_cast<__m512i>(Signed{} + bits));
  return reinterpret_cast<Floats>(_mm512_maskz_ternarylogic_epi32(
      set, reinterpret_cast<__m512i>(placed), reinterpret_cast<__m512i>(Signed{} + kDl16Place),
      reinterpret_cast<__m512i>(Signed{} + scale), and_or));
#else
  return reinterpret_cast<Floats>(((codes & bits) != 0) & ((placed & kDl16Place) | scale));
#endif
}

/// Pairs of elements that lie side by side, as words: two vectors of elements, those with even and
/// those with odd numbers. Which costs less than to take them in their order.
template <bool merged, bool exact>
inline void scaled_from_pairs(Words pairs, Floats& even, Floats& odd) {
  const Signed both = reinterpret_cast<Signed>(pairs);
#if defined(__AVX512BW__)
  // Of each pair the lower half, with its sign, times 2^14: one instruction instead of two shifts.
  const Signed lower = reinterpret_cast<Signed>(_mm512_madd_epi16(
      reinterpret_cast<__m512i>(pairs), reinterpret_cast<__m512i>(Signed{} + 0x4000)));
#else
  const Signed lower = (both << 16) >> 2;
#endif
  even = scaled_from_dl16<merged, exact>(lower, both, 0x7FFF);
  odd = scaled_from_dl16<merged, exact>(both >> 2, both, 0x7FFF0000);
}

/// Two vectors of numbers in their order as vectors of even and odd ones, or the other way.
template <int first>
struct EverySecond {
  static constexpr int of(int lane) { return 2 * lane + first; }
};
template <int first>
struct InTurn {
  static constexpr int of(int lane) { return first + lane / 2 + lane % 2 * kLanes; }
};
inline void part(Floats& a, Floats& b) {
  const Floats even = chosen<EverySecond<0>>(a, b);
  b = chosen<EverySecond<1>>(a, b);
  a = even;
}
inline void join(Floats& a, Floats& b) {
  const Floats low = chosen<InTurn<0>>(a, b);
  b = chosen<InTurn<kLanes / 2>>(a, b);
  a = low;
}

// So many steps of K are done again if there are special codes among them, which are rare.
constexpr int64_t kStreamGroup = 32;

/// Adds steps of K to the sums, and says whether it has been right: without `exact` it is not if
/// there are special codes.
template <bool merged, bool exact, int rows>
inline bool stream_group(int64_t count, const float* a, const uint16_t* b, int64_t stride,
                         Floats (&total)[rows][kStreamVectors]) {
  Codes largest{};
#pragma GCC unroll 1
  for (int64_t k = 0; k < count; ++k, b += stride) {
    // Into the outer cache: the first-level one has too few places for lines on their way.
    __builtin_prefetch(b + kPrefetchSticks * stride, 0, 1);
    __builtin_prefetch(b + kPrefetchSticks * stride + kStickLanes / 2, 0, 1);
#pragma GCC unroll 4
    for (int v = 0; v < kStreamVectors; v += 2) {
      const Words pairs = load<Words>(b + v * kLanes);
      const Codes codes = reinterpret_cast<Codes>(pairs) << 1;
      largest = codes > largest ? codes : largest;
      Floats right[2];
      scaled_from_pairs<merged, exact>(pairs, right[0], right[1]);
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) {
        const Floats left = broadcast<Floats>(a + r * kStreamDepth + k);
        total[r][v] = multiply_add(left, right[0], total[r][v]);
        total[r][v + 1] = multiply_add(left, right[1], total[r][v + 1]);
      }
    }
  }
  return exact || !is_special<merged>(largest);
}

template <bool merged, int rows>
void stream_columns(int64_t depth, const float* a, const uint16_t* b, int64_t stride, float* sums,
                    int64_t sums_stride, bool first) {
  Floats total[rows][kStreamVectors], before[rows][kStreamVectors];
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kStreamVectors; v += 2) {
      const float* const from = sums + r * sums_stride + v * kLanes;
      total[r][v] = first ? Floats{} : load<Floats>(from);
      total[r][v + 1] = first ? Floats{} : load<Floats>(from + kLanes);
      part(total[r][v], total[r][v + 1]);
    }
  for (int64_t k = 0; k < depth; k += kStreamGroup) {
    const uint16_t* const group = b + k * stride;
    const int64_t count = depth - k < kStreamGroup ? depth - k : kStreamGroup;
    __builtin_memcpy(before, total, sizeof total);
    if (stream_group<merged, false, rows>(count, a + k, group, stride, total)) [[likely]]
      continue;
    __builtin_memcpy(total, before, sizeof total);
    stream_group<merged, true, rows>(count, a + k, group, stride, total);
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kStreamVectors; v += 2) {
      float* const to = sums + r * sums_stride + v * kLanes;
      join(total[r][v], total[r][v + 1]);
      store(to, total[r][v]);
      store(to + kLanes, total[r][v + 1]);
    }
}

template <bool merged, int rows>
void stream_of(int64_t wanted, int64_t depth, const float* a, const uint16_t* b, int64_t stride,
               float* sums, int64_t sums_stride, bool first) {
  if constexpr (rows > 1) {
    if (wanted < rows)
      return stream_of<merged, rows - 1>(wanted, depth, a, b, stride, sums, sums_stride, first);
  }
  for (int64_t column = 0; column < kStreamColumns; column += kStreamVectors * kLanes)
    stream_columns<merged, rows>(depth, a, b + column, stride, sums + column, sums_stride, first);
}

void stream(bool merged, int64_t rows, int64_t depth, const float* a, const void* b, int64_t stride,
            float* sums, int64_t sums_stride, bool first) {
  const uint16_t* const codes = static_cast<const uint16_t*>(b);
  const auto run = merged ? stream_of<true, kStreamRows> : stream_of<false, kStreamRows>;
  run(rows, depth, a, codes, stride, sums, sums_stride, first);
}

#if defined(__AVX512F__)
constexpr int kPairs = 4;
#else
constexpr int kPairs = kLanes;
#endif
/// Columns that `dot` computes at once: sums of several vectors, so that none waits for another.
constexpr int kDotVectors = 2, kDotColumns = kDotVectors * kLanes;

/// Pairs of elements that lie side by side in kLanes columns, `stride` elements apart: vectors of
/// one pair of each.
inline void load_pairs(const uint16_t* from, int64_t stride, Words (&pairs)[kPairs]) {
#if defined(__AVX512F__)
  // Quarters of vectors find their places while they are loaded, which takes no shuffles.
  __m512i rows[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const auto quarter = [&](int column) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + (i + column) * stride));
    };
    rows[i] = _mm512_zextsi128_si512(quarter(0));
    rows[i] = _mm512_mask_broadcast_i32x4(rows[i], 0x00F0, quarter(4));
    rows[i] = _mm512_mask_broadcast_i32x4(rows[i], 0x0F00, quarter(8));
    rows[i] = _mm512_mask_broadcast_i32x4(rows[i], 0xF000, quarter(12));
  }
  const __m512i a = _mm512_unpacklo_epi32(rows[0], rows[1]);
  const __m512i b = _mm512_unpackhi_epi32(rows[0], rows[1]);
  const __m512i c = _mm512_unpacklo_epi32(rows[2], rows[3]);
  const __m512i d = _mm512_unpackhi_epi32(rows[2], rows[3]);
  pairs[0] = reinterpret_cast<Words>(_mm512_unpacklo_epi64(a, c));
  pairs[1] = reinterpret_cast<Words>(_mm512_unpackhi_epi64(a, c));
  pairs[2] = reinterpret_cast<Words>(_mm512_unpacklo_epi64(b, d));
  pairs[3] = reinterpret_cast<Words>(_mm512_unpackhi_epi64(b, d));
#else
  Floats rows[kLanes];
  for (int i = 0; i < kLanes; ++i) rows[i] = load<Floats>(from + i * stride);
  exchange_all(rows);
  for (int i = 0; i < kLanes; ++i) pairs[i] = reinterpret_cast<Words>(rows[i]);
#endif
}

/// Adds `depth` steps of K, within a stick, to the sums of kDotColumns columns, and says whether it
/// has been right: without `exact` it is not if there are special codes.
template <bool merged, bool exact, bool whole, int rows>
inline bool dot_stick(int64_t depth, const float* a, const uint16_t* b, int64_t stride,
                      Floats (&total)[rows][kDotVectors]) {
  Codes largest{};
  const uint16_t* ahead = b + kDotPrefetchSticks * stride;
#pragma GCC unroll 1
  for (int64_t k = 0; k < depth; k += 2 * kPairs) {
    // Not all sticks at once: there are few places for lines on their way.
#pragma GCC unroll 4
    for (int i = 0; i < kDotColumns * 2 * kPairs / kStickLanes; ++i, ahead += stride) {
      __builtin_prefetch(ahead);
      __builtin_prefetch(ahead + kStickLanes / 2);
    }
    Words pairs[kDotVectors][kPairs];
#pragma GCC unroll 2
    for (int v = 0; v < kDotVectors; ++v) {
      load_pairs(b + v * kLanes * stride + k, stride, pairs[v]);
#pragma GCC unroll 16
      for (int i = 0; i < kPairs; ++i) {
        const Codes codes = reinterpret_cast<Codes>(pairs[v][i]) << 1;
        largest = codes > largest ? codes : largest;
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kPairs; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < kDotVectors; ++v) {
        Floats right[2];
        scaled_from_pairs<merged, exact>(pairs[v][i], right[0], right[1]);
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          const int64_t at = k + 2 * i + half;
          if (!whole && at >= depth) break;
#pragma GCC unroll 4
          for (int r = 0; r < rows; ++r)
            total[r][v] = multiply_add(broadcast<Floats>(a + r * kStreamDepth + at), right[half],
                                       total[r][v]);
        }
      }
    }
  }
  return exact || !is_special<merged>(largest);
}

template <bool merged, int rows>
void dot_of(int64_t wanted, int64_t columns, int64_t depth, const float* a, const uint16_t* b,
            int64_t stride, float* sums, int64_t sums_stride, bool first) {
  if constexpr (rows > 1) {
    if (wanted < rows)
      return dot_of<merged, rows - 1>(wanted, columns, depth, a, b, stride, sums, sums_stride,
                                      first);
  }
  for (int64_t column = 0; column < columns; column += kDotColumns, b += kDotColumns * stride) {
    Floats total[rows][kDotVectors];
    const auto begin = [&] {
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < kDotVectors; ++v)
          total[r][v] =
              first ? Floats{} : load<Floats>(sums + r * sums_stride + column + v * kLanes);
    };
    begin();
    const bool right = depth == kStickLanes
                           ? dot_stick<merged, false, true, rows>(depth, a, b, stride, total)
                           : dot_stick<merged, false, false, rows>(depth, a, b, stride, total);
    if (!right) [[unlikely]] {
      begin();
      dot_stick<merged, true, false, rows>(depth, a, b, stride, total);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kDotVectors; ++v)
        store(sums + r * sums_stride + column + v * kLanes, total[r][v]);
  }
}

void dot(bool merged, int64_t rows, int64_t columns, int64_t depth, const float* a, const void* b,
         int64_t stride, float* sums, int64_t sums_stride, bool first) {
  const uint16_t* const codes = static_cast<const uint16_t*>(b);
  const auto run = merged ? dot_of<true, kStreamRows> : dot_of<false, kStreamRows>;
  run(rows, columns, depth, a, codes, stride, sums, sums_stride, first);
}
