// Debug log of the runtime, switched on by TORCH_SPYRE_DEBUG=1 or logging_config.py.
#pragma once

#include <string>

#include <c10/util/StringUtil.h>

namespace spyre {

bool debug_enabled();
void set_debug_enabled(bool enabled);  // besides what the environment says
void write_debug_line(const std::string& line);

/// Arguments are formatted only when the log is on. Pass no device addresses: users read this.
template <typename... Args>
void debug(const Args&... args) {
  if (debug_enabled()) write_debug_line(c10::str(args...));
}

}  // namespace spyre
