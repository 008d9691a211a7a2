#include "nests/pointwise_nest.h"

#include <algorithm>
#include <limits>

namespace spyre::card {
namespace {

using Dim = PointwiseNest::Dim;

constexpr std::int64_t kShortRun = 8;  // elements; what is contiguous for less does not matter

/// Dimensions of several elements. Where every round would write the same places, only the last
/// round is left.
void collect_dims(const LoopNest& loops, std::span<const std::int64_t> widths,
                  PointwiseNest& nest) {
  const std::size_t tensors = widths.size();
  for (std::size_t k = 0; k < tensors; ++k) nest.offset[k] = loops.offset[k] * widths[k];
  for (std::size_t d = 0; d < loops.size.size(); ++d) {
    if (loops.size[d] == 1) continue;
    Dim dim{};
    dim.size = loops.size[d];
    for (std::size_t k = 0; k < tensors; ++k) dim.stride[k] = loops.stride[k][d] * widths[k];
    if (loops.stride.back()[d] != 0) {
      nest.dims.push_back(dim);
    } else {
      for (std::size_t k = 0; k < tensors; ++k) nest.offset[k] += (dim.size - 1) * dim.stride[k];
    }
  }
}

/// Turns and sorts the dimensions by the output's strides. False, and nothing done, unless every
/// element has a place of its own: surely so if each dimension steps over all that the smaller ones
/// span.
bool sort_by_output(PointwiseNest& nest, std::size_t tensors) {
  PointwiseNest sorted = nest;
  const std::size_t output = tensors - 1;
  for (Dim& dim : sorted.dims) {
    if (dim.stride[output] >= 0) continue;
    for (std::size_t k = 0; k < tensors; ++k) {
      sorted.offset[k] += (dim.size - 1) * dim.stride[k];
      dim.stride[k] = -dim.stride[k];
    }
  }
  std::stable_sort(sorted.dims.begin(), sorted.dims.end(),
                   [&](const Dim& a, const Dim& b) { return a.stride[output] < b.stride[output]; });
  std::int64_t span = 0;
  for (const Dim& dim : sorted.dims) {
    if (dim.stride[output] <= span) return false;
    span += (dim.size - 1) * dim.stride[output];
  }
  nest = std::move(sorted);
  return true;
}

/// Joins each dimension with its outer neighbour if the two together are linear for all tensors.
void merge_neighbours(std::vector<Dim>& dims, std::size_t tensors) {
  std::size_t kept = 0;
  for (std::size_t i = 1; i < dims.size(); ++i) {
    Dim& inner = dims[kept];
    const Dim& outer = dims[i];
    bool linear = true;
    for (std::size_t k = 0; k < tensors; ++k)
      linear &= outer.stride[k] == inner.stride[k] * inner.size;
    if (linear) {
      inner.size *= outer.size;
    } else {
      dims[++kept] = outer;
    }
  }
  if (!dims.empty()) dims.resize(kept + 1);
}

/// An input that runs along another dimension than the output: that one comes second, so that tiles
/// of the two touch whole cache lines on both sides.
bool bring_across(std::vector<Dim>& dims, std::span<const std::int64_t> widths) {
  for (std::size_t k = 0; k + 1 < widths.size(); ++k) {
    if (dims.empty() || dims[0].stride[k] == widths[k] || dims[0].stride[k] == 0) continue;
    for (std::size_t d = 1; d < dims.size(); ++d) {
      if (dims[d].stride[k] != widths[k] || dims[d].size < kShortRun) continue;
      const auto second = dims.begin() + 1;
      std::rotate(second, dims.begin() + static_cast<std::ptrdiff_t>(d),
                  dims.begin() + static_cast<std::ptrdiff_t>(d) + 1);
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<PointwiseNest> pointwise_nests(std::span<const LoopNest> nests,
                                           std::span<const std::int64_t> widths) {
  const std::size_t output = widths.size() - 1;
  std::vector<PointwiseNest> result;
  for (const LoopNest& loops : nests) {
    if (std::find(loops.size.begin(), loops.size.end(), 0) != loops.size.end()) continue;
    PointwiseNest& nest = result.emplace_back();
    collect_dims(loops, widths, nest);
    nest.in_order = !sort_by_output(nest, widths.size());
    merge_neighbours(nest.dims, widths.size());
    if (!nest.in_order) nest.across = bring_across(nest.dims, widths);
    nest.low = nest.high = nest.offset[output];
    for (const Dim& dim : nest.dims) {
      const std::int64_t extent = (dim.size - 1) * dim.stride[output];
      (extent < 0 ? nest.low : nest.high) += extent;
      nest.elements *= dim.size;
    }
    nest.high += widths[output];
  }
  return result;
}

bool independent(std::span<const PointwiseNest> nests) {
  std::int64_t end = std::numeric_limits<std::int64_t>::min();
  for (const PointwiseNest& nest : nests) {
    if (nest.in_order || nest.low < end) return false;
    end = nest.high;
  }
  return true;
}

}  // namespace spyre::card
