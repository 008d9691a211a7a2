// What an index step does with the places it has found: plain moves, and combining.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/convert.h"
#include "spyre/ops.h"
#include "spyre/pointwise.h"

namespace spyre::card {

/// Runs of elements, one a position: run p begins at offset[p]. Strides count bytes.
struct IndexRuns {
  std::byte* base;
  const std::int64_t* offset;
  std::int64_t stride;
};

/// Moves `positions` runs of `length` elements of `width` bytes, in order.
void move_runs(const IndexRuns& target, const IndexRuns& source, std::int64_t positions,
               std::int64_t length, std::int64_t width);

/// How elements of an indexed tensor are combined with dense ones.
struct IndexCombination {
  OpFunc op;
  Compute compute;
  DataFormat dense_format, indexed_format;
  ConvertRun load_dense, load_indexed, store_indexed;  ///< from and to fp32 or int64

  IndexCombination(OpFunc op_func, Compute in, DataFormat dense, DataFormat indexed, Narrow narrow);
};

/// indexed = indexed op dense, run after run.
void combine_runs(const IndexCombination& combination, const IndexRuns& indexed,
                  const IndexRuns& dense, std::int64_t positions, std::int64_t length);

}  // namespace spyre::card
