// Which ops of a chain are computed in one sweep: each takes the result of the one before, which
// nothing else needs, so that it is never in memory.
#pragma once

#include <cstddef>
#include <vector>

#include "steps/chain_values.h"

namespace spyre::card {

struct ChainGroup {
  struct Member {
    std::size_t value;
    SweepOp op;
    int through;                     ///< the input that is the result of the member before
    int elements = -1, number = -1;  ///< other inputs, see SweepStage
  };
  std::vector<Member> members;
  std::size_t reduce = kNone;  ///< the value that is a reduction of the last member
  bool stored = true;          ///< the last member is needed for more than that

  static constexpr std::size_t kNone = ~std::size_t{0};
};

struct ChainGroups {
  /// No groups.
  ChainGroups() = default;
  explicit ChainGroups(const ChainValues& values);

  /// The group whose last member is this value; null if there is none.
  const ChainGroup* ending_with(std::size_t value) const;
  /// A member or a reduction of a group that ends with another value.
  bool swallows(std::size_t value) const { return value < swallowed_.size() && swallowed_[value]; }

 private:
  std::vector<ChainGroup> ending_;  // by value; empty ones are no groups
  std::vector<bool> swallowed_;
};

/// Whether a sweep can fold its result so.
bool folds_in_sweep(const ReducePieces& fold);

}  // namespace spyre::card
