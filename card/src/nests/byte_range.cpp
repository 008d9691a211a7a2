#include "nests/byte_range.h"

#include <algorithm>
#include <cstdlib>

namespace spyre::card {

ByteRange byte_range(std::span<const LoopNest> nests, std::size_t tensor, DataFormat format) {
  const std::int64_t width = format_info(format).bits / 8;
  std::int64_t first = kDefaultCardBytes, last = -1;
  for (const LoopNest& nest : nests) {
    if (nest.empty()) continue;
    const LoopNest::Reach reach = *nest.reach(tensor);
    first = std::min(first, reach.first);
    last = std::max(last, reach.last);
  }
  if (last < 0) return {};
  const auto begin = static_cast<std::uint64_t>(first * width);
  const auto end = static_cast<std::uint64_t>((last + 1) * width);
  constexpr std::uint64_t stick = kStickBytes;
  const std::uint64_t sticks = (end - 1) / stick - begin / stick + 1;
  // Steps of a stick or more lead to other sticks, unless there are more than lie in between.
  std::uint64_t touched = 0;
  for (const LoopNest& nest : nests) {
    if (nest.empty()) continue;
    std::int64_t run = width;
    std::uint64_t runs = 1;
    for (std::size_t loop = 0; loop < nest.rank(); ++loop) {
      if (nest.size(loop) == 1 || nest.stride(loop, tensor) == 0) continue;
      const std::int64_t step = std::abs(nest.stride(loop, tensor)) * width;
      if (step < kStickBytes) {
        run += (nest.size(loop) - 1) * step;
      } else if (__builtin_mul_overflow(runs, static_cast<std::uint64_t>(nest.size(loop)), &runs)) {
        runs = sticks;
      }
    }
    const std::uint64_t run_sticks = (static_cast<std::uint64_t>(run) + stick - 1) / stick;
    touched += std::min(std::min(runs, sticks) * run_sticks, sticks);
  }
  return {begin, end, std::min(touched, sticks) * stick};
}

}  // namespace spyre::card
