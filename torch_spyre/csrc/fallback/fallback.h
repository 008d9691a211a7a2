// CPU fallback of ops that have no kernel for the card.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace pybind11 {
class object;
}

namespace spyre::fallback {

enum class Mode { warn, error };

/// Called with the op's name when an op falls back for the first time.
void set_hook(const pybind11::object& hook);
/// Calls that fell back, by op.
std::map<std::string, std::uint64_t> counts();
/// Forgets the counts; every op is reported once more.
void reset_counts();
void set_mode(Mode mode);

}  // namespace spyre::fallback
