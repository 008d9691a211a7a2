// The knobs of the software card, read from the environment, and sizes as people write them.
// torch_spyre/knobs.toml says which there are, and what they mean.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "spyre/knobs.h"

namespace spyre::card {

/// "131072", "64K", "64M", "2G", "1T"; also "64MB" and "64MiB". Units are powers of 1024.
/// Throws Error(invalid_argument) that names `variable` and the legal values.
std::uint64_t parse_bytes(std::string_view variable, std::string_view text, std::uint64_t lowest,
                          std::uint64_t highest);

/// "2.50 GiB (2684354560 bytes)"
std::string bytes_text(std::uint64_t bytes);
/// "16 GiB", "2.5 GiB", "384 bytes"
std::string short_bytes_text(std::uint64_t bytes);

/// These read their variable anew on every call; unset or empty gives the default.
int soft_cards();
std::uint64_t card_memory_bytes();
std::uint64_t card_warm_bytes();
int card_threads();
bool card_check();

/// Which of its words the variable has; throws, listing them, if it is none of these.
std::size_t choice(const knobs::Choice& knob);

}  // namespace spyre::card
