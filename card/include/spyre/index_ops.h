// Steps that read or write where integers say, as a program says them; docs/program-format.md has
// the words.
#pragma once

#include <cstdint>
#include <vector>

#include "spyre/card.h"
#include "spyre/ops.h"
#include "spyre/pointwise.h"  // Compute

namespace spyre::card {

/// Moves elements between a dense tensor and places of an indexed one. Each index tensor holds the
/// coordinates of one dimension of the indexed tensor; loops walk the rest of it.
///   gather, indexselect, embedding              dense <- indexed
///   scatter, indexput                           indexed <- dense
///   scatteradd, indexputadd, scattermul,
///   scattermin, scattermax                      indexed <- indexed op dense
struct Index {
  struct Tensor {
    std::int64_t operand = 0;
    DataFormat format = DataFormat::SEN169_FP16;
  };
  /// How a coordinate becomes an offset: digit after digit, coordinate / divisor times stride, and
  /// the remainder goes to the next one. The stick dimension has two, whole sticks and lanes.
  struct Digit {
    std::int64_t divisor = 1, stride = 0;
  };
  struct Coordinates {
    std::int64_t operand = 0;    ///< IEEE_INT32
    std::int64_t size = 0;       ///< coordinates are below it
    std::int64_t dimension = 0;  ///< named in the complaint about one that is not
    std::vector<Digit> digits;
  };
  struct Dim {
    std::int64_t size = 0, dense = 0, indexed = 0;
    std::vector<std::int64_t> coordinates;  ///< one stride an index tensor
  };
  struct Nest {
    std::int64_t dense_offset = 0, indexed_offset = 0;
    std::vector<std::int64_t> coordinate_offset;
    std::vector<Dim> dims;  ///< innermost first
  };

  OpFunc op = OpFunc::gather;
  Tensor dense, indexed;
  Narrow narrow = Narrow::none;     ///< of results that are combined
  Compute compute = Compute::fp32;  ///< in which they are
  bool wrap = false;                ///< negative coordinates count from the end
  std::vector<Coordinates> coordinates;
  std::vector<Nest> nests;
};

}  // namespace spyre::card
