// How a pointwise op goes over its tensors: in tiles that fit in the first-level cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/convert.h"
#include "kernels/pointwise.h"
#include "nests/pointwise_nest.h"
#include "spyre/pointwise.h"

namespace spyre::card {

/// Everything about a pointwise op but where its elements lie.
struct PointwiseOp {
  struct Tensor {
    std::int64_t width;  ///< bytes of an element
    PackedRun convert;   ///< to the compute type; for the output, from it
    bool native;         ///< an input whose elements need no conversion
  };

  PointwiseRun run = nullptr;
  double constants[kMaxConstants] = {};
  Compute compute = Compute::fp32;
  InPlace narrow = nullptr;  ///< applied to results, if any
  int inputs = 0, tensors = 0;
  int tensor_of[kMaxInputs] = {};  ///< -1: the input is the scalar
  double scalar[kMaxInputs] = {};
  Tensor tensor[kMaxTensors] = {};  ///< inputs that are no scalars, then the output
};

/// Some of the elements of a nest.
struct PointwisePart {
  const PointwiseNest* nest;
  std::int64_t size[kMaxRank];   ///< of each dimension
  std::byte* base[kMaxTensors];  ///< where the first element lies
};

/// Inputs are the output itself, element for element, or do not overlap with it.
void run_part(const PointwiseOp& op, const PointwisePart& part);

}  // namespace spyre::card
