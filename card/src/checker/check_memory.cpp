#include "checker/check_memory.h"

#include <algorithm>
#include <cstring>

namespace spyre::card {

namespace {

constexpr std::uint64_t kPage = std::uint64_t{2} << 20;
constexpr std::uint64_t kStick = kStickBytes;

/// Zeroes, without keeping host memory for large ones.
void clear(const Reservation& table, std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t inner = (begin + kPage - 1) / kPage * kPage, stop = end / kPage * kPage;
  if (inner >= stop) {
    std::memset(table.begin() + begin, 0, end - begin);
    return;
  }
  std::memset(table.begin() + begin, 0, inner - begin);
  table.discard(inner, stop - inner);
  std::memset(table.begin() + stop, 0, end - stop);
}

}  // namespace

Shadow::Shadow(std::byte* memory, std::uint64_t bytes)
    : memory_(memory),
      bytes_(bytes),
      states_(Reservation::backing(bytes, false)),
      readers_(Reservation::backing(bytes, false)),
      writers_(Reservation::backing(bytes / kStick + 1, false)) {}

void Shadow::forget(std::uint64_t begin, std::uint64_t end) const { clear(states_, begin, end); }

void Shadow::set_written(std::uint64_t begin, std::uint64_t end) const {
  std::memset(states(begin), kWritten, end - begin);
}

void Shadow::end_step(std::uint64_t begin, std::uint64_t end) const {
  std::uint8_t* const state = states(begin);
  for (std::uint64_t i = 0; i < end - begin; ++i) state[i] &= ~kDeclared;
  clear(readers_, begin, end);
  clear(writers_, begin / kStick, (end + kStick - 1) / kStick);
}

Snapshot::Snapshot(const Shadow& shadow, std::uint64_t begin, std::uint64_t end)
    : shadow_(shadow),
      begin_(begin),
      before_(shadow.memory(begin), shadow.memory(std::min(end, begin + kMostBytes))) {}

std::uint64_t Snapshot::changed() const {
  const std::byte* const now = shadow_.memory(begin_);
  const std::uint8_t* const states = shadow_.states(begin_);
  constexpr std::size_t kBlock = 4096;
  for (std::size_t block = 0; block < before_.size(); block += kBlock) {
    const std::size_t end = std::min(before_.size(), block + kBlock);
    if (std::memcmp(now + block, before_.data() + block, end - block) == 0) continue;
    for (std::size_t i = block; i < end; ++i)
      if (now[i] != before_[i] && !(states[i] & kDeclared)) return begin_ + i;
  }
  return UINT64_MAX;
}

}  // namespace spyre::card
