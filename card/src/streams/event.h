// Events: marks in streams that streams and the host can wait for.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "spyre/card.h"
#include "streams/clock.h"
#include "streams/work_queue.h"

namespace spyre::card {

/// One recording of an event. Passed once, by the stream it was recorded in.
class Mark {
 public:
  Mark(std::shared_ptr<Clock> clock, Moment moment, std::weak_ptr<WorkQueue> queue)
      : clock_(std::move(clock)), moment_(moment), queue_(std::move(queue)) {}

  /// `failure`: of work before it, which was not done then.
  void pass(std::exception_ptr failure);
  bool passed() const { return wall_ns_ != 0; }
  void wait() const;
  /// Once passed.
  const std::exception_ptr& failure() const { return failure_; }
  /// As the host does: throws the failure, which the stream has handed over with that.
  void wait_on_host() const;
  bool is_of(const WorkQueue& queue) const { return queue_.lock().get() == &queue; }

  std::int64_t wall_ns() const { return wall_ns_; }
  const Moment& moment() const { return moment_; }
  Clock& clock() const { return *clock_; }

 private:
  const std::shared_ptr<Clock> clock_;  // of the card it was recorded on
  const Moment moment_;
  const std::weak_ptr<WorkQueue> queue_;
  std::exception_ptr failure_;            // written before it is passed
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
