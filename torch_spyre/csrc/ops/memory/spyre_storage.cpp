#include "ops/memory/spyre_storage.h"

#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "ops/memory/spyre_copy.h"
#include "tensor/spyre_dtypes.h"
#include "tensor/spyre_tensor_impl.h"

namespace spyre {
namespace {

/// All elements of the storage, in storage order, as a tensor of its own dtype. A raw storage is
/// int8 here: the dtype whose host and device formats are the plain byte.
at::Tensor elements(const c10::Storage& storage) {
  const StorageContext& context = storage_context(*storage.unsafeGetStorageImpl());
  const auto dtype = context.raw ? c10::ScalarType::Char : context.dtype;
  at::Tensor tensor = make_tensor(storage, dtype, {context.numel}, {1});
  set_own_layout(tensor, context.layout);
  return tensor;
}

at::Tensor storage_to_host(const c10::Storage& storage) {
  const at::Tensor source = elements(storage);
  at::Tensor host = at::empty(source.sizes(), source.options().device(c10::kCPU));
  if (source.numel() > 0) copy_to_host(source, host, false);
  return host;
}

/// As many bytes of one tensor as another has room for. One without any may have no memory at all.
void copy_bytes(const at::Tensor& from, const at::Tensor& to) {
  const std::size_t count = std::min(from.nbytes(), to.nbytes());
  if (count > 0) std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), count);
}

/// The bytes a CPU storage would hold, `nbytes` of them; what no element reaches is zero.
at::Tensor bytes_of(const at::Tensor& host, std::int64_t nbytes) {
  at::Tensor bytes = at::zeros({nbytes}, host.options().dtype(c10::ScalarType::Byte));
  copy_bytes(host, bytes);
  return bytes;
}

void replace_bytes(const c10::Storage& storage, const at::Tensor& bytes) {
  const at::Tensor target = elements(storage);
  if (target.numel() == 0) return;
  const at::Tensor host = at::zeros(target.sizes(), target.options().device(c10::kCPU));
  copy_bytes(bytes, host);
  copy_to_card(host, target, false);
}

void replace_data(const c10::Storage& storage, c10::DataPtr data) {
  c10::StorageImpl& impl = *storage.unsafeGetStorageImpl();
  const std::size_t nbytes = static_cast<StorageContext*>(data.get_context())->nbytes();
  impl.set_data_ptr_noswap(std::move(data));
  impl.set_nbytes(nbytes);
}

at::Tensor host_view(const at::Tensor& bytes, const at::Tensor& like) {
  return bytes.as_strided(like.sizes(), like.strides(), like.storage_offset());
}

bool covers_storage(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.is_contiguous() &&
         static_cast<std::size_t>(tensor.numel()) == tensor.storage().nbytes();
}

/// Read, change on the host, write back. What is overwritten as a whole is not read: nobody need
/// have written it.
template <typename Change>
void change_bytes(const at::Tensor& target, Change&& change) {
  const auto nbytes = static_cast<std::int64_t>(target.storage().nbytes());
  const at::Tensor bytes = covers_storage(target)
                               ? at::empty({nbytes}, at::TensorOptions(c10::ScalarType::Byte))
                               : bytes_of(storage_to_host(target.storage()), nbytes);
  change(host_view(bytes, target));
  replace_bytes(target.storage(), bytes);
}

}  // namespace

void copy_bytes_to_host(const at::Tensor& source, const at::Tensor& target) {
  const at::Tensor bytes = bytes_of(storage_to_host(source.storage()),
                                    static_cast<std::int64_t>(source.storage().nbytes()));
  target.copy_(host_view(bytes, source));
}

void copy_bytes_to_card(const at::Tensor& source, const at::Tensor& target) {
  change_bytes(target, [&](const at::Tensor& view) { view.copy_(source); });
}

void copy_bytes_on_card(const at::Tensor& source, const at::Tensor& target) {
  StorageContext& to = storage_context(target);
  if (to.raw && covers_storage(source) && covers_storage(target) && !has_own_layout(source)) {
    // A whole storage into a fresh one, as deepcopy does: keep dtype and layout.
    const StorageContext& from = storage_context(source);
    c10::DataPtr data =
        from.raw ? allocate_raw_data(from.numel, target.device().index())
                 : allocate_data(from.layout, from.dtype, from.numel, target.device().index());
    replace_data(target.storage(), std::move(data));
    if (from.numel > 0) copy_on_card(elements(source.storage()), elements(target.storage()));
    return;
  }
  const at::Tensor host = at::empty(source.sizes(), source.options().device(c10::kCPU));
  copy_to_host(source, host, false);
  copy_to_card(host, target, false);
}

void fill_bytes(const at::Tensor& target, std::uint8_t value) {
  change_bytes(target, [&](const at::Tensor& view) { view.fill_(value); });
}

void adopt_dtype(const c10::Storage& storage, c10::ScalarType dtype, c10::IntArrayRef size,
                 c10::IntArrayRef stride, std::int64_t offset) {
  const StorageContext& context = storage_context(*storage.unsafeGetStorageImpl());
  const at::Tensor bytes = storage_to_host(storage);
  const std::int64_t numel = context.numel / static_cast<std::int64_t>(c10::elementSize(dtype));
  // A tensor that shows the whole storage gets the layout a new one would have.
  const bool whole = offset == 0 && storage_span(size, stride) == numel;
  SpyreTensorLayout layout = whole ? default_layout(size, stride, dtype)
                                   : SpyreTensorLayout::flat(numel, device_format(dtype));
  replace_data(storage, allocate_data(std::move(layout), dtype, numel, storage.device().index()));
  replace_bytes(storage, bytes);
}

void relayout(const c10::Storage& storage, SpyreTensorLayout layout, std::int64_t numel) {
  const c10::DeviceIndex device = storage.device().index();
  const StorageContext& context = storage_context(*storage.unsafeGetStorageImpl());
  const c10::Storage fresh = allocate_storage(std::move(layout), context.dtype, numel, device);
  const std::int64_t kept = std::min(numel, context.numel);
  if (kept > 0)
    copy_on_card(elements(storage).narrow(0, 0, kept), elements(fresh).narrow(0, 0, kept));
  replace_data(storage,
               fresh.unsafeGetStorageImpl()->set_data_ptr(c10::DataPtr(nullptr, storage.device())));
}

void resize_bytes(const c10::Storage& storage, std::size_t nbytes) {
  const StorageContext& context = storage_context(*storage.unsafeGetStorageImpl());
  if (context.raw) {
    const at::Tensor bytes = storage_to_host(storage);
    replace_data(storage, allocate_raw_data(nbytes, storage.device().index()));
    replace_bytes(storage, bytes);
  } else {
    const auto numel = static_cast<std::int64_t>(nbytes / c10::elementSize(context.dtype));
    relayout(storage, SpyreTensorLayout::flat(numel, device_format(context.dtype)), numel);
  }
  storage.unsafeGetStorageImpl()->set_nbytes(nbytes);
}

}  // namespace spyre
