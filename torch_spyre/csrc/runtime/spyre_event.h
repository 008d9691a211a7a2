// Events: points in a stream that can be waited for and timed, in wall time and in modelled time.
#pragma once

#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace spyre::events {

// The `void*` is PyTorch's handle of an event; it is created by the first record().
void record(void** event, const c10::Stream& stream, c10::EventFlag flag);
void block(void* event, const c10::Stream& stream);
bool query(void* event);
void synchronize(void* event);
void destroy(void* event) noexcept;

double elapsed_ms(void* start, void* end);           ///< wall clock
double modelled_elapsed_ms(void* start, void* end);  ///< the card's clock

}  // namespace spyre::events
