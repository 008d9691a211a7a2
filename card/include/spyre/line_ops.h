// Reductions, row operations, scans and sorts as a program says them; docs/program-format.md has
// the words.
#pragma once

#include <cstdint>
#include <vector>

#include "spyre/card.h"
#include "spyre/ops.h"
#include "spyre/pointwise.h"  // Compute

namespace spyre::card {

/// One loop nest over a tensor that is seen as lines. Vectors are innermost dimension first, all of
/// one length; strides say how the element's offset, its line and its position in the line advance.
struct LineLoops {
  std::vector<std::int64_t> size, tensor, line, position;
  std::int64_t tensor_offset = 0, line_offset = 0, position_offset = 0;
};

struct LineTensor {
  std::int64_t operand = -1;  ///< -1: absent
  DataFormat format = DataFormat::SEN169_FP16;
  std::vector<LineLoops> loops;
};

/// Lines, here called accumulators, to one value each, or two.
struct Reduce {
  struct Output {
    std::int64_t operand = -1;  ///< -1: absent
    DataFormat format = DataFormat::SEN169_FP16;
  };
  /// One loop nest that writes results. `second` may be empty if there is no second output.
  struct Loops {
    std::vector<std::int64_t> size, accumulator, output, second;
    std::int64_t accumulator_offset = 0, output_offset = 0, second_offset = 0;
  };

  OpFunc op = OpFunc::sum;
  LineTensor input;
  Output output;
  Narrow narrow = Narrow::none;  ///< of the first output
  Output second;                 ///< indices of max and min, squares of exx2, mean of var
  Compute compute = Compute::fp32;
  std::vector<double> constants;
  std::int64_t accumulators = 1;
  std::int64_t extent = 0;  ///< elements for each accumulator
  std::vector<Loops> results;
};

/// Inputs and outputs in the order of the op:
///   softmax, logsoftmax        input -> output
///   softmaxbwd, logsoftmaxbwd  gradient, result -> output
///   layernorm                  input, weight?, bias? -> output, mean?, scale?
///   rmsnorm                    input, weight? -> output, scale?
///   layernormbwd               gradient, input, mean, scale, weight? -> output
/// Mean and scale (1/sqrt(var + eps)) have one element a row, at position 0. Weight and bias that
/// name row 0 only serve every row.
struct Rows {
  OpFunc op = OpFunc::softmax;
  std::vector<LineTensor> inputs, outputs;
  std::vector<double> constants;
  std::int64_t rows = 0, row_length = 0;
};

struct Scan {
  OpFunc op = OpFunc::cumsum;
  LineTensor input, output, indices;  ///< indices: of cummax and cummin, may be absent
  Narrow narrow = Narrow::none;       ///< of the output
  Compute compute = Compute::fp32;
  std::int64_t lines = 0, line_length = 0;
};

/// Of each line of the input, the elements that the op finds: all of them for sort, k for topk,
/// topkvalue and topkindex, one for the others. Values and indices are lines of that length; one of
/// the two may be absent.
struct Sort {
  OpFunc op = OpFunc::sort;
  LineTensor input, values, indices;
  Narrow narrow = Narrow::none;  ///< of the values
  Compute compute = Compute::fp32;
  std::vector<double> constants;
  std::int64_t lines = 0, line_length = 0;  ///< of the input
};

/// For each query the place in the sorted line of its number where it could be put: before the
/// elements that equal it or, to the right, after them.
struct Search {
  OpFunc op = OpFunc::searchsorted;
  LineTensor sequence, queries, output;
  bool right = false;
  Compute compute = Compute::fp32;
  std::int64_t lines = 0, line_length = 0, query_length = 0;
};

}  // namespace spyre::card
