// The inner loops of matrix products. Included once by each matmul_<level>.cpp, which is compiled
// for its vector width, under the rules of convert_kernels.inc.h: nothing has external linkage but
// matmul_kernels(), and no inline function of another header is called (the compiler's own
// intrinsics have none).
//
// Every sum is one chain of fused multiply-adds in the order of k, whichever kernel forms it: so
// every level gives the same bits. Without an instruction for it (x86 without FMA) a product takes
// up to forty times as long as if it rounded twice.

#include <stddef.h>
#include <stdint.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/matmul_kernels.h"

#ifndef SPYRE_SIMD_NAMESPACE
#error "define SPYRE_SIMD_NAMESPACE: this file is a part of matmul_<level>.cpp"
#endif

namespace spyre::card::SPYRE_SIMD_NAMESPACE {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16, kTileRows = 14, kStreamVectors = 4;
#elif defined(__AVX2__)
constexpr int kLanes = 8, kTileRows = 6, kStreamVectors = 2;
#else
constexpr int kLanes = 4, kTileRows = 6, kStreamVectors = 2;
#endif
constexpr int kPanelVectors = 2, kPanelColumns = kPanelVectors * kLanes;
constexpr int64_t kStickLanes = 64;  // of DLFloat16
// How far ahead memory is asked for a stream of sticks: 20 KiB measured best for weights that no
// cache holds.
constexpr int64_t kPrefetchSticks = 160;
// The same for `dot`, which asks for lines a few at a time and so has them in the first-level
// cache.
constexpr int64_t kDotPrefetchSticks = 64;
static_assert(kMaxPanelColumns % kPanelColumns == 0);

typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef uint32_t Words __attribute__((vector_size(4 * kLanes)));
typedef int32_t Signed __attribute__((vector_size(4 * kLanes)));
typedef int16_t Halves __attribute__((vector_size(2 * kLanes)));
typedef uint16_t Codes __attribute__((vector_size(4 * kLanes)));  // twice as many lanes

template <class Vector>
inline Vector load(const void* from) {
  Vector vector;
  __builtin_memcpy(&vector, from, sizeof vector);
  return vector;
}

template <class Vector>
inline void store(void* to, Vector vector) {
  __builtin_memcpy(to, &vector, sizeof vector);
}

template <class Vector>
inline Vector broadcast(const float* from) {
  __typeof__(Vector{}[0] + 0) number;
  __builtin_memcpy(&number, from, sizeof number);
  return number - Vector{};  // x - 0 is x, -0 included
}

#if !defined(__AVX2__) && !defined(__aarch64__)
/// As fma32() of vector_math.inc.h: the sum in double is rounded to odd. No part of unrolled loops,
/// which would keep a compiler busy for minutes.
[[gnu::noinline]] Floats fused(Floats a, Floats b, Floats sum) {
  typedef double Doubles __attribute__((vector_size(8 * kLanes)));
  typedef int64_t Longs __attribute__((vector_size(8 * kLanes)));
  const Doubles product = __builtin_convertvector(a, Doubles) * __builtin_convertvector(b, Doubles);
  const Doubles wide = __builtin_convertvector(sum, Doubles);
  const Doubles total = product + wide, added = total - product;
  const Doubles error = (product - (total - added)) + (wide - added);
  const Longs negative = error < 0, inexact = negative | (error > 0);
  const Longs towards_zero = negative ^ (total < 0);
  const Longs bits = reinterpret_cast<Longs>(total), even = (bits & 1) - 1;
  const Longs odd = bits + (inexact & even & (towards_zero | 1));
  return __builtin_convertvector(reinterpret_cast<Doubles>(odd), Floats);
}
#endif

inline Floats multiply_add(Floats a, Floats b, Floats sum) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, sum);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, sum);
#elif defined(__aarch64__)
  for (int i = 0; i < kLanes; ++i) sum[i] = __builtin_fmaf(a[i], b[i], sum[i]);
  return sum;
#else
  return fused(a, b, sum);
#endif
}
/// Sign-extended; the compiler's own conversion takes three instructions for one.
inline Signed load_halves(const void* from) {
  const Halves halves = load<Halves>(from);
#if defined(__AVX512F__)
  // The plain form of the intrinsic makes GCC 12 warn of its own header.
  return reinterpret_cast<Signed>(
      _mm512_maskz_cvtepi16_epi32(0xFFFF, reinterpret_cast<__m256i>(halves)));
#elif defined(__AVX2__)
  return reinterpret_cast<Signed>(_mm256_cvtepi16_epi32(reinterpret_cast<__m128i>(halves)));
#else
  return __builtin_convertvector(halves, Signed);
#endif
}

