// Reading of environment variables, one meaning of "on" and "off" for all of them.
// torch_spyre/knobs.toml lists every variable with its meaning.
#pragma once

#include <optional>
#include <string>

#include "spyre/knobs.h"

namespace spyre {

std::optional<std::string> environment_text(const char* variable);  ///< empty is the same as unset

/// 0, false, off, no (any case) are off; everything else is on.
bool environment_flag(const knobs::Flag& knob);

/// Which of its words the variable has. Throws, naming the variable and them, if none.
std::size_t environment_choice(const knobs::Choice& knob);

/// Nothing if it is not set. Throws, naming the variable, if it is not a number in its range.
std::optional<long> environment_number(const knobs::Number& knob);

}  // namespace spyre
