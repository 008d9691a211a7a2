// SpyreTensorImpl: a tensor on the card, and the questions kernels ask about one.
//
// The layout belongs to the storage, so every view of it agrees and views cost nothing. A tensor
// may carry a layout of its own where the compiler reuses a buffer for something else.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include "spyre_allocator.h"
#include "spyre_tensor_layout.h"

namespace spyre {

class SpyreTensorImpl final : public c10::TensorImpl {
 public:
  SpyreTensorImpl(c10::Storage&& storage, caffe2::TypeMeta dtype);
  /// A view of another tensor's storage.
  SpyreTensorImpl(ImplType view, c10::Storage&& storage, c10::DispatchKeySet keys,
                  caffe2::TypeMeta dtype);

  std::optional<SpyreTensorLayout> own_layout;

  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(
      const c10::VariableVersion& version, bool allow_metadata_change) const override;
  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(
      c10::VariableVersion&& version, bool allow_metadata_change) const override;
  void shallow_copy_from(const c10::intrusive_ptr<c10::TensorImpl>& source) override;

 private:
  template <typename Version>
  c10::intrusive_ptr<c10::TensorImpl> detached(Version&& version, bool allow_metadata_change) const;
};

/// A tensor over a storage.
at::Tensor make_tensor(c10::Storage storage, c10::ScalarType dtype, c10::IntArrayRef size,
                       c10::IntArrayRef stride, std::int64_t offset = 0);

/// A view of the same storage; keeps a layout of the tensor's own.
at::Tensor make_view(const at::Tensor& base, c10::IntArrayRef size, c10::IntArrayRef stride,
                     std::int64_t offset);

/// Strides of a dense tensor in a memory format that is not "preserve".
c10::DimVector strides_of(c10::IntArrayRef size, c10::MemoryFormat format);

StorageContext& storage_context(const at::TensorBase& tensor);
const SpyreTensorLayout& layout_of(const at::TensorBase& tensor);
bool has_own_layout(const at::TensorBase& tensor);
void set_own_layout(const at::Tensor& tensor, SpyreTensorLayout layout);

/// Whether the tensor shows the storage's bytes rather than its elements (see spyre_storage.h).
bool is_byte_view(const at::TensorBase& tensor);

inline bool is_spyre(const at::TensorBase& tensor) {
  return tensor.device().type() == c10::DeviceType::PrivateUse1;
}

}  // namespace spyre
