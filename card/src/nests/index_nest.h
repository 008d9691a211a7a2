// Loop nests of an index step, in the form that runs: sorted by what their loops do.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nests/loop_nest.h"

namespace spyre::card {

/// An index tensor: where its coordinates point to.
struct IndexCoordinates {
  struct Digit {
    std::int64_t divisor, stride;  ///< stride in bytes
    int shift;                     ///< of a divisor that is a power of two, else -1
  };
  std::int64_t operand, size, dimension;
  std::vector<Digit> digits;

  /// Largest offset in bytes that a coordinate gives.
  std::int64_t reach = 0;
};

/// Each goes over the dense tensor, the indexed one, and the index tensors, in bytes. Where one is,
/// is the sum of its places in all three.
struct IndexNest {
  static constexpr std::size_t kDense = 0, kIndexed = 1, kCoordinates = 2;

  LoopNest positions;  ///< loops along which coordinates change
  LoopNest blocks;     ///< others: what moves as a block for every position
  LoopNest run;        ///< the innermost of those, or one of a single element
  /// Iterations that are different along loops that move what is written never write the same
  /// place.
  bool apart = false;
  std::int64_t elements = 0;
};

/// Of nests over (dense, indexed, index tensors), in elements. `writes_dense`: the direction.
std::vector<IndexNest> index_nests(std::vector<LoopNest> nests,
                                   std::span<const IndexCoordinates> coordinates,
                                   std::int64_t dense_bytes, std::int64_t indexed_bytes,
                                   bool writes_dense);

}  // namespace spyre::card
