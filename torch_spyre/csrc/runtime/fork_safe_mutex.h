// Mutexes that are free in a forked child.
#pragma once

#include <mutex>

namespace spyre {

/// A child has none of the parent's threads, so a mutex that one of them held at the fork would
/// stay locked there for good. The thread that forks holds all of these meanwhile, so that the
/// child finds them free and what they guard whole. For mutexes under which nothing waits, for
/// another of them least of all. Never destroyed.
class ForkSafeMutex {
 public:
  ForkSafeMutex();
  ForkSafeMutex(const ForkSafeMutex&) = delete;
  ForkSafeMutex& operator=(const ForkSafeMutex&) = delete;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

}  // namespace spyre
