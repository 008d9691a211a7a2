// Programs: decoded and checked when loaded, cheap to launch.
//
// What a step touches of each operand does not depend on the launch. So loading works out how many
// bytes every operand must have, and a launch compares sizes, nothing more.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory/memory.h"
#include "memory/scratchpads.h"
#include "spyre/card.h"
#include "spyre/cost.h"
#include "spyre/program.h"
#include "streams/clock.h"

namespace spyre::card {

/// Bytes of device memory that a step touches.
struct Traffic {
  std::uint64_t read = 0, written = 0;
};

/// One step of a program, decoded. Implementations live in step_*.cpp.
class Step {
 public:
  /// The step touches bytes [0, bytes) of the operand at most.
  struct Need {
    std::int64_t operand;
    std::uint64_t bytes;
  };

  virtual ~Step() = default;
  virtual const char* name() const = 0;
  virtual std::vector<Need> needs() const = 0;
  virtual Traffic traffic() const = 0;
  /// What it costs in a program without accounts. If it does not say: what copying does.
  virtual OpCost cost() const;
  /// Called with operands that meet the needs.
  virtual void run(std::span<const Extent> operands) const = 0;
  /// Whether it also works in the cores' scratchpads. Then it is called with a turn in them.
  /// `alone`: nobody else looks at what it has there.
  virtual bool uses_scratchpads() const { return false; }
  virtual void run(std::span<const Extent> operands, const Scratchpads::Turn&,
                   bool /*alone*/) const {
    run(operands);
  }
  /// Bytes from where operands begin for the first of some cores to where they do for each core:
  /// [operand][core].
  using CorePlaces = std::vector<std::vector<std::int64_t>>;
  /// The step of all these cores, called with the operands of the first one, if computing it at
  /// once takes less than core by core; or nothing. `alone`: it is all that the cores do, so that
  /// nothing is lost by waiting for each other.
  virtual std::function<void(std::span<const Extent>)> at_once(const CorePlaces&,
                                                               bool /*alone*/) const {
    return {};
  }
};

/// A step as a program has it.
struct StepWords {
  Opcode opcode;
  std::span<const std::int64_t> words;
};

/// Decode the step at `index` of a program. Throws Error(invalid_argument) that names the step and
/// the field.
std::unique_ptr<const Step> decode_step(std::size_t index, std::uint32_t opcode,
                                        std::span<const std::byte> payload);

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
