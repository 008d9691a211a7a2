// The outputs of ops: found, if a caller gave them, or made.
//
// A kernel takes its outputs as its last arguments, as PyTorch's out= variants do. One that is
// undefined it makes, so that other variants of the op are made of the same kernel
// (tensor/eager_variants.h).
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

/// An output that a caller gave is on the device and of the dtype.
inline void check_output(const char* name, const at::Tensor& out, at::TensorOptions options) {
  TORCH_CHECK(out.device() == options.device(),
              "Expected all tensors to be on the same device, but found at least two devices, ",
              options.device(), " and ", out.device(), "! ", name, ": give an out tensor on ",
              options.device(), ".");
  TORCH_CHECK(out.dtype() == options.dtype(), name, ": Expected out tensor to have dtype ",
              options.dtype(), ", but got ", out.dtype(), " instead");
  at::assert_no_internal_overlap(out);
}

/// Gives a given output its size. Kernels write any view, so its strides stay if its size does.
inline void resize_given(const at::Tensor& out, at::IntArrayRef size, at::TensorOptions options,
                         at::IntArrayRef stride = {}) {
  if (!at::native::resize_output(out, size)) return;
  if (!stride.empty())
    out.as_strided_(size, stride);
  else if (options.memory_format_opt())
    out.unsafeGetTensorImpl()->empty_tensor_restride(*options.memory_format_opt());
}

/// Of ops without a shape function: makes the output, or checks and resizes the one that was given.
/// With the tensors of `apart` that one has no memory in common.
inline void size_output(const char* name, at::Tensor& out, at::IntArrayRef size,
                        at::TensorOptions options, at::ArrayRef<at::Tensor> apart = {}) {
  if (!out.defined()) {
    out = at::empty(size, options);
    return;
  }
  check_output(name, out, options);
  for (const at::Tensor& input : apart) at::assert_no_overlap(out, input);
  resize_given(out, size, options);
}

/// A result of `dtype` may be written to `out`.
inline void check_cast(c10::ScalarType dtype, const at::Tensor& out) {
  TORCH_CHECK(c10::canCast(dtype, out.scalar_type()), "result type ", dtype,
              " can't be cast to the desired output type ", out.scalar_type());
}

/// The dtype of an output that may have any: that of the given one.
inline at::ScalarType output_dtype(const at::Tensor& out, at::ScalarType otherwise) {
  return out.defined() ? out.scalar_type() : otherwise;
}

/// Of ops that have no integers.
inline void check_floating(std::string_view name, const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.is_floating_point(), name, " is not implemented for ",
                              dtype_name(tensor.scalar_type()));
}

/// `Meta` (at::meta::structured_...) asks for outputs by their numbers.
template <class Meta, std::size_t count>
class Outputs final : public Meta {
 public:
  explicit Outputs(std::array<at::Tensor*, count> tensors) : tensors_(tensors) {}

  const at::Tensor& maybe_get_output(std::int64_t index) override { return *tensors_[index]; }

  void set_output_strided(std::int64_t index, at::IntArrayRef size, at::IntArrayRef stride,
                          at::TensorOptions options) override {
    set_output_raw_strided(index, size, stride, options);
  }

  void set_output_raw_strided(std::int64_t index, at::IntArrayRef size, at::IntArrayRef stride,
                              at::TensorOptions options) override {
    at::Tensor& tensor = *tensors_[index];
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
    resize_given(tensor, size, options, stride);
  }

 private:
  std::array<at::Tensor*, count> tensors_;
};

/// Runs PyTorch's own shape function of an op, which checks the arguments and says what the outputs
/// are. They have their sizes then. Returns what it worked out besides, if it did.
///
///   shape_outputs<at::meta::structured_amax>(out, self, dim, keepdim);
template <class Meta, class... Arguments>
auto shape_outputs(at::Tensor& out, const Arguments&... arguments) {
  return Outputs<Meta, 1>({&out}).meta(arguments...);
}
template <class Meta, class... Arguments>
auto shape_outputs(std::tuple<at::Tensor&, at::Tensor&> out, const Arguments&... arguments) {
  return Outputs<Meta, 2>({&std::get<0>(out), &std::get<1>(out)}).meta(arguments...);
}

}  // namespace spyre::eager
