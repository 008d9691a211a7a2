#include "work_queue.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <system_error>
#include <utility>

#include "patience.h"
#include "thread_pool.h"

namespace spyre::card {

namespace {

constexpr int kPreferredNice = -5;

// Between two submissions: less is not worth the trouble of a second thread.
constexpr std::chrono::microseconds kWorthTakingOver{15};

/// Signals are for the threads of the program that uses the card (Python handles them in its main
/// thread). A new thread inherits the mask, so it is set around the creation.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

std::shared_ptr<WorkQueue> WorkQueue::make(int priority) {
  return std::shared_ptr<WorkQueue>(new WorkQueue(priority));
}

void WorkQueue::close() {
  std::unique_lock lock(mutex_);
  closing_ = true;
  if (!worker_.joinable()) return;
  call_worker();
  if (worker_.get_id() == std::this_thread::get_id()) {
    worker_.detach();  // closed by its own work: it finishes the rest alone
    return;
  }
  lock.unlock();
  worker_.join();
}

bool WorkQueue::idle() const {
  const std::lock_guard lock(mutex_);
  return is_idle();
}

void WorkQueue::begin(bool large) {
  running_ = true;
  runs_large_ = large;
  runner_ = std::this_thread::get_id();
}

void WorkQueue::end() {
  running_ = false;
  runner_ = {};
  ++done_;
  ThreadPool::shared().wake_guests();
  if (!queue_.empty()) call_worker();
}

void WorkQueue::call_worker() {
  calls_.fetch_add(1, std::memory_order_relaxed);
  work_arrived_.notify_one();
}

/// As far as can be seen from the last time. After a long one the worker is asleep.
bool WorkQueue::busy_between_submissions() const {
  const auto away = std::chrono::steady_clock::now() - submitted_large_;
  return away >= kWorthTakingOver && away < kPatience && ThreadPool::shared().size() > 1;
}

/// Whether what runs, or will next, is large: it waits for nobody, and will end.
bool WorkQueue::is_at_large() const {
  const std::lock_guard lock(mutex_);
  return running_ ? runs_large_ : !queue_.empty() && queue_.front().large;
}

void WorkQueue::help_worker() {
  ThreadPool::shared().help_while_busy([this] { return large_ <= 1; },
                                       [this] { return is_at_large(); });
  const std::lock_guard lock(mutex_);
  submitted_large_ = std::chrono::steady_clock::now();
}

void WorkQueue::start_worker() {
  if (worker_.joinable()) return;
  const SignalsBlocked blocked;
  try {
    worker_ = std::thread([self = shared_from_this()] { self->run_worker(); });
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::failed,
                std::string("cannot start the worker thread of a stream: ") + error.what());
  }
}

void WorkQueue::push(Work work, bool large) {
  queue_.push_back({std::move(work), large});
  large_ += large;
  ++submitted_;
  call_worker();
}

void WorkQueue::refuse_waiting_for_itself() const {
  if (running_ && runner_ == std::this_thread::get_id())
    throw Error(ErrorCode::invalid_argument,
                "work of a stream cannot wait for that stream: it would wait for itself");
}

WorkQueue::Work WorkQueue::reporting_to(const std::shared_ptr<Outcome>& outcome, Work work) {
  return [outcome, work = std::move(work)] {
    try {
      work();
    } catch (...) {
      outcome->error = std::current_exception();
    }
  };
}

void WorkQueue::wait_until_done(std::unique_lock<std::mutex>& lock) {
  const std::uint64_t last = submitted_;
  lock.unlock();
  ThreadPool::shared().help_until([this, last] { return done_ >= last; });
  lock.lock();
}

void WorkQueue::run_worker() {
  pthread_setname_np(pthread_self(), "spyre-stream");
  // Needs a privilege that most processes lack; without it priorities have no effect, which is all
  // a software card promises: its streams share the host's processors, not an engine of the card.
  if (priority_ != 0) setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kPreferredNice);

  const ThreadPool::ExpectGuest guest;
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto due = [this] { return queue_.empty() ? closing_ : !running_; };
    if (!due()) {
      const std::uint64_t seen = calls_.load(std::memory_order_relaxed);
      const auto called = [&] { return calls_.load(std::memory_order_relaxed) != seen; };
      worker_awake_ = true;
      lock.unlock();
      spin(called);
      lock.lock();
      worker_awake_ = false;
      work_arrived_.wait(lock, called);
      continue;
    }
    if (queue_.empty()) return;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    begin(item.large);
    lock.unlock();
    std::exception_ptr error;
    try {
      item.work();
    } catch (...) {
      error = std::current_exception();
    }
    if (item.large) {  // whoever waits to go on need not wait for its memory to be given back
      lock.lock();
      --large_;
      lock.unlock();
    }
    item.work = nullptr;
    lock.lock();
    if (error && !first_error_) first_error_ = error;
    end();
  }
}

}  // namespace spyre::card
