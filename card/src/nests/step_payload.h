// Reading the payload of a step: words, operands, formats and loop nests, each checked when read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nests/byte_range.h"
#include "nests/loop_nest.h"
#include "spyre/card.h"
#include "spyre/ops.h"

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
  /// An op of that kind; complains that the one it finds `is_not`.
  const OpInfo& op(OpKind kind, const char* is_not);
  /// How many inputs there are: as many as the op takes.
  int inputs(const OpInfo& op);
  /// Whether to compute with integers rather than floats: as the op can.
  bool integers(const OpInfo& op);
  /// As many as the op takes.
  std::vector<double> constants(const OpInfo& op);

  struct Tensor {
    std::int64_t operand = -1;
    DataFormat format = DataFormat::INVALID;
    bool present() const { return operand >= 0; }
  };
  /// The fields "NAME operand" and "NAME format".
  Tensor tensor(const std::string& name);
  /// The same, which may be absent.
  Tensor optional_tensor(const std::string& name);
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

/// Refuses a nest that leads outside of every operand.
void check_reach(const PayloadReader& reader, const char* field, const LoopNest& nest,
                 std::size_t tensor);

struct LoopNests {
  std::vector<LoopNest> nests;
  std::int64_t visits = 0;  ///< iterations of all nests

  ByteRange range(std::size_t tensor, DataFormat format) const {
    return byte_range(nests, tensor, format);
  }
};

/// Reads: loop count, then for each nest: dimensions, one offset an operand, then for each
/// dimension its size and one stride an operand.
/// `names` are the operands', for complaints.
LoopNests read_nests(PayloadReader& reader, std::span<const char* const> names);

}  // namespace spyre::card
