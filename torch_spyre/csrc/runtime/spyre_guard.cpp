// What PyTorch asks of a device type: current device, streams, events.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "runtime/spyre_device_enum.h"
#include "runtime/spyre_event.h"
#include "runtime/spyre_runtime.h"
#include "runtime/spyre_stream.h"

namespace spyre {
namespace {

constexpr c10::DeviceType kSpyre = c10::DeviceType::PrivateUse1;

struct SpyreGuardImpl final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kSpyre; }

  c10::Device getDevice() const override { return {kSpyre, runtime::current_device()}; }
  void setDevice(c10::Device device) const override { runtime::set_device(device.index()); }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kSpyre, runtime::exchange_device(device.index())};
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    try {
      runtime::set_device(device.index());
    } catch (const std::exception&) {
      // Called from destructors to go back to a device that was current before: it exists.
    }
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(visible_device_count());
  }

  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = 0;
    for (const auto index :
         {c10::kIndex_Float, c10::kIndex_Half, c10::kIndex_Bool, c10::kIndex_Char, c10::kIndex_Byte,
          c10::kIndex_Short, c10::kIndex_Int, c10::kIndex_Long, c10::kIndex_BFloat16,
          c10::kIndex_Float8_e4m3fn, c10::kIndex_Float8_e5m2fnuz})
      capability.capability_data.capability_bits |= 1ULL << index;
    return capability;
  }

  c10::Stream getStream(c10::Device device) const override {
    return streams::current(device.index());
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return streams::default_stream(device.index());
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return streams::from_pool(device.index(), high_priority ? -1 : 0);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return streams::from_pool(device.index(), priority);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return streams::exchange(stream);
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return &streams::card_stream(stream);
  }
  bool queryStream(const c10::Stream& stream) const override {
    return streams::card_stream(stream).query();
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    streams::card_stream(stream).synchronize();
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    streams::synchronize_device(device);
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag flag) const override {
    events::record(event, stream, flag);
  }
  void block(void* event, const c10::Stream& stream) const override {
    events::block(event, stream);
  }
  bool queryEvent(void* event) const override { return events::query(event); }
  void synchronizeEvent(void* event) const override { events::synchronize(event); }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    return events::elapsed_ms(start, end);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    events::destroy(event);
  }
};

}  // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, SpyreGuardImpl);

}  // namespace spyre
