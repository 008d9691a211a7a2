#include "runtime/spyre_event.h"

#include <memory>

#include <c10/util/Exception.h>

#include "runtime/spyre_runtime.h"
#include "runtime/spyre_stream.h"
#include "spyre/card.h"

namespace spyre::events {
namespace {

struct Event {
  std::unique_ptr<card::Event> card_event;
  c10::DeviceIndex device;
  bool timing;
};

/// The card's event. A forked child has no worker that would ever pass it.
card::Event& card_event(void* handle) {
  runtime::check_usable();
  return *static_cast<Event*>(handle)->card_event;
}

Event& timed(void* handle) {
  runtime::check_usable();
  TORCH_CHECK(handle != nullptr, "elapsed_time: both events must be recorded before.");
  Event& event = *static_cast<Event*>(handle);
  TORCH_CHECK_VALUE(event.timing,
                    "elapsed_time: both events must be created with enable_timing=True.");
  return event;
}

}  // namespace

void record(void** handle, const c10::Stream& stream, c10::EventFlag flag) {
  card::Stream& queue = streams::card_stream(stream);
  if (*handle == nullptr) {
    *handle = new Event{runtime::card(stream.device_index()).create_event(), stream.device_index(),
                        flag == c10::EventFlag::BACKEND_DEFAULT};
  }
  Event& event = *static_cast<Event*>(*handle);
  TORCH_CHECK(
      event.device == stream.device_index(), "an event of spyre:", static_cast<int>(event.device),
      " cannot be recorded on a stream of ", stream.device(), "; make one event per device.");
  queue.record(*event.card_event);
}

void block(void* handle, const c10::Stream& stream) {
  if (handle != nullptr) streams::card_stream(stream).wait(card_event(handle));
}

bool query(void* handle) { return handle == nullptr || card_event(handle).query(); }

void synchronize(void* handle) {
  if (handle != nullptr) card_event(handle).synchronize();
}

void destroy(void* handle) noexcept {
  if (!runtime::in_bad_fork()) delete static_cast<Event*>(handle);
}

double elapsed_ms(void* start, void* end) {
  const card::Event &first = *timed(start).card_event, &last = *timed(end).card_event;
  return static_cast<double>(last.wall_ns() - first.wall_ns()) / 1e6;
}

double modelled_elapsed_ms(void* start, void* end) {
  const card::Event &first = *timed(start).card_event, &last = *timed(end).card_event;
  return static_cast<double>(last.modelled_ns() - first.modelled_ns()) / 1e6;
}

}  // namespace spyre::events
