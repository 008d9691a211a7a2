// A piece of device memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spyre::card {

/// An allocation as the card's engines see it.
struct Extent {
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
};

}  // namespace spyre::card
