#include "ops/random/spyre_generator.h"

#include <array>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>

#include "runtime/spyre_device_enum.h"
#include "runtime/spyre_runtime.h"

namespace spyre {
namespace {

constexpr c10::DispatchKeySet kKeys{c10::DispatchKey::PrivateUse1};

c10::DeviceIndex checked(c10::DeviceIndex device) {
  const int count = static_cast<int>(visible_devices().cards.size());
  TORCH_CHECK(count > 0, "No Spyre devices available. Cannot create generator.");
  if (device < 0) return runtime::current_device();
  TORCH_CHECK_INDEX(device < count, "Spyre device index is invalid: ", static_cast<int>(device),
                    ", there are ", count, ".");
  return device;
}

}  // namespace

SpyreGeneratorImpl::SpyreGeneratorImpl(c10::DeviceIndex device, at::Generator host)
    : GeneratorImpl(c10::Device(c10::DeviceType::PrivateUse1, device), kKeys),
      host_(std::move(host)) {}

void SpyreGeneratorImpl::set_current_seed(std::uint64_t seed) { host_.set_current_seed(seed); }
std::uint64_t SpyreGeneratorImpl::current_seed() const { return host_.current_seed(); }
std::uint64_t SpyreGeneratorImpl::seed() { return host_.seed(); }

void SpyreGeneratorImpl::set_offset(std::uint64_t) {
  TORCH_CHECK(false, "Spyre Generator does not use offset");
}
std::uint64_t SpyreGeneratorImpl::get_offset() const {
  TORCH_CHECK(false, "Spyre Generator does not use offset");
}

c10::intrusive_ptr<c10::TensorImpl> SpyreGeneratorImpl::get_state() const {
  return host_.get_state().getIntrusivePtr();
}

void SpyreGeneratorImpl::set_state(const c10::TensorImpl& state) {
  const std::int64_t expected = host_.get_state().numel();
  TORCH_CHECK(state.device().is_cpu() && state.dtype() == c10::ScalarType::Byte,
              "RNG state must be a torch.ByteTensor on the CPU, as torch.spyre.get_rng_state() "
              "returns it.");
  TORCH_CHECK(state.numel() == expected, "Expected a SpyreGeneratorImplState of size ", expected,
              " but found the input RNG state size to be ", state.numel());
  host_.unsafeGetGeneratorImpl()->set_state(state);
}

SpyreGeneratorImpl* SpyreGeneratorImpl::clone_impl() const {
  return new SpyreGeneratorImpl(device().index(), host_.clone());
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  struct Slot {
    std::once_flag once;
    at::Generator generator;
  };
  static auto& slots = *new std::array<Slot, kMaxDevices>;  // leaked: used until the process ends
  const c10::DeviceIndex index = checked(device);
  Slot& slot = slots[index];
  std::call_once(slot.once, [&] {
    slot.generator =
        at::make_generator<SpyreGeneratorImpl>(index, at::detail::createCPUGenerator());
    slot.generator.seed();
  });
  return slot.generator;
}

at::Generator new_generator(c10::DeviceIndex device) {
  return at::make_generator<SpyreGeneratorImpl>(checked(device), at::detail::createCPUGenerator());
}

void seed_all(std::uint64_t seed) {
  // A bad environment leaves no device to seed: programs that only use the CPU go on.
  const int count = visible_device_count();
  for (int device = 0; device < count; ++device) {
    at::Generator generator = default_generator(static_cast<c10::DeviceIndex>(device));
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed);
  }
}

}  // namespace spyre
