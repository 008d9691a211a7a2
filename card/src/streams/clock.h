// Modelled time: what the submitted work would take on the card.
//
// Computed when work is submitted, in whole nanoseconds, from the machine description alone. The
// same submissions in the same order give the same times, whatever the host does meanwhile.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "spyre/card.h"
#include "spyre/cost.h"

namespace spyre::card {

/// Parts of the card that do one thing at a time.
enum class Engine { to_card, to_host, compute };

/// A point in modelled time. Points of an earlier life of the clock, before reset(), count as 0.
struct Moment {
  std::uint64_t life = 0;
  std::int64_t ns = 0;
};

/// One card's clock and counters. A stream's own time is a Moment that its stream keeps and passes
/// in. Work starts when its stream, its engine and the host are ready for it.
class Clock {
 public:
  void transfer(Engine engine, std::uint64_t device_bytes, Moment& stream, Submit submit);
  /// A program that was not launched before is sent to the card first: so many bytes.
  void launch(const Bill& bill, std::uint64_t program_bytes, Moment& stream, Submit submit);
  void program_loaded();

  /// The time of an event recorded now: an idle stream has caught up with the host.
  Moment record(Moment& stream);
  /// Later work of the stream starts at `ns` or after.
  void wait(Moment& stream, std::int64_t ns);

  /// The host has waited: work submitted later starts later.
  void host_waits_for(const Moment& moment);
  void host_waits_for_all();

  /// Nanoseconds of a moment of this clock.
  std::int64_t ns_of(const Moment& moment) const;
  Counters counters() const;
  void reset();

 private:
  struct State {
    std::array<std::int64_t, 3> engine_free{};
    std::int64_t host = 0;
    std::int64_t horizon = 0;  // the latest time of any stream
    Counters counters;
  };

  // With mutex_ held.
  std::int64_t& now(Moment& stream);
  void charge(Engine engine, std::int64_t cost, Moment& stream, Submit submit);

  mutable std::mutex mutex_;
  std::uint64_t life_ = 1;  // guarded by mutex_
  State state_;             // guarded by mutex_
};

}  // namespace spyre::card
