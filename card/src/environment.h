// The environment variables of the software card, and sizes as people write them.
//
//   SPYRE_SOFT_CARDS       cards in this machine, 1..8, default 1
//   SPYRE_CARD_MEMORY      memory of one card, 64K..128G, default 128G
//   SPYRE_CARD_WARM_BYTES  freed memory a card keeps for reuse, 0..128G, default 64M
//   SPYRE_CARD_THREADS     host threads, 1..1024, default one a processor that this process may use
//   SPYRE_CARD_CHECK       1: every stream checks what it runs (checker.h), default 0
//   SPYRE_CARD_SIMD        vector instructions (convert.h)
//   SPYRE_DL16_SPECIALS    special values of DLFloat16 (formats.h)
//   SPYRE_ACCUMULATION     how sums of DLFloat16 accumulate (accumulation.h)
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

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

/// Index of the variable's value in `legal`; throws, listing them, if it is none of these.
std::size_t choice(const char* variable, std::initializer_list<std::string_view> legal,
                   std::size_t otherwise);

}  // namespace spyre::card
