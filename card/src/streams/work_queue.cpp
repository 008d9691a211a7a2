#include "streams/work_queue.h"

#include <sys/resource.h>

#include <string>
#include <system_error>
#include <typeinfo>
#include <utility>

#include "host/card_thread.h"
#include "host/patience.h"
#include "host/thread_pool.h"

namespace spyre::card {

namespace {

constexpr int kPreferredNice = -5;

// Between two submissions: less is not worth the trouble of a second thread.
constexpr std::chrono::microseconds kWorthTakingOver{15};

/// It will be thrown by a call that has nothing to do with it: let it say so.
std::exception_ptr reported_late(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& early) {
    if (typeid(early) != typeid(Error)) return error;
    return std::make_exception_ptr(
        Error(early.code, std::string(early.what()) +
                              " (This is of work that was queued before; what was queued behind it "
                              "was not run.)"));
  } catch (...) {
    return error;
  }
}

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

void WorkQueue::begin(Kind kind) {
  running_ = true;
  runs_ = kind;
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
  if (running_) return runs_ == Kind::large;
  return !queue_.empty() && queue_.front().kind == Kind::large;
}

void WorkQueue::help_worker() {
  ThreadPool::shared().help_while_busy([this] { return large_ <= 1; },
                                       [this] { return is_at_large(); });
  const std::lock_guard lock(mutex_);
  submitted_large_ = std::chrono::steady_clock::now();
}

void WorkQueue::start_worker() {
  if (worker_.joinable()) return;
  try {
    worker_ = start_thread("spyre-stream", [self = shared_from_this()] { self->run_worker(); });
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::failed,
                std::string("cannot start the worker thread of a stream: ") + error.what());
  }
}

void WorkQueue::push(Work work, Kind kind, std::exception_ptr* outcome) {
  queue_.push_back({std::move(work), kind, outcome});
  large_ += kind == Kind::large;
  ++submitted_;
  call_worker();
}

std::exception_ptr WorkQueue::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_ahead();
}

void WorkQueue::handed_over(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  forgive(error);
}

/// What the work that is running, or is next, is behind.
std::exception_ptr WorkQueue::failure_ahead() const {
  return kept_ || done_ < dropped_ ? failure_ : nullptr;
}

void WorkQueue::forgive(const std::exception_ptr& error) {
  if (!kept_ || failure_ != error) return;
  kept_ = false;
  dropped_ = submitted_;
  ++handed_over_;
}

void WorkQueue::refuse_waiting_for_itself() const {
  if (running_ && runner_ == std::this_thread::get_id())
    throw Error(ErrorCode::invalid_argument,
                "work of a stream cannot wait for that stream: it would wait for itself");
}

void WorkQueue::wait_until_done(std::unique_lock<std::mutex>& lock) {
  const std::uint64_t last = submitted_;
  lock.unlock();
  ThreadPool::shared().help_until([this, last] { return done_ >= last; });
  lock.lock();
}

void WorkQueue::run_worker() {
  // Needs a privilege that most processes lack; without it priorities have no effect, which is all
  // a software card promises: its streams share the host's processors, not an engine of the card.
  if (priority_ != 0) setpriority(PRIO_PROCESS, 0, kPreferredNice);  // of this thread

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
    begin(item.kind);
    std::exception_ptr error = item.kind == Kind::order ? nullptr : failure_ahead();
    const bool dropped = error != nullptr;
    lock.unlock();
    if (!dropped) {
      try {
        item.work();
      } catch (...) {
        error = std::current_exception();
      }
    }
    // Whoever waits to go on need not wait for its memory to be given back.
    if (item.kind == Kind::large) {
      lock.lock();
      --large_;
      lock.unlock();
    }
    item.work = nullptr;
    lock.lock();
    if (item.outcome) {
      *item.outcome = error;
    } else if (error && !dropped && !kept_) {
      // What another queue failed with says so already, and is handed over with it.
      failure_ = item.kind == Kind::order ? error : reported_late(error);
      kept_ = true;
    }
    end();
  }
}

}  // namespace spyre::card
