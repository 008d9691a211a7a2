// The moment at which a process begins to use the device.
#pragma once

#include <functional>

namespace spyre {

/// `act` runs once, before the first card is opened and before the first tensor is made for one.
void on_first_use(std::function<void()> act);

/// Called where one of these happens; costs a load afterwards.
void first_use();

}  // namespace spyre
