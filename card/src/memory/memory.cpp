#include "memory/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>

#include "host/environment.h"

namespace spyre::card {

namespace {

/// Of the host: 4 KiB, on some aarch64 64.
std::uint64_t page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// First touch of 32 MiB costs 14 ms in 4 KiB pages and 5.5 ms in huge ones (measured), so tensors
// get huge pages, and memory goes back in the same unit: giving back half a huge page splits it,
// and the range would be refilled in small pages for good.
constexpr std::uint64_t kHugePage = std::uint64_t{2} << 20;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

std::uint64_t usable(std::uint64_t card_bytes, std::uint64_t segments) {
  const std::uint64_t bytes = std::min<std::uint64_t>(card_bytes, segments * kSegmentBytes);
  return bytes / kAllocationGranularity * kAllocationGranularity;
}

constexpr std::uint64_t kWarmProgramBytes = std::uint64_t{1} << 20;

const char* kind_name(MemoryKind kind) { return kind == MemoryKind::tensor ? "tensor" : "program"; }

std::uint64_t unit_of(MemoryKind kind) {
  return kind == MemoryKind::tensor ? kHugePage : page_bytes();
}

}  // namespace

// ------------------------------------------------------------------------------------ Reservation

Reservation::Reservation(std::uint64_t bytes, int protection, std::uint64_t alignment)
    : mapped_bytes_(round_up(bytes, alignment) + alignment) {
  void* const mapping =
      mmap(nullptr, mapped_bytes_, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    const std::string reason = std::strerror(errno);
    throw Error(ErrorCode::unavailable,
                "cannot reserve " + bytes_text(mapped_bytes_) +
                    " of address space for the memory of a software card: " + reason +
                    ". Set SPYRE_CARD_MEMORY to less (for example 4G; a card reserves about twice "
                    "its memory, and for less than 16G four times), or raise the limit "
                    "(ulimit -v, vm.overcommit_memory)");
  }
  mapping_ = static_cast<std::byte*>(mapping);
  begin_ =
      reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(mapping), alignment));
}

Reservation Reservation::inaccessible(std::uint64_t bytes) {
  return Reservation(bytes, PROT_NONE, page_bytes());
}

Reservation Reservation::backing(std::uint64_t bytes, bool huge_pages) {
  Reservation reservation(bytes, PROT_READ | PROT_WRITE, huge_pages ? kHugePage : page_bytes());
  // Both are advice: a kernel without huge pages is slower, not wrong.
  if (huge_pages) madvise(reservation.mapping_, reservation.mapped_bytes_, MADV_HUGEPAGE);
  madvise(reservation.mapping_, reservation.mapped_bytes_, MADV_DONTFORK);
  return reservation;
}

