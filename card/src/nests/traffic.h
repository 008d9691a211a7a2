// What steps move from and to device memory, and what that costs.
#pragma once

#include <cstdint>

#include "spyre/card.h"
#include "spyre/cost.h"

namespace spyre::card {

/// Bytes of device memory that a step touches.
struct Traffic {
  std::uint64_t read = 0, written = 0;
};

/// Device bytes that so many visits of an element move.
std::uint64_t traffic_bytes(std::int64_t visits, DataFormat format);

/// The cost of a step that all cores share evenly, by how many elements it visits.
OpCost shared_cost(const Traffic& traffic, std::int64_t elements, DataFormat widest, double passes);

}  // namespace spyre::card
