#include "host/scratch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <new>

namespace spyre::card {

namespace scratch {
namespace {

constexpr std::size_t kKept = 2 << 20;  // what is larger comes from the heap and goes back to it

struct Free {
  void operator()(std::byte* memory) const { ::operator delete(memory, std::align_val_t{64}); }
};

std::byte* allocate(std::size_t bytes) {
  return static_cast<std::byte*>(::operator new(bytes, std::align_val_t{64}));
}

struct Slot {
  std::unique_ptr<std::byte, Free> memory;
  std::size_t bytes = 0;
};

}  // namespace

std::byte* take(ScratchSlot slot, std::size_t bytes) {
  if (bytes > kKept) return allocate(bytes);
  thread_local std::array<Slot, 4> slots;
  Slot& mine = slots[static_cast<std::size_t>(slot)];
  if (bytes > mine.bytes) {
    mine.memory.reset();
    mine.bytes = 0;
    const std::size_t rounded = std::max<std::size_t>(4096, std::bit_ceil(bytes));
    mine.memory.reset(allocate(rounded));
    mine.bytes = rounded;
  }
  return mine.memory.get();
}

void give_back(std::byte* memory, std::size_t bytes) {
  if (bytes > kKept) Free{}(memory);
}

}  // namespace scratch
}  // namespace spyre::card
