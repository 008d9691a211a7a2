// A chain of ops over one set of lines as a program says it; docs/program-format.md has the words.
#pragma once

#include <cstdint>
#include <vector>

#include "spyre/card.h"
#include "spyre/line_ops.h"
#include "spyre/ops.h"

namespace spyre::card {

/// Pointwise ops and reductions whose values stay in the card's registers, so to speak: what is not
/// stored never goes to memory. All of it is computed in fp32.
struct Chain {
  /// Without lines, everything is of line 0 and serves every line; without positions, everything is
  /// at position 0: one value a line.
  struct Tensor {
    std::int64_t operand = 0;
    DataFormat format = DataFormat::SEN169_FP16;
    Narrow narrow = Narrow::none;  ///< of stores: none or boolean
    bool has_lines = true, has_positions = true;
    std::vector<LineLoops> loops;
  };
  struct Input {
    static constexpr std::int64_t kScalar = -1;  ///< in place of a value: `scalar` everywhere
    std::int64_t value = kScalar;
    double scalar = 0;
  };
  enum class Kind : std::uint8_t { load = 0, pointwise = 1, reduce = 2 };
  /// `format` and `narrow` are those that the value would have had in memory.
  struct Value {
    Kind kind = Kind::load;
    std::int64_t tensor = 0;  ///< of a load; a load has none of the rest
    OpFunc op = OpFunc::identity;
    std::vector<Input> inputs;  ///< a reduction has one, with positions
    std::vector<double> constants;
    DataFormat format = DataFormat::IEEE_FP32;
    Narrow narrow = Narrow::none;
  };
  struct Store {
    std::int64_t value = 0, tensor = 0;
  };

  std::int64_t lines = 0, length = 0;
  std::vector<Tensor> tensors;
  std::vector<Value> values;  ///< each of inputs that come before it
  std::vector<Store> stores;
};

}  // namespace spyre::card
