// Loop nests over the tensors of a pointwise op, in the shortest form: worked out when a program is
// loaded.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/pointwise.h"
#include "nests/step_payload.h"

namespace spyre::card {

/// Inputs in their order, then the output.
inline constexpr int kMaxTensors = kMaxInputs + 1;
/// Dimensions of at least two elements: more would be more elements than a card has bytes.
inline constexpr int kMaxRank = 64;

struct PointwiseNest {
  struct Dim {
    std::int64_t size;
    std::int64_t stride[kMaxTensors];  ///< bytes
  };

  std::vector<Dim> dims;             ///< the output's strides ascend, unless in_order
  std::int64_t offset[kMaxTensors];  ///< bytes
  std::int64_t elements = 1;         ///< of the output
  std::int64_t low = 0, high = 0;    ///< bytes of the output between which it writes
  bool in_order = false;             ///< elements share places: keep the order, one thread
  bool across = false;               ///< an input is contiguous along dims[1], not along dims[0]
};

/// The nests without those that visit nothing. `widths` are the bytes of an element of each tensor.
std::vector<PointwiseNest> pointwise_nests(std::span<const LoopNest> nests,
                                           std::span<const std::int64_t> widths);

/// Whether the nests write one behind the other, each element once, so that they may run in any
/// order. False also where that is hard to see.
bool independent(std::span<const PointwiseNest> nests);

}  // namespace spyre::card
