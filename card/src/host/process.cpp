#include "host/process.h"

#include <pthread.h>

namespace spyre::card {

namespace {

std::atomic<std::uint64_t> forks{0};

// Registered when the library is loaded, so before any object exists that could be inherited.
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

std::atomic<std::uint64_t>& HomeProcess::generation() { return forks; }

}  // namespace spyre::card