inline Words multiply_add(Words a, Words b, Words sum) { return a * b + sum; }

// ------------------------------------------------------------------------------------- unpacking

/// a + b, but zero in the lanes where none of the bits is set in `codes`.
inline Signed add_where_set(Signed a, Signed b, Signed codes, int32_t bits) {
#if defined(__AVX512F__)
  const __mmask16 set = _mm512_test_epi32_mask(reinterpret_cast<__m512i>(codes),
                                               reinterpret_cast<__m512i>(Signed{} + bits));
  return reinterpret_cast<Signed>(
      _mm512_maskz_add_epi32(set, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#else
  return ((codes & bits) != 0) & (a + b);
#endif
}

constexpr int32_t kDl16Place = static_cast<int32_t>(0x9FFFC000), kDl16Bias = (127 - 31) << 23;

/// The cheap part of DLFloat16 to float: right for all but the special codes, for which see
/// Specials.
inline Floats usual_from_dl16(const void* from) {
  // Sign extension and a shift put sign, exponent and fraction in place; two copies of the sign in
  // the exponent go, and the bias is corrected.
  const Signed codes = load_halves(from);
  const Signed placed = (codes << 14) & kDl16Place;
  return reinterpret_cast<Floats>(add_where_set(placed, Signed{} + kDl16Bias, codes, 0x7FFF));
}

/// From sign-extended codes.
template <bool merged>
inline Floats exact_from_codes(Signed codes) {
  const Signed magnitude = codes & 0x7FFF, sign = codes & static_cast<int32_t>(0x80000000);
  Signed value = (magnitude << 14) + kDl16Bias;
  value = magnitude == 0 ? Signed{} : value;
  if (!merged) value = magnitude == 0x7FFE ? Signed{} + 0x7F800000 : value;
  return reinterpret_cast<Floats>(magnitude == 0x7FFF ? Signed{} + 0x7FC00000 : value | sign);
}

template <bool merged>
inline Floats exact_from_dl16(const void* from) {
  return exact_from_codes<merged>(load_halves(from));
}

template <bool merged, bool exact>
inline Floats from_dl16(const void* from) {
  return exact ? exact_from_dl16<merged>(from) : usual_from_dl16(from);
}

// Special codes are rare. So a few sticks are looked at, which then are in the first-level cache,
// and unpacked the cheap or the exact way.
constexpr int64_t kGroup = 4;

/// Whether any bit is set.
inline bool any_set(Words words) {
#if defined(__AVX512F__)
  const auto bits = reinterpret_cast<__m512i>(words);
  return _mm512_test_epi32_mask(bits, bits) != 0;
#else
  uint32_t any = 0;
  for (int lane = 0; lane < kLanes; ++lane) any |= words[lane];
  return any != 0;
#endif
}

/// Whether one of the codes, shifted left by one, is special.
template <bool merged>
inline bool is_special(Codes shifted) {
  constexpr uint16_t limit = merged ? 0xFFFE : 0xFFFC;
#if defined(__AVX512F__)
  return _mm512_cmpge_epu16_mask(reinterpret_cast<__m512i>(shifted),
                                 reinterpret_cast<__m512i>(Codes{} + limit)) != 0;
#else
  return any_set(reinterpret_cast<Words>(shifted >= limit));
#endif
}

/// Whether there is a special code in any of `count` runs of vectors, stride elements apart. Asks
/// for what follows them in memory.
template <bool merged, int vectors>
inline bool any_special(const uint16_t* from, int64_t stride, int64_t count) {
  Codes largest{};
#pragma GCC unroll 1
  for (int64_t i = 0; i < count; ++i, from += stride) {
    // Into the outer cache: the first-level one has too few places for lines on their way.
    __builtin_prefetch(from + kPrefetchSticks * stride, 0, 1);
    __builtin_prefetch(from + kPrefetchSticks * stride + kStickLanes / 2, 0, 1);
#pragma GCC unroll 16
    for (int v = 0; v < vectors; v += 2) {
      const Codes codes = load<Codes>(from + v * kLanes) << 1;
      largest = codes > largest ? codes : largest;
    }
  }
  return is_special<merged>(largest);
}

/// Runs of whole vectors, `stride` elements apart, to numbers `to_stride` apart.
template <bool merged, bool exact, int vectors>
inline void unpack_group(const uint16_t* from, int64_t stride, int64_t count, float* to,
                         int64_t to_stride) {
#pragma GCC unroll 1
  for (int64_t i = 0; i < count; ++i, from += stride, to += to_stride)
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v)
      store(to + v * kLanes, from_dl16<merged, exact>(from + v * kLanes));
}

/// Whether all numbers are finite.
template <bool merged, int vectors>
inline bool unpack_runs(const uint16_t* from, int64_t stride, int64_t count, float* to,
                        int64_t to_stride) {
  bool finite = true;
  for (int64_t i = 0; i < count; i += kGroup) {
    const int64_t group = count - i < kGroup ? count - i : kGroup;
    const uint16_t* const runs = from + i * stride;
    if (any_special<merged, vectors>(runs, stride, group)) [[unlikely]] {
      unpack_group<merged, true, vectors>(runs, stride, group, to + i * to_stride, to_stride);
      finite = false;
    } else {
      unpack_group<merged, false, vectors>(runs, stride, group, to + i * to_stride, to_stride);
    }
  }
  return finite;
}

template <bool merged>
void unpack_dl16(const void* src, float* dst, int64_t n) {
  const uint16_t* const from = static_cast<const uint16_t*>(src);
  const int64_t whole = n / kStickLanes * kStickLanes;
  unpack_runs<merged, kStickLanes / kLanes>(from, kStickLanes, whole / kStickLanes, dst,
                                            kStickLanes);
  for (int64_t i = whole; i < n; i += kLanes) {
    const size_t count = static_cast<size_t>(n - i < kLanes ? n - i : kLanes);
    uint16_t rest[kLanes] = {};
    float numbers[kLanes];
    __builtin_memcpy(rest, from + i, 2 * count);
    store(numbers, exact_from_dl16<merged>(rest));
    __builtin_memcpy(dst + i, numbers, 4 * count);
  }
}

void unpack(const Unpacking& from, const void* src, float* dst, int64_t n) {
  switch (from.kind) {
    case Unpacking::dl16:
      return unpack_dl16<false>(src, dst, n);
    case Unpacking::dl16_merged:
      return unpack_dl16<true>(src, dst, n);
    case Unpacking::words:
      __builtin_memcpy(dst, src, static_cast<size_t>(4 * n));
      return;
    case Unpacking::bytes: {
      const uint8_t* const bytes = static_cast<const uint8_t*>(src);
      for (int64_t i = 0; i < n; ++i) __builtin_memcpy(dst + i, from.table + bytes[i], 4);
      return;
    }
    case Unpacking::by_function:
      from.function(src, dst, static_cast<size_t>(n));
      return;
  }
}

bool pack(const Unpacking& from, const char* src, int64_t stride, int64_t depth, int64_t columns,
          float* panel) {
  const uint16_t* const codes = reinterpret_cast<const uint16_t*>(src);
  if (columns == kPanelColumns && from.kind == Unpacking::dl16)
    return unpack_runs<false, kPanelVectors>(codes, stride / 2, depth, panel, kPanelColumns);
  if (columns == kPanelColumns && from.kind == Unpacking::dl16_merged)
    return unpack_runs<true, kPanelVectors>(codes, stride / 2, depth, panel, kPanelColumns);
  const size_t missing = static_cast<size_t>(4 * (kPanelColumns - columns));
  for (int64_t k = 0; k < depth; ++k, src += stride, panel += kPanelColumns) {
    unpack(from, src, panel, columns);
    if (missing) __builtin_memset(panel + columns, 0, missing);
  }
  return false;
}

template <int... lane>
struct Numbers {};
/// 0 .. count - 1.
template <int count, int... lane>
constexpr auto numbers() {
  if constexpr (count == 0) {
    return Numbers<lane...>{};
  } else {
    return numbers<count - 1, count - 1, lane...>();
  }
}

/// A vector whose lane i is lane Choice::of(i) of the two, those of `b` being kLanes and up.
template <class Choice, int... lane>
inline Floats chosen(Floats a, Floats b, Numbers<lane...>) {
  return __builtin_shufflevector(a, b, Choice::of(lane)...);
}
template <class Choice>
inline Floats chosen(Floats a, Floats b) {
  return chosen<Choice>(a, b, numbers<kLanes>());
}

/// Lanes of two vectors for one step of a transposition: blocks of `block` lanes change sides.
template <int block, bool upper>
struct Exchanged {
  static constexpr int of(int lane) {
    const bool from_b = lane & block;
    const int shift = upper == from_b ? 0 : (upper ? block : -block);
    return lane + shift + (from_b ? kLanes : 0);
  }
};

template <int block>
inline void exchange_blocks(Floats (&rows)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if (i & block) continue;
    const Floats a = rows[i], b = rows[i + block];
    rows[i] = chosen<Exchanged<block, false>>(a, b);
    rows[i + block] = chosen<Exchanged<block, true>>(a, b);
  }
}

