// Device memory for tensor storages.
//
// A storage's data pointer is an opaque card handle; its context knows what the storage holds: the
// logical host elements (dtype and count) and the layout they have on the card. Memory goes back to
// the card when the storage is gone *and* no submitted work uses it; statistics count the former.
#pragma once

#include <cstdint>
#include <memory>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Storage.h>

#include "spyre/card.h"
#include "tensor/spyre_tensor_layout.h"

namespace spyre {

/// One piece of device memory. Submitted work holds a reference while it needs it.
struct Allocation {
  Allocation(c10::DeviceIndex device, std::size_t bytes);
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  const c10::DeviceIndex device;
  const std::size_t bytes;  ///< rounded to the allocation granularity
  const card::Handle handle;

 private:
  card::Card& card_;  // lives until the process ends, also when the runtime takes no more work
};

/// What a storage holds.
struct StorageContext {
  std::shared_ptr<const Allocation> allocation;  ///< null if there is nothing to hold
  SpyreTensorLayout layout;
  c10::ScalarType dtype = c10::ScalarType::Byte;
  std::int64_t numel = 0;  ///< logical elements, counted from storage offset 0
  /// Bytes as the host has them, dtype not known yet: made by the storage API, typed by the first
  /// tensor that is set to it.
  bool raw = false;

  /// Size PyTorch is told: that of the same storage on the host, so that a saved storage has no
  /// padding and a loaded one needs none. What the card holds is allocation->bytes.
  std::size_t nbytes() const;
};

/// Memory for `numel` elements of `dtype` in `layout`.
c10::DataPtr allocate_data(SpyreTensorLayout layout, c10::ScalarType dtype, std::int64_t numel,
                           c10::DeviceIndex device);
c10::Storage allocate_storage(SpyreTensorLayout layout, c10::ScalarType dtype, std::int64_t numel,
                              c10::DeviceIndex device);
/// Memory for bytes whose dtype is not known yet.
c10::DataPtr allocate_raw_data(std::size_t bytes, c10::DeviceIndex device);

/// Context of a spyre storage; throws if the storage was not made by this allocator.
StorageContext& storage_context(const c10::StorageImpl& storage);
/// Null for storages that are on the device in name only: those of fake tensors and of wrappers
/// around tensors.
const StorageContext* find_storage_context(c10::StorageImpl& storage) noexcept;

class SpyreAllocator final : public c10::DeviceAllocator {
 public:
  static SpyreAllocator& get();

  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* dest, const void* src, std::size_t count) const override;

  bool initialized() override;
  void emptyCache(c10::MempoolId_t pool = {0, 0}) override;
  void recordStream(const c10::DataPtr&, c10::Stream) override {}  // work retains what it uses
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override;
};

}  // namespace spyre
