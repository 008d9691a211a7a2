#include "tensor/spyre_allocator.h"

#include <Python.h>

#include <array>
#include <mutex>
#include <sstream>
#include <unordered_map>

#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>

#include "runtime/checks.h"
#include "runtime/fork_safe_mutex.h"
#include "runtime/logging.h"
#include "runtime/spyre_device_enum.h"
#include "runtime/spyre_runtime.h"
#include "runtime/spyre_stream.h"
#include "tensor/spyre_dtypes.h"

namespace spyre {
namespace {

using Stats = c10::CachingDeviceAllocator::DeviceStats;
constexpr auto kAggregate = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

/// Live storages of one device and what they add up to.
struct Ledger {
  ForkSafeMutex mutex;
  Stats stats;
  std::unordered_map<const void*, StorageContext*> live;  // by handle
};

/// Leaked: storages may be freed after static destructors have run.
Ledger& ledger(c10::DeviceIndex device) {
  static auto& ledgers = *new std::array<Ledger, kMaxDevices>;
  return ledgers[device];
}

std::string human(std::uint64_t bytes) {
  static constexpr std::array units = {"B", "KiB", "MiB", "GiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) value /= 1024, ++unit;
  std::ostringstream out;
  out.precision(2);
  out << std::fixed << value << ' ' << units[unit];
  return out.str();
}

std::string largest_consumer(c10::DeviceIndex device) {
  Ledger& book = ledger(device);
  const std::lock_guard lock(book.mutex);
  const StorageContext* largest = nullptr;
  for (const auto& [handle, context] : book.live)
    if (!largest || context->allocation->bytes > largest->allocation->bytes) largest = context;
  if (!largest) return "No tensor is alive on this device.";
  return c10::str("The largest of ", book.live.size(), " live storages holds ",
                  human(largest->allocation->bytes), ": ", largest->numel, " elements of ",
                  dtype_name(largest->dtype), " in ", largest->layout.str(), '.');
}

[[noreturn]] void throw_out_of_memory(c10::DeviceIndex device, const card::OutOfMemory& error) {
  {
    Ledger& book = ledger(device);
    const std::lock_guard lock(book.mutex);
    ++book.stats.num_ooms;
  }
  std::string reason;
  if (error.requested > static_cast<std::uint64_t>(kSegmentBytes))
    reason = " One tensor cannot be larger than a memory segment, " + human(kSegmentBytes) + '.';
  else if (error.largest_free_block < error.requested && error.free >= error.requested)
    reason = " The largest free block has " + human(error.largest_free_block) + '.';
  TORCH_CHECK_WITH(
      OutOfMemoryError, false, "Spyre out of memory on spyre:", static_cast<int>(device),
      ". Tried to allocate ", human(error.requested), " (", error.requested, " bytes); ",
      human(error.free), " of ", human(error.capacity), " are free.", reason, ' ',
      largest_consumer(device),
      " Free tensors that are no longer needed, or use a smaller model, batch or dtype.");
}

/// Some callers, of compiled graphs most of all, have the GIL: to release it for every allocation
/// would take longer than the allocation.
void synchronize_without_gil(card::Card& card) {
  struct Released {
    PyThreadState* state = Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr;
    ~Released() {
      if (state) PyEval_RestoreThread(state);
    }
  } const released;
  card.synchronize();
}

card::Handle allocate_on_card(c10::DeviceIndex device, std::size_t bytes) {
  card::Card& card = runtime::card(device);
  try {
    return card.allocate(bytes, card::MemoryKind::tensor);
  } catch (const card::OutOfMemory&) {
    // Work in flight may hold memory of tensors that are already gone.
    Ledger& book = ledger(device);
    {
      const std::lock_guard lock(book.mutex);
      ++book.stats.num_alloc_retries;
    }
    synchronize_without_gil(card);
    try {
      return card.allocate(bytes, card::MemoryKind::tensor);
    } catch (const card::OutOfMemory& error) {
      throw_out_of_memory(device, error);
    }
  }
}

std::size_t rounded(std::size_t bytes) {
  const auto grain = static_cast<std::size_t>(kAllocationGranularity);
  return (bytes + grain - 1) / grain * grain;
}

/// Books the storage in (`sign` = 1) or out (-1) and tells the profiler.
void book_storage(StorageContext& context, int sign) {
  const Allocation& memory = *context.allocation;
  Ledger& book = ledger(memory.device);
  std::size_t total = 0;
  {
    const std::lock_guard lock(book.mutex);
    const auto apply = [&](c10::CachingAllocator::StatArray& stat, std::size_t amount) {
      if (sign > 0)
        stat[kAggregate].increase(amount);
      else
        stat[kAggregate].decrease(amount);
    };
    Stats& stats = book.stats;
    apply(stats.allocation, 1);
    apply(stats.active, 1);
    apply(stats.segment, 1);
    for (auto* bytes : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes})
      apply(*bytes, memory.bytes);
    apply(stats.requested_bytes, static_cast<std::size_t>(context.layout.bytes()));
    ++(sign > 0 ? stats.num_device_alloc : stats.num_device_free);
    if (sign > 0)
      book.live[memory.handle] = &context;
    else
      book.live.erase(memory.handle);
    total = stats.allocated_bytes[kAggregate].current;
  }
  c10::reportMemoryUsageToProfiler(memory.handle, sign * static_cast<std::int64_t>(memory.bytes),
                                   total, total, {c10::DeviceType::PrivateUse1, memory.device});
}

void delete_context(void* pointer) {
  std::unique_ptr<StorageContext> context(static_cast<StorageContext*>(pointer));
  if (!context->allocation) return;
  if (runtime::in_bad_fork()) {
    // The memory belongs to the parent, and its locks may be held by threads that do not exist
    // here.
    new std::shared_ptr<const Allocation>(std::move(context->allocation));
    return;
  }
  book_storage(*context, -1);
  debug("free ", context->allocation->bytes, " bytes on device ",
        static_cast<int>(context->allocation->device));
}

c10::DataPtr make_data(std::unique_ptr<StorageContext> context, c10::DeviceIndex device) {
  const std::int64_t bytes = context->layout.bytes();
  void* handle = nullptr;
  if (bytes > 0) {
    context->allocation =
        std::make_shared<const Allocation>(device, static_cast<std::size_t>(bytes));
    handle = context->allocation->handle;
    book_storage(*context, 1);
    if (checks::anywhere.load(std::memory_order_relaxed)) [[unlikely]]
      runtime::card(device).name_allocation(handle, checks::caller());
    if (debug_enabled())  // the text of a layout takes longer than all else here
      debug("allocate ", context->allocation->bytes, " bytes on device ", static_cast<int>(device),
            ": ", context->numel, " elements of ", dtype_name(context->dtype), " in ",
            context->layout.str());
  } else {
    runtime::check_device_index(device);
    runtime::first_use();
  }
  return {handle, context.release(), &delete_context, {c10::DeviceType::PrivateUse1, device}};
}

}  // namespace

Allocation::Allocation(c10::DeviceIndex on_device, std::size_t wanted)
    : device(on_device),
      bytes(rounded(wanted)),
      handle(allocate_on_card(on_device, wanted)),
      card_(runtime::card(on_device)) {}

Allocation::~Allocation() { card_.free(handle); }

std::size_t StorageContext::nbytes() const {
  return static_cast<std::size_t>(numel) * c10::elementSize(dtype);
}

c10::DataPtr allocate_data(SpyreTensorLayout layout, c10::ScalarType dtype, std::int64_t numel,
                           c10::DeviceIndex device) {
  warn_downcast(dtype);
  auto context = std::make_unique<StorageContext>();
  context->layout = std::move(layout);
  context->dtype = dtype;
  context->numel = numel;
  return make_data(std::move(context), device);
}

c10::Storage allocate_storage(SpyreTensorLayout layout, c10::ScalarType dtype, std::int64_t numel,
                              c10::DeviceIndex device) {
  c10::DataPtr data = allocate_data(std::move(layout), dtype, numel, device);
  const std::size_t nbytes = static_cast<StorageContext*>(data.get_context())->nbytes();
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes,
                                               std::move(data), &SpyreAllocator::get(),
                                               /*resizable=*/true);
}

