#include "work_queue.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <system_error>
#include <utility>

namespace spyre::card {

namespace {

constexpr int kPreferredNice = -5;

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
  work_arrived_.notify_one();
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

void WorkQueue::begin() {
  running_ = true;
  runner_ = std::this_thread::get_id();
}

void WorkQueue::end() {
  running_ = false;
  runner_ = {};
  ++done_;
  work_done_.notify_all();
  if (!queue_.empty()) work_arrived_.notify_one();
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

void WorkQueue::push(Work work) {
  queue_.push_back(std::move(work));
  ++submitted_;
  work_arrived_.notify_one();
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
  work_done_.wait(lock, [&] { return done_ >= last; });
}

void WorkQueue::run_worker() {
  pthread_setname_np(pthread_self(), "spyre-stream");
  // Needs a privilege that most processes lack; without it priorities have no effect, which is all
  // a software card promises: its streams share the host's processors, not an engine of the card.
  if (priority_ != 0) setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kPreferredNice);

  std::unique_lock lock(mutex_);
  for (;;) {
    work_arrived_.wait(lock, [this] { return queue_.empty() ? closing_ : !running_; });
    if (queue_.empty()) return;
    Work work = std::move(queue_.front());
    queue_.pop_front();
    begin();
    lock.unlock();
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    work = nullptr;
    lock.lock();
    if (error && !first_error_) first_error_ = error;
    end();
  }
}

}  // namespace spyre::card
