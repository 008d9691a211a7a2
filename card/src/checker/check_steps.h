// What each kind of step reads and writes, worked out from the words of its payload alone: plain
// and slow, and independent of the code that runs the step.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checker/check_rules.h"
#include "program/program.h"
#include "spyre/program.h"

namespace spyre::card {

/// The words of a payload that the loader has found good.
class PayloadWords {
 public:
  explicit PayloadWords(std::span<const std::int64_t> words) : words_(words) {}
  std::int64_t next() {
    const std::int64_t word = words_.front();
    words_ = words_.subspan(1);
    return word;
  }
  DataFormat format() { return static_cast<DataFormat>(next()); }
  std::span<const std::int64_t> take(std::int64_t count) {
    const auto taken = words_.first(static_cast<std::size_t>(count));
    words_ = words_.subspan(taken.size());
    return taken;
  }
  void skip(std::int64_t count) { take(count); }
  /// Loop count, then nests over so many tensors.
  std::vector<LoopNest> nests(std::size_t tensors);

 private:
  std::span<const std::int64_t> words_;
};

/// "pointwise add"
std::string step_text(const StepWords& step);

/// Applies the rules to a step that is not `cores`. False if the step will refuse to run.
bool check_step(CheckRules& rules, const StepWords& step, std::span<CheckedOperand> operands);
void check_chain(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands);
bool check_index(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands);
void check_matmul(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands);

/// Scratchpads as steps of cores see them.
struct CheckedScratchpads {
  const Shadow* shadow = nullptr;
  std::span<Touched> touched;  ///< one a core, and one for all of them
};
bool check_cores(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands,
                 const CheckedScratchpads& pads);

/// Calls use(place, line, position, wrong) for the wrong elements that nests over (tensor, line,
/// position) read.
template <class Use>
void each_wrong(CheckRules& rules, const CheckedTensor& tensor, const std::vector<LoopNest>& nests,
                Use&& use) {
  std::vector<std::uint8_t> row;
  for (const LoopNest& nest : nests)
    each_row(nest, [&](const std::int64_t* at, std::int64_t count) {
      row.assign(static_cast<std::size_t>(count), 0);
      if (!rules.read(tensor, at[0], stride_in_row(nest, 0), count, row.data())) return;
      for (std::int64_t i = 0; i < count; ++i)
        if (const std::uint8_t here = row[static_cast<std::size_t>(i)])
          use(at[0] + i * stride_in_row(nest, 0), at[1] + i * stride_in_row(nest, 1),
              at[2] + i * stride_in_row(nest, 2), here);
    });
}

inline CheckedTensor checked_tensor(std::span<CheckedOperand> operands, std::int64_t operand,
                                    DataFormat format, std::string role) {
  return {&operands[static_cast<std::size_t>(operand)], format_info(format).bits / 8,
          std::move(role)};
}

}  // namespace spyre::card
