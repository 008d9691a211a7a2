// What a program, the checker and steps that hold others know of a step.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "memory/extent.h"
#include "memory/scratchpads.h"
#include "nests/traffic.h"
#include "spyre/cost.h"

namespace spyre::card {

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

 protected:
  /// Where an operand begins; null for -1.
  static std::byte* data_of(std::int64_t operand, std::span<const Extent> operands) {
    return operand < 0 ? nullptr : operands[static_cast<std::size_t>(operand)].data;
  }
};

}  // namespace spyre::card
