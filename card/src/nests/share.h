// Nests on the threads of the pool: many small ones are shared out, large ones are cut.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "host/thread_pool.h"
#include "nests/loop_nest.h"

namespace spyre::card {

/// What an iteration of a nest costs beside the cost of a thread, and how nests are cut.
struct ShareRules {
  std::int64_t weight;  ///< of an iteration
  std::int64_t worth;   ///< weight that is worth waking a thread for
  std::int64_t part;    ///< and that a part should have at least
  std::size_t fine;     ///< see LoopNest::cut()
  std::int64_t grain;
};

/// Calls run(nest, its loops or a part of them) for all. A Nest has `loops`, and `in_order` where
/// they must not be cut. `apart`: different nests do not write the same places.
template <class Nest, class Run>
void share_nests(std::span<const Nest> nests, bool apart, const ShareRules& rules, Run&& run) {
  std::int64_t all = 0;
  for (const Nest& nest : nests) all += nest.loops.count();
  const bool worth = all * rules.weight > rules.worth;
  const std::int64_t threads = worth ? ThreadPool::shared().size() : 1;
  const auto run_some = [&](std::span<const Nest> some) {
    for (const Nest& nest : some) run(nest, nest.loops);
  };
  if (threads == 1) return run_some(nests);
  std::int64_t largest = 0;
  for (const Nest& nest : nests) largest = std::max(largest, nest.loops.count());
  if (apart && largest * threads * 2 < all) {
    const std::size_t piece = nests.size() / (static_cast<std::size_t>(threads) * 8) + 1;
    const std::size_t tasks = (nests.size() + piece - 1) / piece;
    ThreadPool::shared().parallel_for(static_cast<std::int64_t>(tasks), [&](std::int64_t task) {
      const std::size_t begin = static_cast<std::size_t>(task) * piece;
      run_some(nests.subspan(begin, std::min(piece, nests.size() - begin)));
    });
    return;
  }
  for (const Nest& nest : nests) {
    const std::int64_t work = nest.loops.count() * rules.weight;
    if (nest.in_order || nest.loops.rank() == 0 || work <= rules.worth) {
      run(nest, nest.loops);
      continue;
    }
    const LoopNest::Cut cut =
        nest.loops.cut(std::min(work / rules.part + 1, threads * 4), rules.fine, rules.grain);
    ThreadPool::shared().parallel_for(
        cut.parts, [&](std::int64_t index) { run(nest, nest.loops.part(cut, index)); });
  }
}

}  // namespace spyre::card
