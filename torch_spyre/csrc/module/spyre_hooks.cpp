#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "module/bindings.h"
#include "ops/memory/spyre_storage.h"
#include "ops/random/spyre_generator.h"
#include "runtime/spyre_device_enum.h"
#include "runtime/spyre_pinned.h"
#include "runtime/spyre_runtime.h"

namespace spyre {
namespace {

struct SpyreHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return visible_device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return runtime::started(); }
  void init() const override { runtime::start(); }

  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(visible_device_count());
  }
  void setCurrentDevice(c10::DeviceIndex device) const override { runtime::set_device(device); }
  c10::DeviceIndex getCurrentDevice() const override { return runtime::current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return runtime::exchange_device(device);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? runtime::current_device() : runtime::exchange_device(device);
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return new_generator(device);
  }

  bool isPinnedPtr(const void* pointer) const override { return is_pinned(pointer); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &host_allocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    resize_bytes(storage, bytes);
  }
};

}  // namespace

void register_hooks() {
  static SpyreHooks& hooks = *new SpyreHooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
}

}  // namespace spyre
