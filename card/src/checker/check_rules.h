// The rules that the checker applies to every element a step reads or writes.
//
// A value is wrong if it depends on memory that nobody has written, or on what is no element of the
// tensor it is read from (padding, other elements of the storage). Copying such a value is no
// fault: programs may walk over padding. It is one where the value becomes an element of a result.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checker/check_memory.h"
#include "nests/step_payload.h"

namespace spyre::card {

/// What a launch was told about an operand, and which bytes of the allocation that is.
struct OperandTold {
  enum Place : std::uint8_t {
    padding = 0,
    storage = 1,
    view = 2,
    others_padding = 3,  ///< in a stick without elements of the tensor
  };
  static bool is_others(std::uint8_t place) { return place == storage || place == others_padding; }

  OperandTold(std::int64_t operand, const OperandDescription* told, std::string allocation_name,
              std::uint64_t allocation_bytes);

  /// "element (0, 3)", of the tensor or else of its storage; or what else the byte is.
  std::string element(std::uint64_t byte) const;
  std::string text() const;  ///< "operand 1, float32[5]"

  std::int64_t number;
  std::string allocation;                 ///< who asked for the memory
  const OperandDescription* description;  ///< or null
  std::vector<std::uint8_t> places;       ///< by byte; none if nothing is known
};

/// An operand as a step sees it.
struct CheckedOperand {
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;  ///< from `data` to the end of the allocation or scratchpad
  const Shadow* shadow = nullptr;
  const OperandTold* told = nullptr;  ///< null: scratchpads
  std::uint64_t start = 0;            ///< bytes of the allocation before `data`
  Touched* touched = nullptr;         ///< of the allocation
  std::int64_t thing = -1;  ///< of a scratchpad: where what this row of a table names begins
  std::uint64_t low = UINT64_MAX, high = 0;  ///< bytes from `data` that the current step touches

  bool scratch() const { return !told || (told->description && told->description->scratch); }
  const std::uint8_t* places() const {
    return !told || told->places.empty() ? nullptr : told->places.data() + start;
  }
  std::uint64_t offset() const { return shadow->offset(data); }
};

/// A tensor of a step.
struct CheckedTensor {
  CheckedOperand* operand = nullptr;
  std::int64_t width = 0;  ///< bytes of an element
  std::string role;        ///< "input 0"
};

/// What was last written to the sticks of the scratchpads, by where the thing begins.
class ScratchpadThings {
 public:
  /// Things that begin elsewhere have been written over it since it was written itself.
  bool lost(std::uint64_t stick, std::int64_t thing) const;
  void write(std::uint64_t stick, std::int64_t thing);
  void forget() { last_.clear(), before_.clear(); }

 private:
  std::vector<std::int64_t> last_, before_;  // by stick; empty: nothing was written
};

class CheckRules {
 public:
  /// Whose value is wrong: called with the number of an element of a row that is written.
  using Origin = std::function<std::string(std::int64_t)>;

  /// `where`: "aten::add at a.py:3".
  CheckRules(std::string where, ScratchpadThings& things)
      : where_(std::move(where)), things_(things) {}

  void begin_step(std::string step) { step_ = std::move(step), inside_.clear(); }
  /// A step of the step, for messages.
  void inside(std::string step) { inside_ = std::move(step); }
  /// Inside of `cores`: which core it is, from now on. -1: all of them together.
  void set_core(std::int64_t core) { core_ = core; }

  /// `count` elements are read. Adds what is wrong with each to wrong[i], if there is such; returns
  /// all of it.
  std::uint8_t read(const CheckedTensor& tensor, std::int64_t offset, std::int64_t stride,
                    std::int64_t count, std::uint8_t* wrong);
  /// And written, with what is wrong with each; null if nothing is.
  void write(const CheckedTensor& tensor, std::int64_t offset, std::int64_t stride,
             std::int64_t count, const std::uint8_t* wrong, const Origin& origin);
  /// Written somewhere: only known when the step runs.
  void may_write(const CheckedTensor& tensor, std::int64_t offset, std::int64_t count);
  /// Sticks that a core works on have to begin where sticks do. (Steps of the whole card may begin
  /// anywhere: it brings the elements together.)
  void aligned(const CheckedTensor& tensor, std::int64_t offset) const;
  /// No core reaches further than that in one step.
  void within_span(const CheckedOperand& operand) const;
  bool written_by_step(const CheckedTensor& tensor, std::int64_t offset) const;

  /// What is wrong with an element: "element 3 of input 0, operand 0, float32[5], was never ...".
  std::string culprit(const CheckedTensor& tensor, std::int64_t offset, std::uint8_t wrong) const;
  [[noreturn]] void complain(const std::string& what) const;

 private:
  std::uint8_t wrong_at(const CheckedTensor& tensor, std::int64_t byte) const;
  void check_bounds(const CheckedTensor& tensor, std::int64_t offset, std::int64_t stride,
                    std::int64_t count, const char* verb) const;
  void touch(const CheckedTensor& tensor, std::int64_t offset, std::int64_t stride,
             std::int64_t count) const;
  void read_by_core(const CheckedTensor& tensor, std::int64_t byte, std::int64_t bytes);
  void write_by_core(const CheckedTensor& tensor, std::int64_t byte, std::int64_t bytes);
  void check_result(const CheckedTensor& tensor, std::int64_t byte, std::uint8_t wrong,
                    const std::function<std::string()>& origin) const;
  std::string element(const CheckedTensor& tensor, std::int64_t byte) const;

  const std::string where_;
  ScratchpadThings& things_;
  std::string step_, inside_;
  std::int64_t core_ = -1;
};

/// Calls row(places, count) for each row of loop 0, whose elements are stride_or_0(0, tensor)
/// apart.
template <class Row>
void each_row(const LoopNest& nest, Row&& row) {
  if (nest.empty()) return;
  const std::vector<std::int64_t> begin(nest.offsets().begin(), nest.offsets().end());
  each_row(nest, 0, begin,
           [&](const std::vector<std::int64_t>& at, std::int64_t count) { row(at.data(), count); });
}

inline std::int64_t stride_in_row(const LoopNest& nest, std::size_t tensor) {
  return nest.stride_or_0(0, tensor);
}

}  // namespace spyre::card
