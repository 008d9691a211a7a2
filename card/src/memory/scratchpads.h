// The scratchpads (LX) of a card's cores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>

#include "spyre/card.h"

namespace spyre::card {

/// Memory that is there when first asked for. Holds what the last program left in it.
class Scratchpads {
 public:
  /// While a program works in them no other may: streams take turns.
  class Turn {
   public:
    explicit Turn(const Scratchpads& pads) : lock_(pads.mutex_), begin_(pads.memory()) {}
    std::byte* of_core(std::int64_t core) const { return begin_ + core * kLxBytesPerCore; }

   private:
    std::unique_lock<std::mutex> lock_;
    std::byte* begin_;
  };

 private:
  struct Free {
    void operator()(std::byte* memory) const {
      ::operator delete[](memory, std::align_val_t{kAlignment});
    }
  };
  static constexpr std::size_t kAlignment = 4096;

  std::byte* memory() const {
    if (!memory_)
      memory_.reset(static_cast<std::byte*>(
          ::operator new[](kCores * kLxBytesPerCore, std::align_val_t{kAlignment})));
    return memory_.get();
  }

  mutable std::mutex mutex_;
  mutable std::unique_ptr<std::byte[], Free> memory_;  // guarded by mutex_
};

}  // namespace spyre::card
