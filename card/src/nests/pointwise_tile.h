// How a pointwise op goes over its tensors: in tiles that fit in the first-level cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/convert.h"
#include "kernels/pointwise.h"
#include "nests/loop_nest.h"
#include "spyre/pointwise.h"

namespace spyre::card {

/// Inputs in their order, then the output.
inline constexpr int kMaxTensors = kMaxInputs + 1;

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

/// A nest in the form that runs, in bytes.
struct PointwiseNest {
  LoopNest loops;
  bool in_order = false;  ///< elements share places: keep the order, one thread
  bool across = false;    ///< an input is contiguous along loop 1, not along loop 0
};

/// Runs the loops of the nest, or a part of them. Inputs are the output itself, element for
/// element, or do not overlap with it.
void run_pointwise(const PointwiseOp& op, const PointwiseNest& nest, const LoopNest& loops,
                   std::byte* const* tensors);

}  // namespace spyre::card
