// The cost model of the card: how long an op takes, from the machine description alone.
//
// Planners ask it before they decide, the card's clock when a program is loaded: both get the same
// answer. docs/cost-model.md has the formulae and where each comes from.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "spyre/machine.h"
#include "spyre/ops.h"

namespace spyre::card {

/// What an op asks of each part of the card, as the compiler means it: its loops split over cores,
/// its tensors in device memory or LX. Cores wait for the one with the largest part.
struct OpCost {
  Unit unit = Unit::sfp;
  double passes = 1;                 ///< of the SFP over each element
  std::int64_t element_bytes = 2;    ///< of the widest format
  std::int64_t cores = 1;            ///< that take part
  std::int64_t points = 0;           ///< of the largest core: elements; products on the PT
  std::int64_t all_points = 0;       ///< of all cores
  std::int64_t rows = 0;             ///< M of the largest core, on the PT
  std::int64_t read_bytes = 0;       ///< of device memory; see multicast_bytes()
  std::int64_t written_bytes = 0;    ///< of device memory
  std::int64_t lx_bytes = 0;         ///< of the largest core, reads and writes
  std::int64_t all_lx_bytes = 0;     ///< of all cores
  std::int64_t partial_sums = 0;     ///< results of a K-split, times the cores beyond the first
  std::int64_t ring_bytes = 0;       ///< that cores send each other, without partial sums
  std::int64_t ring_link_bytes = 0;  ///< of these, over the busiest link
  std::int64_t ring_hops = 0;        ///< of the longest way
};

/// What an op waits for.
enum class Bound : std::uint8_t { memory, compute, lx, ring, overhead };

/// Whole nanoseconds, each rounded up. Everything but the overhead goes on side by side.
struct Price {
  std::int64_t compute = 0, read = 0, write = 0, lx = 0, ring = 0, overhead = 0;
  std::int64_t total = 0;
  Bound bound = Bound::overhead;

  /// What the op would take without its overhead.
  std::int64_t work() const { return total - overhead; }
  /// Which part of the card takes that long.
  Bound busiest() const;
};

Price price(const OpCost& op);

/// How often the SFP passes over each element for an op of the table.
double sfp_passes(const OpInfo& op);

/// Bytes that `sharers` cores want the same of, as often as device memory sends them.
std::int64_t multicast_bytes(std::int64_t bytes, std::int64_t sharers);

std::int64_t transfer_ns(std::uint64_t device_bytes);

// ----------------------------------------------------------------------------------------- the
// ring

/// Bytes that one core sends to another, the shorter way round.
struct Send {
  int from, to;
  std::int64_t bytes;
};

/// What messages do to the ring. All are under way at the same time.
struct RingLoad {
  std::int64_t bytes = 0;       ///< that arrive, from however far
  std::int64_t link_bytes = 0;  ///< over the busiest link in one direction
  std::int64_t hops = 0;        ///< of the longest way

  std::int64_t ns() const;
};

RingLoad ring_load(std::span<const Send> sends);
/// Every core gets the `bytes` of each other core with the same number, by which they go passing
/// in both directions. Cores with a number below 0 take no part.
RingLoad ring_all_gather(std::span<const int> groups, std::int64_t bytes);

// ---------------------------------------------------------------------------------------- launches

/// One op of a kernel, `count` times.
struct Account {
  std::string name;
  std::int64_t count = 1;
  OpCost cost;
};

/// What a launch adds to the clock and the counters.
struct Bill {
  std::int64_t read_bytes = 0, written_bytes = 0, lx_bytes = 0, ring_bytes = 0;
  std::int64_t macs = 0, sfp_elements = 0;
  /// Time by what it was waited for; the launch itself is overhead.
  std::int64_t memory_ns = 0, compute_ns = 0, lx_ns = 0, ring_ns = 0, overhead_ns = kLaunchNs;

  std::int64_t total_ns() const { return memory_ns + compute_ns + lx_ns + ring_ns + overhead_ns; }
  /// False, and nothing is added, if 64 bits cannot count it.
  [[nodiscard]] bool add(const Account& account);
};

}  // namespace spyre::card
