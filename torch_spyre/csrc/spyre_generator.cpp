#include "spyre_generator.h"

#include <array>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randperm.h>
#include <torch/library.h>

#include "spyre_device_enum.h"
#include "spyre_runtime.h"

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

// ------------------------------------------------------------------------------------ random fills

namespace {

using Gen = std::optional<at::Generator>;

at::Generator chosen(const Gen& generator, c10::Device device) {
  if (!generator || !generator->defined()) return default_generator(device.index());
  TORCH_CHECK(generator->device() == device, "Expected a '", device,
              "' generator device but found '", generator->device(), "'");
  return *generator;
}

/// Draws values on the host, in the dtype of `self`, and sends them.
template <typename Draw>
at::Tensor& draw_into(at::Tensor& self, const Gen& generator, Draw&& draw) {
  at::Generator source = chosen(generator, self.device());
  at::Tensor host = at::empty(self.sizes(), self.options().device(c10::kCPU));
  {
    const std::lock_guard lock(source.mutex());
    draw(host, source.get<SpyreGeneratorImpl>()->host());
  }
  self.copy_(host);
  return self;
}

at::Tensor& uniform_(at::Tensor& self, double from, double to, Gen generator) {
  return draw_into(self, generator, [&](auto& t, auto& g) { t.uniform_(from, to, g); });
}
at::Tensor& normal_(at::Tensor& self, double mean, double std, Gen generator) {
  return draw_into(self, generator, [&](auto& t, auto& g) { t.normal_(mean, std, g); });
}
at::Tensor& random_(at::Tensor& self, Gen generator) {
  return draw_into(self, generator, [&](auto& t, auto& g) { t.random_(g); });
}
at::Tensor& random_to(at::Tensor& self, std::int64_t to, Gen generator) {
  return draw_into(self, generator, [&](auto& t, auto& g) { t.random_(to, g); });
}
at::Tensor& random_from(at::Tensor& self, std::int64_t from, std::optional<std::int64_t> to,
                        Gen generator) {
  return draw_into(self, generator, [&](auto& t, auto& g) { t.random_(from, to, g); });
}
at::Tensor& bernoulli_float(at::Tensor& self, double p, Gen generator) {
  return draw_into(self, generator, [&](auto& t, auto& g) { t.bernoulli_(p, g); });
}
at::Tensor& bernoulli_tensor(at::Tensor& self, const at::Tensor& p, Gen generator) {
  return draw_into(self, generator, [&](auto& t, auto& g) { t.bernoulli_(p.cpu(), g); });
}
at::Tensor bernoulli(const at::Tensor& p, Gen generator) {
  at::Tensor self = at::empty(p.sizes(), p.options());
  return bernoulli_tensor(self, p, generator);
}
at::Tensor& exponential_(at::Tensor& self, double lambda, Gen generator) {
  return draw_into(self, generator, [&](auto& t, auto& g) { t.exponential_(lambda, g); });
}
at::Tensor& geometric_(at::Tensor& self, double p, Gen generator) {
  return draw_into(self, generator, [&](auto& t, auto& g) { t.geometric_(p, g); });
}
at::Tensor& cauchy_(at::Tensor& self, double median, double sigma, Gen generator) {
  return draw_into(self, generator, [&](auto& t, auto& g) { t.cauchy_(median, sigma, g); });
}
at::Tensor& log_normal_(at::Tensor& self, double mean, double std, Gen generator) {
  return draw_into(self, generator, [&](auto& t, auto& g) { t.log_normal_(mean, std, g); });
}
at::Tensor& randperm_out(std::int64_t n, Gen generator, at::Tensor& out) {
  out.resize_({n});
  return draw_into(out, generator,
                   [&](auto& t, auto& g) { t.copy_(at::randperm(n, g, t.options())); });
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("uniform_", &uniform_);
  library.impl("normal_", &normal_);
  library.impl("random_", &random_);
  library.impl("random_.to", &random_to);
  library.impl("random_.from", &random_from);
  library.impl("bernoulli", &bernoulli);
  library.impl("bernoulli_.float", &bernoulli_float);
  library.impl("bernoulli_.Tensor", &bernoulli_tensor);
  library.impl("exponential_", &exponential_);
  library.impl("geometric_", &geometric_);
  library.impl("cauchy_", &cauchy_);
  library.impl("log_normal_", &log_normal_);
  library.impl("randperm.generator_out", &randperm_out);
}

}  // namespace spyre
