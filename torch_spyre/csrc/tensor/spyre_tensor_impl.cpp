#include "tensor/spyre_tensor_impl.h"

#include <c10/core/MemoryFormat.h>
#include <c10/util/strides.h>

namespace spyre {
namespace {

/// PyTorch copies it with the rest of what a tensor is, to views and to `parameter.data`.
struct OwnLayout final : c10::BackendMeta {
  explicit OwnLayout(SpyreTensorLayout its) : layout(std::move(its)) {}
  const SpyreTensorLayout layout;
};

const OwnLayout* own_layout(const at::TensorBase& tensor) {
  return static_cast<const OwnLayout*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
}

}  // namespace

at::Tensor make_tensor(c10::Storage storage, c10::ScalarType dtype, c10::IntArrayRef size,
                       c10::IntArrayRef stride, std::int64_t offset) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(dtype));
  impl->set_sizes_and_strides(size, stride, offset);
  return at::Tensor(std::move(impl));
}

at::Tensor make_view(const at::Tensor& base, c10::IntArrayRef size, c10::IntArrayRef stride,
                     std::int64_t offset) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(base.storage()), base.key_set(), base.dtype());
  impl->set_sizes_and_strides(size, stride, offset);
  if (has_own_layout(base))
    impl->set_backend_meta(base.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr());
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

bool lies_on_card(const at::TensorBase& tensor) noexcept {
  const c10::Storage& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  return storage && find_storage_context(*storage.unsafeGetStorageImpl()) != nullptr;
}

bool has_own_layout(const at::TensorBase& tensor) { return own_layout(tensor) != nullptr; }

const SpyreTensorLayout& layout_of(const at::TensorBase& tensor) {
  if (const OwnLayout* own = own_layout(tensor)) return own->layout;
  return storage_context(tensor).layout;
}

void set_own_layout(const at::Tensor& tensor, SpyreTensorLayout layout) {
  TORCH_CHECK(is_spyre(tensor), "expected a tensor on a spyre device, got one on ", tensor.device(),
              ".");
  tensor.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<OwnLayout>(std::move(layout)));
}

void forget_own_layout(const at::Tensor& tensor) {
  if (has_own_layout(tensor)) tensor.unsafeGetTensorImpl()->set_backend_meta(nullptr);
}

bool is_byte_view(const at::TensorBase& tensor) {
  if (has_own_layout(tensor)) return false;
  const StorageContext& context = storage_context(tensor);
  return context.raw ||
         (tensor.scalar_type() == c10::ScalarType::Byte && context.dtype != c10::ScalarType::Byte);
}

}  // namespace spyre
