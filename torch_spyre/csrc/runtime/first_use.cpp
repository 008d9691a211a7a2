#include "runtime/first_use.h"

#include <atomic>

namespace spyre {
namespace {

std::function<void()>& action() {
  static auto& instance = *new std::function<void()>;
  return instance;
}

std::atomic<bool> used{false};

}  // namespace

void on_first_use(std::function<void()> act) { action() = std::move(act); }

void first_use() {
  if (used.load(std::memory_order_relaxed) || used.exchange(true)) return;
  if (action()) action()();
}

}  // namespace spyre
