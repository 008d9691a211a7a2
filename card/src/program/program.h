// Programs: decoded and checked when loaded, cheap to launch.
//
// What a step touches of each operand does not depend on the launch. So loading works out how many
// bytes every operand must have, and a launch compares sizes, nothing more.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory/memory.h"
#include "memory/scratchpads.h"
#include "spyre/card.h"
#include "spyre/cost.h"
#include "spyre/program.h"
#include "steps/step.h"

namespace spyre::card {

/// A step as a program has it.
struct StepWords {
  Opcode opcode;
  std::span<const std::int64_t> words;
};

/// What the accounts of a program say: the step at `index`, which is not run.
std::vector<Account> decode_accounts(std::size_t index, std::span<const std::byte> payload);

/// What a program finds and leaves in the scratchpads: the step at `index`, which is not run.
Handover decode_handover(std::size_t index, std::span<const std::byte> payload);

class SoftProgram : public Program {
 public:
  /// Throws Error(invalid_argument), or OutOfMemory if the program segment is full.
  SoftProgram(std::span<const std::byte> binary, std::shared_ptr<DeviceMemory> memory);
  ~SoftProgram() override;
  SoftProgram(const SoftProgram&) = delete;
  SoftProgram& operator=(const SoftProgram&) = delete;

  /// The program behind the interface; throws if it is null or another card library made it.
  static const SoftProgram& from(const Program* program);

  std::size_t bytes() const override { return bytes_; }
  std::uint64_t device_address() const override { return memory_->device_address(handle_); }

  /// What each launch costs.
  const Bill& bill() const { return bill_; }
  /// True for the first launch, which brings the program to the card.
  bool first_launch() const { return !launched_.exchange(true, std::memory_order_relaxed); }
  /// Throws Error(invalid_argument) unless there are enough operands and each is large enough.
  void check(std::span<const Extent> operands) const;
  /// Throws Error(invalid_argument) unless the program launched directly before it, together with
  /// it, leaves what it finds in the scratchpads. Null: there is none.
  void check_follows(const SoftProgram* before) const;
  const Handover& handover() const { return handover_; }
  bool uses_scratchpads() const { return scratchpad_steps_ > 0; }
  /// Whether running it takes a host some tens of microseconds or more.
  bool takes_long() const { return traffic_bytes_ >= kLongTrafficBytes; }
  const std::vector<std::unique_ptr<const Step>>& steps() const { return steps_; }
  /// Those of steps()[index], as the program has them.
  StepWords step_words(std::size_t index) const;
  /// The operands have passed check(). `turn` is there if the program uses scratchpads.
  void run(std::span<const Extent> operands, const Scratchpads::Turn* turn) const;

 private:
  static constexpr std::uint64_t kLongTrafficBytes = 1 << 20;

  /// What launches must give for an operand, and the step that asks for it.
  struct Requirement {
    std::uint64_t bytes = 0;
    std::size_t step = 0;
  };

  void decode(std::span<const std::byte> binary);
  void add(std::unique_ptr<const Step> step);
  void price(const std::vector<Account>& accounts);

  const std::shared_ptr<DeviceMemory> memory_;
  const std::size_t bytes_;
  std::vector<std::unique_ptr<const Step>> steps_;
  std::vector<Requirement> requirements_;  // one an operand
  Bill bill_;
  Handover handover_;
  mutable std::atomic<bool> launched_ = false;
  int scratchpad_steps_ = 0;  // steps that use scratchpads
  std::uint64_t traffic_bytes_ = 0;
  Handle handle_ = nullptr;
};

}  // namespace spyre::card
