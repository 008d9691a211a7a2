// Random numbers: one generator per device. The numbers come from the same Mersenne twister and
// distributions as the CPU's, so a seed gives the numbers it gives on the CPU, rounded to the
// device format.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

namespace spyre {

class SpyreGeneratorImpl final : public c10::GeneratorImpl {
 public:
  explicit SpyreGeneratorImpl(c10::DeviceIndex device, at::Generator host);

  void set_current_seed(std::uint64_t seed) override;
  void set_offset(std::uint64_t offset) override;
  std::uint64_t get_offset() const override;
  std::uint64_t current_seed() const override;
  std::uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

  /// The CPU generator behind it. Hold mutex_ while drawing from it.
  at::Generator& host() { return host_; }

 private:
  SpyreGeneratorImpl* clone_impl() const override;

  at::Generator host_;
};

/// Lives for the whole process; starts nothing on the card.
const at::Generator& default_generator(c10::DeviceIndex device);
at::Generator new_generator(c10::DeviceIndex device);
void seed_all(std::uint64_t seed);

}  // namespace spyre
