// Reading of environment variables, one meaning of "on" and "off" for all of them.
// torch_spyre/environment.py lists every variable with its meaning.
#pragma once

#include <optional>
#include <string>

namespace spyre {

std::optional<std::string> environment_text(const char* name);  ///< unset and empty are the same

/// 0, false, off, no (any case) are off; unset is `fallback`; everything else is on.
bool environment_flag(const char* name, bool fallback);

/// Throws, naming the variable, if the text is not a whole number.
std::optional<long> environment_number(const char* name);

}  // namespace spyre
