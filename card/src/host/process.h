// Knowing, cheaply, that this process is a forked child.
//
// A child has the parent's objects but none of its threads, and its copies of locks may be held by
// threads that do not exist there. Whoever owns threads, locks or mappings asks HomeProcess before
// cleaning up: in a child the right cleanup is none.
#pragma once

#include <atomic>
#include <cstdint>

namespace spyre::card {

/// Remembers the process that made it.
class HomeProcess {
 public:
  HomeProcess() : generation_(generation().load(std::memory_order_relaxed)) {}
  /// False in every process forked from the one that made it.
  bool is_here() const { return generation_ == generation().load(std::memory_order_relaxed); }

 private:
  // Counts forks between the first process and this one: a load instead of the getpid() syscall.
  static std::atomic<std::uint64_t>& generation();
  std::uint64_t generation_;
};

}  // namespace spyre::card
