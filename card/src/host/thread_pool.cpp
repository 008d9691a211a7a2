#include "host/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <system_error>
#include <thread>
#include <utility>

#include "host/card_thread.h"
#include "host/environment.h"
#include "host/patience.h"

namespace spyre::card {
namespace {

/// Between two looks at what nobody tells of.
constexpr std::chrono::microseconds kNap{100};

/// A thread that runs a task: loops started there stay on it.
thread_local bool inside_task = false;

thread_local int thread_of_pool = 0;

thread_local bool guest_expected = false;

struct InsideTask {
  InsideTask() { inside_task = true; }
  ~InsideTask() { inside_task = false; }
};

}  // namespace

/// One parallel_for. Lives on the caller's stack; `helpers` says whether workers still look at it.
///
/// Every thread begins with a share of its own, the same in each loop of as many tasks, so that it
/// finds in its caches what it left there. Then it helps with the shares of the others.
struct ThreadPool::Job {
  struct alignas(64) Share {  // 64: threads take tasks without disturbing each other
    std::atomic<std::int64_t> next{0};
    std::int64_t end = 0;
    bool done() const { return next.load(std::memory_order_relaxed) >= end; }
  };
  static constexpr std::int64_t kMostShares = 32;

  Job(TaskRef task_in, std::int64_t tasks, int threads)
      : task(task_in),
        expects_guest(guest_expected),
        workers(threads - (expects_guest ? 2 : 1)),
        count(std::min<std::int64_t>({tasks, threads, kMostShares})) {
    for (std::int64_t i = 0; i < count; ++i) {
      shares[i].next = tasks * i / count;
      shares[i].end = tasks * (i + 1) / count;
    }
  }
  bool done() const {
    return std::all_of(shares, shares + count, [](const Share& share) { return share.done(); });
  }
  void skip_rest() {
    for (std::int64_t i = 0; i < count; ++i) shares[i].next = shares[i].end;
  }

