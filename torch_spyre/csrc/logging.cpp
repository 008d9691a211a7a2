#include "logging.h"

#include <cstdio>

#include "spyre_environment.h"

namespace spyre {

bool debug_enabled() {
  static const bool enabled = environment_flag("TORCH_SPYRE_DEBUG", false);
  return enabled;
}

void write_debug_line(const std::string& line) {
  const std::string text = "[spyre] " + line + '\n';
  std::fwrite(text.data(), 1, text.size(), stderr);  // one call, so that threads do not mix lines
}

}  // namespace spyre
