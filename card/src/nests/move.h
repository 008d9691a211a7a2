// The DMA engine's data path: loop nests that read, convert and write elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/convert.h"
#include "nests/loop_nest.h"
#include "spyre/card.h"

namespace spyre::card {

/// Throws Error(invalid_argument) unless the descriptor is well formed and every element it visits
/// lies within `src_bytes` and `dst_bytes`. move() may be called only with what passed this check.
void check_bounds(const DataConversion& conversion, std::uint64_t src_bytes,
                  std::uint64_t dst_bytes);

/// Elements that move() reads and writes. The descriptor has passed check_bounds().
std::uint64_t element_count(const DataConversion& conversion);

/// Over (source, destination), in elements, without loops of one iteration.
LoopNest nest_of(const StrideInfo& loops);

/// A move or a fill, in the form that runs. The result does not depend on the number of threads;
/// where several elements of one nest go to one place, the last in loop order stays.
class Mover {
 public:
  /// Reads, converts and writes. Nests are over (source, destination).
  Mover(DataFormat src, DataFormat dst, Narrow narrow);
  /// Writes the element with the given bits (its low end). Nests are over (destination).
  Mover(DataFormat dst, std::uint64_t bits);
  /// One more nest, in elements. Runs after those before it.
  void add(LoopNest nest);

  /// `src` and `dst` do not overlap. Fills have no source.
  void run(const std::byte* src, std::byte* dst) const;

 private:
  /// Both sides of what runs.
  struct Ends {
    const std::byte* src;
    std::byte* dst;
  };
  using Method = void (Mover::*)(const LoopNest&, const Ends&) const;
  struct Nest {
    LoopNest loops;  // bytes
    bool in_order;   // elements share places: keep the order of the descriptor, one thread
    Method method;
  };

  Method choose_method(LoopNest& loops, bool in_order) const;
  void move_runs(const LoopNest& loops, const Ends& ends) const;
  void move_runs_in_blocks(const LoopNest& loops, const Ends& ends) const;
  void move_gathered(const LoopNest& loops, const Ends& ends) const;
  void move_transposed(const LoopNest& loops, const Ends& ends) const;
  void fill(const LoopNest& loops, const Ends& ends) const;

  std::int64_t src_bytes_ = 0, dst_bytes_;  // of an element
  ConvertRun run_ = nullptr;                // null: a fill
  std::vector<std::byte> pattern_;          // of a fill: the element over and over
  std::vector<Nest> nests_;
  bool apart_ = true;     // each nest writes behind those before it
  std::int64_t end_ = 0;  // of what they write
};

inline void move(const DataConversion& conversion, const std::byte* src, std::byte* dst) {
  Mover mover(conversion.src, conversion.dst, conversion.narrow);
  for (const StrideInfo& loops : conversion.loops) mover.add(nest_of(loops));
  mover.run(src, dst);
}

}  // namespace spyre::card
