#include "nests/index_nest.h"

#include <algorithm>
#include <array>

namespace spyre::card {
namespace {

constexpr std::size_t kDense = IndexNest::kDense, kIndexed = IndexNest::kIndexed;

/// Whether all loops and all coordinates that move what is written lead to different places.
bool all_apart(const LoopNest& nest, std::span<const IndexCoordinates> coordinates,
               std::size_t written) {
  LoopNest places(1);
  const auto add = [&](std::int64_t count, std::int64_t stride) {
    if (stride != 0) places.add(count, {stride});
  };
  for (std::size_t loop = 0; loop < nest.rank(); ++loop)
    add(nest.size(loop), nest.stride(loop, written));
  if (written == kIndexed)
    for (const IndexCoordinates& tensor : coordinates) {
      std::int64_t highest = std::max<std::int64_t>(tensor.size - 1, 0);
      for (const IndexCoordinates::Digit& digit : tensor.digits) {
        add(highest / digit.divisor + 1, digit.stride);
        highest = std::min(highest, digit.divisor - 1);
      }
    }
  return distinct(std::span(&places, 1), std::array{std::int64_t{1}});
}

/// Takes the loop that becomes the run out of the blocks: a packed one, if there is such.
LoopNest take_run(LoopNest& blocks, std::span<const std::int64_t> widths) {
  LoopNest run(widths.size());
  std::size_t chosen = 0;
  for (std::size_t loop = blocks.rank(); loop-- > 0;)
    if (blocks.stride(loop, kDense) == widths[kDense] &&
        blocks.stride(loop, kIndexed) == widths[kIndexed])
      chosen = loop;
  if (blocks.rank() == 0) {
    run.add(1, widths);
  } else {
    run.add(blocks.size(chosen), blocks.strides(chosen));
    blocks.drop(chosen);
  }
  return run;
}

}  // namespace

std::vector<IndexNest> index_nests(std::vector<LoopNest> nests,
                                   std::span<const IndexCoordinates> coordinates,
                                   std::int64_t dense_bytes, std::int64_t indexed_bytes,
                                   bool writes_dense) {
  std::vector<std::int64_t> widths(IndexNest::kCoordinates + coordinates.size(), 4);
  widths[kDense] = dense_bytes;
  widths[kIndexed] = indexed_bytes;
  std::vector<IndexNest> result;
  for (LoopNest& nest : nests) {
    if (nest.empty()) continue;
    nest.drop_single();
    nest.scale(widths);
    LoopNest positions(widths.size()), blocks(widths.size());
    for (std::size_t k = 0; k < widths.size(); ++k) positions.offset(k) = nest.offset(k);
    for (std::size_t loop = 0; loop < nest.rank(); ++loop) {
      const auto strides = nest.strides(loop);
      const bool moves = std::any_of(strides.begin() + IndexNest::kCoordinates, strides.end(),
                                     [](std::int64_t stride) { return stride != 0; });
      (moves ? positions : blocks).add(nest.size(loop), strides);
    }
    positions.merge();
    blocks.merge();
    LoopNest run = take_run(blocks, widths);
    result.push_back({std::move(positions), std::move(blocks), std::move(run),
                      all_apart(nest, coordinates, writes_dense ? kDense : kIndexed),
                      nest.count()});
  }
  return result;
}

}  // namespace spyre::card