inline void exchange_all(Floats (&rows)[kLanes]) {
  exchange_blocks<1>(rows);
  exchange_blocks<2>(rows);
  if constexpr (kLanes > 4) exchange_blocks<4>(rows);
  if constexpr (kLanes > 8) exchange_blocks<8>(rows);
}

void transpose(const float* source, int64_t depth, float* panel) {
  for (int v = 0; v < kPanelVectors; ++v) {
    for (int64_t k = 0; k < depth; k += kLanes) {
      Floats rows[kLanes];
      for (int i = 0; i < kLanes; ++i)
        rows[i] = load<Floats>(source + (v * kLanes + i) * kBlockStride + k);
      exchange_all(rows);
      const int count = depth - k < kLanes ? static_cast<int>(depth - k) : kLanes;
      for (int i = 0; i < count; ++i) store(panel + (k + i) * kPanelColumns + v * kLanes, rows[i]);
    }
  }
}

// ----------------------------------------------------------------------------------- multiplying

template <class Vector, int rows>
void tile(int64_t depth, const float* a, const float* panel, float* sums, int64_t sums_stride,
          bool first) {
  Vector total[rows][kPanelVectors];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kPanelVectors; ++v)
      total[r][v] = first ? Vector{} : load<Vector>(sums + r * sums_stride + v * kLanes);
