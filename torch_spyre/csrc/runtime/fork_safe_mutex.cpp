#include "runtime/fork_safe_mutex.h"

#include <pthread.h>

#include <vector>

namespace spyre {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<ForkSafeMutex*> all;
};

void lock_all();
void unlock_all();

/// Leaked: a process may fork after static destructors have run.
Registry& registry() {
  static Registry& instance = *[] {
    pthread_atfork(&lock_all, &unlock_all, &unlock_all);
    return new Registry;
  }();
  return instance;
}

void lock_all() {
  registry().mutex.lock();
  for (ForkSafeMutex* mutex : registry().all) mutex->lock();
}

void unlock_all() {
  for (ForkSafeMutex* mutex : registry().all) mutex->unlock();
  registry().mutex.unlock();
}

}  // namespace

ForkSafeMutex::ForkSafeMutex() {
  const std::lock_guard lock(registry().mutex);
  registry().all.push_back(this);
}

}  // namespace spyre
