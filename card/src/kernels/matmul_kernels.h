// The inner loops of matrix products, one set for each vector width this build has. Internal to
// matmul.cpp.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace spyre::card {

/// Products are computed on 32-bit numbers: float, or integers that wrap. This says how stored
/// elements become such numbers.
struct Unpacking {
  enum Kind : uint8_t {
    dl16,         ///< DLFloat16 with Infinity at 0x7FFE
    dl16_merged,  ///< DLFloat16 without Infinity
    words,        ///< the element is the number
    bytes,        ///< `table` has the number of each byte
    by_function,
  };
  Kind kind = words;
  int64_t width = 4;  ///< bytes of a stored element
  const uint32_t* table = nullptr;
  void (*function)(const void* src, void* dst, size_t n) = nullptr;
};

/// Depth (steps along K) of one block of packed operands.
inline constexpr int64_t kBlockDepth = 256;
/// Numbers from one row of an unpacked left operand to the next. Not a power of two, so that rows
/// do not compete for the same places of the first-level cache.
inline constexpr int64_t kBlockStride = kBlockDepth + 16;
/// The streaming kernels take longer blocks (a panel of them stays in the second-level cache) and
/// at most this many rows.
inline constexpr int64_t kStreamDepth = 4096;
inline constexpr int64_t kStreamRows = 4;
/// They take the right operand divided by this, and so their sums are: exact for all of DLFloat16.
inline constexpr float kStreamScale = 0x1p-32f;
/// Columns that `stream` computes at once: a stick of DLFloat16.
inline constexpr int64_t kStreamColumns = 64;
/// Columns of any packed panel divide this; it divides the elements of every stick.
inline constexpr int64_t kMaxPanelColumns = 32;

struct MatmulKernels {
  int64_t tile_rows;      ///< rows that a tile computes at once
  int64_t panel_columns;  ///< columns of a packed panel of the right operand
  int64_t dot_columns;    ///< columns that `dot` computes at once, at most kMaxPanelColumns

  /// n packed elements to numbers.
  void (*unpack)(const Unpacking& from, const void* src, float* dst, int64_t n);
  /// A panel whose columns lie side by side, `stride` bytes from one step of K to the next:
  /// panel[k][column], zeros beyond `columns`. Whether all numbers are known to be finite.
  bool (*pack)(const Unpacking& from, const char* src, int64_t stride, int64_t depth,
               int64_t columns, float* panel);
  /// The same from numbers rows[column][kBlockStride]. Needs rows up to panel_columns, and columns
  /// up to a multiple of 16, to be readable.
  void (*transpose)(const float* rows, int64_t depth, float* panel);
  /// sums[row][column] (+)= sum over k of a[row][k] * panel[k][column], in the order of k;
  /// a has kBlockStride numbers a row. `first` starts sums at zero. `skips_zeros`: products with
  /// the zeros that rows of a end in, as under a causal mask, may be left out.
  void (*multiply)(int64_t rows, int64_t depth, const float* a, const float* panel, float* sums,
                   int64_t sums_stride, bool first, bool skips_zeros);
  void (*multiply_integers)(int64_t rows, int64_t depth, const float* a, const float* panel,
                            float* sums, int64_t sums_stride, bool first, bool skips_zeros);

  /// As `multiply` for few rows and kStreamColumns columns of DLFloat16, read where they are;
  /// a has kStreamDepth numbers a row; `stride` counts elements. Sums are divided by kStreamScale.
  void (*stream)(bool merged, int64_t rows, int64_t depth, const float* a, const void* b,
                 int64_t stride, float* sums, int64_t sums_stride, bool first);
  /// The same for columns whose elements lie side by side along K, `depth` of them in one whole
  /// stick of 64; columns, a multiple of `dot_columns`, lie `stride` elements apart.
  void (*dot)(bool merged, int64_t rows, int64_t columns, int64_t depth, const float* a,
              const void* b, int64_t stride, float* sums, int64_t sums_stride, bool first);

  /// sums = alpha * sums + beta * bias; bias may be null.
  void (*finish)(float* sums, const float* bias, int64_t n, float alpha, float beta);
  void (*finish_integers)(float* sums, const float* bias, int64_t n, uint32_t alpha, uint32_t beta);
  /// Makes any NaN the positive quiet one.
  void (*quiet)(float* numbers, int64_t n);
};

namespace baseline {
const MatmulKernels& matmul_kernels();
}
#if defined(__x86_64__)
namespace avx2 {
const MatmulKernels& matmul_kernels();
}
namespace avx512 {
const MatmulKernels& matmul_kernels();
}
#endif

}  // namespace spyre::card
