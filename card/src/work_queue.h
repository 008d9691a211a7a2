// First-in first-out execution, on the submitting thread where nothing is lost by it.
//
// A queue is busy from the start of a piece of work to its end, on whichever thread it runs. Work
// submitted to a busy queue waits in line for the worker, a thread that is started when it is first
// needed. Knows nothing of cards.
//
// A thread that submits large work and has something to do between one piece and the next (Python,
// most of all) loses the time of the work if it runs it, and its own if the work waits for it. So
// the worker takes such work over, and the thread that submits helps it instead of getting ahead by
// more than one piece.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "spyre/card.h"

namespace spyre::card {

/// Made with make(); its worker keeps it alive until close().
class WorkQueue : public std::enable_shared_from_this<WorkQueue> {
 public:
  /// Captures everything the work needs until it is done. Destroyed before the work counts as done,
  /// on the thread that ran it, with no lock held.
  using Work = std::function<void()>;

  /// Non-zero `priority`: the worker asks the host's scheduler for preference.
  static std::shared_ptr<WorkQueue> make(int priority);
  ~WorkQueue() = default;

  /// Run everything submitted, then stop. No submissions may follow.
  void close();

  /// at_submission() is called under the queue's lock, in the order of the queue. Then either
  /// now() runs on this thread, or later() makes the Work to queue. Errors of now() are thrown
  /// here, as are those of queued work under Submit::wait; others are kept for synchronize().
  /// Work that is `large`, and waits for nobody, may go to the worker of an idle queue too.
  template <class AtSubmission, class Now, class Later>
  void submit(Submit submit, AtSubmission&& at_submission, Now&& now, Later&& later,
              bool large = false);

  /// Calls function() in the order of the queue without queueing anything.
  template <class Function>
  void in_order(Function&& function) {
    const std::lock_guard lock(mutex_);
    function();
  }

  bool idle() const;
  /// Waits for what was submitted before the call. Throws the first error kept and forgets it.
  template <class AtCall>
  void synchronize(AtCall&& at_call);
  void synchronize() {
    synchronize([] {});
  }

 private:
  /// The end of one queued piece of work, for the thread that waits for it.
  struct Outcome;

  explicit WorkQueue(int priority) : priority_(priority) {}

  // With mutex_ held.
  bool is_idle() const { return !running_ && queue_.empty(); }
  void begin(bool large);
  void end();
  void start_worker();
  void push(Work work, bool large = false);
  void refuse_waiting_for_itself() const;
  bool busy_between_submissions() const;
  void call_worker();

  bool is_at_large() const;
  void help_worker();

  void run_worker();
  static Work reporting_to(const std::shared_ptr<Outcome>& outcome, Work work);
  void wait_until_done(std::unique_lock<std::mutex>& lock);

  const int priority_;
  mutable std::mutex mutex_;
  std::condition_variable work_arrived_;
  // Changed only under mutex_: calls of the worker, pieces of work that are done, and queued or
  // running large ones.
  std::atomic<std::uint64_t> calls_{0}, done_{0}, large_{0};
  // All guarded by mutex_.
  struct Item {
    Work work;
    bool large;
  };
  std::deque<Item> queue_;
  bool running_ = false, runs_large_ = false, closing_ = false, worker_awake_ = false;
  std::chrono::steady_clock::time_point submitted_large_;  // and returned
  std::thread::id runner_;                                 // the thread that runs the current work
  std::uint64_t submitted_ = 0;
  std::exception_ptr first_error_;
  std::thread worker_;
};

struct WorkQueue::Outcome {
  std::exception_ptr error;  // written by the work, read when it is done
};

template <class AtSubmission, class Now, class Later>
void WorkQueue::submit(Submit submit, AtSubmission&& at_submission, Now&& now, Later&& later,
                       bool large) {
  std::unique_lock lock(mutex_);
  const bool for_worker = large && submit == Submit::either && busy_between_submissions();
  if (submit != Submit::queue && is_idle() && !(for_worker && worker_awake_)) {
    if (for_worker) start_worker();
    at_submission();
    begin(large);
    ++submitted_;
    lock.unlock();
    struct End {
      WorkQueue& queue;
      bool large, for_worker;
      ~End() {
        const std::lock_guard ending(queue.mutex_);
        queue.end();
        if (for_worker) queue.call_worker();  // to take the next one
        if (large) queue.submitted_large_ = std::chrono::steady_clock::now();
      }
    } end{*this, large, for_worker};
    now();
    return;
  }
  if (submit == Submit::wait) refuse_waiting_for_itself();
  start_worker();
  at_submission();
  if (submit != Submit::wait) {
    push(later(), large);
    lock.unlock();
    if (large && submit == Submit::either) help_worker();
    return;
  }
  const auto outcome = std::make_shared<Outcome>();
  push(reporting_to(outcome, later()));
  wait_until_done(lock);
  lock.unlock();
  if (outcome->error) std::rethrow_exception(outcome->error);
}

template <class AtCall>
void WorkQueue::synchronize(AtCall&& at_call) {
  std::unique_lock lock(mutex_);
  refuse_waiting_for_itself();
  at_call();
  wait_until_done(lock);
  if (const auto error = std::exchange(first_error_, nullptr)) {
    lock.unlock();
    std::rethrow_exception(error);
  }
}

}  // namespace spyre::card
