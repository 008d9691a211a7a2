// What the cores of a card do side by side, as a program says it; docs/program-format.md has the
// words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace spyre::card {

/// Steps that every core runs on its own part of the operands. Cores do not wait for one another
/// before the whole has ended, so what a core reads it must have written itself, or nobody here.
struct CoreProgram {
  /// A piece of memory as the steps inside see it: their operand number i is operands[i].
  struct Operand {
    static constexpr std::int64_t kScratchpad = -1;
    /// Those of all 32 cores, one after the other: for what comes over the ring.
    static constexpr std::int64_t kAllScratchpads = -2;
    std::int64_t operand = kScratchpad;  ///< of the program, or the core's own scratchpad
    std::vector<std::int64_t> offset;    ///< bytes, one a core, whole sticks
  };
  /// An operand that moves on with every iteration of a loop.
  struct Advance {
    std::int64_t operand;
    std::int64_t bytes;  ///< whole sticks, not negative
  };
  /// A step, or a loop over others.
  struct Node {
    std::vector<std::byte> step;  ///< a program of one step; empty for a loop
    std::int64_t first_core = 0, end_core = 0;
    std::int64_t count = 0;
    std::vector<Advance> advances;
    std::vector<Node> body;
  };

  std::int64_t cores = 1;
  std::vector<Operand> operands;
  std::vector<Node> nodes;
};

}  // namespace spyre::card