Reservation::Reservation(Reservation&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      begin_(other.begin_),
      mapped_bytes_(other.mapped_bytes_),
      home_(other.home_) {}

Reservation::~Reservation() {
  // A child does not have the backing; something else may lie at its address.
  if (mapping_ && home_.is_here()) munmap(mapping_, mapped_bytes_);
}

void Reservation::discard(std::uint64_t offset, std::uint64_t bytes) const {
  madvise(begin_ + offset, bytes, MADV_DONTNEED);
}

std::uint64_t Reservation::backed(std::uint64_t end) const {
  std::array<unsigned char, 16384> pages;  // 64 MiB or more at a time
  const std::uint64_t page = page_bytes();
  std::uint64_t resident = 0;
  end = round_up(end, page);
  for (std::uint64_t offset = 0; offset < end; offset += pages.size() * page) {
    const std::uint64_t bytes = std::min<std::uint64_t>(pages.size() * page, end - offset);
    if (mincore(begin_ + offset, bytes, pages.data()) != 0) break;
    resident += std::count_if(pages.begin(), pages.begin() + static_cast<long>(bytes / page),
                              [](unsigned char state) { return state & 1; });
  }
  return resident * page;
}

// ------------------------------------------------------------------------------------------ Arena

Arena::Arena(const Shape& shape)
    : shape_(shape),
      handles_(Reservation::inaccessible(shape.capacity)),
      backing_(Reservation::backing(shape.capacity, shape.kind == MemoryKind::tensor)),
      blocks_(
          {shape.capacity, kSegmentBytes, shape.warm_bytes, unit_of(shape.kind)},
          [this](std::uint64_t offset, std::uint64_t bytes) { backing_.discard(offset, bytes); }) {}

Handle Arena::allocate(std::uint64_t bytes) {
  if (bytes == 0) throw Error(ErrorCode::invalid_argument, "cannot allocate 0 bytes on a card");
  const std::lock_guard lock(mutex_);
  // The comparison comes first: rounding a number near 2^64 up would wrap around.
  if (bytes > shape_.capacity) throw out_of_memory(bytes, blocks_.usage());
  const auto offset = blocks_.allocate(round_up(bytes, kAllocationGranularity));
  if (!offset) throw out_of_memory(bytes, blocks_.usage());
  return handles_.begin() + *offset;
}

void Arena::free(Handle handle) {
  const std::lock_guard lock(mutex_);
  if (!blocks_.free(offset_of(handle))) refuse(handle);
}

Extent Arena::locate(Handle handle) const {
  const std::uint64_t offset = offset_of(handle);
  const std::lock_guard lock(mutex_);
  const auto bytes = blocks_.size_of(offset);
  if (!bytes) refuse(handle);
  return {backing_.begin() + offset, *bytes};
}

std::uint64_t Arena::device_address(Handle handle) const {
  locate(handle);
  return shape_.device_base + offset_of(handle);
}

MemoryInfo Arena::info() const {
  MemoryInfo info;
  std::uint64_t used_end;
  {
    const std::lock_guard lock(mutex_);
    const Blocks::Usage usage = blocks_.usage();
    info.capacity = shape_.capacity;
    info.free = usage.free;
    info.largest_free_block = usage.largest_free_block;
    info.allocations = usage.allocations;
    used_end = blocks_.high_water();
  }
  // Without the lock: pages may come and go anyway. Up to a whole unit, because the first touch of
  // a block backs all of the huge page it lies in.
  info.backed = backing_.backed(round_up(used_end, unit_of(shape_.kind)));
  return info;
}

void Arena::trim() {
  const std::lock_guard lock(mutex_);
  blocks_.trim();
}

std::uint64_t Arena::offset_of(Handle handle) const {
  // Of a handle below the range this wraps to a huge number, which no arena has.
  return reinterpret_cast<std::uintptr_t>(handle) -
         reinterpret_cast<std::uintptr_t>(handles_.begin());
}

std::vector<Extent> Arena::allocated() const {
  const std::lock_guard lock(mutex_);
  std::vector<Extent> extents;
  for (const auto& [offset, bytes] : blocks_.allocated())
    extents.push_back({backing_.begin() + offset, bytes});
  return extents;
}

void Arena::refuse(Handle handle) const {
  std::ostringstream message;
  message << "the handle " << handle
          << " is not an allocation of this card: it was never allocated here, or already freed";
  if (note && has(handle)) message << note(backing_.begin() + offset_of(handle));
  throw Error(ErrorCode::invalid_argument, message.str());
}

OutOfMemory Arena::out_of_memory(std::uint64_t requested, const Blocks::Usage& usage) const {
  std::ostringstream message;
  message << "Spyre card is out of " << kind_name(shape_.kind) << " memory: requested "
          << bytes_text(requested) << ", free " << bytes_text(usage.free) << ", largest free block "
          << bytes_text(usage.largest_free_block) << ", capacity " << bytes_text(shape_.capacity)
          << ". ";
  if (requested > static_cast<std::uint64_t>(kSegmentBytes)) {
    message << "One tensor cannot exceed a segment of " << short_bytes_text(kSegmentBytes)
            << ": split it";
  } else if (requested <= usage.free) {
    message << "The free memory is in smaller pieces: free large tensors before small ones, or "
               "allocate the large ones first";
  } else {
    message << "Free tensors, use smaller ones, or give the card more memory (SPYRE_CARD_MEMORY)";
  }
  return OutOfMemory(message.str(), requested, usage.free, usage.largest_free_block,
                     shape_.capacity);
}

// ----------------------------------------------------------------------------------- DeviceMemory

DeviceMemory::DeviceMemory(const MemoryLimits& limits)
    : tensors_(
          {MemoryKind::tensor, 0, usable(limits.card_bytes, kTensorSegments), limits.warm_bytes}),
      // Eager work loads and frees a small program per call: a little warm memory saves faults.
      programs_({MemoryKind::program, kProgramSegmentBase, usable(limits.card_bytes, 1),
                 std::min(limits.warm_bytes, kWarmProgramBytes)}) {}

DeviceMemory::~DeviceMemory() = default;

Handle DeviceMemory::allocate(std::uint64_t bytes, MemoryKind kind) {
  const Handle handle = (kind == MemoryKind::tensor ? tensors_ : programs_).allocate(bytes);
  if (MemoryWatcher* const now = watcher()) now->allocated(locate(handle));
  return handle;
}

void DeviceMemory::free(Handle handle) {
  if (!home_.is_here()) return;
  if (MemoryWatcher* const now = watcher()) now->freed(locate(handle));
  arena_of(handle).free(handle);
}

void DeviceMemory::start_watching(MakeWatcher make) {
  const std::lock_guard lock(checking_mutex_);
  if (checking_streams_++ > 0) return;
  if (!owned_watcher_) {
    owned_watcher_ = make(tensors_.memory(), tensors_.capacity());
    tensors_.note = [this](const std::byte* place) {
      const MemoryWatcher* const now = watcher();
      return now ? now->freed_note(place) : std::string();
    };
  }
  owned_watcher_->start(tensors_.allocated());
  watcher_.store(owned_watcher_.get(), std::memory_order_release);
}

void DeviceMemory::stop_watching() {
  const std::lock_guard lock(checking_mutex_);
  if (--checking_streams_ == 0) watcher_.store(nullptr, std::memory_order_release);
}

MemoryInfo DeviceMemory::info(MemoryKind kind) const {
  return (kind == MemoryKind::tensor ? tensors_ : programs_).info();
}

void DeviceMemory::trim() {
  tensors_.trim();
  programs_.trim();
}

const Arena& DeviceMemory::arena_of(Handle handle) const {
  return programs_.has(handle) ? programs_ : tensors_;  // tensors_ refuses what is nobody's
}

Arena& DeviceMemory::arena_of(Handle handle) {
  return programs_.has(handle) ? programs_ : tensors_;
}

}  // namespace spyre::card
