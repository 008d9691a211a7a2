// Creating tensors: the minimum PyTorch needs (empty, empty_strided, copies, fills), and factories
// whose values the host makes and sends.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/kaiser_window.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/logspace.h>
#include <ATen/ops/range.h>
#include <ATen/ops/tril_indices.h>
#include <ATen/ops/triu_indices.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/strides.h>
#include <torch/library.h>

#include "ops/memory/spyre_copy.h"
#include "ops/memory/spyre_layout_api.h"
#include "runtime/spyre_runtime.h"
#include "tensor/spyre_tensor_impl.h"
#include "tensor/spyre_tiling.h"

namespace spyre {
namespace {

c10::DeviceIndex resolved(std::optional<c10::Device> device) {
  return runtime::device_or_current(device ? device->index() : -1);
}

void check_options(std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(c10::Layout::Strided) == c10::Layout::Strided,
                              "Non strided layout not supported: spyre tensors are strided, got ",
                              *layout, ".");
  TORCH_CHECK(!pin_memory.value_or(false),
              "Pin memory can only be on CPU: pin the host tensor with x.pin_memory() instead.");
}

at::Tensor allocate(c10::IntArrayRef size, c10::IntArrayRef stride, c10::ScalarType dtype,
                    SpyreTensorLayout layout, c10::DeviceIndex device) {
  return make_tensor(allocate_storage(std::move(layout), dtype, storage_span(size, stride), device),
                     dtype, size, stride);
}

/// With memory that users may see: see `fill_uninitialised`.
at::Tensor allocate_for_users(c10::IntArrayRef size, c10::IntArrayRef stride, c10::ScalarType dtype,
                              SpyreTensorLayout layout, c10::DeviceIndex device) {
  at::Tensor tensor = allocate(size, stride, dtype, std::move(layout), device);
  const std::int64_t span = storage_span(size, stride);
  if (span == 0 || !fills_uninitialised()) return tensor;
  // What lies between the elements has mostly a place, too, and then may be seen.
  const bool whole = Tiling(layout_of(tensor)).reaches({span}, {1}, 0);
  fill_uninitialised(whole ? make_tensor(tensor.storage(), dtype, {span}, {1}) : tensor);
  return tensor;
}

thread_local bool weights_turned = false;

SpyreTensorLayout new_layout(c10::IntArrayRef size, c10::IntArrayRef stride,
                             c10::ScalarType dtype) {
  if (weights_turned && size.size() == 2 && stride == c10::contiguous_strides(size))
    return SpyreTensorLayout(size, stride, dtype, {1, 0});
  return default_layout(size, stride, dtype);
}

at::Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                 std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                 std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> format) {
  check_options(layout, pin_memory);
  check_sizes(size);
  const c10::ScalarType type = c10::dtype_or_default(dtype);
  const c10::DimVector stride = strides_of(size, format.value_or(c10::MemoryFormat::Contiguous));
  return allocate_for_users(size, stride, type, new_layout(size, stride, type), resolved(device));
}

using LayoutOf = SpyreTensorLayout(c10::IntArrayRef, c10::IntArrayRef, c10::ScalarType);

template <LayoutOf& layout_of>
at::Tensor new_strided(c10::IntArrayRef size, c10::IntArrayRef stride, c10::ScalarType dtype,
                       c10::DeviceIndex device) {
  check_sizes(size);
  TORCH_CHECK(size.size() == stride.size(), "mismatch in length of strides and shape: ", size,
              " and ", stride);
  for (const std::int64_t step : stride)
    TORCH_CHECK(step >= 0, "empty_strided: strides must be non-negative, got ", stride);
  return allocate_for_users(size, stride, dtype, layout_of(size, stride, dtype), device);
}

at::Tensor empty_strided_op(c10::IntArrayRef size, c10::IntArrayRef stride,
                            std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                            std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  return new_strided<new_layout>(size, stride, c10::dtype_or_default(dtype), resolved(device));
}

/// A clone of a tensor that fills its storage keeps the layout; one of a view gets the default.
at::Tensor clone(const at::Tensor& self, std::optional<c10::MemoryFormat> format) {
  const StorageContext& context = storage_context(self);
  const bool whole = self.storage_offset() == 0 && self.numel() == context.numel &&
                     self.is_non_overlapping_and_dense() && !is_byte_view(self) &&
                     !has_own_layout(self);
  const bool preserve = format.value_or(c10::MemoryFormat::Preserve) == c10::MemoryFormat::Preserve;
  at::Tensor copy = whole && preserve ? allocate(self.sizes(), self.strides(), self.scalar_type(),
                                                 context.layout, self.device().index())
                                      : at::empty_like(self, self.options(), format);
  copy_from(self, copy, false);
  return copy;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  target.resize_(source.sizes());
  return copy_from(source, target, false);
}

at::Tensor& fill_scalar(at::Tensor& self, const c10::Scalar& value) {
  spyre::fill(self, value);
  return self;
}

at::Tensor& fill_tensor(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ",
              value.dim(), " dimensions.");
  copy_from(value, unexpanded(self), false);
  return self;
}

at::Tensor& zero(at::Tensor& self) {
  spyre::fill(self, 0);
  return self;
}

c10::Scalar local_scalar_dense(const at::Tensor& self) { return element_to_host(self).item(); }

