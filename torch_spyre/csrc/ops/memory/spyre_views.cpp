// Views: new sizes and strides over the same storage, never a copy. And the in-place operations
// that change what a tensor points at: set_, resize_.
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/empty.h>
#include <c10/util/strides.h>
#include <torch/library.h>

#include "ops/memory/spyre_copy.h"
#include "ops/memory/spyre_layout_api.h"
#include "ops/memory/spyre_storage.h"
#include "runtime/spyre_runtime.h"
#include "tensor/spyre_dtypes.h"
#include "tensor/spyre_tensor_impl.h"
#include "tensor/spyre_tiling.h"

namespace spyre {
namespace {

void check_geometry(c10::IntArrayRef size, c10::IntArrayRef stride, std::int64_t offset) {
  TORCH_CHECK(size.size() == stride.size(), "mismatch in length of strides and shape");
  for (const std::int64_t extent : size)
    TORCH_CHECK(extent >= 0, "as_strided: sizes must be non-negative, got sizes: ", size);
  for (const std::int64_t step : stride)
    TORCH_CHECK(step >= 0, "as_strided: Negative strides are not supported at the moment, got ",
                "strides: ", stride);
  TORCH_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
}

void check_in_storage(const c10::Storage& storage, c10::ScalarType dtype, c10::IntArrayRef size,
                      c10::IntArrayRef stride, std::int64_t offset) {
  check_geometry(size, stride, offset);
  const std::int64_t needed = storage_span(size, stride, offset);
  const StorageContext& context = storage_context(*storage.unsafeGetStorageImpl());
  const std::int64_t available =
      context.raw || context.dtype != dtype
          ? static_cast<std::int64_t>(storage.nbytes() / c10::elementSize(dtype))
          : context.numel;
  TORCH_CHECK(needed <= available, "setStorage: sizes ", size, ", strides ", stride,
              ", storage offset ", offset, ", and itemsize ", c10::elementSize(dtype),
              " requiring a storage size of ", needed * c10::elementSize(dtype),
              " are out of bounds for storage of size ", available * c10::elementSize(dtype));
}

at::Tensor as_strided(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride,
                      std::optional<std::int64_t> offset) {
  const std::int64_t start = offset.value_or(self.storage_offset());
  check_in_storage(self.storage(), self.scalar_type(), size, stride, start);
  return make_view(self, size, stride, start);
}

at::Tensor view(const at::Tensor& self, c10::IntArrayRef size) {
  const at::DimVector inferred = at::infer_size_dv(size, self.numel());
  const auto stride = at::detail::computeStride(self.sizes(), self.strides(), inferred);
  TORCH_CHECK(stride.has_value(),
              "view size is not compatible with input tensor's size and stride (at least one "
              "dimension spans across two contiguous subspaces). Use .reshape(...) instead.");
  return make_view(self, inferred, *stride, self.storage_offset());
}

at::Tensor reshape_alias(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride) {
  return make_view(self, size, stride, self.storage_offset());
}

at::Tensor alias(const at::Tensor& self) {
  return make_view(self, self.sizes(), self.strides(), self.storage_offset());
}

at::Tensor unfold(const at::Tensor& self, std::int64_t dimension, std::int64_t size,
                  std::int64_t step) {
  TORCH_CHECK(step > 0, "step is ", step, " but must be > 0");
  const std::int64_t dim = at::maybe_wrap_dim(dimension, self.dim(), /*wrap_scalar=*/true);
  const std::int64_t extent = self.dim() == 0 ? 1 : self.size(dim);
  TORCH_CHECK(size >= 0 && size <= extent, "maximum size for tensor at dimension ", dim, " is ",
              extent, " but size is ", size);
  at::DimVector sizes(self.sizes()), strides(self.strides());
  sizes.push_back(size);
  strides.push_back(self.dim() == 0 ? 1 : self.stride(dim));
  if (self.dim() > 0) {
    sizes[dim] = (extent - size) / step + 1;
    TORCH_CHECK(!__builtin_mul_overflow(self.stride(dim), step, &strides[dim]), "step is ", step,
                ", and the strides ", self.strides(), " cannot be multiplied by it");
  }
  return make_view(self, sizes, strides, self.storage_offset());
}

/// Only formats that hold the host's bits unchanged can be seen as another dtype of that width.
at::Tensor view_dtype(const at::Tensor& self, c10::ScalarType dtype) {
  if (dtype == self.scalar_type()) return spyre::alias(self);
  const DtypeInfo &from = dtype_info(self.scalar_type()), &to = dtype_info(dtype);
  const bool same_bits = from.host == from.device && to.host == to.device &&
                         to.device != DataFormat::INVALID &&
                         format_info(from.device).bits == format_info(to.device).bits;
  TORCH_CHECK_NOT_IMPLEMENTED(
      static_cast<std::size_t>(self.element_size()) == c10::elementSize(dtype), "view(torch.",
      dtype_name(dtype), ") of a torch.", dtype_name(self.scalar_type()),
      " tensor on spyre: only dtypes of the same width can be reinterpreted in place. Use "
      "x.cpu().view(dtype).to('spyre').");
  TORCH_CHECK_NOT_IMPLEMENTED(
      same_bits, "view(torch.", dtype_name(dtype), ") of a torch.", dtype_name(self.scalar_type()),
      " tensor on spyre: the card does not hold the host's bits of these dtypes (float16 and "
      "bfloat16 are DLFloat16 there), so they cannot be reinterpreted in place. Use "
      "x.cpu().view(dtype).to('spyre'), or x.to(dtype) to convert values.");
  auto impl =
      c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(self.storage()),
                                           self.key_set(), c10::scalarTypeToTypeMeta(dtype));
  impl->set_sizes_and_strides(self.sizes(), self.strides(), self.storage_offset());
  at::Tensor result(std::move(impl));
  SpyreTensorLayout layout = layout_of(self);
  layout.device_dtype = to.device;
  set_own_layout(result, std::move(layout));
  return result;
}

at::Tensor& set_storage(at::Tensor& self, c10::Storage source, std::int64_t offset,
                        c10::IntArrayRef size, c10::IntArrayRef stride) {
  TORCH_CHECK(source.device() == self.device(),
              "Attempted to set the storage of a tensor on device ", self.device(),
              " to a storage on different device ", source.device(),
              ". Copy it with .to(device) instead.");
  c10::DimVector packed;
  if (stride.empty() && !size.empty()) {
    check_sizes(size);
    packed = c10::contiguous_strides(size);
    stride = packed;
  }
  const StorageContext& context = storage_context(*source.unsafeGetStorageImpl());
  const auto dtype = self.scalar_type(), held = context.dtype;
  TORCH_CHECK(context.raw || held == dtype || dtype == c10::ScalarType::Byte,
              "set_: the storage holds ", dtype_name(held),
              " elements in device format, which cannot be read as ", dtype_name(dtype),
              ". Convert with .to(dtype) instead.");
  check_in_storage(source, dtype, size, stride, offset);
  if (context.raw && dtype != c10::ScalarType::Byte)
    adopt_dtype(source, dtype, size, stride, offset);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  forget_own_layout(self);
  impl->set_sizes_and_strides(size, stride, offset);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, c10::Storage source) {
  const StorageContext& context = storage_context(*source.unsafeGetStorageImpl());
  const std::int64_t numel = context.dtype == self.scalar_type() && !context.raw
                                 ? context.numel
                                 : static_cast<std::int64_t>(source.nbytes() / self.element_size());
  return set_storage(self, std::move(source), 0, {numel}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  TORCH_CHECK(self.scalar_type() == source.scalar_type(), "set_: expected a ",
              dtype_name(self.scalar_type()), " tensor, got ", dtype_name(source.scalar_type()),
              ".");
  set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
  if (has_own_layout(source)) set_own_layout(self, layout_of(source));
  return self;
}

at::Tensor& set_nothing(at::Tensor& self) {
  const at::Tensor fresh = at::empty({0}, self.options());
  return set_tensor(self, fresh);
}

bool is_set_to(const at::Tensor& self, const at::Tensor& other) {
  return self.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() &&
         self.storage_offset() == other.storage_offset() && self.sizes() == other.sizes() &&
         self.strides() == other.strides();
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size,
                          std::optional<c10::MemoryFormat> format) {
  const auto wanted = format.value_or(c10::MemoryFormat::Contiguous);
  TORCH_CHECK(wanted != c10::MemoryFormat::Preserve, "Unsupported memory format", wanted);
  if (self.sizes() == size && (!format || self.is_contiguous(wanted))) return self;
  check_sizes(size);
  const c10::DimVector stride = strides_of(size, wanted);
  const std::int64_t offset = self.storage_offset(), span = storage_span(size, stride, offset);
  StorageContext& context = storage_context(self);
  const bool fits = span <= context.numel && Tiling(layout_of(self)).reaches(size, stride, offset);
  if (!fits) {
    TORCH_CHECK(
        !has_own_layout(self),
        "resize_: this tensor shares its memory under a layout of its own; clone it first.");
    const std::int64_t before = context.numel, numel = std::max(span, before);
    relayout(self.storage(),
             numel == span && offset == 0
                 ? default_layout(size, stride, self.scalar_type())
                 : SpyreTensorLayout::flat(numel, device_format(self.scalar_type())),
             numel);
    if (numel > before)
      fill_uninitialised(make_tensor(self.storage(), self.scalar_type(), {numel}, {1})
                             .narrow(0, before, numel - before));
  }
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  return self;
}

/// Whether `self.data = from` works, by which Module.to keeps its parameters: for dense tensors,
/// be they on the card, on the host or without data.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto plain = [](const at::Tensor& tensor) {
    const c10::Device device = tensor.device();
    return tensor.layout() == c10::kStrided && !tensor.is_quantized() &&
           !tensor.key_set().has(c10::DispatchKey::Python) &&
           (is_spyre(tensor) || device.is_cpu() || device.is_meta());
  };
  const bool ours = (is_spyre(self) || is_spyre(from)) && plain(self) && plain(from);
  return ours || self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

/// A copy at once: copy-on-write is for memory that PyTorch itself can read.
at::Tensor lazy_clone(const at::Tensor& self) {
  const StorageContext& context = storage_context(self);
  if (has_own_layout(self) || is_byte_view(self)) return self.clone();
  const at::Tensor all = make_view(self, {context.numel}, {1}, 0).clone();
  return make_view(all, self.sizes(), self.strides(), self.storage_offset());
}

}  // namespace

