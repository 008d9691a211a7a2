#include "streams/event.h"

#include <chrono>

#include "host/thread_pool.h"

namespace spyre::card {

void Mark::pass(std::exception_ptr failure) {
  failure_ = std::move(failure);
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  wall_ns_ = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  ThreadPool::shared().wake_guests();
}

void Mark::wait() const {
  ThreadPool::shared().help_until([this] { return passed(); });
}

void Mark::wait_on_host() const {
  clock_->host_waits_for(moment_);
  wait();
  if (!failure_) return;
  if (const auto queue = queue_.lock()) queue->handed_over(failure_);
  std::rethrow_exception(failure_);
}

const SoftEvent& SoftEvent::from(const Event& event) {
  const auto* const soft = dynamic_cast<const SoftEvent*>(&event);
  if (!soft)
    throw Error(ErrorCode::invalid_argument, "the event was not created by a software card");
  return *soft;
}

SoftEvent& SoftEvent::from(Event& event) {
  return const_cast<SoftEvent&>(from(static_cast<const Event&>(event)));
}

void SoftEvent::move_to(std::shared_ptr<Mark> mark) {
  const std::lock_guard lock(mutex_);
  mark_.swap(mark);
}

std::shared_ptr<Mark> SoftEvent::mark() const {
  const std::lock_guard lock(mutex_);
  return mark_;
}

bool SoftEvent::query() const {
  const auto current = mark();
  if (!current) return true;
  if (!current->passed()) return false;
  if (current->failure()) std::rethrow_exception(current->failure());
  return true;
}

void SoftEvent::synchronize() const {
  if (const auto current = mark()) current->wait_on_host();
}

std::int64_t SoftEvent::wall_ns() const {
  const auto current = recorded_mark();
  current->wait_on_host();
  return current->wall_ns();
}

std::int64_t SoftEvent::modelled_ns() const { return recorded_mark()->moment().ns; }

std::shared_ptr<Mark> SoftEvent::recorded_mark() const {
  auto current = mark();
  if (!current)
    throw Error(ErrorCode::invalid_argument, "the event has no time: it was never recorded");
  return current;
}

}  // namespace spyre::card
