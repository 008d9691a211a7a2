// The host threads that the software card works with.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <type_traits>

#include "host/process.h"

namespace spyre::card {

/// A reference to something callable with a task index. Does not own it: for arguments only.
class TaskRef {
 public:
  template <typename F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, TaskRef>)
  TaskRef(F&& function)  // implicit, so that a lambda can be passed where a TaskRef is asked for
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(function)))),
        call_([](void* object, std::int64_t index) {
          (*static_cast<std::remove_reference_t<F>*>(object))(index);
        }) {}

  void operator()(std::int64_t index) const { call_(object_, index); }

 private:
  void* object_;
  void (*call_)(void*, std::int64_t);
};

/// A pool of threads that share the tasks of a parallel loop with the thread that asked for it.
class ThreadPool {
 public:
  /// The card's pool. Never destroyed: workers may outlive every static object of the process.
  static ThreadPool& shared();

  /// Which of them this thread is, in a task: at most size(), and no other's at that time but for
  /// loops that other callers started. A caller is the first, a guest has the number size().
  static int this_thread();

  /// Threads that may work on one loop, the caller included: SPYRE_CARD_THREADS, or the number of
  /// processors this process may use.
  int size() const { return size_; }

  /// Call task(0) .. task(tasks - 1), each once, in any order and on any thread; return when all
  /// are done. If tasks throw, the remaining ones are skipped and one of the exceptions is
  /// rethrown. May be called from several threads at once. Called from inside a task, or in a
  /// process forked after the pool was made (it has no workers there), it runs everything on the
  /// calling thread.
  void parallel_for(std::int64_t tasks, TaskRef task);

  /// While one lives, the loops of its thread are shared with one worker less, and with a guest.
  struct ExpectGuest {
    ExpectGuest();
    ~ExpectGuest();
    ExpectGuest(const ExpectGuest&) = delete;
    ExpectGuest& operator=(const ExpectGuest&) = delete;
  };

  /// Wait until `done`, and be the guest of such loops meanwhile. `done` is asked often, by this
  /// thread and with a lock held: it looks at what is atomic. Whoever makes it true, calls
  /// wake_guests().
  void help_until(const std::function<bool()>& done) { help(done, nullptr); }
  /// The same, but once there is nothing to do, only for as long as somebody is `busy`, which is
  /// asked now and then, with no lock held.
  void help_while_busy(const std::function<bool()>& done, const std::function<bool()>& busy) {
    help(done, busy);
  }
  void wake_guests();

  explicit ThreadPool(int size);
  ~ThreadPool() = delete;  // its workers are detached and never stop
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

 private:
  struct Job;

  void start_workers();
  void work(int thread);
  Job* find_job();
  Job* find_job_of_guest();
  void help(const std::function<bool()>& done, const std::function<bool()>& busy);
  void leave(Job& job);
  static void run_tasks(Job& job, int thread);

  const int size_;
  const HomeProcess home_;
  std::mutex mutex_;
  std::condition_variable work_arrived_, job_finished_, guest_wanted_;
  std::atomic<std::uint64_t> submissions_{0}, for_guests_{0};  // loops for workers, for guests
  Job* jobs_ = nullptr;                                        // guarded by mutex_
  bool started_ = false;                                       // guarded by mutex_
  int asleep_ = 0;                     // workers waiting on work_arrived_; guarded by mutex_
  std::atomic<int> guests_asleep_{0};  // waiting on guest_wanted_; changed only under mutex_
};

}  // namespace spyre::card
