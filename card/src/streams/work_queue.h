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
//
// Errors. Work that nobody waits for leaves its error with the queue, and what was submitted behind
// it is dropped: it could only compute with what the failed work should have made. Whoever waits
// for the queue, or for a piece of work in it, gets the error; so does who submits work that could
// run at once. With that it has been handed over, and what is submitted from then on runs.
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
  /// What a piece of work is to the queue.
  enum class Kind {
    small,
    large,  ///< and waits for nobody: may go to the worker of an idle queue too
    order,  ///< makes or waits for a point in the order: runs behind a failure too
  };

  static std::shared_ptr<WorkQueue> make(int priority);
  ~WorkQueue() = default;

  /// Run everything submitted, then stop. No submissions may follow.
  void close();

  /// at_submission() is called under the queue's lock, in the order of the queue. Then either
  /// now() runs on this thread, or later() makes the Work to queue. Errors of now() are thrown
  /// here, as are those of queued work under Submit::wait; others are kept. An error that is kept
  /// already is thrown in place of running now(), and of work waited for.
  template <class AtSubmission, class Now, class Later>
  void submit(Submit submit, AtSubmission&& at_submission, Now&& now, Later&& later,
              Kind kind = Kind::small);

  /// Calls function() in the order of the queue without queueing anything.
  template <class Function>
  void in_order(Function&& function) {
    const std::lock_guard lock(mutex_);
    function();
  }

  bool idle() const;
  /// Waits for what was submitted before the call. Returns the error that the caller has to throw,
  /// if there is one: it counts as handed over when handed_over() is called.
  template <class AtCall>
  std::exception_ptr wait(AtCall&& at_call);
  std::exception_ptr wait() {
    return wait([] {});
  }
  /// Somebody got this error: work that is submitted from now on runs. Does nothing if the queue
  /// keeps another one.
  void handed_over(const std::exception_ptr& error);
  /// The error behind which work runs that runs now: for Kind::order.
  std::exception_ptr failure() const;

 private:
  explicit WorkQueue(int priority) : priority_(priority) {}

  // With mutex_ held.
  bool is_idle() const { return !running_ && queue_.empty(); }
  void begin(Kind kind);
  void end();
  void start_worker();
  void push(Work work, Kind kind, std::exception_ptr* outcome);
  std::exception_ptr failure_ahead() const;
  void forgive(const std::exception_ptr& error);
  void refuse_waiting_for_itself() const;
  bool busy_between_submissions() const;
  void call_worker();

  bool is_at_large() const;
  void help_worker();

  void run_worker();
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
    Kind kind;
    std::exception_ptr* outcome;  // of the thread that waits for it, until it is done; or null
  };
  std::deque<Item> queue_;
  bool running_ = false, closing_ = false, worker_awake_ = false;
  Kind runs_ = Kind::small;
  std::chrono::steady_clock::time_point submitted_large_;  // and returned
  std::thread::id runner_;                                 // the thread that runs the current work
  std::uint64_t submitted_ = 0;
  std::exception_ptr failure_;  // the last one, also when it has been handed over
  bool kept_ = false;           // it has not
  // Else: work up to this number is dropped for it, and how many were handed over until now.
  std::uint64_t dropped_ = 0, handed_over_ = 0;
  std::thread worker_;
};

template <class AtSubmission, class Now, class Later>
void WorkQueue::submit(Submit submit, AtSubmission&& at_submission, Now&& now, Later&& later,
                       Kind kind) {
  std::unique_lock lock(mutex_);
  const bool large = kind == Kind::large;
  const bool for_worker = large && submit == Submit::either && busy_between_submissions();
  if (submit != Submit::queue && is_idle() && !(for_worker && worker_awake_)) {
    if (for_worker) start_worker();
    at_submission();
    if (kept_ && kind != Kind::order) {
      forgive(failure_);
      const std::exception_ptr error = failure_;
      lock.unlock();
      std::rethrow_exception(error);
    }
    begin(kind);
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
    push(later(), kind, nullptr);
    lock.unlock();
    if (large && submit == Submit::either) help_worker();
    return;
  }
  std::exception_ptr outcome;
  push(later(), Kind::small, &outcome);
  wait_until_done(lock);
  if (!outcome) return;
  forgive(outcome);
  lock.unlock();
  std::rethrow_exception(outcome);
}

template <class AtCall>
std::exception_ptr WorkQueue::wait(AtCall&& at_call) {
  std::unique_lock lock(mutex_);
  refuse_waiting_for_itself();
  at_call();
  const std::uint64_t before = handed_over_;
  wait_until_done(lock);
  // Two that wait at the same time both get it.
  return kept_ || handed_over_ != before ? failure_ : nullptr;
}

}  // namespace spyre::card
