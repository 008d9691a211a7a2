#include "nests/traffic.h"

namespace spyre::card {

std::uint64_t traffic_bytes(std::int64_t visits, DataFormat format) {
  return static_cast<std::uint64_t>(visits) * (format_info(format).bits / 8);
}

OpCost shared_cost(const Traffic& traffic, std::int64_t elements, DataFormat widest,
                   double passes) {
  OpCost cost;
  cost.passes = passes;
  cost.element_bytes = format_info(widest).bits / 8;
  cost.cores = kCores;
  cost.points = (elements + kCores - 1) / kCores;
  cost.all_points = elements;
  cost.read_bytes = static_cast<std::int64_t>(traffic.read);
  cost.written_bytes = static_cast<std::int64_t>(traffic.written);
  return cost;
}

}  // namespace spyre::card
