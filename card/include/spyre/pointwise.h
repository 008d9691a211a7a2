// A pointwise op as a program says it; docs/program-format.md has the words.
#pragma once

#include <cstdint>
#include <vector>

#include "spyre/card.h"
#include "spyre/ops.h"

namespace spyre::card {

/// The type an op computes in. Results are brought to the output's format once, at the end.
enum class Compute : std::uint8_t { fp32 = 0, int64 = 1 };

/// output[i] = op(inputs[0][i], inputs[1][i], ...), for every i of the loop nests.
///
/// Offsets and strides count elements. "Tensors" below are the inputs that are no scalars, in their
/// order, and then the output.
struct Pointwise {
  struct Input {
    std::int64_t operand = 0;
    DataFormat format = DataFormat::SEN169_FP16;
    double value = 0;  ///< of a scalar

    static constexpr std::int64_t kScalar = -1;  ///< in place of an operand: `value` everywhere
    static Input scalar(double value) { return {kScalar, DataFormat::INVALID, value}; }
  };
  struct Output {
    std::int64_t operand = 0;
    DataFormat format = DataFormat::SEN169_FP16;
    Narrow narrow = Narrow::none;  ///< what a value is brought to before it is encoded
  };
  struct Dim {
    std::int64_t size = 0;
    std::vector<std::int64_t> stride;  ///< one a tensor
  };
  struct Nest {
    std::vector<Dim> dims;             ///< innermost first
    std::vector<std::int64_t> offset;  ///< one a tensor
  };

  OpFunc op = OpFunc::identity;
  std::vector<Input> inputs;
  Output output;
  Compute compute = Compute::fp32;
  std::vector<double> constants;
  std::vector<Nest> nests;
};

}  // namespace spyre::card
