#include "runtime/spyre_stream.h"

#include <array>
#include <atomic>
#include <mutex>

#include <c10/util/Exception.h>

#include "runtime/checks.h"
#include "runtime/spyre_device_enum.h"
#include "runtime/spyre_runtime.h"

namespace spyre::streams {
namespace {

constexpr int kPoolSize = 32, kStreams = 1 + 2 * kPoolSize;

struct Pool {
  std::mutex mutex;
  std::array<std::unique_ptr<card::Stream>, kStreams> owners;
  std::array<std::atomic<card::Stream*>, kStreams> streams{};
  std::atomic<unsigned> next_low{0}, next_high{0};
};

/// Leaked: streams may be used until the process ends.
Pool& pool(c10::DeviceIndex device) {
  static auto& pools = *new std::array<Pool, kMaxDevices>;
  return pools[device];
}

thread_local std::array<std::uint8_t, kMaxDevices> tls_current{};

c10::Stream make(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::PrivateUse1, device), id);
}

c10::DeviceIndex resolved(c10::DeviceIndex device) {
  if (device < 0) return runtime::current_device();
  runtime::check_device_index(device);
  return device;
}

}  // namespace

c10::Stream from_pool(c10::DeviceIndex device, int priority) {
  device = resolved(device);
  Pool& streams = pool(device);
  const bool high = priority != 0;
  std::atomic<unsigned>& next = high ? streams.next_high : streams.next_low;
  return make(device, (high ? 1 + kPoolSize : 1) + next++ % kPoolSize);
}

c10::Stream default_stream(c10::DeviceIndex device) { return make(resolved(device), 0); }

c10::Stream current(c10::DeviceIndex device) {
  device = resolved(device);
  return make(device, tls_current[device]);
}

c10::Stream exchange(c10::Stream stream) {
  TORCH_CHECK(stream.device_type() == c10::DeviceType::PrivateUse1, "stream ", stream,
              " is not a spyre stream.");
  TORCH_CHECK_INDEX(stream.id() >= 0 && stream.id() < kStreams, "spyre stream id ", stream.id(),
                    " out of range [0, ", kStreams, ").");
  const c10::DeviceIndex device = stream.device_index();
  runtime::check_device_index(device);
  const c10::Stream previous = make(device, tls_current[device]);
  tls_current[device] = static_cast<std::uint8_t>(stream.id());
  return previous;
}

int priority(c10::StreamId id) { return id > kPoolSize ? -1 : 0; }

card::Stream& card_stream(c10::Stream stream) {
  card::Card& card = runtime::card(stream.device_index());
  TORCH_CHECK_INDEX(stream.id() >= 0 && stream.id() < kStreams, "spyre stream id ", stream.id(),
                    " out of range [0, ", kStreams, ").");
  Pool& streams = pool(stream.device_index());  // card() has checked the index
  if (card::Stream* open = streams.streams[stream.id()].load(std::memory_order_acquire))
    return *open;
  const std::lock_guard lock(streams.mutex);
  std::unique_ptr<card::Stream>& owner = streams.owners[stream.id()];
  if (!owner) {
    owner = card.create_stream(priority(stream.id()));
    if (owner->checks()) checks::begin();
    streams.streams[stream.id()].store(owner.get(), std::memory_order_release);
  }
  return *owner;
}

card::Stream& current_card_stream(c10::DeviceIndex device) { return card_stream(current(device)); }

void synchronize_device(c10::DeviceIndex device) { runtime::card(resolved(device)).synchronize(); }
void synchronize_all() {
  for (card::Card* card : runtime::open_cards()) card->synchronize();
}

}  // namespace spyre::streams
