#include "steps/step.h"

#include <algorithm>

namespace spyre::card {

OpCost Step::cost() const {
  const Traffic bytes = traffic();
  const auto elements = static_cast<std::int64_t>(std::max(bytes.read, bytes.written)) / 2;
  return shared_cost(bytes, elements, DataFormat::SEN169_FP16, kPassesMove);
}

}  // namespace spyre::card
