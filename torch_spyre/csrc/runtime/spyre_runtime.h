// The runtime of this process: the card library, the opened cards, start, fork and shutdown.
//
// Nothing here runs at import. The first use of a device starts it, once; a forked child of a
// process that has started it cannot use the device and says so.
#pragma once

#include <functional>
#include <vector>

#include <c10/core/Device.h>

#include "spyre/card.h"

namespace spyre::runtime {

/// The card library: torch_spyre/lib/libspyre_card.so, or SPYRE_CARD_LIBRARY.
card::Platform& platform();

/// `act` runs once, before the first card is opened and before the first tensor is made for one.
void on_first_use(std::function<void()> act);
/// Called where one of these happens; costs a load afterwards.
void first_use();

/// Open the current device. Idempotent.
void start();
bool started() noexcept;
bool in_bad_fork() noexcept;
/// Throws in a forked child of a process that has started the runtime, and when the process ends.
void check_usable();
/// The child of an Inductor worker or a fork must not open the device behind the user's back.
void mark_bad_fork() noexcept;

/// The opened card of a logical device; starts the runtime. Throws if there is no such device.
card::Card& card(c10::DeviceIndex device);
std::vector<card::Card*> open_cards();

/// Wait for all work of all cards.
void drain() noexcept;
/// The same, and take no more work; called once, when Python exits.
void shutdown() noexcept;

/// Thread-local current device. Initially LOCAL_RANK, else 0.
c10::DeviceIndex current_device();
void set_device(c10::DeviceIndex device);  ///< range-checked
c10::DeviceIndex exchange_device(c10::DeviceIndex device);
void check_device_index(std::int64_t device);
/// The current device for -1; others are range-checked.
c10::DeviceIndex device_or_current(std::int64_t device);

}  // namespace spyre::runtime
