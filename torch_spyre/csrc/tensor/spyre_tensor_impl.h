// A tensor on the card: how one is made, and the questions kernels ask about it.
//
// It is PyTorch's own TensorImpl over a storage of ours, so that a tensor can move to the card and
// back and stay the object it is (`parameter.data = moved`). The layout belongs to the storage, so
// every view of it agrees and views cost nothing. A tensor may carry a layout of its own where the
// compiler reuses a buffer for something else.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include "tensor/spyre_allocator.h"
#include "tensor/spyre_tensor_layout.h"

namespace spyre {

/// A tensor over a storage.
at::Tensor make_tensor(c10::Storage storage, c10::ScalarType dtype, c10::IntArrayRef size,
                       c10::IntArrayRef stride, std::int64_t offset = 0);

/// A view of the same storage; keeps a layout of the tensor's own.
at::Tensor make_view(const at::Tensor& base, c10::IntArrayRef size, c10::IntArrayRef stride,
                     std::int64_t offset);

/// Strides of a dense tensor in a memory format that is not "preserve".
c10::DimVector strides_of(c10::IntArrayRef size, c10::MemoryFormat format);

StorageContext& storage_context(const at::TensorBase& tensor);
/// Not so of tensors that are on the device in name only: fake ones, wrappers around others.
bool lies_on_card(const at::TensorBase& tensor) noexcept;
const SpyreTensorLayout& layout_of(const at::TensorBase& tensor);
bool has_own_layout(const at::TensorBase& tensor);
void set_own_layout(const at::Tensor& tensor, SpyreTensorLayout layout);
void forget_own_layout(const at::Tensor& tensor);

/// Whether the tensor shows the storage's bytes rather than its elements (see spyre_storage.h).
bool is_byte_view(const at::TensorBase& tensor);

inline bool is_spyre(const at::TensorBase& tensor) {
  return tensor.device().type() == c10::DeviceType::PrivateUse1;
}

}  // namespace spyre
