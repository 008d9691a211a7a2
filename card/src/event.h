// Events: marks in streams that streams and the host can wait for.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "clock.h"
#include "spyre/card.h"

namespace spyre::card {

/// One recording of an event. Passed once, by the stream it was recorded in.
class Mark {
 public:
  Mark(std::shared_ptr<Clock> clock, Moment moment) : clock_(std::move(clock)), moment_(moment) {}

  void pass();
  bool passed() const { return wall_ns_ != 0; }
  void wait() const;

  std::int64_t wall_ns() const { return wall_ns_; }
  const Moment& moment() const { return moment_; }
  Clock& clock() const { return *clock_; }

 private:
  const std::shared_ptr<Clock> clock_;  // of the card it was recorded on
  const Moment moment_;
  std::atomic<std::int64_t> wall_ns_{0};  // 0 until passed
};

class SoftEvent : public Event {
 public:
  /// The event behind the interface; throws Error(invalid_argument) if another card library made
  /// it.
  static const SoftEvent& from(const Event& event);
  static SoftEvent& from(Event& event);

  /// Whoever waits for the previous mark keeps waiting for that one.
  void move_to(std::shared_ptr<Mark> mark);
  std::shared_ptr<Mark> mark() const;  ///< null if never recorded

  bool query() const override;
  void synchronize() const override;
  bool recorded() const override { return mark() != nullptr; }
  std::int64_t wall_ns() const override;
  std::int64_t modelled_ns() const override;

 private:
  std::shared_ptr<Mark> recorded_mark() const;

  mutable std::mutex mutex_;
  std::shared_ptr<Mark> mark_;  // guarded by mutex_
};

}  // namespace spyre::card
