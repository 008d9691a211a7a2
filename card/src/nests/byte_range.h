// Which bytes of its tensors a step touches, and whether one tensor lies over another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "nests/loop_nest.h"
#include "spyre/card.h"

namespace spyre::card {

/// From the start of an operand to the first byte visited, and to behind the last.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t touched = 0;  ///< whole sticks in between, each counted once
};

/// What nests, in elements, touch of a tensor.
ByteRange byte_range(std::span<const LoopNest> nests, std::size_t tensor, DataFormat format);

/// Whether two tensors of a step, which begin there at this launch, have bytes in common. Operands
/// may be parts of one allocation or of one scratchpad (inside `cores` they mostly are), so only
/// addresses tell: never compare operands, and ranges only with the places they count from.
inline bool overlap(const std::byte* a, const ByteRange& a_range, const std::byte* b,
                    const ByteRange& b_range) {
  const auto at = [](const std::byte* tensor, std::uint64_t offset) {
    return reinterpret_cast<std::uintptr_t>(tensor) + offset;
  };
  return at(a, a_range.begin) < at(b, b_range.end) && at(b, b_range.begin) < at(a, a_range.end);
}

/// Copies of what a step reads and overwrites: it must be read as it was before; else the result
/// would depend on the order in which host threads come along.
class ReadBefore {
 public:
  /// Where to read a tensor instead. Its range counts from there, too.
  std::byte* keep(const std::byte* tensor, const ByteRange& range) {
    std::vector<std::byte>& copy = copies_.emplace_back(tensor + range.begin, tensor + range.end);
    return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(copy.data()) -
                                        range.begin);
  }

 private:
  std::vector<std::vector<std::byte>> copies_;
};

}  // namespace spyre::card
