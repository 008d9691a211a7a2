// Streams: the pool of each device, the thread's current stream, and PyTorch's view of both.
//
// Ids: 0 is the default stream, 1..32 the low-priority pool, 33..64 the high-priority pool; each
// pool hands out its streams in turn. A stream costs nothing until it is used.
#pragma once

#include <c10/core/Stream.h>

#include "spyre/card.h"

namespace spyre::streams {

c10::Stream from_pool(c10::DeviceIndex device, int priority);
c10::Stream default_stream(c10::DeviceIndex device);
c10::Stream current(c10::DeviceIndex device);
/// Makes it the thread's current stream of its device; returns the previous one.
c10::Stream exchange(c10::Stream stream);
/// 0, or -1 for streams of the high-priority pool.
int priority(c10::StreamId id);

/// The card's stream behind it; starts the runtime.
card::Stream& card_stream(c10::Stream stream);
/// The card's stream that work of this thread goes to.
card::Stream& current_card_stream(c10::DeviceIndex device);

/// All streams of the device.
void synchronize_device(c10::DeviceIndex device);
/// All streams of all devices that have been used.
void synchronize_all();

}  // namespace spyre::streams
