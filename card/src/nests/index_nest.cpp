#include "nests/index_nest.h"

#include <algorithm>

namespace spyre::card {
namespace {

using Dim = IndexNest::Dim;

bool moves_coordinates(const Dim& dim) {
  return std::any_of(dim.coordinate.begin(), dim.coordinate.end(),
                     [](std::int64_t stride) { return stride != 0; });
}

/// Whether `outer` goes on where `inner` ends, in every operand.
bool continues(const Dim& inner, const Dim& outer) {
  if (outer.dense != inner.dense * inner.size || outer.indexed != inner.indexed * inner.size)
    return false;
  for (std::size_t j = 0; j < inner.coordinate.size(); ++j)
    if (outer.coordinate[j] != inner.coordinate[j] * inner.size) return false;
  return true;
}

void merge(std::vector<Dim>& dims) {
  std::vector<Dim> merged;
  for (Dim& dim : dims) {
    if (!merged.empty() && continues(merged.back(), dim)) {
      merged.back().size *= dim.size;
    } else {
      merged.push_back(std::move(dim));
    }
  }
  dims = std::move(merged);
}

/// A loop or a digit of a coordinate: what moves a place.
struct Mover {
  std::int64_t count, stride;
};

/// Whether different values of the movers always give different places: each one's stride is
/// longer than all that the shorter ones reach.
bool all_apart(std::vector<Mover> movers, std::int64_t width) {
  std::sort(movers.begin(), movers.end(),
            [](const Mover& a, const Mover& b) { return a.stride < b.stride; });
  std::int64_t reach = width;
  for (const Mover& mover : movers) {
    if (mover.count <= 1 || mover.stride == 0) continue;
    if (mover.stride < reach) return false;
    reach += (mover.count - 1) * mover.stride;
  }
  return true;
}

void mark_apart(std::vector<Dim>& dims, std::span<const IndexCoordinates> coordinates,
                std::int64_t width, bool writes_dense) {
  std::vector<Mover> movers;
  for (const Dim& dim : dims) movers.push_back({dim.size, writes_dense ? dim.dense : dim.indexed});
  if (!writes_dense) {
    for (const IndexCoordinates& tensor : coordinates) {
      std::int64_t highest = tensor.size - 1;
      for (const IndexCoordinates::Digit& digit : tensor.digits) {
        movers.push_back({highest / digit.divisor + 1, digit.stride});
        highest = std::min(highest, digit.divisor - 1);
      }
    }
  }
  const bool apart = all_apart(std::move(movers), width);
  for (Dim& dim : dims) dim.apart = apart && (writes_dense ? dim.dense : dim.indexed) != 0;
}

}  // namespace

std::int64_t IndexNest::position_count() const {
  std::int64_t count = 1;
  for (const Dim& dim : positions) count *= dim.size;
  return count;
}

std::vector<IndexNest> index_nests(const LoopNests& loops,
                                   std::span<const IndexCoordinates> coordinates,
                                   std::int64_t dense_bytes, std::int64_t indexed_bytes,
                                   bool writes_dense) {
  std::vector<IndexNest> nests;
  for (const LoopNest& loop : loops.nests) {
    if (std::find(loop.size.begin(), loop.size.end(), 0) != loop.size.end()) continue;
    IndexNest& nest = nests.emplace_back();
    nest.dense = loop.offset[0] * dense_bytes;
    nest.indexed = loop.offset[1] * indexed_bytes;
    for (std::size_t j = 0; j < coordinates.size(); ++j)
      nest.coordinate.push_back(loop.offset[2 + j] * 4);
    nest.elements = 1;
    std::vector<Dim> dims;
    for (std::size_t d = 0; d < loop.size.size(); ++d) {
      if (loop.size[d] == 1) continue;
      nest.elements *= loop.size[d];
      Dim& dim = dims.emplace_back();
      dim.size = loop.size[d];
      dim.dense = loop.stride[0][d] * dense_bytes;
      dim.indexed = loop.stride[1][d] * indexed_bytes;
      for (std::size_t j = 0; j < coordinates.size(); ++j)
        dim.coordinate.push_back(loop.stride[2 + j][d] * 4);
    }
    mark_apart(dims, coordinates, writes_dense ? dense_bytes : indexed_bytes, writes_dense);
    for (Dim& dim : dims) (moves_coordinates(dim) ? nest.positions : nest.blocks).push_back(dim);
    merge(nest.positions);
    merge(nest.blocks);
    nest.run = {1, dense_bytes, indexed_bytes, std::vector<std::int64_t>(coordinates.size()),
                false};
    if (!nest.blocks.empty()) {
      const auto packed = std::find_if(nest.blocks.begin(), nest.blocks.end(), [&](const Dim& dim) {
        return dim.dense == dense_bytes && dim.indexed == indexed_bytes;
      });
      const auto chosen = packed == nest.blocks.end() ? nest.blocks.begin() : packed;
      nest.run = *chosen;
      nest.blocks.erase(chosen);
    }
  }
  return nests;
}

}  // namespace spyre::card