#pragma GCC unroll 4
  for (int64_t k = 0; k < depth; ++k) {
    Vector b[kPanelVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kPanelVectors; ++v)
      b[v] = load<Vector>(panel + k * kPanelColumns + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const Vector left = broadcast<Vector>(a + r * kBlockStride + k);
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; ++v) total[r][v] = multiply_add(left, b[v], total[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kPanelVectors; ++v) store(sums + r * sums_stride + v * kLanes, total[r][v]);
}

template <class Vector, int rows>
void tile_of(int64_t wanted, int64_t depth, const float* a, const float* panel, float* sums,
             int64_t sums_stride, bool first) {
  if (wanted == rows) return tile<Vector, rows>(depth, a, panel, sums, sums_stride, first);
  if constexpr (rows > 1)
    tile_of<Vector, rows - 1>(wanted, depth, a, panel, sums, sums_stride, first);
}

/// The steps after which all rows are zero, or somewhat more.
inline int64_t used_depth(int64_t rows, int64_t depth, const float* a) {
  int64_t used = 0;
  for (int64_t r = 0; r < rows && used < depth; ++r, a += kBlockStride) {
    int64_t end = depth;
    while (end - used >= kLanes && !any_set(load<Words>(a + end - kLanes) << 1)) end -= kLanes;
    used = end;
  }
  return used;
}

template <class Vector>
void multiply(int64_t rows, int64_t depth, const float* a, const float* panel, float* sums,
              int64_t sums_stride, bool first, bool skips_zeros) {
  // Tiles of about equal height: a small one would wait for each sum before the next.
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  for (int64_t row = 0, left = tiles; left > 0; --left) {
    const int64_t count = (rows - row + left - 1) / left;
    const float* const left_rows = a + row * kBlockStride;
    tile_of<Vector, kTileRows>(count, skips_zeros ? used_depth(count, depth, left_rows) : depth,
                               left_rows, panel, sums + row * sums_stride, sums_stride, first);
    row += count;
  }
}

#include "kernels/matmul_stream.inc.h"

// ------------------------------------------------------------------------------------- finishing

void finish(float* sums, const float* bias, int64_t n, float alpha, float beta) {
  if (bias) {
    for (int64_t i = 0; i < n; ++i) sums[i] = alpha * sums[i] + beta * bias[i];
  } else if (alpha != 1.0f) {
    for (int64_t i = 0; i < n; ++i) sums[i] *= alpha;
  }
}

void quiet(float* numbers, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (numbers[i] != numbers[i]) numbers[i] = __builtin_nanf("");
}

void finish_integers(float* sums, const float* bias, int64_t n, uint32_t alpha, uint32_t beta) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t sum, added = 0;
    __builtin_memcpy(&sum, sums + i, 4);
    if (bias) __builtin_memcpy(&added, bias + i, 4);
    sum = alpha * sum + beta * added;
    __builtin_memcpy(sums + i, &sum, 4);
  }
}

constexpr MatmulKernels kKernels{
    .tile_rows = kTileRows,
    .panel_columns = kPanelColumns,
    .dot_columns = kDotColumns,
    .unpack = unpack,
    .pack = pack,
    .transpose = transpose,
    .multiply = multiply<Floats>,
    .multiply_integers = multiply<Words>,
    .stream = stream,
    .dot = dot,
    .finish = finish,
    .finish_integers = finish_integers,
    .quiet = quiet,
};

}  // namespace

const MatmulKernels& matmul_kernels() { return kKernels; }

}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
