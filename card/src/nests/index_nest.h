// Loop nests of an index step, in the form that runs: bytes, and dimensions sorted by what they do.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nests/step_payload.h"

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

/// Dimensions are innermost first; all strides and offsets count bytes.
struct IndexNest {
  struct Dim {
    std::int64_t size, dense, indexed;
    std::vector<std::int64_t> coordinate;  ///< one an index tensor
    bool apart = false;  ///< its iterations never touch the same place of what is written
  };
  std::int64_t dense = 0, indexed = 0;
  std::vector<std::int64_t> coordinate;
  std::vector<Dim> positions;  ///< dimensions along which coordinates change
  std::vector<Dim> blocks;     ///< others: what moves as a block for every position
  Dim run;                     ///< the innermost of those, of size 1 if there is none
  std::int64_t elements = 0;

  std::int64_t position_count() const;
};

/// Operands of `loops`: dense, indexed, index tensors. `writes_dense`: the direction.
std::vector<IndexNest> index_nests(const LoopNests& loops,
                                   std::span<const IndexCoordinates> coordinates,
                                   std::int64_t dense_bytes, std::int64_t indexed_bytes,
                                   bool writes_dense);

}  // namespace spyre::card
