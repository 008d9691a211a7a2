// Waiting without sleeping: to be woken up takes tens of microseconds, more on a virtual machine.
#pragma once

#include <sched.h>

#include <chrono>

namespace spyre::card {

/// Between two programs of a model, Python takes some hundred microseconds at most.
constexpr std::chrono::microseconds kPatience{500};

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Wait for `done` as long as there is patience, and say whether it is so. At first the processor
/// is kept, then offered to any other thread that wants it, so that this costs only time nobody
/// else has a use for.
template <typename Condition>
bool spin(Condition done) {
  const auto start = std::chrono::steady_clock::now();
  const auto polite = start + std::chrono::microseconds(20), end = start + kPatience;
  for (;;) {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      relax();
    }
    const auto now = std::chrono::steady_clock::now();
    if (now >= end) return done();
    if (now >= polite) sched_yield();
  }
}

}  // namespace spyre::card
