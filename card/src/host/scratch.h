// Memory that a step needs while it runs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spyre::card {

/// Memory for the duration of a step. Small pieces come from the thread's own, which stays for the
/// next step: a thread may hold one piece of each slot at a time.
enum class ScratchSlot { block, work, partials, results };

namespace scratch {
std::byte* take(ScratchSlot slot, std::size_t bytes);  ///< aligned to 64
void give_back(std::byte* memory, std::size_t bytes);
}  // namespace scratch

template <typename T>
class Scratch {
 public:
  Scratch(ScratchSlot slot, std::int64_t count)
      : bytes_(static_cast<std::size_t>(count) * sizeof(T)), data_(scratch::take(slot, bytes_)) {}
  ~Scratch() { scratch::give_back(data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* data() const { return reinterpret_cast<T*>(data_); }

 private:
  const std::size_t bytes_;
  std::byte* const data_;
};

}  // namespace spyre::card
