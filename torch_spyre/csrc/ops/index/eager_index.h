// Moving elements between a tensor and places of another that index tensors name: what every
// indexing op comes down to.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "spyre/program.h"

namespace spyre::eager {

/// An op of section [index] in the op table. Loops walk `size`; dense tensor and index tensors are
/// broadcast to it.
struct Indexing {
  /// A loop that walks no dimension of the indexed tensor.
  static constexpr std::int64_t kNone = -1;

  /// One dimension of the indexed tensor whose coordinates an index tensor holds.
  struct Coordinates {
    std::int64_t dimension;
    at::Tensor index;  ///< int64 or int32; its last dimension is loop `last_loop`
    std::int64_t last_loop;
  };

  OpFunc op;
  c10::SmallVector<std::int64_t, 6> size;
  at::Tensor dense, indexed;
  c10::SmallVector<std::int64_t, 6> walks;  ///< a loop's dimension of the indexed tensor, or kNone
  c10::SmallVector<Coordinates, 2> coordinates;
  bool wrap = false;        ///< negative coordinates count from the end
  bool index_error = true;  ///< a bad one raises IndexError, else RuntimeError: as PyTorch has it
};

/// Runs it. An op that combines values rounds each time to the format of the indexed tensor:
/// accumulated() gives one in which that is harmless.
void run_indexing(Indexing indexing);

/// The tensor itself, or, where sums of its dtype would be rounded again and again, a float32 copy.
/// The caller copies results back.
at::Tensor accumulated(const at::Tensor& tensor);

/// Along one dimension: `index` has coordinates of `dim` for each element of `dense` (gather and
/// scatter), or, if it is a vector, for each slice of it (index_select and its kin).
/// A tensor without dimensions counts as one of size 1.
struct AlongDim {
  OpFunc op;
  std::int64_t dim;
  bool wrap = false, index_error = true;
};
void run_elements(const AlongDim& how, const at::Tensor& indexed, const at::Tensor& index,
                  const at::Tensor& dense);
void run_slices(const AlongDim& how, const at::Tensor& indexed, const at::Tensor& index,
                const at::Tensor& dense);

/// `index` has places in `flat`, a vector; `dense` has one element for each.
void run_flat(OpFunc op, const at::Tensor& flat, const at::Tensor& index, const at::Tensor& dense,
              bool wrap = true);

/// Gives `out` the values that indices then change some of.
inline void start_from(const at::Tensor& self, const at::Tensor& out) {
  if (!out.is_same(self)) out.copy_(self);
}

/// A number as a tensor without dimensions, for a dense side that is the same everywhere.
at::Tensor number_like(const at::Tensor& tensor, const at::Scalar& value);

/// Positions of the true elements, one contiguous vector on the mask's device for each dimension.
/// Their number must be known on the host, so the host reads the mask and finds them.
std::vector<at::Tensor> true_positions(const at::Tensor& mask);

/// The same as offsets into the flattened mask.
at::Tensor true_offsets(const at::Tensor& mask);

}  // namespace spyre::eager
