// The layout functions that Python and generated code call.
#pragma once

#include <ATen/core/Tensor.h>

#include "tensor/spyre_tensor_layout.h"

namespace spyre {

SpyreTensorLayout get_layout(const at::Tensor& tensor);
/// Reads and writes of this tensor use `layout` from now on; nothing moves.
void set_layout(const at::Tensor& tensor, const SpyreTensorLayout& layout);

/// Until it is set again on this thread, new row-major matrices have their rows in the stick, as
/// the matrix unit reads weights. Returns what it was.
bool turn_weights(bool turned);

/// In the default layout; without dispatch, as generated code allocates.
at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, c10::ScalarType dtype,
                         std::int64_t device);
at::Tensor empty_with_layout(c10::IntArrayRef size, const SpyreTensorLayout& layout,
                             c10::ScalarType dtype, std::optional<c10::Device> device,
                             bool pin_memory, std::optional<c10::MemoryFormat> format);
at::Tensor empty_strided_with_layout(c10::IntArrayRef size, c10::IntArrayRef stride,
                                     c10::ScalarType dtype, const SpyreTensorLayout& layout,
                                     std::optional<c10::Device> device = std::nullopt);

/// Views of the same memory; with a layout, under that one instead of the tensor's.
at::Tensor as_strided_with_layout(const at::Tensor& self, c10::IntArrayRef size,
                                  c10::IntArrayRef stride, std::int64_t offset,
                                  const SpyreTensorLayout& layout);
at::Tensor reinterpret_tensor(const at::Tensor& self, c10::IntArrayRef size,
                              c10::IntArrayRef stride, std::int64_t offset_increment);
at::Tensor reinterpret_tensor_with_layout(const at::Tensor& self, c10::IntArrayRef size,
                                          c10::IntArrayRef stride, std::int64_t offset_increment,
                                          const SpyreTensorLayout& layout);

}  // namespace spyre