  const TaskRef task;
  const bool expects_guest;
  const int workers;  // that may come
  const std::int64_t count;
  Share shares[kMostShares];
  std::atomic<int> helpers{0};  // changed only under the pool's mutex
  bool has_guest = false;       // guarded by the pool's mutex; one of the helpers
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // written by the thread that set `failed`
  Job* previous = nullptr;
  Job* following = nullptr;
};

ThreadPool& ThreadPool::shared() {
  static ThreadPool& pool = *new ThreadPool(card_threads());
  return pool;
}

ThreadPool::ThreadPool(int size) : size_(std::max(1, size)) {}

void ThreadPool::start_workers() {
  started_ = true;
  try {
    for (int i = 1; i < size_; ++i) start_thread("spyre-card", [this, i] { work(i); }).detach();
  } catch (const std::system_error&) {
    // No more threads to be had: the caller and those that started do the work.
  }
}

void ThreadPool::run_tasks(Job& job, int thread) {
  InsideTask mark;
  for (std::int64_t i = 0; i < job.count; ++i) {
    Job::Share& share = job.shares[(thread + i) % job.count];
    while (!share.done()) {
      const std::int64_t index = share.next.fetch_add(1, std::memory_order_relaxed);
      if (index >= share.end) break;
      try {
        job.task(index);
      } catch (...) {
        if (!job.failed.exchange(true)) job.error = std::current_exception();
        job.skip_rest();
      }
    }
  }
}

/// The job with tasks left that has the fewest helpers, so that concurrent loops share the workers.
ThreadPool::Job* ThreadPool::find_job() {
  Job* best = nullptr;
  for (Job* job = jobs_; job; job = job->following) {
    if (job->done() || job->helpers - job->has_guest >= job->workers) continue;
    if (!best || job->helpers.load() < best->helpers.load()) best = job;
  }
  return best;
}

ThreadPool::Job* ThreadPool::find_job_of_guest() {
  Job* job = jobs_;
  while (job && (!job->expects_guest || job->has_guest || job->done())) job = job->following;
  return job;
}

/// Under the mutex: as soon as the caller can see zero helpers, the job may be gone.
void ThreadPool::leave(Job& job) {
  if (job.helpers.fetch_sub(1) == 1) job_finished_.notify_all();
}

ThreadPool::ExpectGuest::ExpectGuest() { guest_expected = true; }
ThreadPool::ExpectGuest::~ExpectGuest() { guest_expected = false; }

void ThreadPool::help(const std::function<bool()>& done, const std::function<bool()>& busy) {
  if (!home_.is_here()) {  // a thread that is in the parent alone may have the mutex
    while (!spin(done) && !busy) std::this_thread::sleep_for(kNap);
    return;
  }
  const bool able = size_ > 1 && !inside_task;
  const int before = std::exchange(thread_of_pool, size_);
  while (!done()) {
    const std::uint64_t seen = for_guests_.load(std::memory_order_relaxed);
    std::unique_lock lock(mutex_);
    if (Job* const job = able ? find_job_of_guest() : nullptr) {
      job->has_guest = true;
      job->helpers.fetch_add(1);
      lock.unlock();
      run_tasks(*job, size_ - 1);
      lock.lock();
      job->has_guest = false;
      leave(*job);
      continue;
    }
    lock.unlock();
    const auto over = [&] { return for_guests_.load(std::memory_order_relaxed) != seen || done(); };
    if (spin(over)) continue;
    if (busy) {
      if (!busy()) break;
      std::this_thread::sleep_for(kNap);  // nobody tells when this one changes
      continue;
    }
    lock.lock();
    ++guests_asleep_;
    guest_wanted_.wait(lock, over);
    --guests_asleep_;
  }
  thread_of_pool = before;
}

void ThreadPool::wake_guests() {
  if (guests_asleep_ == 0 || !home_.is_here()) return;
  // Whoever is about to sleep has the mutex, or will see that it is done.
  {
    const std::lock_guard lock(mutex_);
  }
  guest_wanted_.notify_all();
}

int ThreadPool::this_thread() { return thread_of_pool; }

void ThreadPool::work(int thread) {
  thread_of_pool = thread;
  std::unique_lock lock(mutex_);
  for (;;) {
    const std::uint64_t seen = submissions_.load(std::memory_order_relaxed);
    if (Job* job = find_job()) {
      job->helpers.fetch_add(1);
      lock.unlock();
      run_tasks(*job, thread);
      lock.lock();
      leave(*job);
      continue;
    }
    lock.unlock();
    spin([&] { return submissions_.load(std::memory_order_relaxed) != seen; });
    lock.lock();
    ++asleep_;
    work_arrived_.wait(lock, [&] { return submissions_.load(std::memory_order_relaxed) != seen; });
    --asleep_;
  }
}

void ThreadPool::parallel_for(std::int64_t tasks, TaskRef task) {
  if (tasks <= 1 || size_ == 1 || inside_task || !home_.is_here()) {
    for (std::int64_t index = 0; index < tasks; ++index) task(index);
    return;
  }
  Job job(task, tasks, size_);
  int wake = 0;
  {
    std::lock_guard lock(mutex_);
    if (!started_) start_workers();
    job.following = jobs_;
    if (jobs_) jobs_->previous = &job;
    jobs_ = &job;
    if (job.workers > 0) submissions_.fetch_add(1, std::memory_order_relaxed);
    if (job.expects_guest) for_guests_.fetch_add(1, std::memory_order_relaxed);
    wake = static_cast<int>(std::min<std::int64_t>({asleep_, tasks - 1, job.workers}));
  }
  if (job.expects_guest && guests_asleep_ > 0) guest_wanted_.notify_all();
  for (; wake > 0; --wake) work_arrived_.notify_one();
  run_tasks(job, 0);
  spin([&] { return job.helpers.load() == 0; });
  {
    std::unique_lock lock(mutex_);
    (job.previous ? job.previous->following : jobs_) = job.following;
    if (job.following) job.following->previous = job.previous;
    job_finished_.wait(lock, [&] { return job.helpers.load() == 0; });
  }
  if (job.failed) std::rethrow_exception(job.error);
}

}  // namespace spyre::card
