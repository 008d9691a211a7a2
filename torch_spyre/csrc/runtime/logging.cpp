#include "runtime/logging.h"

#include <atomic>
#include <cstdio>

#include "runtime/spyre_environment.h"

namespace spyre {

namespace {
bool chosen_by_environment() {
  static const bool enabled = environment_flag(knobs::kDebug);
  return enabled;
}

std::atomic<bool> chosen_by_program{false};
}  // namespace

bool debug_enabled() {
  return chosen_by_program.load(std::memory_order_relaxed) || chosen_by_environment();
}

void set_debug_enabled(bool enabled) { chosen_by_program = enabled; }

void write_debug_line(const std::string& line) {
  const std::string text = "[spyre] " + line + '\n';
  std::fwrite(text.data(), 1, text.size(), stderr);  // one call, so that threads do not mix lines
}

}  // namespace spyre