/// Compiled code checks what it assumes of values; the host knows the answer before it goes on.
void assert_async(const at::Tensor& self, c10::string_view message) {
  TORCH_CHECK(element_to_host(self).item().toBool(), message);
}

void assert_async_default(const at::Tensor& self) {
  assert_async(self, "Expected Tensor with single nonzero value, but got zero");
}

/// Values that follow from a formula: made on the host, in the dtype of `out`, then sent. Any shape
/// of as many elements serves a sequence.
at::Tensor& send(at::Tensor& out, const at::Tensor& host) {
  const bool fits = host.dim() == 1 ? out.numel() == host.numel() : out.sizes() == host.sizes();
  if (!fits) out.resize_(host.sizes());
  copy_from(host.view(out.sizes()), out, false);
  return out;
}

/// Factories of the host that take these arguments, for tensors on the card.
template <class... Arguments>
struct Sent {
  using Make = at::Tensor(Arguments..., c10::TensorOptions);

  template <Make* make>
  static at::Tensor& out(Arguments... arguments, at::Tensor& out) {
    return send(out, make(arguments..., out.options().device(c10::kCPU)));
  }

  template <Make* make>
  static at::Tensor made(Arguments... arguments, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                         std::optional<bool> pin_memory) {
    check_options(layout, pin_memory);
    const auto options = c10::TensorOptions().dtype(dtype).device(c10::kCPU);
    return make(arguments..., options)
        .to(c10::Device(c10::DeviceType::PrivateUse1, resolved(device)));
  }
};

void record_stream(at::Tensor&, c10::Stream) {}  // submitted work retains the memory it uses

}  // namespace

bool turn_weights(bool turned) { return std::exchange(weights_turned, turned); }

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, c10::ScalarType dtype,
                         std::int64_t device) {
  return new_strided<default_layout>(size, stride, dtype, runtime::device_or_current(device));
}

at::Tensor empty_strided_with_layout(c10::IntArrayRef size, c10::IntArrayRef stride,
                                     c10::ScalarType dtype, const SpyreTensorLayout& layout,
                                     std::optional<c10::Device> device) {
  check_sizes(size);
  TORCH_CHECK_VALUE(!device || device->type() == c10::DeviceType::PrivateUse1,
                    "a device layout needs device='spyre', got ", *device, ".");
  TORCH_CHECK_VALUE(size.size() == stride.size(), "mismatch in length of strides and shape: ", size,
                    " and ", stride);
  check_format(layout, dtype);
  for (const std::int64_t step : stride)
    TORCH_CHECK_VALUE(step >= 0, "strides must be non-negative, got ", stride, ".");
  TORCH_CHECK_VALUE(
      Tiling(layout).reaches(size, stride, 0),
      "Invalid device sizes and stride map for host sizes and strides: ", layout.str(),
      " has no place for some elements of a tensor of size ", size, " and strides ", stride, ".");
  return allocate_for_users(size, stride, dtype, layout, resolved(device));
}

at::Tensor empty_with_layout(c10::IntArrayRef size, const SpyreTensorLayout& layout,
                             c10::ScalarType dtype, std::optional<c10::Device> device,
                             bool pin_memory, std::optional<c10::MemoryFormat> format) {
  check_options(std::nullopt, pin_memory);
  TORCH_CHECK(
      !format || *format == c10::MemoryFormat::Contiguous || *format == c10::MemoryFormat::Preserve,
      "empty_with_layout: the device layout decides where elements lie; got memory format ",
      *format, ".");
  check_sizes(size);
  return empty_strided_with_layout(size, c10::contiguous_strides(size), dtype, layout, device);
}

// Copies see a lazily negated tensor as it is and negate on the way.
TORCH_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided_op);
  library.impl("clone", &clone);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("fill_.Scalar", &fill_scalar);
  library.impl("fill_.Tensor", &fill_tensor);
  library.impl("zero_", &zero);
  library.impl("_local_scalar_dense", &local_scalar_dense);
  library.impl("_assert_async", &assert_async_default);
  library.impl("_assert_async.msg", &assert_async);
  library.impl("record_stream", &record_stream);
  using Number = const c10::Scalar&;
  using Count = std::int64_t;
  library.impl("arange.start_out", &Sent<Number, Number, Number>::out<&at::arange>);
  library.impl("range.out", &Sent<Number, Number, Number>::out<&at::range>);
  library.impl("linspace.out", &Sent<Number, Number, Count>::out<&at::linspace>);
  library.impl("logspace.out", &Sent<Number, Number, Count, double>::out<&at::logspace>);
  library.impl("eye.out", &Sent<Count>::out<&at::eye>);
  library.impl("eye.m_out", &Sent<Count, Count>::out<&at::eye>);
  library.impl("tril_indices", &Sent<Count, Count, Count>::made<&at::tril_indices>);
  library.impl("triu_indices", &Sent<Count, Count, Count>::made<&at::triu_indices>);
  library.impl("kaiser_window", &Sent<Count>::made<&at::kaiser_window>);
  library.impl("kaiser_window.periodic", &Sent<Count, bool>::made<&at::kaiser_window>);
  library.impl("kaiser_window.beta", &Sent<Count, bool, double>::made<&at::kaiser_window>);
}

}  // namespace spyre
