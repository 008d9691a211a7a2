// The checker of a card: looks at what streams that check submit, before and after it runs.
//
// It knows the state of every byte (check_memory.h), works out from a program's words what each
// step reads and writes (check_steps.h) and applies the rules (check_rules.h). Then the step runs,
// and what it has changed is compared with what it said.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "checker/check_rules.h"
#include "memory/memory.h"
#include "program/program.h"
#include "spyre/card.h"

namespace spyre::card {

class Checker final : public MemoryWatcher {
 public:
  Checker(std::byte* memory, std::uint64_t bytes);
  ~Checker() override;

  /// What is allocated already counts as written.
  void start(const std::vector<Extent>& allocated) override;

  void allocated(const Extent& extent) override;
  void freed(const Extent& extent) override;
  void name(const Extent& extent, const std::string& name);
  std::string freed_note(const std::byte* data) const override;
  /// A stream that does not check works on it, and may write anything.
  void touched_unseen(const Extent& extent) const;

  /// An operand of work that is submitted now and runs perhaps later.
  struct Held {
    Extent extent;
    std::uint64_t allocation = 0;  ///< which one it is: numbers are not used again
  };
  Held hold(const Extent& extent);

  /// Runs a step of a program; for tests, which have steps that do not what their words say.
  using RunStep = std::function<void(const Step&, std::span<const Extent>)>;
  /// Runs programs one after the other; operands of all launches are in one row.
  void run(const Scratchpads& scratchpads, std::span<const Launch> launches, const Held* operands,
           const RunStep& run_step = {});
  /// Calls move() in between, which is the transfer.
  void transfer(const DataConversion& conversion, const Held& device, bool to_card,
                const std::function<void()>& move);

 private:
  struct Live {
    std::uint64_t bytes, number;
    std::string name;
  };
  struct Pads;
  using AllTouched = std::array<Touched, kCores + 1>;

  void run_program(const Launch& launch, const Held* operands, Pads* pads, const RunStep& run_step);
  void run_step(CheckRules& rules, const SoftProgram& program, std::size_t index,
                std::span<CheckedOperand> operands, std::span<Touched> touched, Pads* pads,
                const RunStep& run_step);
  /// The name of a held allocation. Throws if it has been freed since.
  std::string check_held(const Held& held, const std::string& what) const;

  const Shadow memory_;
  mutable std::mutex book_mutex_;
  std::map<std::uint64_t, Live> live_;          // by offset; guarded by book_mutex_
  std::map<std::uint64_t, std::string> freed_;  // the same
  std::uint64_t next_number_ = 1;               // the same

  std::mutex run_mutex_;        // what is checked runs one after the other; taken after scratchpads
  std::unique_ptr<Pads> pads_;  // guarded by run_mutex_, as all about scratchpads
  ScratchpadThings things_;
};

/// Called by each stream that begins to check, and when it ends.
void start_checking(DeviceMemory& memory);
void stop_checking(DeviceMemory& memory);
/// Null unless a stream of the card checks.
inline Checker* checker_of(const DeviceMemory& memory) {
  return static_cast<Checker*>(memory.watcher());  // start_checking() made it
}

}  // namespace spyre::card
