// The pieces of reduced lines: what a piece is folded into, and how the pieces of a line become its
// result. step_reduce.cpp gathers and folds them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "nests/lines.h"
#include "spyre/ops.h"

namespace spyre::card {

/// What the second fold of a piece takes from the first.
enum class FoldParameter { none, value, mean, shift };

/// How an op is done: the folds of a piece.
struct ReduceRecipe {
  OpFunc op;
  Fold first;
  std::optional<Fold> second = {};
  FoldParameter parameter = FoldParameter::none;
  bool needs_elements = false;  ///< there is no such value of nothing
  bool needs_all = false;       ///< every position of every line must be visited
};

/// Of an op that is a reduction.
const ReduceRecipe& reduce_recipe(OpFunc op);

template <typename T>
const FoldKernels<T>& fold_kernels() {
  if constexpr (std::is_same_v<T, float>) {
    return line_kernels().floats;
  } else {
    return line_kernels().integers;
  }
}

/// The largest value, to be taken out before exponentials; an infinite one stays.
inline float shift_of(float largest) { return std::isinf(largest) ? 0.0f : largest; }

struct ReducePieces {
  ReduceRecipe recipe;
  std::vector<double> constants;
  bool chunked;  ///< pieces are rounded to DLFloat16 and added up in it
  bool two_results;
  std::int64_t length;                ///< of a line
  std::int64_t piece_length, pieces;  ///< the last piece of a line may be shorter

  std::int64_t length_of(std::int64_t piece) const {
    return std::min(piece_length, length - piece * piece_length);
  }

  /// Sets piece_length and pieces for lines of `line_length`.
  void cut(std::int64_t line_length);
  /// Results are counts or indices, which are integers whatever the elements are.
  bool counts_or_indices() const {
    return recipe.first == Fold::nonzeros || recipe.op == OpFunc::argmax ||
           recipe.op == OpFunc::argmin;
  }

  /// One piece of the block's lines to one value a line, or two; `parameters` has room for one a
  /// line, `work` as the kernels want it. T is float or int64.
  template <typename T>
  void fold(const T* x, const LineBlock& piece, T* parameters, T* first, T* second, T* work) const;

  /// Pieces to results, for `n` lines: first[piece * pitch + line], and second where there are two
  /// folds. Results are where piece 0 was; counts and indices in `integers`.
  template <typename T>
  void finish(T* first, T* second, std::int64_t* integers, std::int64_t n,
              std::int64_t pitch) const;

 private:
  template <typename T>
  void set_parameters(const T* values, const LineBlock& piece, T* parameters) const;
  void scale(float* first, float* second, std::int64_t n) const;
  template <typename T>
  void finish_counts(const T* first, std::int64_t* counts, std::int64_t n,
                     std::int64_t pitch) const;
  template <typename T>
  void finish_matches(T* first, const T* second, std::int64_t* indices, std::int64_t n,
                      std::int64_t pitch) const;
  void finish_logsumexp(float* first, float* second, std::int64_t n, std::int64_t pitch) const;
  void finish_var(float* first, float* second, std::int64_t n, std::int64_t pitch) const;
  void add_chunks(float* first, std::int64_t n, std::int64_t pitch) const;
};

}  // namespace spyre::card
