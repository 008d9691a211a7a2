// Storages as bytes.
//
// PyTorch's storage API (save, load, deepcopy, pickling, UntypedStorage) moves untyped bytes. On
// the host side of this boundary the bytes of a spyre storage are those a CPU storage of the same
// tensor would have: elements in the host's format, in storage order. On the card they stay
// elements in device format. A storage that was created as bytes learns its dtype from the first
// tensor that is set to it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace spyre {

/// Copies in which the device tensor shows bytes (is_byte_view).
void copy_bytes_to_card(const at::Tensor& source, const at::Tensor& target);
void copy_bytes_to_host(const at::Tensor& source, const at::Tensor& target);
void copy_bytes_on_card(const at::Tensor& source, const at::Tensor& target);
void fill_bytes(const at::Tensor& target, std::uint8_t value);

/// Give a raw storage the dtype of a tensor of this geometry, re-encoding what it holds.
void adopt_dtype(const c10::Storage& storage, c10::ScalarType dtype, c10::IntArrayRef size,
                 c10::IntArrayRef stride, std::int64_t offset);

/// Put the storage's elements into another layout with room for `numel` of them, keeping what fits.
void relayout(const c10::Storage& storage, struct SpyreTensorLayout layout, std::int64_t numel);

/// UntypedStorage.resize_.
void resize_bytes(const c10::Storage& storage, std::size_t nbytes);

}  // namespace spyre
