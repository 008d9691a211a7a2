// Reductions of views, for the kernels that are made of them.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "program/eager_lines.h"

namespace spyre::eager {

struct Reduction {
  static constexpr int kMembers = 4;

  OpFunc op;
  card::Compute compute = card::Compute::fp32;
  std::optional<double> constant = {};
  bool root = false;  ///< the square root of the result
};

/// One step on the card. `out` and `second`, if there is one, have their sizes, with or without the
/// reduced dimensions. What the second result is depends on the op: for extremes where they are,
/// counted over the reduced dimensions in index order; for a variance the mean.
void reduce(const Reduction& reduction, const at::Tensor& self, DimSet dims, const at::Tensor& out,
            const at::Tensor& second = {});

}  // namespace spyre::eager
