#include "spyre/cost.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace spyre::card {

namespace {

/// Far beyond what a program can do, and far from what 64 bits can hold.
constexpr std::int64_t kUncountable = std::int64_t{1} << 60;

constexpr double kCycleNs = 1e9 / static_cast<double>(kClockHz);
constexpr std::int64_t kPartialSumBytes = 4;  // partial sums are fp32

/// A time in whole nanoseconds, rounded up. What rounding of doubles has added is not time.
std::int64_t whole(double ns) {
  if (!(ns < static_cast<double>(kUncountable))) return kUncountable;
  return static_cast<std::int64_t>(std::ceil(ns * (1 - 1e-12)));
}

/// Exact: 128 GiB in nanoseconds at these rates needs more than 64 bits on the way.
std::int64_t memory_ns(std::int64_t bytes, std::int64_t bytes_per_second) {
  __extension__ using Wide = __int128;
  const Wide rate = bytes_per_second;
  return static_cast<std::int64_t>(
      std::min<Wide>((Wide{bytes} * 1'000'000'000 + rate - 1) / rate, kUncountable));
}

std::int64_t cycles_ns(double cycles) { return whole(cycles * kCycleNs); }

/// The array works on 8 rows at a time; few of them do not fill it.
double pt_efficiency(std::int64_t rows) {
  const double passes = std::max(1.0, static_cast<double>(rows) / static_cast<double>(kPtRows));
  return std::min(1.0, std::sqrt(passes / static_cast<double>(kPtFullPasses)));
}

std::int64_t compute_ns(const OpCost& op) {
  const auto points = static_cast<double>(op.points);
  if (op.unit == Unit::pt) {
    constexpr std::int64_t macs = kCoreletsPerCore * kPtRows * kPtColumns * kPtSimdWidth;
    return cycles_ns(points / (static_cast<double>(macs) * pt_efficiency(op.rows)));
  }
  const double stick = 2.0 * static_cast<double>(kSfpLanes);  // bytes
  const double lanes = stick / static_cast<double>(std::max<std::int64_t>(op.element_bytes, 2));
  return cycles_ns(points * op.passes / (lanes * static_cast<double>(kCoreletsPerCore)));
}

std::int64_t ring_bytes_ns(std::int64_t link_bytes, std::int64_t hops) {
  constexpr auto width = static_cast<double>(kRingBytesPerCyclePerDirection);
  return cycles_ns(static_cast<double>(link_bytes) / width +
                   static_cast<double>(hops * kRingHopCycles));
}

constexpr auto kStops = static_cast<int>(kCores);

/// How far it is to a core, upwards.
int stops_up(int from, int to) { return ((to - from) % kStops + kStops) % kStops; }
/// Whether that is the shorter way.
bool goes_up(int stops) { return stops <= kStops - stops; }

/// The ring's links, those to the next core and those to the one before, and what crosses them.
struct Links {
  std::array<std::int64_t, static_cast<std::size_t>(kStops)> up{}, down{};
  std::int64_t longest = 0;

  void add(int from, bool upwards, int hops, std::int64_t bytes) {
    for (int hop = 0; hop < hops; ++hop) {
      const int at = stops_up(0, upwards ? from + hop : from - hop);
      (upwards ? up : down)[static_cast<std::size_t>(at)] += bytes;
    }
    longest = std::max<std::int64_t>(longest, hops);
  }
  RingLoad load(std::int64_t bytes) const {
    return {bytes, std::max(*std::ranges::max_element(up), *std::ranges::max_element(down)),
            longest};
  }
};

/// Adds a * b to a sum that stays countable.
bool add_product(std::int64_t& sum, std::int64_t a, std::int64_t b) {
  std::int64_t product;
  return !__builtin_mul_overflow(a, b, &product) && product < kUncountable &&
         !__builtin_add_overflow(sum, product, &sum) && sum < kUncountable;
}

}  // namespace

Bound Price::busiest() const {
  const std::int64_t most = work();
  if (read == most || write == most) return Bound::memory;
  if (compute == most) return Bound::compute;
  return lx == most ? Bound::lx : Bound::ring;
}

Price price(const OpCost& op) {
  Price price;
  price.compute = compute_ns(op);
  price.read = memory_ns(op.read_bytes, kLpddr5BytesPerSecond);
  price.write = memory_ns(op.written_bytes, kLpddr5BytesPerSecond);
  price.lx = cycles_ns(static_cast<double>(op.lx_bytes) / static_cast<double>(kLxBytesPerCycle));
  price.ring = ring_bytes_ns(op.ring_link_bytes, op.ring_hops);
  // Cores that share results add them up when all have theirs.
  price.overhead = kOpNs + whole(static_cast<double>(op.partial_sums) * kPartialSumNs);
  const auto work = std::max({price.compute, price.read, price.write, price.lx, price.ring});
  price.total = work + price.overhead;
  price.bound = work < price.overhead ? Bound::overhead : price.busiest();
  return price;
}

double sfp_passes(const OpInfo& op) {
  switch (op.cost) {
    case Cost::cheap:
      return kPassesCheap;
    case Cost::divide:
      return kPassesDivide;
    case Cost::transcendental:
      return kPassesTranscendental;
    case Cost::reduce:
      return kPassesReduce;
    case Cost::rows:
      return kPassesRows;
    case Cost::sort:
      return kPassesSort;
    case Cost::move:
      return kPassesMove;
    case Cost::matmul:
      break;  // the PT's
  }
  return 1;
}

std::int64_t multicast_bytes(std::int64_t bytes, std::int64_t sharers) {
  return bytes * std::max<std::int64_t>(1, (sharers + kMulticastCores - 1) / kMulticastCores);
}

std::int64_t transfer_ns(std::uint64_t device_bytes) {
  return kTransferNs + memory_ns(static_cast<std::int64_t>(device_bytes), kPcieBytesPerSecond);
}

std::int64_t RingLoad::ns() const { return ring_bytes_ns(link_bytes, hops); }

RingLoad ring_load(std::span<const Send> sends) {
  Links links;
  std::int64_t bytes = 0;
  for (const Send& send : sends) {
    const int stops = stops_up(send.from, send.to);
    links.add(send.from, goes_up(stops), goes_up(stops) ? stops : kStops - stops, send.bytes);
    if (stops) bytes += send.bytes;
  }
  return links.load(bytes);
}

RingLoad ring_all_gather(std::span<const int> groups, std::int64_t bytes) {
  Links links;
  std::int64_t received = 0;
  const auto cores = static_cast<int>(groups.size());
  for (int from = 0; from < cores; ++from) {
    int farthest[2] = {0, 0};  // upwards, downwards; cores on the way take it as it passes
    for (int to = 0; to < cores; ++to) {
      if (to == from || groups[static_cast<std::size_t>(to)] < 0 ||
          groups[static_cast<std::size_t>(to)] != groups[static_cast<std::size_t>(from)])
        continue;
      const int stops = stops_up(from, to);
      int& way = farthest[goes_up(stops) ? 0 : 1];
      way = std::max(way, goes_up(stops) ? stops : kStops - stops);
      received += bytes;
    }
    links.add(from, true, farthest[0], bytes);
    links.add(from, false, farthest[1], bytes);
  }
  return links.load(received);
}

bool Bill::add(const Account& account) {
  const OpCost& op = account.cost;
  const Price cost = price(op);
  Bill sum = *this;
  const auto plus = [&](std::int64_t& field, std::int64_t value) {
    return add_product(field, value, account.count);
  };
  std::int64_t partial_bytes;
  if (__builtin_mul_overflow(op.partial_sums, kPartialSumBytes, &partial_bytes)) return false;
  std::int64_t* const waited[] = {&sum.memory_ns, &sum.compute_ns, &sum.lx_ns, &sum.ring_ns};
  const bool good = plus(sum.read_bytes, op.read_bytes) &&
                    plus(sum.written_bytes, op.written_bytes) &&
                    plus(sum.lx_bytes, op.all_lx_bytes) && plus(sum.ring_bytes, op.ring_bytes) &&
                    plus(sum.ring_bytes, partial_bytes) &&
                    plus(op.unit == Unit::pt ? sum.macs : sum.sfp_elements, op.all_points) &&
                    plus(*waited[static_cast<std::size_t>(cost.busiest())], cost.work()) &&
                    plus(sum.overhead_ns, cost.overhead);
  if (good) *this = sum;
  return good;
}

}  // namespace spyre::card