c10::DataPtr allocate_raw_data(std::size_t bytes, c10::DeviceIndex device) {
  auto context = std::make_unique<StorageContext>();
  const auto numel = static_cast<std::int64_t>(bytes);
  TORCH_CHECK_WITH(OutOfMemoryError, numel >= 0, "a storage of ", bytes, " bytes is too large.");
  context->layout = SpyreTensorLayout::flat(numel, DataFormat::SENINT8);
  context->numel = numel;
  context->raw = true;
  return make_data(std::move(context), device);
}

StorageContext& storage_context(const c10::StorageImpl& storage) {
  const c10::DataPtr& data = storage.data_ptr();
  if (data.get_deleter() == &delete_context)
    return *static_cast<StorageContext*>(data.get_context());
  // PyTorch wraps a data pointer without our context when it writes a storage to a file.
  if (data.device().type() == c10::DeviceType::PrivateUse1 && data.device().has_index()) {
    Ledger& book = ledger(data.device().index());
    const std::lock_guard lock(book.mutex);
    const auto found = book.live.find(data.get());
    if (found != book.live.end()) return *found->second;
  }
  TORCH_CHECK(false, "this storage on ", data.device(),
              " does not hold memory of a spyre card. Slices of device storages and memory from "
              "other libraries cannot be used; create tensors with device='spyre', move them with "
              ".to('spyre'), slice tensors instead of storages.");
}

