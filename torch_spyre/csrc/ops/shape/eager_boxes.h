// Copies made of boxes: pieces of tensors that go, forwards or backwards, to pieces of another. One
// program, whatever their number. Concatenation, flips, rolls and padding are such copies.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "program/eager_plan.h"

namespace spyre::eager {

/// Elements from one place to another. Strides and offsets count storage elements, as a tensor's
/// do; strides may be negative or, of the source, 0.
struct Box {
  static constexpr int kMembers = 6;

  std::int64_t source = 0;  ///< which of the sources
  c10::SmallVector<std::int64_t, 6> size, from, to;
  std::int64_t from_offset = 0, to_offset = 0;
};

/// A stretch of one dimension: `size` elements from `from` on, `step` apart, go to `to` and after.
struct Stretch {
  std::int64_t size, from, step, to;
};

/// The boxes that stretches make, one list for each dimension; without those that are empty.
std::vector<Box> boxes_of(const at::Tensor& source, const at::Tensor& target,
                          c10::ArrayRef<std::vector<Stretch>> stretches);

/// Elements are converted to the dtype of `target`. Boxes of one target do not overlap.
void copy_boxes(Tensors sources, const at::Tensor& target, std::vector<Box> boxes);

}  // namespace spyre::eager
