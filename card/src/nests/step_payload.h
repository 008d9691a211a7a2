// Reading the payload of a step: words, operands, formats and loop nests, each checked when read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "spyre/card.h"

namespace spyre::card {

/// No step has reason to visit more elements than a card has bytes. The bound also keeps the sums
/// of a program's traffic far from overflowing.
inline constexpr std::int64_t kMaxElements = kDefaultCardBytes;

/// Reads a payload word by word. Every complaint names the step and the field.
class PayloadReader {
 public:
  PayloadReader(std::size_t step_index, const char* step_name, std::span<const std::byte> payload)
      : step_index_(step_index), step_name_(step_name), payload_(payload) {}

  [[noreturn]] void refuse(const std::string& field, const std::string& why) const;

  std::int64_t word(const char* field);
  /// For example the "stride" of the "source".
  std::int64_t word_of(const char* owner, const char* field);
  std::int64_t within(const char* field, std::int64_t lowest, std::int64_t highest);
  /// A number of things of which each takes at least one more word of the payload.
  std::int64_t count(const char* field);
  std::int64_t operand(const char* field);
  DataFormat format(const char* field);
  Narrow narrow(const char* field);
  double real(const char* field);  ///< the bits of a double
  /// The next so many words, as they are.
  std::span<const std::byte> words(const char* field, std::int64_t count);
  std::size_t step_index() const { return step_index_; }
  void finish() const;  ///< nothing may be left

  /// Complaints name this loop nest, or other part, from now on; -1 for none.
  void in_loop(std::int64_t loop, const char* part = "loop") { loop_ = loop, part_ = part; }

 private:
  std::size_t words_left() const { return payload_.size() / sizeof(std::int64_t); }

  const std::size_t step_index_;
  const char* const step_name_;
  std::span<const std::byte> payload_;
  std::int64_t loop_ = -1;
  const char* part_ = "loop";
};

struct ByteRange {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t touched = 0;  ///< whole sticks in between, each counted once
};

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

/// Which elements of an operand loop nests touch.
class Reach {
 public:
  void add(const PayloadReader& reader, const char* field, std::span<const std::int64_t> size,
           std::span<const std::int64_t> stride, std::int64_t offset);
  /// Bytes from the start of the operand to the first element visited, and to behind the last.
  ByteRange bytes(DataFormat format) const;

 private:
  struct Dim {
    std::int64_t size, stride;  // neither is 0
  };

  std::vector<std::vector<Dim>> nests_;
  std::int64_t first_ = kDefaultCardBytes, end_ = 0;  // elements
};

/// Loops over several operands at once. Dimensions are innermost first; strides count elements.
struct LoopNest {
  std::vector<std::int64_t> size;
  std::vector<std::vector<std::int64_t>> stride;  ///< [operand][dimension]
  std::vector<std::int64_t> offset;               ///< [operand]
};

struct LoopNests {
  std::vector<LoopNest> nests;
  std::vector<Reach> reach;  ///< [operand]
  std::int64_t visits = 0;   ///< iterations of all nests
};

/// Reads: loop count, then for each nest: dimensions, one offset an operand, then for each
/// dimension its size and one stride an operand.
/// `names` are the operands', for complaints.
LoopNests read_nests(PayloadReader& reader, std::span<const char* const> names);

}  // namespace spyre::card
