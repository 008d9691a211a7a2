// What the payload of a chain says: tensors, values in the order they are computed, stores.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/pointwise.h"
#include "nests/lines.h"
#include "nests/step_payload.h"
#include "spyre/chain.h"
#include "steps/reduce_pieces.h"

namespace spyre::card {

/// What a value changes along.
struct ChainDims {
  bool lines = false, positions = false;

  bool operator==(const ChainDims&) const = default;
  ChainDims operator|(const ChainDims& other) const {
    return {lines || other.lines, positions || other.positions};
  }
};

struct ChainTensor {
  std::int64_t operand;
  Narrow narrow;  ///< of stores
  ChainDims dims;
  LineView view;
};

struct ChainValue {
  Chain::Kind kind;
  ChainDims dims;
  DataFormat format;
  Narrow narrow = Narrow::none;
  bool needed = false;       ///< for a store
  bool clean_nan = false;    ///< an op looks at its sign, even if it is NaN
  bool only_stored = false;  ///< in its own format: storing rounds it
  std::size_t tensor = 0;    ///< of a load

  struct Input {
    std::int64_t value;  ///< or Chain::Input::kScalar
    double scalar;
  };
  std::vector<Input> inputs;
  OpFunc op = OpFunc::identity;  ///< of a pointwise op
  PointwiseRun run = nullptr;
  NumberRun number_run[2] = {};  ///< with a number as this input; null if there is none
  double constants[kMaxConstants] = {};
  std::int64_t cost = 1;             ///< of an element, in elements of a cheap op
  std::optional<ReducePieces> fold;  ///< of a reduction
};

struct ChainStore {
  std::size_t value, tensor;
};

/// What storing does to the value. A boolean one has been narrowed when it was computed.
inline Narrow narrow_of(const ChainValue& value, const ChainTensor& to) {
  return value.narrow == Narrow::boolean ? Narrow::none : to.narrow;
}

struct ChainValues {
  explicit ChainValues(PayloadReader& reader);

  bool loaded(std::size_t tensor) const;

  LineShape shape;
  std::vector<ChainTensor> tensors;
  std::vector<ChainValue> values;
  std::vector<ChainStore> stores;

 private:
  void read_tensor(PayloadReader& reader, std::int64_t index);
  void read_value(PayloadReader& reader, std::int64_t index);
  void read_pointwise(PayloadReader& reader, std::int64_t index, ChainValue& value);
  void read_reduce(PayloadReader& reader, std::int64_t index, ChainValue& value);
  void read_result(PayloadReader& reader, const OpInfo& op, ChainValue& value);
  void read_store(PayloadReader& reader);
  void mark_needed();
};

}  // namespace spyre::card
