#include "spyre_tensor_impl.h"

#include <c10/core/MemoryFormat.h>
#include <c10/util/strides.h>

#include "spyre_dtypes.h"

namespace spyre {

SpyreTensorImpl::SpyreTensorImpl(c10::Storage&& storage, caffe2::TypeMeta dtype)
    : TensorImpl(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype) {}

SpyreTensorImpl::SpyreTensorImpl(ImplType view, c10::Storage&& storage, c10::DispatchKeySet keys,
                                 caffe2::TypeMeta dtype)
    : TensorImpl(view, std::move(storage), keys, dtype) {}

template <typename Version>
c10::intrusive_ptr<c10::TensorImpl> SpyreTensorImpl::detached(Version&& version,
                                                              bool allow_metadata_change) const {
  auto copy =
      c10::make_intrusive<SpyreTensorImpl>(VIEW, c10::Storage(storage()), key_set(), dtype());
  copy_tensor_metadata(this, copy.get(), std::forward<Version>(version), allow_metadata_change);
  copy->refresh_numel();
  copy->refresh_contiguous();
  copy->own_layout = own_layout;
  return copy;
}

c10::intrusive_ptr<c10::TensorImpl> SpyreTensorImpl::shallow_copy_and_detach(
    const c10::VariableVersion& version, bool allow_metadata_change) const {
  return detached(version, allow_metadata_change);
}

c10::intrusive_ptr<c10::TensorImpl> SpyreTensorImpl::shallow_copy_and_detach(
    c10::VariableVersion&& version, bool allow_metadata_change) const {
  return detached(std::move(version), allow_metadata_change);
}

void SpyreTensorImpl::shallow_copy_from(const c10::intrusive_ptr<c10::TensorImpl>& source) {
  TensorImpl::shallow_copy_from(source);
  const auto* other = dynamic_cast<const SpyreTensorImpl*>(source.get());
  own_layout = other ? other->own_layout : std::nullopt;
}

at::Tensor make_tensor(c10::Storage storage, c10::ScalarType dtype, c10::IntArrayRef size,
                       c10::IntArrayRef stride, std::int64_t offset) {
  auto impl =
      c10::make_intrusive<SpyreTensorImpl>(std::move(storage), c10::scalarTypeToTypeMeta(dtype));
  impl->set_sizes_and_strides(size, stride, offset);
  return at::Tensor(std::move(impl));
}

at::Tensor make_view(const at::Tensor& base, c10::IntArrayRef size, c10::IntArrayRef stride,
                     std::int64_t offset) {
  auto impl = c10::make_intrusive<SpyreTensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(base.storage()), base.key_set(), base.dtype());
  impl->set_sizes_and_strides(size, stride, offset);
  if (const auto* source = dynamic_cast<const SpyreTensorImpl*>(base.unsafeGetTensorImpl()))
    impl->own_layout = source->own_layout;
  return at::Tensor(std::move(impl));
}

c10::DimVector strides_of(c10::IntArrayRef size, c10::MemoryFormat format) {
  if (format == c10::MemoryFormat::ChannelsLast) {
    TORCH_CHECK(size.size() == 4, "required rank 4 tensor to use channels_last format");
    return c10::DimVector(c10::get_channels_last_strides_2d(size));
  }
  if (format == c10::MemoryFormat::ChannelsLast3d) {
    TORCH_CHECK(size.size() == 5, "required rank 5 tensor to use channels_last_3d format");
    return c10::DimVector(c10::get_channels_last_strides_3d(size));
  }
  return c10::contiguous_strides(size);
}

StorageContext& storage_context(const at::TensorBase& tensor) {
  TORCH_CHECK(is_spyre(tensor), "expected a tensor on a spyre device, got one on ", tensor.device(),
              "; move it with .to('spyre').");
  return storage_context(*tensor.storage().unsafeGetStorageImpl());
}

bool has_own_layout(const at::TensorBase& tensor) {
  const auto* impl = dynamic_cast<const SpyreTensorImpl*>(tensor.unsafeGetTensorImpl());
  return impl && impl->own_layout;
}

const SpyreTensorLayout& layout_of(const at::TensorBase& tensor) {
  if (has_own_layout(tensor))
    return *static_cast<const SpyreTensorImpl*>(tensor.unsafeGetTensorImpl())->own_layout;
  return storage_context(tensor).layout;
}

void set_own_layout(const at::Tensor& tensor, SpyreTensorLayout layout) {
  auto* impl = dynamic_cast<SpyreTensorImpl*>(tensor.unsafeGetTensorImpl());
  TORCH_CHECK(impl, "expected a tensor on a spyre device, got one on ", tensor.device(), ".");
  impl->own_layout = std::move(layout);
}

bool is_byte_view(const at::TensorBase& tensor) {
  if (has_own_layout(tensor)) return false;
  const StorageContext& context = storage_context(tensor);
  return context.raw ||
         (tensor.scalar_type() == c10::ScalarType::Byte && context.dtype != c10::ScalarType::Byte);
}

}  // namespace spyre