// Of two devices the one without data is asked. All else gets the answer that it had.
TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
  library.impl("_lazy_clone", &lazy_clone);
  library.impl("as_strided", &as_strided);
  library.impl("view", &view);
  library.impl("view.dtype", &view_dtype);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("alias", &alias);
  library.impl("unfold", &unfold);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
  library.impl("set_.source_Storage", &set_whole_storage);
  library.impl("set_.source_Tensor", &set_tensor);
  library.impl("set_", &set_nothing);
  library.impl("is_set_to", &is_set_to);
  library.impl("resize_", &resize_);
}

// --------------------------------------------------------------------- views with a layout of
// their own

namespace {

void check_layout_fits(const at::Tensor& tensor, c10::IntArrayRef size, c10::IntArrayRef stride,
                       std::int64_t offset, const SpyreTensorLayout& layout) {
  check_geometry(size, stride, offset);
  check_format(layout, tensor.scalar_type());
  const StorageContext& context = storage_context(tensor);
  const std::int64_t held =
      context.allocation ? static_cast<std::int64_t>(context.allocation->bytes) : 0;
  TORCH_CHECK_VALUE(layout.bytes() <= held, layout.str(), " needs ", layout.bytes(),
                    " bytes; the tensor's memory has ", held, ".");
  TORCH_CHECK_VALUE(Tiling(layout).reaches(size, stride, offset),
                    "Invalid device sizes and stride map for host sizes and strides: ",
                    layout.str(), " has no place for some elements of a tensor of size ", size,
                    ", strides ", stride, " and offset ", offset, ".");
}

}  // namespace

