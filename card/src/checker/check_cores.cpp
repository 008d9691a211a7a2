// What cores read and write: core after core, since none waits for another.
#include <optional>
#include <utility>

#include "checker/check_steps.h"

namespace spyre::card {
namespace {

class CoresCheck {
 public:
  CoresCheck(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands,
             const CheckedScratchpads& pads)
      : rules_(rules), cores_(words.next()), operands_(operands), pads_(pads) {
    for (std::int64_t count = words.next(); count > 0; --count) {
      Row& row = rows_.emplace_back();
      row.operand = words.next();
      for (std::int64_t core = 0; core < cores_; ++core) row.offset.push_back(words.next());
    }
    nodes_ = words;
  }

  bool run() {
    bool runs = true;
    for (core_ = 0; core_ < cores_ && runs; ++core_) {
      rules_.set_core(core_);
      seen_.assign(rows_.size(), {});
      for (std::size_t i = 0; i < rows_.size(); ++i) seen_[i] = begin_of(rows_[i]);
      PayloadWords words = *nodes_;
      runs = run_nodes(words, true);
    }
    rules_.set_core(-1);
    return runs;
  }

 private:
  struct Row {
    std::int64_t operand;
    std::vector<std::int64_t> offset;  // one a core
  };

  CheckedOperand begin_of(const Row& row) const {
    const auto offset = static_cast<std::uint64_t>(row.offset[static_cast<std::size_t>(core_)]);
    CheckedOperand seen;
    if (row.operand >= 0) {
      seen = operands_[static_cast<std::size_t>(row.operand)];
    } else {
      const bool own = row.operand == CoreProgram::Operand::kScratchpad;
      seen.shadow = pads_.shadow;
      seen.data =
          pads_.shadow->memory(static_cast<std::uint64_t>(own ? core_ * kLxBytesPerCore : 0));
      seen.bytes = static_cast<std::uint64_t>(own ? kLxBytesPerCore : kCores * kLxBytesPerCore);
      seen.touched = &pads_.touched[static_cast<std::size_t>(own ? core_ : kCores)];
      seen.thing = static_cast<std::int64_t>((seen.offset() + offset) %
                                             static_cast<std::uint64_t>(kLxBytesPerCore));
    }
    return moved(seen, offset);
  }

  static CheckedOperand moved(CheckedOperand seen, std::uint64_t bytes) {
    seen.data += bytes;
    seen.start += bytes;
    seen.bytes -= bytes;
    return seen;
  }

  /// Reads the nodes, and goes through them if `active`: of a loop without iterations they are only
  /// read.
  bool run_nodes(PayloadWords& words, bool active) {
    for (std::int64_t count = words.next(); count > 0; --count)
      if (!(words.next() == 0 ? run_step(words, active) : run_loop(words, active))) return false;
    return true;
  }

  bool run_step(PayloadWords& words, bool active) {
    const std::int64_t first = words.next(), end = words.next();
    const auto head = static_cast<std::uint64_t>(words.next());
    const StepWords step{static_cast<Opcode>(static_cast<std::uint32_t>(head)),
                         words.take(static_cast<std::int64_t>(head >> 32))};
    if (!active || core_ < first || core_ >= end) return true;
    rules_.inside(step_text(step));
    for (CheckedOperand& operand : seen_) operand.low = UINT64_MAX, operand.high = 0;
    const bool runs = check_step(rules_, step, seen_);
    for (const CheckedOperand& operand : seen_) rules_.within_span(operand);
    return runs;
  }

  bool run_loop(PayloadWords& words, bool active) {
    const std::int64_t count = words.next();
    std::vector<std::pair<std::size_t, std::uint64_t>> advances;
    for (std::int64_t n = words.next(); n > 0; --n) {
      const auto operand = static_cast<std::size_t>(words.next());
      advances.emplace_back(operand, static_cast<std::uint64_t>(words.next()));
    }
    const PayloadWords body = words;
    run_nodes(words, false);
    const std::vector<CheckedOperand> before = seen_;
    for (std::int64_t i = 0; active && i < count; ++i) {
      PayloadWords again = body;
      if (!run_nodes(again, true)) return false;
      for (const auto& [operand, bytes] : advances) seen_[operand] = moved(seen_[operand], bytes);
    }
    seen_ = before;
    return true;
  }

  CheckRules& rules_;
  const std::int64_t cores_;
  const std::span<CheckedOperand> operands_;
  const CheckedScratchpads& pads_;
  std::vector<Row> rows_;
  std::optional<PayloadWords> nodes_;
  std::int64_t core_ = 0;
  std::vector<CheckedOperand> seen_;  // by row, of the core
};

}  // namespace

bool check_cores(CheckRules& rules, PayloadWords words, std::span<CheckedOperand> operands,
                 const CheckedScratchpads& pads) {
  return CoresCheck(rules, words, operands, pads).run();
}

}  // namespace spyre::card