const StorageContext* find_storage_context(c10::StorageImpl& storage) noexcept {
  const c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  return data.get_deleter() == &delete_context ? static_cast<StorageContext*>(data.get_context())
                                               : nullptr;
}

SpyreAllocator& SpyreAllocator::get() {
  static auto& instance = *new SpyreAllocator;
  return instance;
}

c10::DataPtr SpyreAllocator::allocate(std::size_t bytes) {
  return allocate_raw_data(bytes, runtime::current_device());
}

void SpyreAllocator::copy_data(void*, const void*, std::size_t) const {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "device memory is copied by tensors and storages only.");
}

bool SpyreAllocator::initialized() { return runtime::started(); }

void SpyreAllocator::emptyCache(c10::MempoolId_t) {
  if (runtime::started()) runtime::card(runtime::current_device()).trim();
}

Stats SpyreAllocator::getDeviceStats(c10::DeviceIndex device) {
  runtime::check_device_index(device);
  const std::lock_guard lock(ledger(device).mutex);
  return ledger(device).stats;
}

void SpyreAllocator::resetAccumulatedStats(c10::DeviceIndex device) {
  runtime::check_device_index(device);
  const std::lock_guard lock(ledger(device).mutex);
  Stats& stats = ledger(device).stats;
  for (auto* stat : {&stats.allocation, &stats.segment, &stats.active, &stats.allocated_bytes,
                     &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes})
    (*stat)[kAggregate].reset_accumulated();
  stats.num_alloc_retries = stats.num_ooms = stats.num_device_alloc = stats.num_device_free = 0;
}

void SpyreAllocator::resetPeakStats(c10::DeviceIndex device) {
  runtime::check_device_index(device);
  const std::lock_guard lock(ledger(device).mutex);
  Stats& stats = ledger(device).stats;
  for (auto* stat : {&stats.allocation, &stats.segment, &stats.active, &stats.allocated_bytes,
                     &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes})
    (*stat)[kAggregate].reset_peak();
}

std::pair<std::size_t, std::size_t> SpyreAllocator::getMemoryInfo(c10::DeviceIndex device) {
  const card::MemoryInfo info = runtime::card(device).memory_info(card::MemoryKind::tensor);
  return {info.free, info.capacity};
}

REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &SpyreAllocator::get());

}  // namespace spyre
