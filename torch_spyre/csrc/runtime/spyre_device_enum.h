// Which cards this process sees: AIU_WORLD_SIZE, SPYRE_DEVICES and FLEX_DEVICE choose among them.
#pragma once

#include <vector>

#include "spyre/card.h"

namespace spyre {

/// More is refused by visible_devices(), so arrays of this size hold every device.
inline constexpr int kMaxDevices = 64;

struct VisibleDevices {
  std::vector<int> cards;  ///< card number of logical device i
  card::Mode mode = card::Mode::physical;
};

/// Read once. Throws, naming the variable, if the environment makes no sense.
const VisibleDevices& visible_devices();

/// 0 if the environment makes no sense: for callers that may not throw.
int visible_device_count() noexcept;

}  // namespace spyre