SpyreTensorLayout get_layout(const at::Tensor& tensor) {
  storage_context(tensor);
  return layout_of(tensor);
}

void set_layout(const at::Tensor& tensor, const SpyreTensorLayout& layout) {
  check_layout_fits(tensor, tensor.sizes(), tensor.strides(), tensor.storage_offset(), layout);
  set_own_layout(tensor, layout);
}

at::Tensor as_strided_with_layout(const at::Tensor& self, c10::IntArrayRef size,
                                  c10::IntArrayRef stride, std::int64_t offset,
                                  const SpyreTensorLayout& layout) {
  check_layout_fits(self, size, stride, offset, layout);
  at::Tensor result = make_view(self, size, stride, offset);
  if (layout != layout_of(self)) set_own_layout(result, layout);
  return result;
}

namespace {

std::int64_t moved_offset(const at::Tensor& self, std::int64_t increment) {
  std::int64_t offset = 0;
  TORCH_CHECK(!__builtin_add_overflow(self.storage_offset(), increment, &offset),
              "Tensor: invalid storage offset ", self.storage_offset(), " + ", increment);
  return offset;
}

}  // namespace

at::Tensor reinterpret_tensor(const at::Tensor& self, c10::IntArrayRef size,
                              c10::IntArrayRef stride, std::int64_t offset_increment) {
  return spyre::as_strided(self, size, stride, moved_offset(self, offset_increment));
}

at::Tensor reinterpret_tensor_with_layout(const at::Tensor& self, c10::IntArrayRef size,
                                          c10::IntArrayRef stride, std::int64_t offset_increment,
                                          const SpyreTensorLayout& layout) {
  return as_strided_with_layout(self, size, stride, moved_offset(self, offset_increment), layout);
}

}  // namespace spyre
