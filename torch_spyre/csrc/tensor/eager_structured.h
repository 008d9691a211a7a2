// Outputs of structured ops. PyTorch's own shape function of an op checks the arguments and says
// what the outputs are; here it finds outputs that a caller gave, or makes them.
#pragma once

#include <array>
#include <string_view>

#include <ATen/MemoryOverlap.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include "tensor/spyre_dtypes.h"

namespace spyre::eager {

/// Of ops without a shape function: an output that a caller gave is on the device and of the dtype.
inline void check_output(const char* name, const at::Tensor& out, at::TensorOptions options) {
  TORCH_CHECK(out.device() == options.device(),
              "Expected all tensors to be on the same device, but found at least two devices, ",
              options.device(), " and ", out.device(), "! ", name, ": give an out tensor on ",
              options.device(), ".");
  TORCH_CHECK(out.dtype() == options.dtype(), name, ": Expected out tensor to have dtype ",
              options.dtype(), ", but got ", out.dtype(), " instead");
  at::assert_no_internal_overlap(out);
}

/// Of ops that have no integers.
inline void check_floating(std::string_view name, const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.is_floating_point(), name, " is not implemented for ",
                              dtype_name(tensor.scalar_type()));
}

/// Runs the shape function of `Meta` (at::meta::structured_...) for `count` outputs.
///
///   Outputs<at::meta::structured_amax> outputs(out);
///   outputs.meta(self, dim, keepdim);        // out has its size now
///   outputs[0]
template <class Meta, std::size_t count = 1>
class Outputs final : public Meta {
 public:
  template <class... Given>
  explicit Outputs(const Given&... given) : tensors_{given...} {}

  const at::Tensor& operator[](std::size_t index) const { return tensors_[index]; }

  const at::Tensor& maybe_get_output(std::int64_t index) override { return tensors_[index]; }

  void set_output_strided(std::int64_t index, at::IntArrayRef size, at::IntArrayRef stride,
                          at::TensorOptions options) override {
    set_output_raw_strided(index, size, stride, options);
  }

  /// Kernels write any view, so strides that a given output has stay if its size does.
  void set_output_raw_strided(std::int64_t index, at::IntArrayRef size, at::IntArrayRef stride,
                              at::TensorOptions options) override {
    at::Tensor& tensor = tensors_[index];
    if (!tensor.defined()) {
      // Strides say more than a memory format.
      tensor = stride.empty()
                   ? at::empty(size, options)
                   : at::empty_strided(size, stride, options.memory_format(std::nullopt));
      return;
    }
    TORCH_CHECK(options.dtype() == tensor.dtype(), "Expected out tensor to have dtype ",
                options.dtype(), ", but got ", tensor.dtype(), " instead");
    TORCH_CHECK(options.device() == tensor.device(), "Expected out tensor to have device ",
                options.device(), ", but got ", tensor.device(), " instead");
    at::assert_no_internal_overlap(tensor);
    if (!at::native::resize_output(tensor, size)) return;
    if (!stride.empty())
      tensor.as_strided_(size, stride);
    else if (options.memory_format_opt())
      tensor.unsafeGetTensorImpl()->empty_tensor_restride(*options.memory_format_opt());
  }

 private:
  std::array<at::Tensor, count> tensors_;
};

}  // namespace spyre::eager
